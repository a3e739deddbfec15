//! The events in a cluster, drawn by a seed.

use super::Mutant;
use super::clients::Client;
use super::link::Link;
use super::met::Met;
use super::model::{BACKENDS, Configuration};
use super::node::{Node, name};
use hotloop::testing::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of events that a failure shows.
const SHOWN_MAX: usize = 40;

const ROUNDS: usize = 6;
const PACKETS_PER_ROUND: usize = 400;

/// Nodes in contact are in sync after this many milliseconds, or never.
const SETTLED_MS: u64 = 60_000;

pub struct World {
    pub rng: Rng,
    pub mutant: Mutant,
    pub now_ms: u64,
    pub nodes: Vec<Option<Node>>,
    pub links: Vec<Link>,
    /// The nodes that the router sends to.
    pub announced: Vec<usize>,
    pub salt: u64,
    pub configuration: Configuration,
    /// Clients that began a connection since all nodes were in sync, or continued one after it was
    /// open: a node's knowledge of these ends with the node.
    pub fresh: BTreeSet<u32>,
    /// Clients that ended one.
    pub ended: BTreeSet<u32>,
    /// Clients with a packet that came to a node without the connection.
    pub strayed: BTreeSet<u32>,
    /// Clients that began a connection while some node still knew the previous one, since all nodes
    /// were in sync.
    pub replacing: BTreeSet<u32>,
    pub clients: BTreeMap<u32, Client>,
    /// When each client's next packet is due.
    pub due: BTreeSet<(u64, u32)>,
    /// Clients with an ended connection that some node may remember for longer: the limit in the
    /// documentation.
    pub lingering: BTreeSet<u32>,
    starts: u64,
    /// The events, and the client of each.
    log: Vec<(u64, Option<u32>, String)>,
    pub met: Met,
}

impl World {
    pub fn new(seed: u64, mutant: Mutant) -> Self {
        let mut rng = Rng::seeded(seed);
        let count = 2 + rng.index(4);
        let configuration = Configuration { revision: 1, active: [true; BACKENDS as usize] };
        let node =
            |node| Some(Node::new((node, count), node as u64 + 1, (configuration, 0), mutant));
        let pairs = (0..count).flat_map(|one| (one + 1..count).map(move |other| [one, other]));
        Self {
            mutant,
            now_ms: 0,
            nodes: (0..count).map(node).collect(),
            links: pairs.map(|pair| Link::new(pair, rng.fork())).collect(),
            announced: (0..count).collect(),
            salt: rng.next_u64(),
            rng,
            configuration,
            fresh: BTreeSet::new(),
            ended: BTreeSet::new(),
            strayed: BTreeSet::new(),
            replacing: BTreeSet::new(),
            clients: BTreeMap::new(),
            due: BTreeSet::new(),
            lingering: BTreeSet::new(),
            starts: count as u64,
            log: Vec::new(),
            met: Met::default(),
        }
    }

    pub fn run(mut self) -> Result<Met, String> {
        self.settle()?;
        for _ in 0..ROUNDS {
            self.disturb()?;
            self.stray();
            self.settle()?;
            self.planned_change()?;
            self.settle()?;
            self.change_nodes()?;
            self.packet_of_each()?;
            if self.rng.permille(250) {
                self.settle()?;
                self.sleep()?;
            }
        }
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
                _ => {}
            }
        }
        (0..self.nodes.len()).for_each(|node| self.adopt(node));
        Ok(())
    }

    /// Makes another configuration, which nodes adopt at different times.
    fn reconfigure(&mut self) {
        self.configuration = self.next_configuration();
        self.forget_unseen();
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
            node.adopt(self.configuration, self.now_ms);
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
        format!("{}\n{} ms: {why}: {}", lines[from..].join("\n"), self.now_ms, self.known(client))
    }

    pub fn turn(&mut self) {
        for link in &mut self.links {
            link.turn(&mut self.nodes, self.now_ms);
        }
        self.nodes.iter_mut().flatten().for_each(|node| node.turn(self.now_ms));
    }

    /// Lets nodes communicate until they are in sync, while packets continue.
    pub fn settle(&mut self) -> Result<(), String> {
        for link in &mut self.links {
            (link.is_parted, link.delay_ms) = (false, 1 + self.rng.below(5));
        }
        let end_ms = self.now_ms + SETTLED_MS;
        while self.now_ms < end_ms {
            self.traffic()?;
            if self.is_in_sync() {
                return self.check_ends();
            }
        }
        Err(format!("at {} ms: never in sync", self.now_ms))
    }

    pub fn is_in_sync(&self) -> bool {
        let is_up = |peer: &str| self.is_up(peer);
        self.nodes.iter().flatten().all(|it| it.is_in_sync(is_up, self.now_ms))
    }

    /// Whether all nodes are in contact.
    pub fn are_joined(&self) -> bool {
        let is_up = |peer: &str| self.is_up(peer);
        self.nodes.iter().flatten().all(|it| it.is_joined(is_up, self.now_ms))
    }

    /// Whether all nodes use the configuration in force.
    pub fn are_alike(&self) -> bool {
        let revision = self.configuration.revision;
        self.nodes.iter().flatten().all(|node| node.configuration.revision == revision)
    }

    /// Whether the node of this name is not down.
    pub fn is_up(&self, node: &str) -> bool {
        (0..self.nodes.len()).any(|it| self.nodes[it].is_some() && name(it) == node)
    }

    /// Kills a node, brings one back, or changes routes.
    fn change_nodes(&mut self) -> Result<(), String> {
        self.salt = self.rng.next_u64();
        let down: Vec<_> = (0..self.nodes.len()).filter(|&it| self.nodes[it].is_none()).collect();
        if let Some(&node) = down.first()
            && self.rng.permille(700)
        {
            self.restart(node, self.configuration);
            self.salt = self.rng.next_u64();
            // It is not announced before it knows the others' connections.
            self.settle()?;
            self.announced.push(node);
        } else if self.announced.len() > 1 && self.rng.permille(700) {
            self.kill();
        }
        self.move_clients();
        Ok(())
    }

    /// Brings a node back, with empty tables.
    pub fn restart(&mut self, node: usize, configuration: Configuration) {
        self.met.restarts += 1;
        self.starts += 1;
        let id = (node, self.nodes.len());
        let begin = (configuration, self.now_ms);
        self.note(None, format!("{} comes back with {}", name(node), configuration.revision));
        self.nodes[node] = Some(Node::new(id, self.starts, begin, self.mutant));
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
        self.nodes[node] = None;
        for client in std::mem::take(&mut self.fresh) {
            self.met.unpromised += u64::from(self.clients.remove(&client).is_some());
            self.lingering.insert(client);
        }
        for client in std::mem::take(&mut self.ended) {
            self.lingering.insert(client);
            self.clients.entry(client).and_modify(|it| it.is_end_said = false);
        }
        let now_ms = self.now_ms;
        self.clients.values_mut().for_each(|client| client.lose_node(now_ms));
    }

    /// From now on each connection may come to another node.
    pub fn move_clients(&mut self) {
        self.announced.sort_unstable();
        self.note(None, format!("routers send to {:?}", self.announced));
        self.clients
            .values_mut()
            .for_each(|client| (client.is_unseen, client.has_moved) = (true, true));
    }
}
