//! The connections of one core.
//!
//! A host's port has one *mapping*, to a port of the WAN address, for all destinations (RFC 4787,
//! REQ-1). A *connection* with one destination uses it. The mapping ends with its last connection.

use crate::drops::NatDrop;
use crate::fragments::{Origin, Side};
use crate::ports::Ports;
use crate::seen::Seen;
use hotloop::flow::{CLASS_COUNT, Class, Config, FlowError, Hint, Hints};
use hotloop::packet::tcp::flags::{ACK, FIN, RST, SYN};
use hotloop::packet::{ethernet::MacAddress, flow_key::FlowKeyV4, ip::protocol};
use hotloop::prelude::*;
use std::net::SocketAddrV4;

/// Number of places checked for expired connections in each turn of the core.
const EXPIRE_BUDGET: usize = 15;

const TRANSITORY: Class = Class::new(0);
const ESTABLISHED: Class = Class::new(1);
const DATAGRAMS: Class = Class::new(2);
const ECHOES: Class = Class::new(3);

/// Time in minutes for which a silent connection of each class is kept: RFC 5382, section 5 (TCP), RFC 4787,
/// section 4.3 (UDP), RFC 5508, section 3.2 (echoes).
const IDLE_MINUTES: [u64; CLASS_COUNT] = [4, 124, 5, 1, 0, 0, 0, 0];

/// The packets from the WAN that are let in, and numbers that hosts cannot exceed.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Whether packets from the WAN must come from an address and port that the host has sent to:
    /// address- and port-dependent filtering, or else endpoint-independent (RFC 4787, section 5).
    pub filters: bool,
    /// Maximum number of connections of one core.
    pub connections: usize,
    /// Maximum number of ports of a host, for all protocols: rounded up to a multiple of 64.
    pub ports_per_host: u16,
}

impl Default for Policy {
    fn default() -> Self {
        Self { filters: true, connections: 1 << 18, ports_per_host: 1024 }
    }
}

/// The state of a connection, beside its key.
#[derive(Clone, Copy, Debug)]
pub struct Connection {
    /// The port of the WAN address, or the echo identifier.
    port: u16,
    /// The state of a TCP connection: some of these bits.
    tcp: u8,
}

const LAN_SYN: u8 = 1;
const WAN_SYN: u8 = 2;
const CLOSING: u8 = 4;

/// The state of a TCP connection after a segment with these flags. A SYN without ACK after a FIN
/// begins a new connection.
const fn tcp_after(before: u8, from: Side, flags: u8) -> u8 {
    let is_new = before & CLOSING != 0 && flags & (SYN | ACK) == SYN;
    let kept = if is_new { 0 } else { before };
    let syn = if matches!(from, Side::Lan) { LAN_SYN } else { WAN_SYN };
    let closing = if flags & FIN != 0 { CLOSING } else { 0 };
    kept | closing | if flags & SYN != 0 { syn } else { 0 }
}

/// The connections and mappings of one core. Their keys are those of packets to the WAN, before
/// translation.
pub struct Connections {
    table: Table<FlowKeyV4, Connection>,
    ports: Ports,
    policy: Policy,
    /// The time of the burst.
    pub now: Instant,
}

/// A function that makes the table.
type MakeTable = fn(Arena, Config) -> Result<Table<FlowKeyV4, Connection>, FlowError>;

