//! The connections, as their clients have them: they begin, send packets, end, and say a last word or two.

use super::model::{
    CLOSING_MS, ESTABLISHED_MS, OPENING_MS, Packet, Phase, SAID_MS, SILENCE_MS, known_ms, routed,
};
use super::node::name;
use super::world::World;
use std::net::IpAddr;

/// How many clients there are, with one port each.
const CLIENTS: u64 = 200;

/// A connection, as its client has it.
pub struct Client {
    pub backend: IpAddr,
    pub began_ms: u64,
    pub phase: Phase,
    /// When its last packet came.
    pub seen_ms: u64,
    /// When a packet came after a long silence, and until when nodes know it that have not heard of that one.
    woken: Option<(u64, u64)>,
    /// Since its node may have been killed before others heard of that packet.
    known_no_longer_than_ms: Option<u64>,
    /// What its backend answers comes back by balancers.
    has_answers: bool,
    /// No packet of it has come since nodes changed: should the table change before one does, nobody
    /// can know that it is there.
    pub is_unseen: bool,
    /// It was on several nodes. Where not all are in sync when it ends, what one of them claimed of it may arrive later.
    pub has_moved: bool,
    /// One of them was killed, or claimed it in error: some node may remember it for longer.
    has_lost_node: bool,
    /// Some node may not hear that it has ended.
    lingers: bool,
    /// The node that its last packet came to knows that it has ended, and has all others know.
    pub is_end_said: bool,
}

impl Client {
    /// Until when all nodes know it without another packet.
    fn known_until_ms(&self) -> u64 {
        let idle_ms = match self.phase {
            Phase::Opening => OPENING_MS,
            Phase::Open => ESTABLISHED_MS,
            Phase::Closing(_) => CLOSING_MS,
        };
        let until_ms = self.seen_ms + known_ms(idle_ms);
        self.known_no_longer_than_ms.map_or(until_ms, |it| it.min(until_ms))
    }

    /// A packet comes.
    fn see(&mut self, now_ms: u64) {
        if self.woken.is_some_and(|(woken_ms, _)| woken_ms + SAID_MS <= now_ms) {
            (self.woken, self.known_no_longer_than_ms) = (None, None);
        }
        if self.seen_ms + SILENCE_MS < now_ms {
            self.woken = Some((now_ms, self.known_until_ms()));
        }
        (self.is_unseen, self.seen_ms) = (false, now_ms);
    }

    /// A node is killed, which may be its own.
    pub fn lose_node(&mut self, now_ms: u64) {
        self.has_lost_node = true;
        let unsaid = self.woken.filter(|(woken_ms, _)| now_ms < woken_ms + SAID_MS);
        if let Some((_, until_ms)) = unsaid {
            self.known_no_longer_than_ms = Some(until_ms);
        }
    }
}

impl World {
    /// A packet of a connection, or one that begins or ends, and what nodes do meanwhile.
    pub fn traffic(&mut self) -> Result<(), String> {
        self.send_due()?;
        let client = self.rng.below(CLIENTS) as u32;
        match self.clients.get(&client).map(|it| it.phase) {
            // What peers believe of a stray packet, its owner's claim sets right, but not the claim of an end.
            Some(Phase::Open) if !self.strayed.contains(&client) && self.rng.permille(60) => {
                let reset = self.rng.permille(250);
                self.send(client, if reset { Packet::Rst } else { Packet::Fin })?;
            }
            Some(Phase::Open) => self.send(client, Packet::Data)?,
            Some(Phase::Opening | Phase::Closing(_)) => {}
            None if self.may_begin(client) => self.send(client, Packet::Syn)?,
            None => {}
        }
        self.now_ms += 5 + self.rng.below(10);
        self.turn();
        if self.is_in_sync() {
            self.fresh.clear();
            self.ended.clear();
            self.strayed.clear();
            self.replacing.clear();
        } else if !self.are_joined() {
            // Some node may not hear that they have taken the place of others.
            for client in std::mem::take(&mut self.replacing) {
                self.met.unpromised += u64::from(self.clients.remove(&client).is_some());
                self.lingering.insert(client);
            }
        }
        Ok(())
    }

    /// Sends what is due: what follows a SYN, and the last packets of connections that have ended.
    fn send_due(&mut self) -> Result<(), String> {
        while let Some(&next) = self.due.first().filter(|(at_ms, _)| *at_ms <= self.now_ms) {
            self.due.remove(&next);
            let client = next.1;
            match self.clients.get(&client).map(|it| it.phase) {
                Some(Phase::Opening) => self.send(client, Packet::Data)?,
                Some(Phase::Closing(0)) => self.forget(client),
                Some(Phase::Closing(_)) => {
                    self.met.late_packets += 1;
                    let packet = [Packet::Fin, Packet::Data][self.rng.index(2)];
                    self.send(client, packet)?;
                }
                Some(Phase::Open) | None => {}
            }
        }
        Ok(())
    }

