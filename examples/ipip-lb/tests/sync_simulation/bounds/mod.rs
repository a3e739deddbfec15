//! Tests of a cluster's limits ("Limits" in `docs/internals/cluster.md`), with events chosen by hand: beyond
//! a limit, connections are lost as documented; just within it, nothing is lost.

mod apart;
mod attempts;
mod holder;
mod ports;
mod room;
mod silence;

use super::clock::Clock;
use super::link::Link;
use super::model::{BACKENDS, Configuration, ESTABLISHED_MS, Packet, backend, is_udp};
use super::node::{Node, name};
use super::takeover::Takeover;
use super::worker::{Known, Workers};
use super::{Mutant, Setup};
use hotloop::testing::Rng;
use std::net::IpAddr;
use std::sync::LazyLock;

/// The configuration that all nodes begin with, whose table is the reference table from then on.
const FIRST: Configuration = Configuration { revision: 1, active: [true; BACKENDS as usize] };

/// The same, without the first backend.
const DRAINED: Configuration = without(0);

/// A delay that outlasts a test, in milliseconds.
const LATE_MS: u64 = 1 << 40;

/// How long a walk takes that finds what is to be claimed again, in milliseconds: a twelfth of the
/// shortest idle timeout, which is that of UDP, a minute.
const WALK_MS: u64 = 5_000;

/// The first configuration, without the backend of this number.
const fn without(number: u8) -> Configuration {
    let mut drained = Configuration { revision: 2 + number as u64, ..FIRST };
    drained.active[number as usize] = false;
    drained
}

/// The first configuration, without this backend.
fn without_backend(address: IpAddr) -> Configuration {
    without((0..BACKENDS).find(|it| backend(*it) == address).expect("it is a backend"))
}

/// Clients whose connections are exceptions if they begin where the first backend is drained, and a
/// client whose connection never is.
static CLIENTS: LazyLock<([u32; 2], u32)> = LazyLock::new(|| {
    let [mut first, mut drained] = [FIRST, DRAINED].map(|it| Workers::new(Setup::PLAIN, it, 0));
    let of_first: Vec<_> = (0..100).map(|it| first.packet(it, Packet::Syn)).collect();
    let of_drained: Vec<_> = (0..100).map(|it| drained.packet(it, Packet::Syn)).collect();
    let is_moved = |it: &u32| !is_udp(*it) && of_first[*it as usize] == Some(backend(0));
    let mut moved = (0..100).filter(is_moved);
    let is_same = |it: &u32| !is_udp(*it) && of_first[*it as usize] == of_drained[*it as usize];
    let mut stays = (0..100).filter(is_same);
    let mut next = || moved.next().expect("some of a hundred are on the first backend");
    ([next(), next()], stays.next().expect("most of a hundred stay"))
});

/// Nodes with a reference table, in sync.
pub struct Cluster {
    pub now_ms: u64,
    pub nodes: Vec<Option<Node>>,
    links: Vec<Link>,
    setups: [Setup; 2],
}

impl Cluster {
    fn new(count: usize) -> Self {
        Self::of(count, [Mutant::None; 2])
    }

    /// One whose even and odd nodes have these mutants.
    pub fn of(count: usize, mutants: [Mutant; 2]) -> Self {
        Self::of_setups(count, mutants.map(|mutant| Setup { mutant, ..Setup::PLAIN }))
    }

    /// One whose workers may have no room for all connections.
    fn crowded(count: usize) -> Self {
        Self::of_setups(count, [Setup { connections_max: 100, ..Setup::PLAIN }; 2])
    }

    /// One whose even and odd nodes have these settings.
    fn of_setups(count: usize, setups: [Setup; 2]) -> Self {
        let begin = (FIRST, Clock::right(0));
        let node = |it| Some(Node::new((it, count), it as u64 + 1, begin, setups[it % 2]));
        let pairs = (0..count).flat_map(|one| (one + 1..count).map(move |other| [one, other]));
        let links = pairs.map(|pair| Link::new(pair, Rng::seeded(1))).collect();
        let nodes = (0..count).map(node).collect();
        let mut cluster = Self { now_ms: 0, nodes, links, setups };
        cluster.sleep(20_000);
        cluster.settle();
        cluster
    }

    /// Lets a long time pass, in few turns.
    fn sleep(&mut self, ms: u64) {
        const STEP_MS: u64 = 250;
        for _ in 0..ms / STEP_MS {
            self.turn(STEP_MS);
        }
    }

    /// Lets time pass until then; most of a long time, in few turns.
    pub fn pass_until(&mut self, at_ms: u64) {
        while self.now_ms < at_ms {
            let left_ms = at_ms - self.now_ms;
            self.turn(if left_ms > 5_000 { 250 } else { left_ms.min(10) });
        }
    }

    fn pass(&mut self, ms: u64) {
        (0..ms).for_each(|_| self.turn(1));
    }

    fn turn(&mut self, ms: u64) {
        self.now_ms += ms;
        for link in &mut self.links {
            link.turn(&mut self.nodes, self.now_ms);
        }
        self.nodes.iter_mut().flatten().for_each(|node| node.turn(self.now_ms));
    }

    /// Lets all nodes that are up enter what the others know.
    pub fn settle(&mut self) {
        for _ in 0..1_000 {
            self.pass(1);
            let is_up = |of: &str| self.nodes.iter().flatten().any(|node| node.name == of);
            if self.nodes.iter().flatten().all(|node| node.is_in_sync(is_up)) {
                return;
            }
        }
        panic!("the nodes are not in sync within a second");
    }

