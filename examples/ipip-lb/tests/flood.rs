//! Ten million SYNs over a full table.

use crate::deployed::{egresses, preamble, service};
use hotloop::engine::{Publisher, Routed, publish};
use hotloop::packet::PacketBuf;
use hotloop::packet::build::tcp;
use hotloop::packet::classify::{Depth, classify_packet};
use hotloop::packet::flow_key::FlowKey;
use hotloop::packet::memory::MemPacket;
use hotloop::packet::seed::Seed;
use hotloop::packet::tcp::flags::{ACK, SYN};
use hotloop::stage::{
    Burst, BurstStage, Classified, Counters, Cx, DropReason, Instant, Output, Tagged, Tally,
};
use hotloop_balancer::balance::{Balance, BalanceDrop, BalancerConfig, CLIENTS_MAX, Route, SEED};
use hotloop_balancer::connection::{Connection, State};
use hotloop_balancer::counts::WorkerCounts;
use hotloop_balancer::services::{Builder, Found, ServiceTable, Standing};
use ipip_lb::config::Config;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

const CONNECTIONS_MAX: u32 = 10_000;
const ESTABLISHED: u32 = 9_900;
const FLOOD: u32 = 10_000_000;

/// The interval of the flood's bursts: the flood lasts for ten seconds.
const BURST_NS: u64 = 64_000;

/// Offsets of the addresses, the port and TCP's flags in a frame, in bytes: untagged, without
/// options.
const SOURCE: std::ops::Range<usize> = 26..30;
const SOURCE_PORT: std::ops::Range<usize> = 34..36;
const FLAGS: usize = 47;
const OUTER_BYTES: usize = 20;

fn config(backends: &[&str]) -> Config {
    let text = preamble(&format!("connections_max = {CONNECTIONS_MAX}"))
        + &service("web", "203.0.113.10 tcp 80", "", backends);
    Config::parse("lb.toml", &text).unwrap()
}

/// A worker's balancer that gets the same buffers repeatedly: nothing is allocated.
struct Worker {
    balance: Balance<MemPacket>,
    builder: Builder,
    publisher: Publisher<ServiceTable>,
    counts: Arc<[WorkerCounts]>,
    counters: Counters,
    now: Instant,
    template: Vec<u8>,
    free: Vec<MemPacket>,
    input: Burst<Classified<MemPacket>>,
    sent: Burst<Routed<MemPacket, Route>>,
}

impl Worker {
    fn new(config: &Config) -> Self {
        let mut builder = Builder::new(&config.services);
        let table = Arc::new(builder.build(&config.spec(), &Standing::default()).unwrap());
        let slot_capacity = builder.slot_capacity();
        let counts: Arc<[_]> = [WorkerCounts::new(slot_capacity)].into();
        let (publisher, subscribers) = publish(table);
        let balance = Balance::new(BalancerConfig {
            services: subscribers.subscribe(),
            egresses: egresses(),
            counts: Arc::clone(&counts),
            worker: 0,
            connections_max: config.balancer.connections_max,
            slot_capacity,
            clients_max: CLIENTS_MAX,
            node: None,
            mailbox: None,
            sharing: None,
            table_seed: None,
        });
        let template = tcp().from("0.0.0.1:1").to("203.0.113.10:80").build();
        let packets = (0..64).map(|_| MemPacket::new(&template));
        Self {
            balance: balance.unwrap(),
            builder,
            publisher,
            counts,
            counters: Counters::new(BalanceDrop::NAMES),
            now: Instant::from_ns(1_000_000_000),
            free: packets.collect(),
            template,
            input: Burst::new(),
            sent: Burst::new(),
        }
    }

    /// Switches to another configuration.
    fn reload(&mut self, config: &Config) {
        let table = self.builder.build(&config.spec(), &Standing::default()).unwrap();
        self.publisher.publish(Arc::new(table));
        self.send(&mut std::iter::empty(), |_, _| {});
        assert!(self.publisher.collect());
    }

    /// Sends a segment of each of these clients: client and flags. `check` gets each frame as it
    /// left, and the consistent choice of backend for it.
    fn send_all(
        &mut self,
        mut clients: impl Iterator<Item = (u32, u8)>,
        mut check: impl FnMut(&[u8], [u8; 4]),
    ) {
        while self.send(&mut clients, &mut check) > 0 {}
    }