    /// Whether a client may use this port: no node believes that the earlier connection goes on; and where one knows that at
    /// all, all nodes hear each other, and its end waits nowhere for a newer configuration.
    fn may_begin(&mut self, client: u32) -> bool {
        let number = routed(client, self.salt, &self.announced);
        let newest = self.nodes[number].as_ref().map_or(0, |it| it.configuration.revision);
        let nodes = self.nodes.iter().flatten().filter(|it| it.worker.knows(client).is_some());
        let holds_end = nodes.clone().any(|it| it.configuration.revision < newest);
        let known: Vec<_> = nodes.filter_map(|it| it.worker.knows(client)).collect();
        let may = match self.lingering.contains(&client) {
            // Nor is a claim of it under way.
            true => known.is_empty() && self.is_in_sync(),
            false => {
                known.is_empty()
                    || self.are_joined() && !holds_end && known.iter().all(|it| it.is_closing())
            }
        };
        if may {
            self.lingering.remove(&client);
            self.replacing.extend((!known.is_empty()).then_some(client));
        }
        self.met.reused += u64::from(may && !known.is_empty());
        may
    }

    /// A packet of a client comes to the node that routers send it to.
    pub fn send(&mut self, client: u32, packet: Packet) -> Result<(), String> {
        let number = routed(client, self.salt, &self.announced);
        let node = self.nodes[number].as_mut().expect("a node that is announced is up");
        let before = node.worker.knows(client);
        let backend = node.worker.packet(client, packet);
        self.met.packets += 1;
        let was_remote = before.is_some_and(|it| !it.is_own);
        self.met.moved_exceptions += u64::from(was_remote);
        let is_new = packet == Packet::Syn;
        let Some(backend) = backend else {
            return Err(self.failure(client, format!("{} drops {packet:?}", name(number))));
        };
        let what = format!("{packet:?} by {} to {backend}: {}", name(number), self.known(client));
        self.note(Some(client), what);
        let now_ms = self.now_ms;
        let known = self.clients.entry(client).or_insert(Client {
            backend,
            began_ms: now_ms,
            phase: Phase::Opening,
            seen_ms: now_ms,
            woken: None,
            known_no_longer_than_ms: None,
            has_answers: client.is_multiple_of(3),
            is_unseen: false,
            has_moved: false,
            has_lost_node: false,
            lingers: false,
            is_end_said: false,
        });
        let expected = known.backend;
        if known.known_until_ms() < now_ms {
            // Nothing is promised.
            self.met.timed_out += 1;
            known.lingers = true;
            self.forget(client);
            return Ok(());
        }
        known.see(now_ms);
        if is_new {
            let is_elsewhere = before.is_some_and(|it| it.backend != Some(backend));
            self.met.reused_elsewhere += u64::from(is_elsewhere);
            self.fresh.insert(client);
            self.due.insert((now_ms + self.rng.below(2_000), client));
        }
        if backend != expected {
            let why = format!(
                "client {client}: {packet:?} ({:?}) by {} went to {backend}, not to {expected}",
                known.phase,
                name(number)
            );
            return Err(self.failure(client, why));
        }
        self.answer(client, packet, number);
        self.follow(client, packet, (number, was_remote));
        Ok(())
    }

    /// What the backend says to a packet comes back by the node that it came by.
    fn answer(&mut self, client: u32, packet: Packet, number: usize) {
        let it = &self.clients[&client];
        if !it.has_answers || packet == Packet::Rst {
            return;
        }
        // What it says last gets lost at times.
        let is_lost = packet == Packet::Fin && self.rng.permille(300);
        if let Some(node) = &mut self.nodes[number]
            && !is_lost
        {
            node.worker.answer(client, packet, it.backend);
        }
    }

    /// How far the connection is by that packet.
    fn follow(&mut self, client: u32, packet: Packet, (number, was_remote): (usize, bool)) {
        let is_whole = self.is_in_sync();
        // An end under a newer configuration waits at nodes that do not have it.
        let are_alike = self.are_alike();
        let known = self.nodes[number].as_ref().and_then(|node| node.worker.knows(client));
        let it = self.clients.get_mut(&client).expect("it is there");
        it.phase = match (it.phase, packet) {
            (Phase::Opening, Packet::Data) => {
                // Peers that have not heard of that yet forget it as one that opens.
                self.fresh.insert(client);
                Phase::Open
            }
            (Phase::Opening | Phase::Open, Packet::Fin | Packet::Rst) => {
                self.met.closings += 1;
                self.met.resets += u64::from(packet == Packet::Rst);
                self.met.taken_over_by_end += u64::from(was_remote);
                self.met.ended_away +=
                    u64::from(self.links.iter().any(|link| !link.is_connected()));
                Phase::Closing([0, 0, 1, 1, 2, 4][self.rng.index(6)])
            }
            (Phase::Closing(count), _) => Phase::Closing(count - 1),
            (phase, _) => phase,
        };
        if matches!(it.phase, Phase::Closing(_)) {
            self.ended.insert(client);
            it.lingers |= it.has_lost_node || it.has_moved && !is_whole || !are_alike;
            it.is_end_said =
                known.is_some_and(|it| it.is_own && it.is_exception && it.is_closing());
            let gap_ms = [500, 3_000, known_ms(CLOSING_MS)][self.rng.index(3)];
            let gap_ms = self.rng.below(gap_ms - 200);
            self.due.insert((self.now_ms + gap_ms, client));
        }
    }