impl Connections {
    /// Without connections. `make` makes the table: [`Table::new`], except in benchmarks.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn new(core: &Core, policy: Policy, make: MakeTable) -> hotloop::Result<Self> {
        let ports = Ports::new(core, policy.ports_per_host);
        let idle_ns = IDLE_MINUTES.map(|minutes| minutes * 60_000_000_000);
        let config = Config { idle_ns, ..Config::new(policy.connections, 0) };
        let table = make(Arena::on(core.node())?, config)?;
        Ok(Self { table, ports, policy, now: Instant::default() })
    }

    /// Prefetches the connections of a burst's packets.
    #[inline(always)]
    pub fn hint_burst(&self, packets: impl Iterator<Item = Origin>, hints: &mut Hints) {
        let of_table = |(side, key)| if side == Side::Lan { key } else { self.inward(&key?) };
        self.table.hint_burst(packets.map(of_table), hints);
    }

    /// The key of a packet from the WAN with the host in place of the WAN address, if its port is
    /// mapped for its protocol.
    #[inline(always)]
    fn inward(&self, key: &FlowKeyV4) -> Option<FlowKeyV4> {
        let inside = self.ports.mappings[usize::from(key.source_port())]?.inside;
        let (host, port, protocol) = (inside.source(), inside.source_port(), inside.protocol());
        // Both ports of an echo are its identifier.
        let peer = if protocol == protocol::ICMP { port } else { key.destination_port() };
        let key_inside = FlowKeyV4::new(host, key.destination(), port, peer, protocol);
        (protocol == key.protocol()).then_some(key_inside)
    }

    /// The source port for a packet from the LAN: its mapping's. May open a connection.
    ///
    /// # Errors
    /// The packet belongs to no connection and opens none, or a limit is reached.
    pub fn port(&mut self, seen: &Seen) -> Result<u16, NatDrop> {
        let port = self.find(&seen.key, seen)?;
        if let Some(mapping) = &mut self.ports.mappings[usize::from(port)] {
            mapping.station = seen.station;
        }
        Ok(port)
    }

    /// The destination of a packet from the WAN: the host's address and port, and its station. May
    /// open a connection if packets are not filtered.
    ///
    /// # Errors
    /// The packet's port is not mapped, it belongs to no connection and opens none, or a limit is
    /// reached.
    pub fn host(&mut self, seen: &Seen) -> Result<(SocketAddrV4, MacAddress), NatDrop> {
        let key = self.inward(&seen.key).ok_or(NatDrop::NoConnection)?;
        let port = self.find(&key, seen)?;
        let mapping = self.ports.mappings[usize::from(port)].ok_or(NatDrop::NoConnection)?;
        Ok((SocketAddrV4::new(key.source(), key.source_port()), mapping.station))
    }

    /// The port of a packet's connection, which may be a new one. The packet keeps it alive; an
    /// error does not (RFC 5508, section 4.3).
    #[inline(always)]
    fn find(&mut self, key: &FlowKeyV4, seen: &Seen) -> Result<u16, NatDrop> {
        if seen.is_error {
            let found = self.table.peek(key, Hint::NONE, self.now);
            return found.map(|(handle, _)| self.table[handle].port).or(Err(NatDrop::NoConnection));
        }
        let Some((handle, found)) = self.table.find(key, seen.hint, self.now) else {
            return self.open(*key, seen);
        };
        let found = *found;
        self.note(handle, found, seen);
        Ok(found.port)
    }

    /// Notes a connection's packet: its class, and for TCP its state. A reset only shortens the
    /// timeout: it may be forged, and a later segment makes up for it (RFC 7857, section 2.2).
    #[inline(always)]
    fn note(&mut self, handle: Handle, found: Connection, seen: &Seen) {
        let class = match (seen.key.protocol(), seen.tcp_flags) {
            (protocol::UDP, _) => DATAGRAMS,
            (protocol::ICMP, _) => ECHOES,
            (_, None) => return,
            (_, Some(flags)) => {
                let tcp = tcp_after(found.tcp, seen.side, flags);
                if tcp != found.tcp {
                    self.table[handle].tcp = tcp;
                }
                // Both ends have sent a SYN, in any order (RFC 5382, REQ-2).
                let is_established = tcp == LAN_SYN | WAN_SYN && flags & RST == 0;
                if is_established { ESTABLISHED } else { TRANSITORY }
            }
        };
        self.table.set_class(handle, class);
    }

    /// Opens a connection if the packet may, and returns its port.
    fn open(&mut self, key: FlowKeyV4, seen: &Seen) -> Result<u16, NatDrop> {
        if !seen.may_open || seen.side != Side::Lan && self.policy.filters {
            return Err(NatDrop::NoConnection);
        }
        let Self { table, ports, now, .. } = self;
        let port = ports.open(&key, *now)?;
        let new = Connection { port, tcp: 0 };
        // An expired connection may have had its place.
        let mut leave = |_, expired: Connection| ports.close(expired.port, *now);
        let Ok(handle) = table.insert(key, new, *now, &mut leave) else {
            ports.close(port, *now);
            return Err(NatDrop::NoPort);
        };
        self.note(handle, new, seen);
        Ok(port)
    }

    /// Removes expired connections, some places at a time. Returns the number of connections.
    pub fn expire(&mut self) -> usize {
        let Self { table, ports, now, .. } = self;
        table.expire(*now, EXPIRE_BUDGET, |_, expired| ports.close(expired.port, *now));
        table.len()
    }
}
