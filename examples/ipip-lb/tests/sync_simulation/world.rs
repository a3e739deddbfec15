//! The events in a cluster, drawn by a seed.

use super::clients::Client;
use super::clock::Clock;
use super::link::Link;
use super::met::Met;
use super::model::{BACKENDS, Clocks, Configuration};
use super::node::{Node, SETTLE_MS, name};
use super::takeover::Takeover;
use super::{Mutant, Setup};
use hotloop::testing::Rng;
use hotloop_cluster::sync::QUEUE_MAX;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of events that a failure shows.
const SHOWN_MAX: usize = 40;

const ROUNDS: usize = 6;
const PACKETS_PER_ROUND: usize = 400;

/// Room for all connections on each worker, and for a part of them on a node.
const ROOM: usize = 256;
const CROWDED: usize = 100;

/// Nodes in contact are in sync after this many milliseconds, or never.
const SETTLED_MS: u64 = 60_000;

pub struct World {
    pub rng: Rng,
    pub setup: Setup,
    /// Whether no node is killed: after that, the reference table does not move for long.
    is_spared: bool,
    pub now_ms: u64,
    pub nodes: Vec<Option<Node>>,
    pub links: Vec<Link>,
    /// The nodes that the router sends to.
    pub announced: Vec<usize>,
    pub salt: u64,
    pub configuration: Configuration,
    /// Clients that began a connection since all nodes were in sync, or continued one after it was
    /// open: a node's knowledge of these ends with the node, if they are exceptions.
    pub fresh: BTreeSet<u32>,
    /// Clients of killed nodes' exceptions that some peers know, but not all: until all nodes are in
    /// sync, these clients send nothing.
    pub repeated: BTreeSet<u32>,
    /// Clients that ended one.
    pub ended: BTreeSet<u32>,
    /// Clients with a packet that came to a node without the connection.
    pub strayed: BTreeSet<u32>,
    /// Clients that began a connection while some node still knew the previous one, since all nodes
    /// were in sync.
    pub replacing: BTreeSet<u32>,
    /// Clients that began a connection while some node took the previous one for alive. If both are on
    /// the same backend, that node takes them for one.
    pub unaware: BTreeSet<u32>,
    pub clients: BTreeMap<u32, Client>,
    /// When each client last sent a SYN.
    pub began_ms: BTreeMap<u32, u64>,
    /// When each client last sent a packet.
    pub seen_ms: BTreeMap<u32, u64>,
    /// When each client's next packet is due.
    pub due: BTreeSet<(u64, u32)>,
    /// Clients with an ended connection that some node may remember for longer: the limit in the
    /// documentation.
    pub lingering: BTreeSet<u32>,
    starts: u64,
    pub takeover: Option<Takeover>,
    /// Whether packets are among the events, which takes time.
    pub is_noted: bool,
    /// The events, and the client of each.
    log: Vec<(u64, Option<u32>, String)>,
    pub met: Met,
}

impl World {
    pub fn new(seed: u64, mutant: Mutant) -> Self {
        let mut rng = Rng::seeded(seed);
        let is_spared = rng.permille(500);
        let worker_count = 1 + rng.index(3);
        let setup = Setup {
            mutant,
            worker_count,
            connections_max: [ROOM, ROOM, ROOM, CROWDED / worker_count][rng.index(4)],
            journal_max: [4096, 4096, 6][rng.index(3)],
            queue_max: [QUEUE_MAX, 120][rng.index(2)],
            clocks: [Clocks::Right, Clocks::Wrong][rng.index(2)],
        };
        let count = 2 + rng.index(4);
        let configuration = Configuration { revision: 1, active: [true; BACKENDS as usize] };
        let mut node = |node| {
            let begin = (configuration, clock(setup, 0, &mut rng));
            Some(Node::new((node, count), node as u64 + 1, begin, setup))
        };
        let nodes = (0..count).map(&mut node).collect();
        let pairs = (0..count).flat_map(|one| (one + 1..count).map(move |other| [one, other]));
        Self {
            setup,
            is_spared,
            now_ms: 0,
            nodes,
            links: pairs.map(|pair| Link::new(pair, rng.fork())).collect(),
            announced: (0..count).collect(),
            salt: rng.next_u64(),
            rng,
            configuration,
            fresh: BTreeSet::new(),
            repeated: BTreeSet::new(),
            ended: BTreeSet::new(),
            strayed: BTreeSet::new(),
            replacing: BTreeSet::new(),
            unaware: BTreeSet::new(),
            clients: BTreeMap::new(),
            began_ms: BTreeMap::new(),
            seen_ms: BTreeMap::new(),
            due: BTreeSet::new(),
            lingering: BTreeSet::new(),
            starts: count as u64,
            takeover: None,
            is_noted: false,
            log: Vec::new(),
            met: Met::default(),
        }
    }

