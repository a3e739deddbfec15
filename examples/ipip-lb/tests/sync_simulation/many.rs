//! A cluster as large as one may be: packets reach their backends there, and the reference table moves.
//! Prints how many messages nodes exchange, and how much waits for peers.

use super::Setup;
use super::clock::Clock;
use super::link::Link;
use super::model::{BACKENDS, Configuration, Packet};
use super::node::{Node, name};
use hotloop::packet::flow_key::FlowKey;
use hotloop::testing::Rng;
use hotloop_balancer::exceptions::Record;
use std::collections::BTreeMap;
use std::net::IpAddr;

const NODES: usize = 32;

/// The time of a turn of all nodes, as in the program.
const STEP_MS: u64 = 5;

/// The length of a phase, and the number of connections that begin in each of its steps: the exceptions
/// among them have to find room in every node's table.
const PHASE_MS: u64 = 3_000;
const BEGIN_COUNT: u32 = 2;

/// A move of the reference table ends within this time, or never.
const MOVED_MS: u64 = 30_000;

struct Cluster {
    nodes: Vec<Option<Node>>,
    links: Vec<Link>,
    now_ms: u64,
    /// The backend of each client's connection.
    backends: BTreeMap<u32, IpAddr>,
    /// The largest number of claims that waited for the peers of one node.
    waiting_max: usize,
    /// The figures of each part.
    figures: Vec<String>,
}

impl Cluster {
    fn new() -> Self {
        let mut rng = Rng::seeded(1);
        let configuration = Configuration { revision: 1, active: [true; BACKENDS as usize] };
        let begin = (configuration, Clock::right(0));
        let new = |node| Some(Node::new((node, NODES), node as u64 + 1, begin, Setup::PLAIN));
        let all = (0..NODES).flat_map(|one| (0..NODES).map(move |other| [one, other]));
        // The first one connects: the one with the lesser name.
        let pairs = all.filter(|[one, other]| name(*one) < name(*other));
        Self {
            nodes: (0..NODES).map(new).collect(),
            links: pairs.map(|pair| Link::new(pair, rng.fork())).collect(),
            now_ms: 0,
            backends: BTreeMap::new(),
            waiting_max: 0,
            figures: Vec::new(),
        }
    }

    fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().flatten()
    }

    /// Drains a backend on these nodes.
    fn drain(&mut self, nodes: impl Iterator<Item = usize>) {
        let mut drained = Configuration { revision: 2, active: [true; BACKENDS as usize] };
        drained.active[0] = false;
        nodes.for_each(|node| self.nodes[node].as_mut().expect("it is up").adopt(drained));
    }

    /// A client's packet, by some node. It has to go to the backend of the packets before.
    fn packet(&mut self, client: u32, packet: Packet, node: usize) {
        let node = self.nodes[node % NODES].as_mut().expect("it is up");
        let backend = node.workers.packet(client, packet).expect("a service takes it");
        let expected = *self.backends.entry(client).or_insert(backend);
        assert_eq!(backend, expected, "client {client} by {} at {} ms", node.name, self.now_ms);
    }

    fn step(&mut self) {
        self.now_ms += STEP_MS;
        let Self { nodes, links, now_ms, .. } = self;
        links.iter_mut().for_each(|link| link.turn(nodes, *now_ms));
        nodes.iter_mut().flatten().for_each(|node| node.turn(*now_ms));
        let waiting = |node: &Node| -> usize {
            node.peers.status(self.now_ms).iter().map(|peer| peer.lag_records).sum()
        };
        let waiting_max = self.nodes().map(waiting).max();
        self.waiting_max = self.waiting_max.max(waiting_max.unwrap_or(0));
    }

    /// A step in which connections begin, each at a node, and those that began in the step before go on
    /// there.
    fn step_with_arrivals(&mut self) {
        let next = self.backends.len() as u32;
        for client in next.saturating_sub(BEGIN_COUNT)..next {
            self.packet(client, Packet::Data, client as usize);
        }
        (next..next + BEGIN_COUNT).for_each(|it| self.packet(it, Packet::Syn, it as usize));
        self.step();
    }

    /// Whether all nodes use the reference table after this one, and no other.
    fn has_moved(&self, number: u32) -> bool {
        let mut tables = self.nodes().map(|node| node.agreement.tables());
        tables.all(|tables| tables.len() == 1 && tables[0].number > number)
    }

    fn settle(&mut self) {
        let end_ms = self.now_ms + MOVED_MS;
        while !self.nodes().all(|node| node.is_in_sync(|_| true)) {
            assert!(self.now_ms < end_ms, "never in sync");
            self.step();
        }
    }

    /// Plays a part, and keeps its figures. Returns the number of claims that a node received.
    fn measure(&mut self, what: &str, play: impl FnOnce(&mut Self)) -> usize {
        let carried = |all: &Self| {
            let links = all.links.iter();
            links.fold([0, 0], |[count, bytes], link| {
                [count + link.frame_count, bytes + link.frame_bytes]
            })
        };
        let claims = |all: &Self| -> u64 {
            let status = all.nodes().flat_map(|node| node.peers.status(all.now_ms));
            status.map(|peer| peer.counts.received).sum()
        };
        self.waiting_max = 0;
        let (begin_ms, before, claims_before) = (self.now_ms, carried(self), claims(self));
        play(self);
        let after = carried(self);
        let took_s = (self.now_ms - begin_ms) as f64 / 1e3;
        let per_s = |count: u64| count as f64 / NODES as f64 / took_s;
        let received = (claims(self) - claims_before) as usize / NODES;
        self.figures.push(format!(
            "{what}, {took_s:.1} s: a node sends {:.0} frames and {:.1} KB a second; it receives {received} claims, which \
             take {:.1} KB for ten seconds; at most {} wait for its peers, in {:.1} KB",
            per_s(after[0] - before[0]),
            per_s(after[1] - before[1]) / 1e3,
            (received * size_of::<(u64, FlowKey)>()) as f64 / 1e3,
            self.waiting_max,
            (self.waiting_max * size_of::<(u64, Record)>()) as f64 / 1e3,
        ));
        received
    }
}

#[test]
fn many_nodes_share_exceptions_and_move_the_reference_table() {
    let mut all = Cluster::new();
    all.measure("from the start", Cluster::settle);
    let first = all.nodes().next().expect("it is up").agreement.tables()[0].number;
    let steps = PHASE_MS / STEP_MS;
    all.measure("at rest", |all| (0..steps).for_each(|_| all.step()));
    // Half of the nodes: the reference table stays.
    all.drain(0..NODES / 2);
    let received =
        all.measure("with exceptions", |all| (0..steps).for_each(|_| all.step_with_arrivals()));
    assert!(received >= 100, "{received} claims");
    all.settle();
    // By another node than before.
    let clients = all.backends.len() as u32;
    (0..clients).for_each(|it| all.packet(it, Packet::Data, it as usize + 1));
    all.settle();
    assert!(!all.has_moved(first), "nodes want different tables");
    all.drain(NODES / 2..NODES);
    all.measure("a move of the reference table", |all| {
        let end_ms = all.now_ms + MOVED_MS;
        while !all.has_moved(first) {
            assert!(all.now_ms < end_ms, "the table never moves");
            all.step();
        }
    });
    (0..clients).for_each(|it| all.packet(it, Packet::Data, it as usize + 2));
    println!("{}", all.figures.join("\n"));
}
