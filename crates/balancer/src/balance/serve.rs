//! Packets from clients to services, and routers' errors about packets from services. Uses the full
//! headers, this worker's connections and its fragments. A packet that may not be wrapped never
//! enters a connection.

use super::schedule::Placement;
use super::{BalanceDrop, Tables, Turn, Worker, admission};
use crate::classify::hash;
use crate::connection::{Connection, State};
use crate::connections::{Kept, Position, Vacancy};
use crate::services::{Found, Service, ServiceTable, TargetId};
use crate::spec::Scheduler;
use hotloop::packet::PacketBuf;
use hotloop::packet::answer::IcmpError;
use hotloop::packet::classify::Layout;
use hotloop::packet::flow_key::FlowKey;
use hotloop::packet::ip::{Fragment, protocol};
use hotloop::packet::own_header::OwnHeader;
use hotloop::packet::tcp::is_syn;
use hotloop::stage::Instant;
use std::net::IpAddr;

/// A packet of a flow to a service.
pub(super) struct FromClient<'a> {
    pub(super) key: &'a FlowKey,
    pub(super) hash: u32,
    /// TCP's flags; 0 for other protocols.
    pub(super) flags: u8,
}

impl FromClient<'_> {
    /// Whether the packet belongs to a TCP connection that has begun already.
    pub(super) const fn is_within_tcp(&self) -> bool {
        self.key.protocol() == protocol::TCP && !is_syn(self.flags)
    }
}

impl<P: PacketBuf> Worker<P> {
    /// A packet to an address of a service.
    pub(super) fn serve(
        &mut self,
        turn: &mut Turn<'_, '_, '_, P>,
        packet: P,
        header: &OwnHeader,
        layout: Layout,
    ) {
        let Some(packet) = self.may_encapsulate(turn, packet, header) else { return };
        if header.fragment == Fragment::Later {
            return self.later_fragment(turn, packet, header, layout);
        }
        let hash = hash(packet.data(), layout, &self.seed);
        let chosen = if layout.is_tunnel() {
            // The packet goes by its inner flow, and is not remembered.
            let (address, protocol) = (header.destination, header.protocol);
            service_for(turn.services, address, protocol, 0, false).and_then(|service| {
                let (client, now) = (header.source, turn.now());
                self.schedule.consistent(turn.services, service, client, hash, now)
            })
        } else {
            match layout.key(packet.data()) {
                Some(key) => {
                    let flags = header.tcp_flags(packet.data());
                    let is_echo = header.is_echo(packet.data());
                    let from_client = FromClient { key: &key, hash, flags };
                    let (services, port) = (turn.services, key.destination_port());
                    self.follow(turn, &from_client, || {
                        service_for(services, header.destination, header.protocol, port, is_echo)
                    })
                }
                None => Err(BalanceDrop::Malformed),
            }
        };
        let target = match chosen {
            Ok(target) => target,
            Err(reason) => return turn.reject(packet, reason),
        };
        if header.fragment == Fragment::First {
            self.first_fragment(turn, packet, header, target, hash);
        } else {
            self.send_to(turn, packet, target, hash);
        }
    }

