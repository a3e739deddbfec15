//! Nodes of a test, on 127.0.0.1, each with a table of connections in place of its workers.

use crate::web_config::WEB;
use hotloop::packet::flow_key::FlowKey;
use hotloop_agreement::Birth;
use hotloop_balancer::connection::State;
use hotloop_balancer::exceptions::{Change, Record};
use hotloop_balancer::spec::Balancer;
use hotloop_cluster::settings::{Cluster, ClusterPeer, Security};
use hotloop_cluster::sync::wire::{GREETING_BYTES_MAX, Message, decode};
use hotloop_cluster::sync::{PeerStatus, Sync};
use hotloop_tests::free_address;
use ipip_lb::config::Config;
use std::collections::HashMap;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

pub fn balancer() -> Balancer {
    let text = format!("{WEB}[[service.backend]]\naddress = \"10.0.0.1\"\n");
    Config::parse("lb.toml", &text).unwrap().balancer
}

/// The digest of nodes with [`balancer`], as in their greetings.
pub fn digest() -> [u8; 16] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peers = [("z", listener.local_addr().unwrap())];
    let _node = Node::start(&cluster("a", free_address(), &peers));
    let (mut stream, _) = listener.accept().unwrap();
    let mut bytes = Vec::new();
    loop {
        let mut some = [0; 100];
        let count = stream.read(&mut some).unwrap();
        assert!(count > 0, "no greeting in {bytes:?}");
        bytes.extend_from_slice(&some[..count]);
        if let Some((frame, _)) = decode(&bytes, GREETING_BYTES_MAX).unwrap() {
            let Message::Hello(hello) = frame.message else { panic!("{frame:?}") };
            return hello.digest;
        }
    }
}

pub fn cluster(node: &str, listen: SocketAddr, peers: &[(&str, SocketAddr)]) -> Cluster {
    let peer = |&(name, address): &(&str, SocketAddr)| ClusterPeer { name: name.into(), address };
    Cluster {
        node: node.into(),
        listen,
        peers: peers.iter().map(peer).collect(),
        security: Security::TrustedNetwork,
        ready_timeout_s: 30,
        prepare_ms_max: 1_000,
        settle_s: 60,
    }
}

/// Two nodes that are each other's only peer.
pub fn pair() -> [Cluster; 2] {
    let [a, b] = [free_address(), free_address()];
    [cluster("a", a, &[("b", b)]), cluster("b", b, &[("a", a)])]
}

pub fn record(number: u32) -> Record {
    let client = SocketAddr::new(Ipv4Addr::from_bits(0x0A01_0000 + number).into(), 4000);
    let key = FlowKey::new(client, "203.0.113.10:80".parse().unwrap(), 6).unwrap();
    let backend = [10, 0, 0, 7].into();
    let (state, birth) = (State::Established, Birth::new(5));
    Record { key, backend, state, birth, left_ms: 900_000 }
}

/// A node that enters all imports.
pub struct Node {
    pub sync: Sync,
    pub own: HashMap<FlowKey, Record>,
    pub entered: HashMap<FlowKey, Record>,
    /// The connections to claim again.
    pub inherited: Vec<FlowKey>,
    /// Whether it has stopped entering, like a busy node.
    pub is_stuck: bool,
    /// The number of a walk, and its remaining keys.
    walk: (u64, Vec<FlowKey>),
    imports: Vec<Change>,
}

impl Node {
    pub fn start(cluster: &Cluster) -> Self {
        Self::start_with(cluster, &balancer())
    }

    pub fn start_with(cluster: &Cluster, balancer: &Balancer) -> Self {
        let sync = Sync::start(cluster, balancer).unwrap_or_else(|error| panic!("{error}"));
        let (own, entered) = (HashMap::new(), HashMap::new());
        let (inherited, imports, walk) = (Vec::new(), Vec::new(), (0, Vec::new()));
        Self { sync, own, entered, inherited, is_stuck: false, walk, imports }
    }

    pub fn claim(&mut self, numbers: impl Iterator<Item = u32>) {
        let records: Vec<_> = numbers.map(record).collect();
        self.own.extend(records.iter().map(|record| (record.key, *record)));
        records.chunks(1000).for_each(|records| self.sync.offer(records));
    }

    /// A turn of the control thread.
    pub fn turn(&mut self) {
        if self.is_stuck {
            return;
        }
        self.imports.clear();
        self.sync.take_imports(&mut self.imports, 10_000);
        for change in &self.imports {
            match change {
                // Peers list all that they know, of whichever node.
                Change::Claim(record) if self.own.contains_key(&record.key) => {}
                Change::Claim(record) => drop(self.entered.insert(record.key, *record)),
                Change::Inherit(key) => self.inherited.push(*key),
            }
        }
        let Some(walk) = self.sync.snapshot_wanted() else { return };
        if self.walk.0 != walk.number {
            self.walk =
                (walk.number, self.own.keys().chain(self.entered.keys()).copied().collect());
        }
        let keys = &mut self.walk.1;
        let keys = keys.split_off(keys.len().saturating_sub(1000));
        let known = |key| self.own.get(key).or_else(|| self.entered.get(key)).copied();
        let claims: Vec<_> = keys.iter().filter_map(known).collect();
        self.sync.give_page(walk, &claims, self.walk.1.is_empty());
    }

    pub fn status(&self) -> PeerStatus {
        self.sync.status().remove(0)
    }
}

/// Lets nodes run until the condition holds.
pub fn until(nodes: &mut [&mut Node], what: &str, mut is_so: impl FnMut(&[&mut Node]) -> bool) {
    let start = Instant::now();
    while !is_so(nodes) {
        nodes.iter_mut().for_each(|node| node.turn());
        let statuses = || nodes.iter().map(|node| node.sync.status()).collect::<Vec<_>>();
        assert!(start.elapsed() < Duration::from_secs(60), "not {what}: {:#?}", statuses());
        thread::sleep(Duration::from_millis(1));
    }
}

pub fn until_caught_up(nodes: &mut [&mut Node]) {
    until(nodes, "caught up", |nodes| {
        let all = nodes.iter().flat_map(|node| node.sync.status());
        all.into_iter().all(|it| it.is_caught_up && it.has_its_snapshot)
    });
}

/// Lets a node run until its peer's status has this text.
pub fn until_error(node: &mut Node, text: &str) {
    until(&mut [node], text, |nodes| {
        nodes[0].status().last_error.is_some_and(|error| error.contains(text))
    });
}
