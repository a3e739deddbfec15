//! A balancer on the bench, as a rule of one worker, with a configuration for tests.
#![allow(dead_code, reason = "each test program uses a part of it")]

use hotloop::engine::{Asker, Publisher, Routed, Shard, mailbox, publish};
use hotloop::packet::build::tcp;
use hotloop::packet::classify::{Depth, classify_packet};
use hotloop::packet::ethernet::MacAddress;
use hotloop::packet::ipip::{self, Decapsulated};
use hotloop::packet::memory::MemPacket;
use hotloop::packet::seed::Seed;
use hotloop::stage::{Classified, Core, Tagged};
use hotloop::testing::{Bench, Outcome, bench_burst};
use hotloop_balancer::balance::{
    Balance, BalanceDrop, BalancerConfig, Egress, Egresses, Exchange, QueryPage, Route, SEED,
    Sharing,
};
use hotloop_balancer::classify;
use hotloop_balancer::counts::WorkerCounts;
use hotloop_balancer::services::{Builder, SLOTS_SPARE, ServiceTable, Standing};
use ipip_lb::config::Config;
use std::sync::Arc;
use std::time::Duration;

pub const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 9, 1];
pub const NEXT_HOP_MAC: [u8; 6] = [2, 0, 0, 0, 9, 2];
pub const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 9, 3];

pub const CONFIG: &str = include_str!("lb.toml");

/// Number of slots for backends beyond those of the first configuration: memory that is cleared for each worker.
const SLOTS: usize = 128;

/// Number of clients for which a worker remembers the backend.
const CLIENTS: usize = 128;

/// The part of a shard that packets carry.
const SHARD: u32 = 0xFFFF_0000;

pub fn egresses() -> Egresses {
    let egress = |destination| Egress {
        route: Route(0),
        source: MacAddress::new(OWN_MAC),
        destination: MacAddress::new(destination),
    };
    Egresses { clients: egress(CLIENT_MAC), backends: egress(NEXT_HOP_MAC) }
}

pub fn classified(packet: MemPacket) -> Classified<MemPacket> {
    let layout = classify_packet(&packet, Depth::Innermost, &Seed::new(SEED));
    Tagged::new(packet, layout)
}

/// The outer addresses of a tunnel packet.
pub fn tunnel_of(packet: &MemPacket) -> Decapsulated {
    ipip::decapsulate(&mut packet.clone()).expect("a tunnel packet")
}

/// The answer of the backend to which `sent` went: from `vip` to `client`, in a tunnel.
pub fn reply(sent: &MemPacket, client: &str, vip: &str) -> Vec<u8> {
    let tunnel = tunnel_of(sent);
    tcp().from(vip).to(client).ttl(64).tunnelled(tunnel.destination, tunnel.source).build()
}

pub type Sent = Outcome<Routed<MemPacket, Route>, BalanceDrop>;

pub struct Lb {
    workers: Vec<Bench<Balance<MemPacket>>>,
    counts: Arc<[WorkerCounts]>,
    builder: Builder,
    publisher: Publisher<ServiceTable>,
    pub asker: Asker<QueryPage, QueryPage>,
    pub config: Config,
    pub standing: Standing,
    /// The reference tables.
    pub references: [Option<Arc<ServiceTable>>; 2],
}

pub fn lb() -> Lb {
    Lb::with("", "")
}

impl Lb {
    /// A balancer of the configuration in which `from` is replaced by `to`.
    pub fn with(from: &str, to: &str) -> Self {
        assert!(CONFIG.contains(from));
        Self::of(&CONFIG.replacen(from, to, 1))
    }

    /// A balancer of this configuration.
    pub fn of(text: &str) -> Self {
        Self::of_config(Config::parse("lb.toml", text).unwrap())
    }

    pub fn of_config(config: Config) -> Self {
        Self::made(config, 1, |_| None)
    }

    /// A balancer that shares its exceptions, with a journal of this many connections, and
    /// control's side of the sharing.
    pub fn sharing(config: Config, journal_max: usize) -> (Self, Asker<Exchange, Exchange>) {
        Self::sharing_by(config, journal_max, 1)
    }

    /// Like [`sharing`](Self::sharing), with several workers, each with such a journal.
    pub fn sharing_by(
        config: Config,
        journal_max: usize,
        worker_count: usize,
    ) -> (Self, Asker<Exchange, Exchange>) {
        let (asker, mailboxes) = mailbox(1);
        let sharing =
            |core: &Core| Some(Sharing { mailbox: mailboxes.open(core).unwrap(), journal_max });
        (Self::made(config, worker_count, sharing), asker)
    }

