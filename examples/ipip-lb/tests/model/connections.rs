//! The rules about connections, and the targets of first fragments.

use super::net::{Target, client_hash};
use super::rules::{Datagram, Model};
use super::table::{Connection, Listed, State, is_syn};
use super::wire::TCP;
use hotloop::packet::flow_key::FlowKey;
use hotloop_balancer::spec::{IcmpEcho, Scheduler};
use std::collections::HashMap;

/// How long a first fragment is remembered, and the maximum number: the latest ones.
const DATAGRAM_NS: u64 = 2_000_000_000;
const DATAGRAMS_MAX: usize = 4096;

/// Silence after which a connection counts as over if a SYN comes.
const ABANDONED_NS: u64 = 60_000_000_000;

impl Model {
    /// Whether its time is up.
    pub fn is_over(&self, connection: &Connection) -> bool {
        let times = &self.net.balancer.timeouts;
        let idle_s = match connection.state {
            State::Opening => times.tcp_opening_s,
            State::Established => times.tcp_established_s,
            State::Closing => times.tcp_closing_s,
            State::Udp => times.udp_s,
            State::Other => times.other_s,
        };
        self.now - connection.last_ns > u64::from(idle_s) * 1_000_000_000
    }

    fn found(&self, key: &FlowKey) -> Option<Connection> {
        self.connections.get(key).filter(|it| !self.is_over(it)).copied()
    }

    /// Notes that a packet was seen, even if it went nowhere: it keeps its connection alive unless
    /// that was silent for too long.
    pub fn seen(&mut self, key: &FlowKey) {
        let is_recent = |it: &Connection| self.now - it.last_ns < ABANDONED_NS;
        if let Some(mut connection) = self.found(key).filter(is_recent) {
            connection.last_ns = self.now;
            self.connections.insert(*key, connection);
        }
    }