    /// Runs a seed. Its failure has all events.
    pub fn run_seed(seed: u64, mutant: Mutant) -> Result<Met, String> {
        let run = |is_noted| Self { is_noted, ..Self::new(seed, mutant) }.run();
        run(false).or_else(|_| run(true))
    }

    fn run(mut self) -> Result<Met, String> {
        self.settle()?;
        for _ in 0..ROUNDS {
            self.disturb()?;
            self.stray();
            self.settle()?;
            self.change_by_turns()?;
            self.settle()?;
            if self.rng.permille(500) {
                self.agree()?;
            }
            self.change_nodes()?;
            self.packet_of_each()?;
            if self.rng.permille(250) {
                self.settle()?;
                self.sleep()?;
            }
        }
        let last = |node: &Node| node.agreement.tables().iter().map(|it| it.number).max();
        self.met.losses = self.nodes.iter().flatten().map(|it| it.loss_count).sum();
        let status = self.nodes.iter().flatten().flat_map(|it| it.peers.status(0));
        self.met.overflows = status.map(|peer| peer.counts.overflows).sum();
        self.met.moves = self.nodes.iter().flatten().filter_map(last).max().unwrap_or(0).into();
        Ok(self.met)
    }

    /// Sends packets, during all kinds of events between nodes.
    fn disturb(&mut self) -> Result<(), String> {
        for _ in 0..PACKETS_PER_ROUND {
            self.traffic()?;
            match self.rng.index(60) {
                0 => {
                    let link = self.rng.index(self.links.len());
                    self.met.cuts += u64::from(self.links[link].is_connected());
                    self.links[link].cut(&mut self.nodes, self.now_ms);
                }
                1 => {
                    let link = self.rng.index(self.links.len());
                    self.links[link].is_parted = self.rng.permille(500);
                }
                2 => {
                    let link = self.rng.index(self.links.len());
                    self.links[link].delay_ms = [1, 1, 50, 400][self.rng.index(4)];
                }
                3 => self.reconfigure(),
                4..10 => {
                    let node = self.rng.index(self.nodes.len());
                    self.adopt(node);
                }
                10 => self.stray(),
                13 if self.setup.clocks == Clocks::Wrong => {
                    let node = self.rng.index(self.nodes.len());
                    if let Some(node) = &mut self.nodes[node] {
                        self.met.wrong_clocks += 1;
                        node.clock.disturb(&mut self.rng);
                    }
                }
                12 => {
                    let link = self.rng.index(self.links.len());
                    self.links[link].is_stalled = self.rng.permille(700);
                }
                11 if !self.is_spared && self.rng.permille(100) => self.begin_takeover(),
                _ => {}
            }
        }
        (0..self.nodes.len()).for_each(|node| self.adopt(node));
        Ok(())
    }

    /// Makes another configuration, which nodes adopt at different times.
    fn reconfigure(&mut self) {
        self.configuration = self.next_configuration();
    }