    /// A connection is over.
    pub fn forget(&mut self, client: u32) {
        if self.clients.remove(&client).is_some_and(|it| it.lingers || it.has_lost_node) {
            self.lingering.insert(client);
        }
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

    /// Packets of exceptions come to nodes that have not heard of them: what such a node believes is wrong until it
    /// hears the owner.
    pub fn stray(&mut self) {
        // Ages are as wrong as messages are late. What its owner says of an end does not set right what a peer believes.
        let old = self.clients.iter().filter(|(_, it)| {
            it.began_ms + 3_000 < self.now_ms && !matches!(it.phase, Phase::Closing(_))
        });
        let clients: Vec<u32> = old.map(|(client, _)| *client).collect();
        for client in clients {
            let right = routed(client, self.salt, &self.announced);
            let other = self.rng.index(self.nodes.len());
            let knows = |node: usize| self.nodes[node].as_ref().map(|it| it.worker.knows(client));
            let is_exception = knows(right).flatten().is_some_and(|it| {
                it.is_own
                    && it.is_exception
                    && it.state == hotloop_balancer::connection::State::Established
            });
            if is_exception && other != right && matches!(knows(other), Some(None)) {
                self.met.strays += 1;
                self.strayed.insert(client);
                let node = self.nodes[other].as_mut().expect("it was asked");
                node.worker.packet(client, Packet::Data);
                if node.compares()
                    && let Some(it) = self.clients.get_mut(&client)
                {
                    // It may have claimed what it believes, and nobody ends that claim.
                    it.has_lost_node = true;
                }
            }
        }
    }

    /// Where all nodes are in sync, they know of the ends that a node has had them know.
    pub fn check_ends(&mut self) -> Result<(), String> {
        for (client, it) in &self.clients {
            if !it.is_end_said || it.lingers || !matches!(it.phase, Phase::Closing(_)) {
                continue;
            }
            for (number, node) in self.nodes.iter().enumerate() {
                let Some(known) = node.as_ref().and_then(|node| node.worker.knows(*client)) else {
                    continue;
                };
                self.met.ends_heard += 1;
                if !known.is_closing() {
                    let why =
                        format!("{} doesn't know of the end of client {client}", name(number));
                    return Err(self.failure(*client, why));
                }
            }
        }
        Ok(())
    }

    /// Some connections go on at once; others are silent for a while.
    pub fn packet_of_each(&mut self) -> Result<(), String> {
        let clients: Vec<u32> = self.clients.keys().copied().collect();
        for client in clients {
            if self.clients[&client].phase == Phase::Open && self.rng.permille(900) {
                self.send(client, Packet::Data)?;
            }
        }
        Ok(())
    }

    /// A long time goes by, in which few packets come: nodes say again what they know, and forget what falls silent.
    pub fn sleep(&mut self) -> Result<(), String> {
        const STEP_MS: u64 = 15_000;
        self.met.sleeps += 1;
        // None is left in the midst of beginning or ending.
        for (_, client) in std::mem::take(&mut self.due) {
            match self.clients.get(&client).map(|it| it.phase) {
                Some(Phase::Opening) => self.send(client, Packet::Data)?,
                Some(Phase::Closing(_)) => self.forget(client),
                Some(Phase::Open) | None => {}
            }
        }
        let end_ms = self.now_ms + 100_000 + self.rng.below(1_500_000);
        while self.now_ms < end_ms {
            self.now_ms += STEP_MS;
            let clients: Vec<_> = self.clients.keys().copied().collect();
            for client in clients {
                // Half of the connections are silent; all others send something every five minutes.
                let is_kept = client.is_multiple_of(2);
                if is_kept && self.rng.permille((STEP_MS / 300) as u32) {
                    self.send(client, Packet::Data)?;
                }
            }
            for _ in 0..6 {
                self.turn();
                self.now_ms += 10;
            }
        }
        // So many milliseconds go by before each gets another packet.
        let silent: Vec<_> = self
            .clients
            .iter()
            .filter(|(_, it)| it.known_until_ms() < self.now_ms + 60_000)
            .map(|(client, _)| *client)
            .collect();
        self.met.timed_out += silent.len() as u64;
        for client in silent {
            self.clients.remove(&client);
            self.lingering.insert(client);
        }
        Ok(())
    }
}