    /// Rule 7: the target of a client's packet, which has these flags if it is TCP.
    pub fn connected(
        &mut self,
        key: &FlowKey,
        service: Option<usize>,
        hash: u32,
        flags: Option<u8>,
    ) -> Result<Target, &'static str> {
        let Some(mut connection) = self.found(key) else {
            return self.admitted(key, service, hash, flags);
        };
        if !connection.is_sure {
            return self.unsure(key, connection, service, hash, flags);
        }
        let is_over =
            connection.state == State::Closing || self.now - connection.last_ns >= ABANDONED_NS;
        // Whatever its destination, the packet was seen.
        connection.last_ns = self.now;
        self.connections.insert(*key, connection);
        let (is_there, is_flushed) =
            (self.net.exists(connection.target), self.net.flushed.contains(&connection.target));
        let is_within_tcp = flags.is_some() && !is_syn(flags);
        if !is_there && is_flushed && is_within_tcp {
            return Err("flushed");
        }
        let takes_new_ones = self.net.is_usable(connection.target);
        if is_there && (takes_new_ones || !is_syn(flags) || !is_over) {
            self.met(match (is_syn(flags), takes_new_ones, is_over) {
                (false, ..) => "connection: known",
                (true, false, _) => "connection: a SYN, and its backend takes none",
                (true, true, false) => "connection: a SYN while it is open",
                (true, true, true) => "connection: a SYN when it is over",
            });
        } else {
            let service = service.ok_or("no_service")?;
            let chosen = self.scheduled(service, key.source(), hash)?;
            if is_syn(flags) && (is_over || is_flushed) {
                self.met(match (is_there, is_flushed) {
                    (true, _) => "connection: another begins elsewhere",
                    (false, true) => "flushed: begun again",
                    (false, false) => "connection: its backend is gone, another begins",
                });
                connection = Connection::new(chosen, key.protocol(), flags, self.now);
            } else {
                self.met("connection: its backend is gone");
                connection.moves_to(chosen, self.now);
            }
            connection.is_exception = self.differs(Some(service), key, hash, chosen);
        }
        let before = connection.state;
        connection.client_sent(flags, self.now);
        self.moved(before, connection.state);
        self.connections.insert(*key, connection);
        Ok(connection.target)
    }

    /// Whether a packet of this key goes elsewhere if nothing is remembered of it, or may.
    fn differs(
        &mut self,
        service: Option<usize>,
        key: &FlowKey,
        hash: u32,
        target: Target,
    ) -> bool {
        let Some(service) = service else { return true };
        let client = key.source();
        let hash = match self.net.scheduler(service) {
            Scheduler::Maglev => hash,
            Scheduler::Source => client_hash(&self.net.balancer, client),
            // They choose only for new connections; TCP doesn't begin in its midst.
            Scheduler::RoundRobin | Scheduler::LeastConnections if key.protocol() != TCP => {
                return true;
            }
            Scheduler::RoundRobin | Scheduler::LeastConnections => hash,
        };
        let by_hash = self.net.by_hash(service, hash);
        let due = by_hash.and_then(|it| self.other_than_client(service, it, client, hash).ok());
        due != Some(target)
    }

    /// Another configuration is in force, and all connections have been examined since.
    pub fn mark(&mut self) {
        for (key, mut connection) in self.connections.clone() {
            let is_echo = matches!(key.protocol(), 1 | 58);
            let mut service = self.service_of_key(&key);
            if is_echo && self.net.balancer.icmp_echo == IcmpEcho::Forward {
                service = service.or_else(|| self.net.any_of(key.destination()));
            }
            let hash = self.hash(&key);
            connection.is_exception = self.differs(service, &key, hash, connection.target);
            self.connections.insert(key, connection);
        }
    }

    fn moved(&mut self, before: State, after: State) {
        match (before, after) {
            (State::Opening, State::Established) => self.met("state: established"),
            (State::Opening | State::Established, State::Closing) => self.met("state: closing"),
            _ => {}
        }
    }

    /// Rule 7: an unknown connection.
    fn admitted(
        &mut self,
        key: &FlowKey,
        service: Option<usize>,
        hash: u32,
        flags: Option<u8>,
    ) -> Result<Target, &'static str> {
        let (client, service) = (key.source(), service.ok_or("no_service")?);
        let consistent = self.consistent(service, client, hash);
        if consistent == Err("no_backend") && self.net.services[service].is_all_down {
            self.met("all down: dropped");
        }
        let consistent = consistent?;
        self.outcome.admitted += 1;
        let most = self.net.balancer.new_connections_per_second_max;
        if !self.new_connections.has_room(self.now, most) {
            self.met("connection: too many new ones");
            self.outcome.stateless += 1;
            return Ok(consistent);
        }
        self.new_connections.count(self.now);
        let may_be_full = self.may_be_full(key);
        self.connections.remove(key);
        let mut is_sure = !may_be_full;
        if may_be_full {
            self.met("connection: the table may be full");
            is_sure = self.let_some_go(key);
        }
        let is_midway = key.protocol() == TCP && !is_syn(flags);
        let target = if is_midway {
            self.met("connection: taken over");
            consistent
        } else {
            self.met("connection: new");
            self.scheduled(service, client, hash).expect("there is a consistent choice")
        };
        let mut connection = Connection::new(target, key.protocol(), flags, self.now);
        connection.is_sure = is_sure;
        connection.is_exception = self.differs(Some(service), key, hash, target);
        self.connections.insert(*key, connection);
        Ok(target)
    }

    /// Whether the table of the key's family may have no room.
    fn may_be_full(&self, key: &FlowKey) -> bool {
        if self.connections.len() < self.net.balancer.connections_max {
            return false;
        }
        let of_family = |it: &&FlowKey| it.source().is_ipv4() == key.source().is_ipv4();
        self.connections.keys().filter(of_family).count() >= self.net.balancer.connections_max
    }

    /// Any connection may have to leave for a new one, except for exceptions of established
    /// connections if there are others. Returns whether there certainly are others: then one of
    /// these leaves.
    fn let_some_go(&mut self, key: &FlowKey) -> bool {
        let (family, now) = (key.source().is_ipv4(), self.now);
        let opening_ns = u64::from(self.net.balancer.timeouts.tcp_opening_s) * 1_000_000_000;
        let is_known = |it: &Connection| it.is_sure && !it.is_vague;
        let is_other = |(other, _): &(&FlowKey, &Connection)| {
            *other != key && other.source().is_ipv4() == family
        };
        let others = self.connections.iter().filter(is_other);
        let is_certain = others.clone().any(|(_, it)| {
            is_known(it) && !self.is_over(it) && it.stays(opening_ns) == Some(false)
        });
        let stays =
            |it: &Connection| is_certain && is_known(it) && it.stays(opening_ns) == Some(true);
        let (staying, leaving): (Vec<_>, Vec<_>) = others.partition(|(_, it)| stays(it));
        let staying_count = staying.len();
        debug_assert!(staying.iter().all(|(_, it)| it.last_ns <= now));
        for other in leaving.into_iter().map(|(other, _)| *other).collect::<Vec<_>>() {
            if let Some(connection) = self.connections.get_mut(&other) {
                connection.is_sure = false;
            }
        }
        if staying_count > 0 {
            self.met("connection: exceptions stay");
        }
        is_certain
    }

    /// A connection that may be known. Its scheduler's choice is the consistent one.
    fn unsure(
        &mut self,
        key: &FlowKey,
        mut connection: Connection,
        service: Option<usize>,
        hash: u32,
        flags: Option<u8>,
    ) -> Result<Target, &'static str> {
        self.met("connection: perhaps known");
        let consistent = service.and_then(|it| self.consistent(it, key.source(), hash).ok());
        let mut candidates = Vec::new();
        candidates.extend(Some(connection.target).filter(|it| self.net.exists(*it)));
        candidates.extend(consistent);
        let nowhere = if service.is_none() { "no_service" } else { "no_backend" };
        let target = self.follow(&candidates).or(consistent).ok_or(nowhere)?;
        // If it is unknown, it is new, and may evict others.
        self.let_some_go(key);
        if target != connection.target {
            connection = Connection::new(target, key.protocol(), flags, self.now);
        }
        connection.client_sent(flags, self.now);
        (connection.is_sure, connection.is_vague) = (false, true);
        self.connections.insert(*key, connection);
        Ok(target)
    }

    /// Rule 3: the target of the connection that an error is about, if there is one.
    pub fn target_of_error(
        &mut self,
        key: &FlowKey,
        hash: u32,
    ) -> Result<Option<Target>, &'static str> {
        let Some(mut connection) = self.found(key) else { return Ok(None) };
        connection.last_ns = self.now;
        self.connections.insert(*key, connection);
        if self.net.exists(connection.target) {
            if !connection.is_sure {
                let service = self.service_of_key(key);
                let consistent =
                    service.and_then(|it| self.consistent(it, key.source(), hash).ok());
                let candidates: Vec<_> =
                    std::iter::once(connection.target).chain(consistent).collect();
                return Ok(self.follow(&candidates));
            }
            return Ok(Some(connection.target));
        }
        if self.net.flushed.contains(&connection.target) { Err("flushed") } else { Ok(None) }
    }

    /// Rule 9: a server sent a packet of the connection with this key, if it is known.
    pub fn replied(&mut self, key: &FlowKey, flags: Option<u8>) -> Option<Connection> {
        let mut connection = self.found(key)?;
        let before = connection.state;
        connection.server_sent(flags, self.now);
        if before != State::Closing && connection.state == State::Closing {
            self.met("state: closing, by the server");
        }
        self.met("return: known");
        self.outcome.replies_known += 1;
        self.connections.insert(*key, connection);
        Some(connection)
    }

    /// Rule 6: a first fragment has this target.
    pub fn remember(&mut self, datagram: Datagram, target: Target) {
        self.remembered.push_back((datagram, target, self.now));
        if self.remembered.len() > DATAGRAMS_MAX {
            self.met("fragment: an earlier first is forgotten");
            self.remembered.pop_front();
        }
    }

    /// Rule 6: the target of the first fragment; of the latest one, if it came again.
    pub fn remembered_target(&mut self, datagram: Datagram) -> Option<Target> {
        let (_, target, since) = *self.remembered.iter().rfind(|it| it.0 == datagram)?;
        let is_over = self.now - since > DATAGRAM_NS;
        if is_over {
            self.met("fragment: its first was too long ago");
        }
        (!is_over).then_some(target)
    }
}