    fn made(
        config: Config,
        worker_count: usize,
        sharing: impl Fn(&Core) -> Option<Sharing>,
    ) -> Self {
        let mut builder = Builder::new(&config.services);
        let services = Arc::new(builder.build(&config.spec(), &Standing::default()).unwrap());
        let slot_capacity = builder.slot_capacity() - SLOTS_SPARE + SLOTS;
        let counts: Arc<[_]> =
            (0..worker_count).map(|_| WorkerCounts::new(slot_capacity)).collect();
        let (publisher, subscribers) = publish(services);
        let (asker, mailboxes) = mailbox(1);
        let worker = |worker| {
            let core = Core::new(worker, worker_count);
            let balance = Balance::new(BalancerConfig {
                services: subscribers.subscribe(),
                egresses: egresses(),
                counts: Arc::clone(&counts),
                worker,
                connections_max: config.balancer.connections_max,
                slot_capacity,
                clients_max: CLIENTS,
                node: None,
                mailbox: Some(mailboxes.open(&core).unwrap()),
                sharing: sharing(&core),
                table_seed: Some(1),
            });
            // As with one core for everything; the deployed tests cover the rest.
            bench_burst(balance.unwrap().classifying())
        };
        let workers = (0..worker_count).map(worker).collect();
        let (standing, references) = (Standing::default(), [None, None]);
        Self { workers, counts, builder, publisher, asker, config, standing, references }
    }

    /// Switches the balancer to the current configuration and standing.
    pub fn reload(&mut self) {
        let services = self.builder.build(&self.config.spec(), &self.standing).unwrap();
        let references = self.references.each_ref().map(Option::as_ref);
        self.publisher.publish(Arc::new(services.with_references(references)));
        self.tick();
        assert!(self.publisher.collect());
        for slot in self.builder.settle() {
            self.counts.iter().for_each(|counts| counts.clear(slot as usize));
        }
    }

    /// Like [`reload`](Self::reload), by a refresh of the services: only health or weights have
    /// changed.
    pub fn refresh(&mut self) {
        let maglevs = self.builder.maglevs();
        let next = self.services().refreshed(&self.config.spec(), &self.standing, maglevs);
        self.publisher.publish(Arc::new(next.expect("something has changed")));
        self.tick();
        assert!(self.publisher.collect());
    }

    /// The table that [`reload`](Self::reload) would switch to.
    pub fn built(&self) -> Arc<ServiceTable> {
        Arc::new(self.builder.clone().build(&self.config.spec(), &self.standing).unwrap())
    }

    /// Makes the balancer compare connections with these reference tables from now on.
    pub fn refer_to(&mut self, references: [Option<Arc<ServiceTable>>; 2]) {
        let services = self.services().with_references(references.each_ref().map(Option::as_ref));
        self.publisher.publish(Arc::new(services));
        self.references = references;
        self.tick();
        assert!(self.publisher.collect());
    }

    pub fn feed_packets(&mut self, packets: impl IntoIterator<Item = MemPacket>) -> Sent {
        self.workers[0].feed_items(packets.into_iter().map(classified))
    }

    /// Feeds a frame to the worker that owns its flow.
    pub fn feed_sharded(&mut self, frame: &[u8]) -> Sent {
        let packet = classified(MemPacket::new(frame));
        let seed = self.services().settings.hashes.seed();
        let shard = classify::shard(frame, packet.tag(), &seed) & SHARD;
        let worker = Shard::from(shard).worker(self.workers.len());
        self.workers[worker].feed_items([packet])
    }

    pub fn feed(&mut self, frames: &[Vec<u8>]) -> Sent {
        self.feed_packets(frames.iter().map(|frame| MemPacket::new(frame)))
    }

    /// Feeds a frame, which must result in one packet.
    pub fn one(&mut self, frame: &[u8]) -> MemPacket {
        let out = self.feed(&[frame.to_vec()]);
        assert_eq!(out.packets().len(), 1, "dropped {frame:02x?}");
        out.packets()[0].packet.clone()
    }

    /// Feeds a frame and returns the number of drops for this reason.
    pub fn dropped(&mut self, frame: &[u8], reason: BalanceDrop) -> u64 {
        self.feed(&[frame.to_vec()]).dropped(reason)
    }

    pub fn advance(&mut self, duration: Duration) {
        self.workers.iter_mut().for_each(|worker| _ = worker.advance(duration));
    }

    /// Lets all workers do their work between bursts. Returns what the first one sends.
    pub fn tick(&mut self) -> Sent {
        let mut sent = self.workers.iter_mut().map(|it| it.tick::<Classified<MemPacket>>());
        let first = sent.next().expect("there is a worker");
        sent.for_each(drop);
        first
    }

    pub fn services(&self) -> &ServiceTable {
        self.workers[0].stage().services()
    }

    pub fn finish(&mut self) -> Sent {
        self.workers[0].finish::<Classified<MemPacket>>()
    }

    pub fn balance(&self) -> &Balance<MemPacket> {
        self.workers[0].stage()
    }

    /// All workers.
    pub fn balances(&self) -> impl Iterator<Item = &Balance<MemPacket>> {
        self.workers.iter().map(Bench::stage)
    }

    pub fn connections(&self) -> usize {
        let count = self.workers[0].stage().connections().len();
        assert_eq!(count, self.workers[0].stage().connections().iter().count());
        count
    }

    pub fn admitted(&self) -> u64 {
        self.counts[0].admitted.count()
    }

    /// Number of packets without room for their connections, of all workers.
    pub fn stateless(&self) -> u64 {
        self.counts.iter().map(|counts| counts.stateless.count()).sum()
    }

    pub fn to_clients(&self) -> u64 {
        self.counts[0].to_clients.count()
    }

    pub fn replies_known(&self) -> u64 {
        self.counts[0].replies_known.count()
    }
}
