//! The connections from their clients' view: they begin, send packets, end, and send a last packet
//! or two.

use super::model::{CLOSING_MS, Clocks, ESTABLISHED_MS, OPENING_MS, Packet, Phase, is_udp, routed};
use super::node::name;
use super::worker::Known;
use super::world::World;
use std::net::IpAddr;

/// How soon after an end packets may be late ones, in milliseconds: half a second, and the lag of claims.
const END_MS: u64 = 1_000;

/// Number of clients, with one port each.
pub const CLIENTS: u64 = 200;

/// A connection from its client's view.
pub struct Client {
    clocks: Clocks,
    pub backend: IpAddr,
    pub began_ms: u64,
    pub phase: Phase,
    /// The time of its last packet.
    pub seen_ms: u64,
    /// When a packet came after a long silence, and until when nodes keep the connection if they
    /// have not learned of that packet.
    woken: Option<(u64, u64)>,
    /// Set if its node may have been killed before others learned of that packet.
    known_no_longer_than_ms: Option<u64>,
    /// Whether its backend's answers come back through balancers.
    has_answers: bool,
    /// Whether it was on several nodes. If not all are in sync when it ends, an earlier claim of
    /// one of them may arrive later.
    pub has_moved: bool,
    /// Whether one of its nodes was killed, or claimed it in error: some node may remember it for
    /// longer.
    has_lost_node: bool,
    /// Whether some node may not learn that it has ended.
    lingers: bool,
    /// Whether its last packet's node knows that it has ended, and reports that to all others.
    pub is_end_said: bool,
    /// The number of the reference table that it goes by, unless it began as an exception.
    reference: Option<u32>,
    /// Whether it began without room: the reference table stays for as long as it may be alive.
    is_without_room: bool,
}

impl Client {
    /// A connection that begins now.
    const fn new(client: u32, backend: IpAddr, clocks: Clocks, now_ms: u64) -> Self {
        Self {
            clocks,
            backend,
            began_ms: now_ms,
            phase: if is_udp(client) { Phase::Open } else { Phase::Opening },
            seen_ms: now_ms,
            woken: None,
            known_no_longer_than_ms: None,
            has_answers: client.is_multiple_of(3),
            has_moved: false,
            has_lost_node: false,
            lingers: false,
            is_end_said: false,
            reference: None,
            is_without_room: false,
        }
    }

    /// The time until which all nodes know it without another packet.
    fn known_until_ms(&self) -> u64 {
        let idle_ms = match self.phase {
            Phase::Opening => OPENING_MS,
            Phase::Open => ESTABLISHED_MS,
            Phase::Closing(_) => CLOSING_MS,
        };
        let until_ms = self.seen_ms + self.clocks.known_ms(idle_ms);
        self.known_no_longer_than_ms.map_or(until_ms, |it| it.min(until_ms))
    }

    /// Records a packet.
    fn see(&mut self, now_ms: u64) {
        if self.woken.is_some_and(|(woken_ms, _)| woken_ms + self.clocks.said_ms() <= now_ms) {
            (self.woken, self.known_no_longer_than_ms) = (None, None);
        }
        if self.seen_ms + self.clocks.silence_ms() < now_ms {
            self.woken = Some((now_ms, self.known_until_ms()));
        }
        self.seen_ms = now_ms;
    }

    /// Whether it has begun so lately that nodes with a claim of a killed peer repeat that. They may only
    /// know that it is opening.
    pub fn counts_on_claim(&mut self, now_ms: u64) -> bool {
        let until_ms = self.began_ms + self.clocks.known_ms(OPENING_MS);
        self.woken = Some((now_ms, until_ms));
        self.known_no_longer_than_ms = Some(until_ms);
        now_ms < until_ms && !matches!(self.phase, Phase::Closing(_))
    }

    /// Records that a node is killed, which may be its own.
    pub fn lose_node(&mut self, now_ms: u64) {
        self.has_lost_node = true;
        let unsaid = self.woken.filter(|(woken_ms, _)| now_ms < woken_ms + self.clocks.said_ms());
        if let Some((_, until_ms)) = unsaid {
            self.known_no_longer_than_ms = Some(until_ms);
        }
    }
}