    /// Changes the configuration of most nodes, one after the other, as operators do. One of them may
    /// be killed meanwhile.
    fn change_by_turns(&mut self) -> Result<(), String> {
        self.reconfigure();
        let mut left: Vec<_> = (0..self.nodes.len()).collect();
        let is_killed = self.rng.permille(600) && !self.is_spared;
        let killed_before = is_killed.then(|| 1 + self.rng.index(left.len()));
        while !left.is_empty() {
            let left_count = left.len();
            let node = left.swap_remove(self.rng.index(left_count));
            if killed_before == Some(left_count) {
                // Some peer may have its claims later than others.
                let link = self.rng.index(self.links.len());
                self.links[link].delay_ms = 400;
            }
            self.go_on(40)?;
            if killed_before == Some(left_count) && self.announced.len() > 1 {
                self.met.killed_between += u64::from(left_count < self.nodes.len());
                self.kill();
                self.move_clients();
                self.go_on(40)?;
            } else if self.rng.permille(200) {
                let link = self.rng.index(self.links.len());
                self.links[link].cut(&mut self.nodes, self.now_ms);
            }
            if self.rng.permille(800) {
                self.adopt(node);
            }
            // Connections that are acknowledged by all may come to any node, whatever its configuration.
            if self.is_in_sync() {
                self.salt = self.rng.next_u64();
                self.move_clients();
            }
        }
        self.go_on(40)
    }

    /// Lets all nodes want the same reference table for long enough, in general, and a little longer:
    /// the table is moving then, or has moved.
    fn agree(&mut self) -> Result<(), String> {
        (0..self.nodes.len()).for_each(|node| self.adopt(node));
        let end_ms = self.now_ms + SETTLE_MS + self.rng.below(1_000);
        let has_takeover = self.rng.permille(400);
        while self.now_ms < end_ms {
            self.traffic()?;
            if has_takeover && self.nodes.iter().flatten().any(Node::compares) {
                self.begin_takeover();
            }
        }
        // Routers move flows next.
        self.settle()
    }

    /// Continues with at most this many packets.
    fn go_on(&mut self, packets_max: usize) -> Result<(), String> {
        (0..self.rng.index(packets_max + 1)).try_for_each(|_| self.traffic())
    }

    /// Another configuration than the one in force.
    pub fn next_configuration(&mut self) -> Configuration {
        self.met.configurations += 1;
        let mut next = self.configuration;
        next.revision += 1;
        let number = self.rng.index(BACKENDS.into());
        let active = &mut next.active;
        active[number] = !active[number];
        active[0] |= !active.contains(&true);
        next
    }

    pub fn adopt(&mut self, node: usize) {
        if let Some(node) = &mut self.nodes[node]
            && node.configuration != self.configuration
        {
            node.adopt(self.configuration);
            let what = format!("{} adopts {}", node.name, self.configuration.revision);
            self.note(None, what);
        }
    }

    /// Records an event.
    pub fn note(&mut self, client: Option<u32>, what: String) {
        self.log.push((self.now_ms, client, what));
    }

    /// The nodes' entries for a client's connection.
    pub fn known(&self, client: u32) -> String {
        let nodes = self.nodes.iter().flatten();
        nodes.map(|node| node.shown(client)).collect::<Vec<_>>().join(", ")
    }

    /// The error of the cluster, with the earlier events of a client's connection.
    pub fn failure(&self, client: u32, why: String) -> String {
        let of_it = self.log.iter().filter(|it| it.1.is_none_or(|it| it == client));
        let lines: Vec<_> = of_it.map(|(ms, _, what)| format!("{ms} ms: {what}")).collect();
        let from = lines.len().saturating_sub(SHOWN_MAX);
        let (events, known) = (lines[from..].join("\n"), self.known(client));
        format!("{:?}\n{events}\n{} ms: {why}: {known}", self.setup, self.now_ms)
    }

    pub fn turn(&mut self) {
        for link in &mut self.links {
            link.turn(&mut self.nodes, self.now_ms);
        }
        self.nodes.iter_mut().flatten().for_each(|node| node.turn(self.now_ms));
        self.carry_to_successor();
    }

    /// Lets nodes communicate until they are in sync, while packets continue.
    pub fn settle(&mut self) -> Result<(), String> {
        for link in &mut self.links {
            (link.is_parted, link.is_stalled) = (false, false);
            link.delay_ms = 1 + self.rng.below(5);
        }
        let end_ms = self.now_ms + SETTLED_MS;
        while self.now_ms < end_ms {
            self.traffic()?;
            if self.is_in_sync() {
                return self.check_ends();
            }
        }
        Err(format!("{:?}: at {} ms: never in sync", self.setup, self.now_ms))
    }

    pub fn is_in_sync(&self) -> bool {
        let is_up = |peer: &str| self.is_up(peer);
        self.nodes.iter().flatten().all(|it| it.is_in_sync(is_up))
    }