impl Model {
    /// Compares the connections with those in the balancer's tables. Takes over which connections
    /// left because their time was up, and resolves the uncertain ones.
    pub fn check_table(&mut self, listing: HashMap<FlowKey, Listed>) -> Result<(), String> {
        let before = std::mem::take(&mut self.listing);
        for (key, listed) in before {
            let is_live = |it: &Connection| it.is_sure && !self.is_over(it);
            let must_be_there = self.connections.get(&key).is_some_and(is_live);
            if must_be_there && !listing.contains_key(&key) {
                return Err(format!("{key:?}, {listed:?}: it left before its time"));
            }
        }
        for (key, listed) in &listing {
            let Some(connection) = self.connections.get(key).copied() else {
                return Err(format!("{key:?}, {listed:?}: in the balancer's table alone"));
            };
            if self.is_over(&connection) {
                continue;
            }
            let due = Some(connection.target).filter(|it| self.net.exists(*it));
            let due = due.map(|it| (it.service.0, it.address));
            if due != listed.target {
                return Err(format!("{key:?}, {listed:?}: the model has it at {due:?}"));
            }
            if connection.state != listed.state && !connection.is_vague {
                return Err(format!("{key:?}, {listed:?}: the model has it {connection:?}"));
            }
            if connection.is_exception != listed.is_exception && !connection.is_vague {
                return Err(format!("{key:?}, {listed:?}: the model has it {connection:?}"));
            }
            if let Some(connection) = self.connections.get_mut(key) {
                (connection.state, connection.is_sure) = (listed.state, true);
                connection.is_exception = listed.is_exception;
            }
        }
        let mut gone = self.connections.iter().filter(|(key, _)| !listing.contains_key(*key));
        if let Some((key, connection)) = gone.find(|(_, it)| it.is_sure && !self.is_over(it)) {
            return Err(format!("{key:?}, {connection:?}: in the model alone"));
        }
        self.connections.retain(|key, _| listing.contains_key(key));
        self.listing = listing;
        Ok(())
    }
}
