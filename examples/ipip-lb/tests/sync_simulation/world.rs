//! What happens in a cluster, by a seed.

use crate::Mutant;
use crate::link::Link;
use crate::model::{BACKENDS, Configuration, routed};
use crate::node::{Node, Packet, name};
use hotloop::testing::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

const ROUNDS: usize = 6;
const PACKETS_PER_ROUND: usize = 400;
const CLIENTS: u64 = 150;

/// Nodes that can talk are in sync after so many milliseconds, or never.
const SETTLED_MS: u64 = 60_000;

/// What has happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Met {
    pub packets: u64,
    pub moved_exceptions: u64,
    pub kills: u64,
    pub restarts: u64,
    pub cuts: u64,
    pub configurations: u64,
    pub reused: u64,
    pub strays: u64,
    pub ended_away: u64,
    pub unpromised: u64,
    pub planned: u64,
    pub discarded: u64,
    pub killed_between: u64,
}

impl Met {
    pub fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.moved_exceptions += other.moved_exceptions;
        self.kills += other.kills;
        self.restarts += other.restarts;
        self.cuts += other.cuts;
        self.configurations += other.configurations;
        self.reused += other.reused;
        self.strays += other.strays;
        self.ended_away += other.ended_away;
        self.unpromised += other.unpromised;
        self.planned += other.planned;
        self.discarded += other.discarded;
        self.killed_between += other.killed_between;
    }
}

/// A connection, as its client has it.
struct Client {
    backend: IpAddr,
    began_ms: u64,
    /// No packet of it has come since nodes changed: should the table change before one does, nobody
    /// can know that it is there.
    is_unseen: bool,
    /// It was on several nodes. Where not all are in sync when it ends, what one of them claimed of it may arrive later.
    has_moved: bool,
    /// One of them was killed, or claimed it in error: some node may remember it for longer.
    has_lost_node: bool,
}

pub struct World {
    pub rng: Rng,
    pub mutant: Mutant,
    pub now_ms: u64,
    pub nodes: Vec<Option<Node>>,
    pub links: Vec<Link>,
    /// Those that the router sends to.
    pub announced: Vec<usize>,
    salt: u64,
    pub configuration: Configuration,
    /// Clients that began or ended a connection since all nodes were in sync: what a node knows of these ends with it.
    fresh: BTreeSet<u32>,
    clients: BTreeMap<u32, Client>,
    /// Those of which a connection ended that some node may remember for longer: the limit that the documentation states.
    lingering: BTreeSet<u32>,
    starts: u64,
    pub met: Met,
}

impl World {
    pub fn new(seed: u64, mutant: Mutant) -> Self {
        let mut rng = Rng::seeded(seed);
        let count = 2 + rng.index(4);
        let configuration = Configuration { revision: 1, active: [true; BACKENDS as usize] };
        let node = |node| Some(Node::new((node, count), node as u64 + 1, configuration, mutant));
        let pairs = (0..count).flat_map(|one| (one + 1..count).map(move |other| [one, other]));
        Self {
            mutant,
            now_ms: 0,
            nodes: (0..count).map(node).collect(),
            links: pairs.map(Link::new).collect(),
            announced: (0..count).collect(),
            salt: rng.next_u64(),
            rng,
            configuration,
            fresh: BTreeSet::new(),
            clients: BTreeMap::new(),
            lingering: BTreeSet::new(),
            starts: count as u64,
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
        }
        Ok(self.met)
    }

    /// Packets, while everything happens that may happen between nodes.
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

    /// Another configuration, which nodes adopt at other times each.
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

    /// Nothing is promised of connections that no node knows.
    pub fn forget_unseen(&mut self) {
        // A packet that comes now to a node that never saw one may meet either.
        self.clients.retain(|client, it| {
            self.met.unpromised += u64::from(it.is_unseen);
            if it.is_unseen {
                self.lingering.insert(*client);
            }
            !it.is_unseen
        });
    }

    pub fn adopt(&mut self, node: usize) {
        if let Some(node) = &mut self.nodes[node]
            && node.configuration != self.configuration
        {
            node.adopt(self.configuration, self.now_ms);
        }
    }

    /// A packet of a connection, or one that begins or ends, and what nodes do meanwhile.
    pub fn traffic(&mut self) -> Result<(), String> {
        let client = self.rng.below(CLIENTS) as u32;
        match self.clients.contains_key(&client) {
            true if self.rng.permille(60) => self.send(client, Packet::Fin)?,
            true => self.send(client, Packet::Data)?,
            false if self.may_begin(client) => self.send(client, Packet::Syn)?,
            false => {}
        }
        self.now_ms += 5 + self.rng.below(10);
        self.turn();
        if self.is_in_sync() {
            self.fresh.clear();
        }
        Ok(())
    }

    /// Whether a client may use this port: no node believes that it has the earlier connection itself.
    fn may_begin(&mut self, client: u32) -> bool {
        let known: Vec<_> =
            self.nodes.iter().flatten().filter_map(|it| it.knows(client, self.now_ms)).collect();
        let may = match self.lingering.contains(&client) {
            // Nor is a claim of it under way.
            true => known.is_empty() && self.is_in_sync(),
            false => known.iter().all(|(is_own, _)| !is_own),
        };
        if may {
            self.lingering.remove(&client);
        }
        self.met.reused += u64::from(may && !known.is_empty());
        may
    }

    fn turn(&mut self) {
        for link in &mut self.links {
            link.turn(&mut self.nodes, &mut self.rng, self.now_ms);
        }
        self.nodes.iter_mut().flatten().for_each(|node| node.turn(self.now_ms));
    }