impl World {
    /// A packet of a connection, or one that begins or ends, with the nodes' actions meanwhile.
    pub fn traffic(&mut self) -> Result<(), String> {
        self.send_due()?;
        let client = self.rng.below(CLIENTS) as u32;
        match self.clients.get(&client).map(|it| it.phase) {
            _ if self.repeated.contains(&client) => {}
            // After a stray packet, the owner's claim corrects peers, but the claim of an end does
            // not.
            Some(Phase::Open) if self.rng.permille(50) => self.complain(client)?,
            Some(Phase::Open)
                if !self.strayed.contains(&client) && !is_udp(client) && self.rng.permille(60) =>
            {
                let reset = self.rng.permille(250);
                self.send(client, if reset { Packet::Rst } else { Packet::Fin })?;
            }
            Some(Phase::Open) => self.send(client, Packet::Data)?,
            Some(Phase::Opening | Phase::Closing(_)) => {}
            None if self.may_begin(client) => {
                self.send(client, if is_udp(client) { Packet::Data } else { Packet::Syn })?;
            }
            None => {}
        }
        self.now_ms += 5 + self.rng.below(10);
        self.turn();
        self.end_takeover();
        if self.is_in_sync() {
            self.fresh.clear();
            self.ended.clear();
            self.strayed.clear();
            self.replacing.clear();
            self.repeated.clear();
        } else if !self.are_joined() {
            // Some node may not learn that they have taken the place of others.
            for client in std::mem::take(&mut self.replacing) {
                self.met.unpromised += u64::from(self.clients.remove(&client).is_some());
                self.lingering.insert(client);
            }
        }
        Ok(())
    }

