//! A balancer of one worker on the bench, with a configuration for tests.
#![allow(dead_code, reason = "each test program uses a part of it")]

use hotloop::engine::Routed;
use hotloop::packet::build::tcp;
use hotloop::packet::classify::classify_packet;
use hotloop::packet::ethernet::MacAddress;
use hotloop::packet::ipip::{self, Decapsulated};
use hotloop::packet::memory::MemPacket;
use hotloop::packet::seed::Seed;
use hotloop::stage::{Classified, Tagged};
use hotloop::testing::{Bench, Outcome, bench};
use ipip_lb::balance::{Balance, BalanceDrop, Egress, Egresses, Route};
use ipip_lb::config::Config;
use ipip_lb::counts::WorkerCounts;
use ipip_lb::directory::Directory;
use ipip_lb::network_function::SEED;
use std::sync::Arc;
use std::time::Duration;

pub const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 9, 1];
pub const NEXT_HOP_MAC: [u8; 6] = [2, 0, 0, 0, 9, 2];
pub const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 9, 3];

pub const CONFIG: &str = include_str!("lb.toml");

pub fn egresses() -> Egresses {
    let egress = |destination| Egress {
        route: Route(0),
        source: MacAddress::new(OWN_MAC),
        destination: MacAddress::new(destination),
    };
    Egresses { clients: egress(CLIENT_MAC), backends: egress(NEXT_HOP_MAC) }
}

pub fn classified(packet: MemPacket) -> Classified<MemPacket> {
    let layout = classify_packet(&packet, &Seed::new(SEED));
    Tagged::new(packet, layout)
}

/// The outer addresses of a tunnel packet.
pub fn tunnel_of(packet: &MemPacket) -> Decapsulated {
    ipip::decapsulate(&mut packet.clone()).expect("a tunnel packet")
}

/// What the backend to which `sent` went answers: from `vip` to `client`, in a tunnel.
pub fn reply(sent: &MemPacket, client: &str, vip: &str) -> Vec<u8> {
    let tunnel = tunnel_of(sent);
    tcp().from(vip).to(client).ttl(64).tunnelled(tunnel.destination, tunnel.source).build()
}

pub struct Lb {
    bench: Bench<Balance>,
    counts: Arc<[WorkerCounts]>,
}

pub fn lb() -> Lb {
    Lb::with("", "")
}

impl Lb {
    /// A balancer of the configuration in which `from` is replaced by `to`.
    pub fn with(from: &str, to: &str) -> Self {
        assert!(CONFIG.contains(from));
        let config = Config::parse("lb.toml", &CONFIG.replacen(from, to, 1)).unwrap();
        let directory = Arc::new(Directory::new(&config));
        let counts: Arc<[_]> = [WorkerCounts::new(&directory)].into();
        let balance = Balance::new(directory, egresses(), Arc::clone(&counts), 0, None).unwrap();
        Self { bench: bench(balance), counts }
    }

    pub fn feed_packets(
        &mut self,
        packets: impl IntoIterator<Item = MemPacket>,
    ) -> Outcome<Routed<MemPacket, Route>, BalanceDrop> {
        self.bench.feed_items(packets.into_iter().map(classified))
    }

    pub fn feed(&mut self, frames: &[Vec<u8>]) -> Outcome<Routed<MemPacket, Route>, BalanceDrop> {
        self.feed_packets(frames.iter().map(|frame| MemPacket::new(frame)))
    }

    /// Feeds a frame, out of which one packet must come.
    pub fn one(&mut self, frame: &[u8]) -> MemPacket {
        let out = self.feed(&[frame.to_vec()]);
        assert_eq!(out.packets().len(), 1, "dropped {frame:02x?}");
        out.packets()[0].packet.clone()
    }

    /// Feeds a frame and says how often it was dropped for this reason.
    pub fn dropped(&mut self, frame: &[u8], reason: BalanceDrop) -> u64 {
        self.feed(&[frame.to_vec()]).dropped(reason)
    }

    pub fn advance(&mut self, duration: Duration) {
        self.bench.advance(duration);
    }

    pub fn tick(&mut self) {
        self.bench.tick::<Classified<MemPacket>>();
    }

    pub fn connections(&self) -> usize {
        let count = self.bench.stage().connections().len();
        assert_eq!(count, self.bench.stage().connections().iter().count());
        count
    }

    pub fn admitted(&self) -> u64 {
        self.counts[0].admitted.count()
    }

    pub fn stateless(&self) -> u64 {
        self.counts[0].stateless.count()
    }

    pub fn to_clients(&self) -> u64 {
        self.counts[0].to_clients.count()
    }

    pub fn replies_known(&self) -> u64 {
        self.counts[0].replies_known.count()
    }
}