    /// Sends a burst of them.
    fn send(
        &mut self,
        clients: &mut impl Iterator<Item = (u32, u8)>,
        mut check: impl FnMut(&[u8], [u8; 4]),
    ) -> usize {
        let seed = Seed::new(SEED);
        let mut hashes = [0; 64];
        let mut count = 0;
        for (client, flags) in clients.take(64) {
            let mut packet = self.free.pop().expect("all are back");
            let frame = packet.data_mut();
            frame.copy_from_slice(&self.template);
            // Clients differ in address and port.
            frame[SOURCE].copy_from_slice(&(0x0B00_0000 + client / 7).to_be_bytes());
            frame[SOURCE_PORT].copy_from_slice(&(1000 + (client % 7) as u16).to_be_bytes());
            frame[FLAGS] = flags;
            let layout = classify_packet(&packet, Depth::Innermost, &seed);
            hashes[count] = layout.hash();
            self.input.push(Tagged::new(packet, layout));
            count += 1;
        }
        self.now = Instant::from_ns(self.now.as_ns() + BURST_NS);
        let mut cx = Cx::new(&self.counters, self.now);
        let mut tally = Tally::default();
        let mut spill = |_: &mut Burst<_>| unreachable!("no more leave than came");
        let mut out = Output::new(&mut self.sent, &mut spill, &mut tally);
        self.balance.process(&mut cx, &mut self.input, &mut out);
        self.balance.tick(&mut cx, &mut out);
        drop(out);
        assert_eq!(self.sent.len(), count, "each of them leaves");
        for hash in &hashes[..count] {
            let mut packet = self.sent.pop().expect("as many as there are").packet;
            check(packet.data(), self.consistent(*hash));
            packet.trim_front(OUTER_BYTES).expect("an outer header");
            self.free.push(packet);
        }
        count
    }

    /// The choice of every balancer with this configuration.
    fn consistent(&self, hash: u32) -> [u8; 4] {
        let table = self.balance.services();
        let target = table.all()[0].by_hash(hash).expect("there are backends");
        match table.targets()[target.slot()].address() {
            IpAddr::V4(address) => address.octets(),
            IpAddr::V6(address) => panic!("{address}"),
        }
    }

    fn connections(&self) -> HashMap<FlowKey, (Connection, IpAddr)> {
        let table = self.balance.services();
        let target = |id| match table.target(id) {
            Found::Active(target) => target.address(),
            gone => panic!("{gone:?}"),
        };
        let connections = self.balance.connections().iter();
        connections.map(|(key, it)| (key, (it, target(it.target)))).collect()
    }
}

/// The backend that a frame left for.
fn backend(frame: &[u8]) -> [u8; 4] {
    frame[30..34].try_into().unwrap()
}

#[test]
fn a_flood_of_ten_million_syns_ends_no_established_connection() {
    let mut worker = Worker::new(&config(&["10.1.0.1", "10.1.0.2", "10.1.0.3"]));
    worker.send_all((0..CONNECTIONS_MAX).map(|client| (client, SYN)), |_, _| {});
    let mut before = Vec::new();
    let established = || (0..ESTABLISHED).map(|client| (client, ACK));
    // No server answers here, so they must have outlasted openings.
    for _ in 0..3 {
        before.clear();
        worker.now = Instant::from_ns(worker.now.as_ns() + 6_000_000_000);
        let opening = (ESTABLISHED..CONNECTIONS_MAX).map(|client| (client, SYN));
        worker.send_all(opening, |_, _| {});
        worker.send_all(established(), |frame, _| before.push(backend(frame)));
    }
    assert_eq!(worker.connections().len(), CONNECTIONS_MAX as usize);
    assert_eq!(worker.counts[0].stateless.count(), 0);

    // From now on the consistent choice is another backend for most of them.
    worker.reload(&config(&["10.1.0.4*30", "10.1.0.1", "10.1.0.2*2", "10.1.0.3*3"]));
    for _ in 0..CONNECTIONS_MAX {
        worker.send(&mut std::iter::empty(), |_, _| {});
    }
    let exceptions = worker.connections();
    let exceptions: HashMap<_, _> = exceptions
        .into_iter()
        .filter(|(_, (it, _))| it.state() == State::Established && it.is_exception())
        .collect();
    assert!(exceptions.len() > ESTABLISHED as usize / 2);
    let (mut flood, mut counts) = (0_u64, [0_u64; 5]);
    let tuples = (CONNECTIONS_MAX..CONNECTIONS_MAX + FLOOD).map(|client| (client, SYN));
    worker.send_all(tuples, |frame, consistent| {
        assert_eq!(backend(frame), consistent);
        counts[usize::from(consistent[3])] += 1;
        flood += 1;
    });
    assert_eq!(flood, u64::from(FLOOD));

    // The flood was balanced, by the weights. Its remembered connections took the places of opening
    // ones, of each other, and of those that lose nothing.
    assert!(counts[4] > flood / 36 * 29 && counts[1] > flood / 50, "{counts:?}");
    let stateless = worker.counts[0].stateless.count();
    let admitted = worker.counts[0].admitted.count();
    assert_eq!(admitted, u64::from(CONNECTIONS_MAX) + flood);
    println!("{stateless} of {flood} were not remembered");
    assert_eq!(worker.counters.dropped_sum(), 0);

    // All exceptions are there, with their backends, and no packet goes elsewhere.
    let known = worker.connections();
    assert!(known.len() <= CONNECTIONS_MAX as usize);
    for (key, (_, before)) in &exceptions {
        assert_eq!(known.get(key).map(|(_, now)| now), Some(before), "{key:?}");
    }
    let (mut after, mut elsewhere) = (Vec::new(), 0);
    worker.send_all(established(), |frame, consistent| {
        elsewhere += usize::from(backend(frame) != consistent);
        after.push(backend(frame));
    });
    assert_eq!(after, before);
    assert!(elsewhere > ESTABLISHED as usize / 2, "{elsewhere}");
}