    /// Sends the due packets: those after a SYN, and the last packets of connections that have
    /// ended.
    fn send_due(&mut self) -> Result<(), String> {
        while let Some(&next) = self.due.first().filter(|(at_ms, _)| *at_ms <= self.now_ms) {
            self.due.remove(&next);
            let client = next.1;
            match self.clients.get(&client).map(|it| it.phase) {
                _ if self.repeated.contains(&client) => _ = self.due.insert((next.0 + 100, client)),
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

    /// Whether a client may use this port: not so soon after its last SYN that this may be the same one, nor
    /// so soon after its last packet that the next ones may be late packets; and no node has an exception that
    /// it believes to continue; and if any node still knows the earlier connection, all nodes are in contact.
    fn may_begin(&mut self, client: u32) -> bool {
        let is_within = |ms: Option<&u64>, time_ms| ms.is_some_and(|ms| ms + time_ms > self.now_ms);
        if is_within(self.began_ms.get(&client), self.setup.clocks.syn_again_ms())
            || is_within(self.seen_ms.get(&client), END_MS)
        {
            return false;
        }
        let nodes = self.nodes.iter().flatten();
        let known: Vec<_> = nodes.filter_map(|it| it.workers.knows(client)).collect();
        // A flow without a beginning is the one before, if any node knows that. So is one without room. And a
        // connection that has left a full table may have been handed over before.
        let is_bare = self.setup.is_crowded() || is_udp(client);
        let may = match self.lingering.contains(&client) || is_bare {
            // Nor is a claim to it under way.
            true => {
                let takeover = self.takeover.as_ref().filter(|_| self.setup.is_crowded());
                let is_handed_over = takeover.is_some_and(|it| it.knows(client));
                known.is_empty() && !is_handed_over && self.is_in_sync()
            }
            false => {
                // With wrong clocks, nodes forget an end at different times, and don't know whether it came before
                // others' packets.
                let has_wrong_clocks = self.setup.clocks == Clocks::Wrong;
                let number = routed(client, self.salt, &self.announced);
                let is_forgotten =
                    self.nodes[number].as_ref().is_none_or(|it| it.workers.knows(client).is_none());
                let is_over = |it: &Known| match (it.is_closing(), it.is_exception) {
                    (true, true) => !has_wrong_clocks || !is_forgotten,
                    (true, false) => !has_wrong_clocks,
                    (false, is_exception) => !is_exception,
                };
                known.is_empty() || self.are_joined() && known.iter().all(is_over)
            }
        };
        let has_stale = may && known.iter().any(|it| !it.is_closing());
        self.met.reused_unaware += u64::from(has_stale);
        if may {
            match has_stale {
                true => self.unaware.insert(client),
                false => self.unaware.remove(&client),
            };
            self.lingering.remove(&client);
            self.replacing.extend((!known.is_empty()).then_some(client));
        }
        self.met.reused += u64::from(may && !known.is_empty());
        may
    }

    /// Sends a client's packet to the node that routers select.
    pub fn send(&mut self, client: u32, packet: Packet) -> Result<(), String> {
        let number = routed(client, self.salt, &self.announced);
        let node = self.nodes[number].as_mut().expect("a node that is announced is up");
        let before = node.workers.knows(client);
        let backend = node.workers.packet(client, packet);
        self.met.packets += 1;
        let was_remote = before.is_some_and(|it| !it.is_own);
        self.met.moved_exceptions += u64::from(was_remote);
        self.met.moved_udp += u64::from(was_remote && is_udp(client));
        self.met.moved_to_workers += u64::from(was_remote && node.workers.owner(client) > 0);
        let after = node.workers.knows(client);
        let (reference, holds_table) = (node.reference(), node.holds_table());
        let is_new = !self.clients.contains_key(&client);
        let Some(backend) = backend else {
            return Err(self.failure(client, format!("{} drops {packet:?}", name(number))));
        };
        if self.is_noted {
            let by = name(number);
            let what = format!("{packet:?} by {by} to {backend}: {}", self.known(client));
            self.note(Some(client), what);
        }
        let now_ms = self.now_ms;
        let begun = || Client {
            reference: reference.filter(|_| after.is_none_or(|it| !it.is_exception)),
            is_without_room: after.is_none() && holds_table,
            ..Client::new(client, backend, self.setup.clocks, now_ms)
        };
        let known = self.clients.entry(client).or_insert_with(begun);
        let expected = known.backend;
        // A connection without an entry goes by the reference table.
        let goes_by_it = known.is_without_room || known.reference == reference;
        let may_leave = self.setup.is_crowded() && !is_new;
        let has_left = may_leave && before.is_none() && !goes_by_it;
        known.is_without_room &= after.is_none();
        let is_silent = known.known_until_ms() < now_ms;
        if is_silent || has_left {
            // Nothing is promised.
            self.met.timed_out += u64::from(is_silent);
            self.met.left += u64::from(has_left);
            known.lingers = true;
            self.forget(client);
            return Ok(());
        }
        known.see(now_ms);
        self.seen_ms.insert(client, now_ms);
        if is_new {
            self.began_ms.insert(client, now_ms);
            let is_elsewhere = before.is_some_and(|it| it.backend != Some(backend));
            self.met.reused_elsewhere += u64::from(is_elsewhere);
            self.met.without_room += u64::from(after.is_none());
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

    /// Sends a router's error about a connection to the node that routers select. It is no packet of the
    /// connection.
    fn complain(&mut self, client: u32) -> Result<(), String> {
        let Client { backend: expected, .. } = self.clients[&client];
        let number = routed(client, self.salt, &self.announced);
        let node = self.nodes[number].as_mut().expect("a node that is announced is up");
        let (before, backend) = (node.workers.knows(client), node.workers.error(client));
        self.met.errors += 1;
        self.met.errors_elsewhere += u64::from(before.is_some_and(|it| !it.is_own));
        let has_left = self.setup.is_crowded() && before.is_none();
        let it = &self.clients[&client];
        if backend == Some(expected) || has_left || it.known_until_ms() < self.now_ms {
            return Ok(());
        }
        let by = name(number);
        let why =
            format!("client {client}: an error by {by} went to {backend:?}, not to {expected}");
        Err(self.failure(client, why))
    }

    /// Sends the backend's answer to a packet through the same node, or another one.
    fn answer(&mut self, client: u32, packet: Packet, number: usize) {
        let it = &self.clients[&client];
        if !it.has_answers || packet == Packet::Rst {
            return;
        }
        // The last answer sometimes gets lost.
        let is_lost = packet == Packet::Fin && self.rng.permille(300);
        let is_by_another = self.rng.permille(400);
        let number = if is_by_another {
            self.announced[self.rng.index(self.announced.len())]
        } else {
            number
        };
        self.met.answers_by_others += u64::from(is_by_another);
        if let Some(node) = &mut self.nodes[number]
            && !is_lost
        {
            node.workers.answer(client, packet, it.backend);
        }
    }

    /// Updates the connection's phase with that packet.
    fn follow(&mut self, client: u32, packet: Packet, (number, was_remote): (usize, bool)) {
        let known = self.nodes[number].as_ref().and_then(|node| node.workers.knows(client));
        let it = self.clients.get_mut(&client).expect("it is there");
        it.phase = match (it.phase, packet) {
            (Phase::Opening, Packet::Data) => {
                // Peers that have not learned of that yet forget it like an opening one.
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
            let is_whole = self.is_in_sync();
            let it = self.clients.get_mut(&client).expect("it is there");
            self.ended.insert(client);
            it.lingers |= it.has_lost_node || it.has_moved && !is_whole;
            it.is_end_said =
                known.is_some_and(|it| it.is_own && it.is_exception && it.is_closing());
            let gap_max_ms = self.setup.clocks.known_ms(CLOSING_MS);
            let gap_ms = [500, 3_000, gap_max_ms][self.rng.index(3)].min(gap_max_ms);
            let gap_ms = self.rng.below(gap_ms - 200);
            self.due.insert((self.now_ms + gap_ms, client));
        }
    }

    /// Forgets a connection that is over.
    pub fn forget(&mut self, client: u32) {
        if self.clients.remove(&client).is_some_and(|it| it.lingers || it.has_lost_node) {
            self.lingering.insert(client);
        }
    }

    /// Sends packets of exceptions to nodes that have not learned of them: such a node's belief is
    /// wrong until the owner's claim comes.
    pub fn stray(&mut self) {
        if self.setup.is_crowded() {
            // Claims that find no room don't correct a node.
            return;
        }
        // Ages are wrong by the messages' delay. The owner's end does not correct a peer's belief.
        let old = self.clients.iter().filter(|(_, it)| {
            it.began_ms + 3_000 < self.now_ms && !matches!(it.phase, Phase::Closing(_))
        });
        let old = old.filter(|(client, _)| !self.repeated.contains(client));
        let clients: Vec<u32> = old.map(|(client, _)| *client).collect();
        for client in clients {
            let right = routed(client, self.salt, &self.announced);
            let knows = |node: usize| self.nodes[node].as_ref().map(|it| it.workers.knows(client));
            let unaware = (0..self.nodes.len()).find(|it| matches!(knows(*it), Some(None)));
            let is_exception = knows(right).flatten().is_some_and(|it| {
                it.is_own
                    && it.is_exception
                    && it.state == hotloop_balancer::connection::State::Established
            });
            if is_exception && let Some(other) = unaware {
                self.met.strays += 1;
                self.strayed.insert(client);
                let node = self.nodes[other].as_mut().expect("it was asked");
                node.workers.packet(client, Packet::Data);
                if node.compares()
                    && let Some(it) = self.clients.get_mut(&client)
                {
                    // The node may have made a wrong claim, which no node ends.
                    it.has_lost_node = true;
                }
            }
        }
    }

    /// Checks, when all nodes are in sync, that they know of the ends that a node has reported.
    pub fn check_ends(&mut self) -> Result<(), String> {
        for (client, it) in &self.clients {
            if !it.is_end_said
                || self.unaware.contains(client)
                || it.lingers
                || self.setup.is_crowded()
                || !matches!(it.phase, Phase::Closing(_))
            {
                continue;
            }
            for (number, node) in self.nodes.iter().enumerate() {
                let Some(known) = node.as_ref().and_then(|node| node.workers.knows(*client)) else {
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

    /// Some connections continue at once; others are silent for a while.
    pub fn packet_of_each(&mut self) -> Result<(), String> {
        let clients: Vec<u32> = self.clients.keys().copied().collect();
        for client in clients {
            let may_send = !self.repeated.contains(&client) && self.rng.permille(900);
            if self.clients[&client].phase == Phase::Open && may_send {
                self.send(client, Packet::Data)?;
            }
        }
        Ok(())
    }

    /// Lets a long time pass with few packets: nodes repeat their claims, and forget silent
    /// connections.
    pub fn sleep(&mut self) -> Result<(), String> {
        const STEP_MS: u64 = 15_000;
        const TURNS_MIN: u32 = 6;
        const TURNS_MAX: u32 = 60;
        self.met.sleeps += 1;
        // None is left in the middle of beginning or ending.
        for (_, client) in std::mem::take(&mut self.due) {
            match self.clients.get(&client).map(|it| it.phase) {
                Some(Phase::Opening) => self.send(client, Packet::Data)?,
                Some(Phase::Closing(_)) => self.forget(client),
                Some(Phase::Open) | None => {}
            }
        }
        let end_ms = self.now_ms + 100_000 + self.rng.below(2_900_000);
        while self.now_ms < end_ms {
            self.now_ms += STEP_MS;
            let clients: Vec<_> = self.clients.keys().copied().collect();
            for client in clients {
                // Half of the connections are silent; all others send a packet every five minutes, or every
                // minute if that is too seldom.
                let is_kept = client.is_multiple_of(2);
                let every_s = if self.setup.clocks == Clocks::Right { 300 } else { 60 };
                if is_kept && self.rng.permille((STEP_MS / every_s) as u32) {
                    self.send(client, Packet::Data)?;
                }
            }
            // Claims have to arrive before the next step: their time left does not shrink on the way.
            for turn in 0..TURNS_MAX {
                if turn >= TURNS_MIN && self.is_in_sync() {
                    break;
                }
                self.turn();
                self.now_ms += 10;
            }
        }
        // The time in milliseconds before each gets another packet.
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