    pub fn link(&mut self, nodes: [usize; 2]) -> &mut Link {
        self.links.iter_mut().find(|link| link.nodes == nodes).expect("two nodes, the lesser first")
    }

    fn adopt(&mut self, node: usize, configuration: Configuration) {
        self.node(node).adopt(configuration);
        self.settle();
    }

    pub fn kill(&mut self, node: usize) {
        self.nodes[node] = None;
    }

    /// Brings a node back, with empty tables.
    pub fn restart(&mut self, node: usize, configuration: Configuration) {
        let id = (node, self.nodes.len());
        let begin = (configuration, Clock::right(self.now_ms));
        self.nodes[node] = Some(Node::new(id, self.now_ms, begin, self.setups[node % 2]));
    }

    pub fn node(&mut self, node: usize) -> &mut Node {
        self.nodes[node].as_mut().unwrap_or_else(|| panic!("{} is down", name(node)))
    }

    /// Sends a client's packet by a node. Returns the backend that gets it.
    pub fn send(&mut self, node: usize, client: u32, packet: Packet) -> IpAddr {
        self.node(node).workers.packet(client, packet).expect("it is forwarded")
    }

    /// Opens a connection by a node. Returns its backend.
    fn open(&mut self, node: usize, client: u32) -> IpAddr {
        let backend = self.send(node, client, Packet::Syn);
        assert_eq!(self.send(node, client, Packet::Data), backend);
        backend
    }

    /// Begins an exception by the first node, where the first backend is drained. Returns its client
    /// and its backend.
    fn begin_exception(&mut self) -> (u32, IpAddr) {
        let client = CLIENTS.0[0];
        let its = self.send(0, client, Packet::Syn);
        assert_ne!(its, backend(0));
        (client, its)
    }

    /// Like [`begin_exception`](Self::begin_exception), with the packet after the SYN.
    fn open_exception(&mut self) -> (u32, IpAddr) {
        let (client, its) = self.begin_exception();
        assert_eq!(self.send(0, client, Packet::Data), its);
        (client, its)
    }

    /// Two nodes. At the first one, an exception has ended, and the port's next connection has begun, which
    /// is where the reference table has it. Both know that if `has_heard`. Returns the client and the
    /// exception's backend, too.
    fn with_port_used_again(has_heard: bool) -> (Self, u32, IpAddr) {
        let mut cluster = Self::new(2);
        cluster.adopt(0, DRAINED);
        let (client, before) = cluster.open_exception();
        cluster.sleep(5_000);
        cluster.adopt(0, without_backend(before));
        cluster.send(0, client, Packet::Fin);
        assert_eq!(cluster.open(0, client), backend(0));
        if has_heard {
            cluster.settle();
        }
        (cluster, client, before)
    }

    /// Has a node hand over to another program, until that has the snapshot.
    fn begin_takeover(&mut self, node: usize) -> Takeover {
        let mut takeover = Takeover::begin(node, self.node(node));
        while !takeover.has_snapshot() {
            self.pass(1);
            assert!(takeover.carry(Some(self.node(node)), &mut Rng::seeded(1)));
        }
        takeover
    }

    /// Continues with that program in the node's place.
    fn end_takeover(&mut self, node: usize, takeover: Takeover) {
        let before = self.nodes[node].take().expect("it hands over");
        self.restart(node, before.configuration);
        let connections = takeover.connections(self.now_ms);
        self.node(node).take_over(&before.agreement, connections);
    }

    /// Begins 3,000 connections by a node, three times the number that its table holds: it evicts all that it may.
    fn fill_table(&mut self, node: usize) {
        for other in 1_000..4_000 {
            self.node(node).workers.packet(other, Packet::Syn);
            self.turn(1);
        }
    }

    pub fn known(&mut self, node: usize, client: u32) -> Option<Known> {
        self.node(node).workers.knows(client)
    }

    /// Two nodes. The first has an exception that gets packets all the time, and is about to claim it
    /// again. Returns its client and its backend, too.
    fn with_due_exception() -> (Self, u32, IpAddr) {
        const PERIOD_MS: u64 = 1_000;
        const PART_MS: u64 = ESTABLISHED_MS / 24;
        let mut cluster = Self::new(2);
        cluster.adopt(0, DRAINED);
        let (client, its) = cluster.open_exception();
        cluster.settle();
        let go_on = |cluster: &mut Self| {
            cluster.sleep(PERIOD_MS);
            assert_eq!(cluster.send(0, client, Packet::Data), its);
        };
        // Peers know of a packet at the beginning of a part.
        let seen_ms = loop {
            let (before, began_ms) = (cluster.received_count(1), cluster.now_ms);
            while cluster.received_count(1) == before {
                go_on(&mut cluster);
                assert!(cluster.now_ms - began_ms <= ESTABLISHED_MS / 3 + WALK_MS);
            }
            let seen_ms = cluster.now_ms - PERIOD_MS;
            if seen_ms % PART_MS < PART_MS / 4 {
                break seen_ms;
            }
        };
        let before = cluster.received_count(1);
        while cluster.now_ms + PERIOD_MS < (seen_ms / PART_MS + 7) * PART_MS {
            go_on(&mut cluster);
        }
        assert_eq!(cluster.received_count(1), before);
        (cluster, client, its)
    }

    /// Number of claims that a node of two has received.
    fn received_count(&mut self, node: usize) -> u64 {
        let now_ms = self.now_ms;
        self.node(node).peers.status(now_ms)[0].counts.received
    }
}