    /// The target of a packet's connection, which is entered if it is new.
    fn follow<'d>(
        &mut self,
        turn: &Turn<'d, '_, '_, P>,
        packet: &FromClient<'_>,
        service: impl FnOnce() -> Result<&'d Service, BalanceDrop>,
    ) -> Result<TargetId, BalanceDrop> {
        let found = self.connections.find(packet.key, turn.now());
        self.follow_found(turn, packet, found, service)
    }

    /// Like [`follow`](Self::follow), after the search for the connection.
    pub(super) fn follow_found<'d>(
        &mut self,
        turn: &Turn<'d, '_, '_, P>,
        packet: &FromClient<'_>,
        found: Result<(Position, u64), Vacancy>,
        service: impl FnOnce() -> Result<&'d Service, BalanceDrop>,
    ) -> Result<TargetId, BalanceDrop> {
        let services = turn.services;
        let (position, silent_ns) = match found {
            Ok(found) => found,
            Err(vacancy) => return self.enter(turn, service()?, packet, vacancy),
        };
        let mut connection = self.connections.connection(position).expect("it was found just now");
        let found = services.target(connection.target);
        let is_syn = is_syn(packet.flags);
        let is_over = connection.is_over(silent_ns);
        // An active backend gets a SYN of the same ports, too: only the backend can tell whether it
        // begins another connection.
        if let Found::Active(target) = found
            && (target.is_usable || !(is_syn && is_over))
        {
            if is_syn && connection.state() == State::Closing {
                turn.admit_lazily(service, packet)?;
            }
            connection.follow_client(packet.flags, self.connections.clock(turn.now()));
            self.connections.set(position, packet.key, connection, turn.now());
            return Ok(connection.target);
        }
        let is_flushed = matches!(found, Found::Flushed);
        // A connection without a SYN begins anew with any packet.
        if is_flushed && packet.is_within_tcp() {
            return Err(BalanceDrop::Flushed);
        }
        let begins_anew = is_syn && (is_over || is_flushed);
        let service = service()?;
        if begins_anew {
            turn.admit(service, packet)?;
        }
        self.replace(turn, service, packet, position, connection, begins_anew)
    }

    /// Moves a connection to another target: another connection begins in its place, or its own
    /// target is gone.
    fn replace(
        &mut self,
        turn: &Turn<'_, '_, '_, P>,
        service: &Service,
        packet: &FromClient<'_>,
        position: Position,
        mut connection: Connection,
        begins_anew: bool,
    ) -> Result<TargetId, BalanceDrop> {
        let client = packet.key.source();
        let (services, now) = (turn.services, turn.now());
        let target = self.schedule.choose(services, service, client, packet.hash, now)?;
        self.schedule.connection_removed(connection.target, turn.counts);
        self.schedule.connection_added(target, turn.counts.target(target));
        let clock = self.connections.clock(now);
        if begins_anew {
            connection.begin_anew(target, packet.key.protocol(), packet.flags, clock);
        } else {
            connection.go_on_with(target, clock);
            connection.follow_client(packet.flags, clock);
        }
        let placement = Placement::new(services, packet.key, packet.hash);
        connection.set_exception(placement.is_exception(services, packet.key, target));
        self.connections.set(position, packet.key, connection, now);
        Ok(target)
    }

    /// The target of a connection that is new here.
    fn enter(
        &mut self,
        turn: &Turn<'_, '_, '_, P>,
        service: &Service,
        packet: &FromClient<'_>,
        vacancy: Vacancy,
    ) -> Result<TargetId, BalanceDrop> {
        turn.admit(service, packet)?;
        let (services, now) = (turn.services, turn.now());
        let (client, hash) = (packet.key.source(), packet.hash);
        let begins_plainly = service.begins_plainly();
        let placement = match begins_plainly {
            // All tables choose alike.
            true => Placement::default(),
            false => Placement::new(services, packet.key, hash),
        };
        let referred = placement.of_unknown(services, packet.key);
        let begins = packet.key.protocol() == protocol::TCP && !packet.is_within_tcp();
        let consistent = match referred.filter(|_| !begins) {
            Some(target) => target,
            None => self.schedule.consistent(services, service, client, hash, now)?,
        };
        // Entered before the scheduler chooses, so that a connection without room doesn't use up
        // the scheduler's turn.
        let clock = self.connections.clock(now);
        let mut connection =
            Connection::new(consistent, packet.key.protocol(), packet.flags, clock);
        let kept = Kept::without_header(hash);
        let tables = Tables { services, counts: turn.counts };
        let made = self.insert_new(tables, vacancy, kept, connection, now);
        let Some(position) = made else {
            // No node will know it.
            return Ok(referred.unwrap_or(consistent));
        };
        if !begins_plainly {
            let is_chosen_anew = match service.scheduler {
                Scheduler::Maglev => false,
                Scheduler::Source => begins || referred.is_none(),
                Scheduler::RoundRobin | Scheduler::LeastConnections => true,
            };
            if is_chosen_anew
                && !packet.is_within_tcp()
                && let Ok(chosen) = self.schedule.choose(services, service, client, hash, now)
            {
                connection.target = chosen;
            }
            if referred.is_none() && !packet.is_within_tcp() {
                // Nodes that still take the reference's backend have to learn of this one.
                connection.begin(clock);
            }
            let is_exception = placement.is_exception(services, packet.key, connection.target);
            connection.set_exception(is_exception);
            self.connections.set(position, packet.key, connection, now);
        }
        let id = connection.target;
        self.schedule.connection_added(id, turn.counts.target(id));
        Ok(id)
    }

    /// Counts a new connection, and enters it if there is room and the limit per second isn't
    /// reached.
    #[inline(always)]
    pub(super) fn insert_new(
        &mut self,
        Tables { services, counts }: Tables<'_>,
        vacancy: Vacancy,
        kept: Kept,
        connection: Connection,
        now: Instant,
    ) -> Option<Position> {
        counts.admitted.add(1);
        let per_second_max = services.settings.new_connections_per_second_max;
        let Self { connections, schedule, new_connections, .. } = self;
        let on_removed = |left| schedule.connection_removed(left, counts);
        if new_connections.has_room(now, per_second_max)
            && let Some(position) = connections.insert(vacancy, kept, connection, now, on_removed)
        {
            new_connections.count();
            return Some(position);
        }
        counts.stateless.add(1);
        None
    }

    /// Sends the first fragment of a datagram, and then the fragments that wait for it.
    fn first_fragment(
        &mut self,
        turn: &mut Turn<'_, '_, '_, P>,
        packet: P,
        header: &OwnHeader,
        target: TargetId,
        hash: u32,
    ) {
        let datagram = header.fragment_id();
        self.fragments.firsts.remember(datagram, target, turn.now());
        self.send_to(turn, packet, target, hash);
        while let Some((packet, hash)) = self.fragments.released(datagram) {
            self.send_to(turn, packet, target, hash);
        }
    }

    /// Handles a fragment without ports: it goes to the target of the datagram's first fragment, or
    /// waits for that fragment.
    fn later_fragment(
        &mut self,
        turn: &mut Turn<'_, '_, '_, P>,
        packet: P,
        header: &OwnHeader,
        layout: Layout,
    ) {
        let (datagram, now) = (header.fragment_id(), turn.now());
        let hash = hash(packet.data(), layout, &self.seed);
        if let Some(target) = self.fragments.firsts.target(datagram, now) {
            return self.send_to(turn, packet, target, hash);
        }
        if let Some(packet) = self.fragments.wait(datagram, hash, packet, now) {
            turn.reject(packet, BalanceDrop::FragmentOrphan);
        }
    }

    /// Drops the fragments that have waited too long; without a time, all of them.
    pub(super) fn give_up_fragments(
        &mut self,
        turn: &mut Turn<'_, '_, '_, P>,
        now: Option<Instant>,
    ) {
        while let Some(packet) = self.fragments.given_up(now) {
            turn.reject(packet, BalanceDrop::FragmentOrphan);
        }
    }

    /// Handles an ICMP error about the packet that it quotes.
    pub(super) fn error(
        &mut self,
        turn: &mut Turn<'_, '_, '_, P>,
        packet: P,
        header: &OwnHeader,
        layout: Layout,
    ) {
        let quoted = layout.key(packet.data());
        let Some(quoted) = quoted.filter(|_| !header.is_hop_by_hop(packet.data())) else {
            return self.punt(turn, packet);
        };
        // The quoted packet went from the service to the client.
        let key = quoted.reversed();
        let is_vip = turn.services.is_vip(header.destination);
        if key.destination() != header.destination || !is_vip {
            return match is_vip {
                true => turn.reject(packet, BalanceDrop::NoService),
                false => self.punt(turn, packet),
            };
        }
        let Some(packet) = self.may_encapsulate(turn, packet, header) else { return };
        let hash = self.seed.hash(&key);
        match self.target_of_error(turn.services, &key, hash, turn.now()) {
            // The backend's own error: it must not come back to the backend (RFC 2003, section 3).
            Ok(target) if turn.services.is_at(target, header.source) => {
                turn.reject(packet, BalanceDrop::TunnelLoop);
            }
            Ok(target) => self.send_to(turn, packet, target, hash),
            Err(reason) => turn.reject(packet, reason),
        }
    }

    /// The target of the connection that an error is about. Any host can send errors, so they are
    /// followed but not remembered.
    fn target_of_error(
        &mut self,
        services: &ServiceTable,
        key: &FlowKey,
        hash: u32,
        now: Instant,
    ) -> Result<TargetId, BalanceDrop> {
        let found = self.connections.find(key, now).ok();
        if let Some(connection) =
            found.and_then(|(position, _)| self.connections.connection(position))
        {
            match services.target(connection.target) {
                Found::Active(_) => return Ok(connection.target),
                Found::Flushed => return Err(BalanceDrop::Flushed),
                Found::Removed => {}
            }
        }
        if let Some(target) = Placement::new(services, key, hash).of_unknown(services, key) {
            return Ok(target);
        }
        let service = services.service_of_flow(key).ok_or(BalanceDrop::NoService)?;
        self.schedule.consistent(services, service, key.source(), hash, now)
    }

    /// Returns the packet if it may be wrapped; otherwise it was dropped.
    fn may_encapsulate(
        &mut self,
        turn: &mut Turn<'_, '_, '_, P>,
        packet: P,
        header: &OwnHeader,
    ) -> Option<P> {
        let reason = admission::of_addresses(turn.services, header.source, header.destination);
        let is_looping = || {
            header.is_tunnel()
                && header.fragment != Fragment::Later
                && admission::is_looping(turn.services, header, packet.data())
        };
        if let Some(reason) = reason.or_else(|| is_looping().then_some(BalanceDrop::TunnelLoop)) {
            turn.reject(packet, reason);
        } else if let Some(pointer) = admission::spent_limit(header, packet.data()) {
            let error = IcmpError::ParameterProblem { pointer };
            self.answer(turn, packet, BalanceDrop::EncapsulationLimit, error);
        } else {
            return Some(packet);
        }
        None
    }
}

/// The service that takes a packet to this address; for echo requests to forward, any service of
/// the address.
fn service_for(
    services: &ServiceTable,
    address: IpAddr,
    protocol: u8,
    port: u16,
    is_echo: bool,
) -> Result<&Service, BalanceDrop> {
    let service = services.service_of(address, protocol, port);
    let echo = || if is_echo { services.service_of_echo(address) } else { None };
    service.or_else(echo).ok_or(BalanceDrop::NoService)
}