    fn send(&mut self, client: u32, packet: Packet) -> Result<(), String> {
        let number = routed(client, self.salt, &self.announced);
        let node = self.nodes[number].as_mut().expect("a node that is announced is up");
        let (backend, was_remote) = node.packet(client, packet, self.now_ms);
        self.met.packets += 1;
        if packet != Packet::Data {
            self.fresh.insert(client);
        }
        self.met.moved_exceptions += u64::from(was_remote);
        let known = self.clients.entry(client).or_insert(Client {
            backend,
            began_ms: self.now_ms,
            is_unseen: false,
            has_moved: false,
            has_lost_node: false,
        });
        known.is_unseen = false;
        let Client { backend: expected, has_moved, has_lost_node, .. } = *known;
        if packet == Packet::Fin {
            let is_whole = self.is_in_sync();
            // An end under a newer configuration waits at nodes that do not have it.
            let revision = self.configuration.revision;
            let mut nodes = self.nodes.iter().flatten();
            let are_alike = nodes.all(|node| node.configuration.revision == revision);
            if has_lost_node || has_moved && !is_whole || !are_alike {
                self.lingering.insert(client);
            }
            self.clients.remove(&client);
            self.met.ended_away += u64::from(self.links.iter().any(|link| !link.is_connected()));
        }
        if backend == expected {
            return Ok(());
        }
        Err(format!(
            "at {} ms, by {} of {}: a packet ({packet:?}) of client {client} went to {backend}, not \
             to {expected}",
            self.now_ms,
            name(number),
            self.nodes.len()
        ))
    }

    /// Packets of exceptions come to nodes that have not heard of them: what such a node believes is wrong until it
    /// hears the owner.
    fn stray(&mut self) {
        // Ages are as wrong as messages are late.
        let old = self.clients.iter().filter(|(_, it)| it.began_ms + 3_000 < self.now_ms);
        let clients: Vec<u32> = old.map(|(client, _)| *client).collect();
        for client in clients {
            let right = routed(client, self.salt, &self.announced);
            let other = self.rng.index(self.nodes.len());
            let now_ms = self.now_ms;
            let knows = |node: usize| self.nodes[node].as_ref().map(|it| it.knows(client, now_ms));
            let is_exception = knows(right) == Some(Some((true, true)));
            if is_exception && other != right && knows(other) == Some(None) {
                self.met.strays += 1;
                let node = self.nodes[other].as_mut().expect("it was asked");
                node.packet(client, Packet::Data, now_ms);
                if node.compares()
                    && let Some(it) = self.clients.get_mut(&client)
                {
                    // It may have claimed what it believes, and nobody ends that claim.
                    it.has_lost_node = true;
                }
            }
        }
    }

    /// Lets nodes talk until they are in sync, while packets go on.
    fn settle(&mut self) -> Result<(), String> {
        for link in &mut self.links {
            (link.is_parted, link.delay_ms) = (false, 1 + self.rng.below(5));
        }
        let end_ms = self.now_ms + SETTLED_MS;
        while self.now_ms < end_ms {
            self.traffic()?;
            if self.is_in_sync() {
                return Ok(());
            }
        }
        Err(format!("at {} ms: never in sync", self.now_ms))
    }

    fn is_in_sync(&self) -> bool {
        let is_up = |peer: &str| {
            (0..self.nodes.len()).any(|it| self.nodes[it].is_some() && name(it) == peer)
        };
        self.nodes.iter().flatten().all(|it| it.is_in_sync(is_up, self.now_ms))
    }

    /// A node is killed or comes back, or routes change.
    fn change_nodes(&mut self) -> Result<(), String> {
        self.salt = self.rng.next_u64();
        let down: Vec<_> = (0..self.nodes.len()).filter(|&it| self.nodes[it].is_none()).collect();
        if let Some(&node) = down.first()
            && self.rng.permille(700)
        {
            self.met.restarts += 1;
            self.starts += 1;
            let id = (node, self.nodes.len());
            self.nodes[node] = Some(Node::new(id, self.starts, self.configuration, self.mutant));
            self.salt = self.rng.next_u64();
            // It is not announced before it knows what the others do.
            self.settle()?;
            self.announced.push(node);
        } else if self.announced.len() > 1 && self.rng.permille(700) {
            self.kill();
        }
        self.move_clients();
        Ok(())
    }

    /// A node is killed. Those of its connections that peers may not have heard of are lost.
    pub fn kill(&mut self) {
        self.met.kills += 1;
        let node = self.announced.swap_remove(self.rng.index(self.announced.len()));
        self.nodes[node] = None;
        for client in std::mem::take(&mut self.fresh) {
            self.met.unpromised += u64::from(self.clients.remove(&client).is_some());
            self.lingering.insert(client);
        }
        self.clients.values_mut().for_each(|client| client.has_lost_node = true);
    }

    /// Each connection may come to another node from now on.
    pub fn move_clients(&mut self) {
        self.announced.sort_unstable();
        self.clients
            .values_mut()
            .for_each(|client| (client.is_unseen, client.has_moved) = (true, true));
    }

    /// Some connections go on at once; others are silent for a while.
    fn packet_of_each(&mut self) -> Result<(), String> {
        let clients: Vec<u32> = self.clients.keys().copied().collect();
        for client in clients {
            if self.rng.permille(900) {
                self.send(client, Packet::Data)?;
            }
        }
        Ok(())
    }
}