    /// Whether all nodes are in contact.
    pub fn are_joined(&self) -> bool {
        let is_up = |peer: &str| self.is_up(peer);
        self.nodes.iter().flatten().all(|it| it.is_joined(is_up))
    }

    /// Whether the node of this name is not down.
    pub fn is_up(&self, node: &str) -> bool {
        self.nodes.iter().flatten().any(|it| it.name == node)
    }

    /// Kills a node, brings one back, or changes routes.
    fn change_nodes(&mut self) -> Result<(), String> {
        self.salt = self.rng.next_u64();
        let down: Vec<_> = (0..self.nodes.len()).filter(|&it| self.nodes[it].is_none()).collect();
        if let Some(&node) = down.first()
            && self.rng.permille(700)
        {
            self.restart(node);
            self.salt = self.rng.next_u64();
            // It is not announced before it knows the others' connections, and the reference table.
            if self.setup.mutant != Mutant::AnnouncedEarly {
                self.settle()?;
            }
            self.announced.push(node);
        } else if self.announced.len() > 1 && !self.is_spared && self.rng.permille(700) {
            self.kill();
        }
        self.move_clients();
        Ok(())
    }

    /// Brings a node back, with empty tables.
    fn restart(&mut self, node: usize) {
        self.met.restarts += 1;
        self.note(None, format!("{} comes back", name(node)));
        let begin = (self.configuration, clock(self.setup, self.now_ms, &mut self.rng));
        self.nodes[node] = Some(self.started(node, begin));
    }

    /// A node that starts now.
    pub fn started(&mut self, node: usize, begin: (Configuration, Clock)) -> Node {
        self.starts += 1;
        Node::new((node, self.nodes.len()), self.starts, begin, self.setup)
    }

    /// Kills some node.
    pub fn kill(&mut self) {
        let index = self.rng.index(self.announced.len());
        self.kill_node(self.announced[index]);
    }

    /// Kills a node. Those of its connections that peers may not have learned of are lost.
    pub fn kill_node(&mut self, node: usize) {
        self.met.kills += 1;
        self.note(None, format!("{} is killed", name(node)));
        self.announced.retain(|it| *it != node);
        let Some(killed) = self.nodes[node].take() else { return };
        for client in std::mem::take(&mut self.fresh) {
            let is_exception = killed.workers.knows(client).is_some_and(|it| it.is_exception);
            let is_replacing = self.replacing.contains(&client);
            if is_exception && !is_replacing && self.is_repeated(client) {
                self.met.repeated += 1;
                self.repeated.insert(client);
            } else if is_exception || is_replacing {
                self.met.unpromised += u64::from(self.clients.remove(&client).is_some());
                self.lingering.insert(client);
                continue;
            }
            self.fresh.insert(client);
        }
        for client in std::mem::take(&mut self.ended) {
            self.lingering.insert(client);
            self.clients.entry(client).and_modify(|it| it.is_end_said = false);
        }
        let now_ms = self.now_ms;
        self.clients.values_mut().for_each(|client| client.lose_node(now_ms));
    }

    /// Whether a node has the exception of a node that is gone, and repeats its claim.
    fn is_repeated(&mut self, client: u32) -> bool {
        let Some(it) = self.clients.get_mut(&client) else { return false };
        let knows = |node: &Node| {
            let known = node.workers.knows(client);
            known.is_some_and(|known| known.is_exception && known.backend == Some(it.backend))
        };
        let is_known = self.nodes.iter().flatten().any(knows);
        is_known && !self.setup.is_crowded() && it.counts_on_claim(self.now_ms)
    }

    /// From now on each connection may come to another node.
    pub fn move_clients(&mut self) {
        self.announced.sort_unstable();
        self.note(None, format!("routers send to {:?}", self.announced));
        self.clients.values_mut().for_each(|client| client.has_moved = true);
    }
}

/// The clock of a node that starts.
fn clock(setup: Setup, now_ms: u64, rng: &mut Rng) -> Clock {
    match setup.clocks {
        Clocks::Right => Clock::right(now_ms),
        Clocks::Wrong => Clock::wrong(now_ms, rng),
    }
}
