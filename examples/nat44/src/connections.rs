//! The connections of one core.
//!
//! A host's port has one *mapping*, to a port of the WAN address, for all destinations (RFC 4787,
//! REQ-1). A *connection* with one destination uses it. The mapping ends with its last connection.

use crate::drops::NatDrop;
use crate::fragments::{Origin, Side};
use crate::ports::{Mapping, Ports};
use crate::seen::Seen;
use crate::settings::Settings;
use hotloop::flow::{CLASS_COUNT, Class, Config, Cursor, FlowError, Hints};
use hotloop::packet::tcp::flags::{ACK, FIN, RST, SYN};
use hotloop::packet::{flow_key::FlowKeyV4, ip::protocol};
use hotloop::prelude::*;

/// Number of places checked for expired connections in each turn of the core.
const EXPIRE_BUDGET: usize = 15;

const TRANSITORY: Class = Class::new(0);
const ESTABLISHED: Class = Class::new(1);
const DATAGRAMS: Class = Class::new(2);
const ECHOES: Class = Class::new(3);

/// Time in minutes for which a silent connection of each class is kept: RFC 5382, section 5 (TCP), RFC 4787,
/// section 4.3 (UDP), RFC 5508, section 3.2 (echoes).
const IDLE_MINUTES: [u64; CLASS_COUNT] = [4, 124, 5, 1, 0, 0, 0, 0];

/// The state of a connection, beside its key.
#[derive(Clone, Copy, Debug)]
pub struct Connection {
    /// The port of the WAN address, or the echo identifier.
    pub port: u16,
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
    filters: bool,
    /// The time of the burst.
    pub now: Instant,
}

/// A connection in a listing.
pub type Row = (FlowKeyV4, Connection);

/// A core's end of the listing of connections.
pub type ConnectionLister = Lister<(), Cursor, Row>;

/// A function that makes the table.
type MakeTable = fn(Arena, Config) -> Result<Table<FlowKeyV4, Connection>, FlowError>;

impl Connections {
    /// Without connections. `make` makes the table: [`Table::new`], except in benchmarks.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn new(core: &Core, settings: &Settings, make: MakeTable) -> hotloop::Result<Self> {
        let idle_ns = IDLE_MINUTES.map(|minutes| minutes * 60_000_000_000);
        let config = Config { idle_ns, ..Config::new(settings.connections, 0) };
        let (table, filters) = (make(Arena::on(core.node())?, config)?, settings.filters);
        let ports = Ports::new(core, settings.ports_per_host);
        Ok(Self { table, ports, filters, now: Instant::default() })
    }

    /// Prefetches the connections of a burst's packets.
    pub fn hint_burst(&self, packets: impl Iterator<Item = Origin>, hints: &mut Hints) {
        self.table.hint_burst(packets.map(|(side, key)| self.inside(side, &key?)), hints);
    }

    /// The key of a packet's connection in the table: for a packet from the WAN, with the host in
    /// place of the WAN address, if its port is mapped for its protocol.
    fn inside(&self, side: Side, key: &FlowKeyV4) -> Option<FlowKeyV4> {
        if side == Side::Lan {
            return Some(*key);
        }
        let inside = self.ports.mappings[usize::from(key.source_port())]?.inside;
        let (host, port, protocol) = (inside.source(), inside.source_port(), inside.protocol());
        // Both ports of an echo are its identifier.
        let peer = if protocol == protocol::ICMP { port } else { key.destination_port() };
        let key_inside = FlowKeyV4::new(host, key.destination(), port, peer, protocol);
        (protocol == key.protocol()).then_some(key_inside)
    }

    /// The port of a packet's connection, with the mapping to it. May open a connection; for a
    /// packet from the WAN, if packets are not filtered.
    ///
    /// # Errors
    /// The port of a packet from the WAN is not mapped, the packet belongs to no connection and
    /// opens none, or a limit is reached.
    pub fn mapping(&mut self, seen: &Seen) -> Result<(u16, &mut Mapping), NatDrop> {
        let key = self.inside(seen.side, &seen.key).ok_or(NatDrop::NoConnection)?;
        let port = self.find(&key, seen)?;
        let mapping = self.ports.mappings[usize::from(port)].as_mut();
        Ok((port, mapping.ok_or(NatDrop::NoConnection)?))
    }

    /// The port of a packet's connection, which may be a new one. The packet keeps it alive; an
    /// error does not (RFC 5508, section 4.3).
    fn find(&mut self, key: &FlowKeyV4, seen: &Seen) -> Result<u16, NatDrop> {
        if seen.is_error {
            let found = self.table.peek(key, Hint::NONE, self.now);
            return found.map(|(handle, _)| self.table[handle].port).or(Err(NatDrop::NoConnection));
        }
        let Some((handle, found)) = self.table.find(key, seen.hint, self.now) else {
            return self.open(*key, seen);
        };
        let port = found.port;
        self.note(handle, seen);
        Ok(port)
    }

    /// Notes a TCP segment: the connection's state, and its class. A reset only shortens the
    /// timeout: it may be forged, and a later segment makes up for it (RFC 7857, section 2.2).
    fn note(&mut self, handle: Handle, seen: &Seen) {
        let Some(flags) = seen.tcp_flags else { return };
        let connection = &mut self.table[handle];
        connection.tcp = tcp_after(connection.tcp, seen.side, flags);
        // Both ends have sent a SYN, in any order (RFC 5382, REQ-2).
        let is_established = connection.tcp == LAN_SYN | WAN_SYN && flags & RST == 0;
        self.table.set_class(handle, if is_established { ESTABLISHED } else { TRANSITORY });
    }

    /// Opens a connection if the packet may, and returns its port.
    #[inline(never)]
    fn open(&mut self, key: FlowKeyV4, seen: &Seen) -> Result<u16, NatDrop> {
        if !seen.may_open || seen.side != Side::Lan && self.filters {
            return Err(NatDrop::NoConnection);
        }
        let port = self.ports.open(&key, self.now)?;
        // An expired connection may have had its place.
        let mut leave = |_, expired: Connection| self.ports.close(expired.port, self.now);
        let new = Connection { port, tcp: 0 };
        let Ok(handle) = self.table.insert(key, new, self.now, &mut leave) else {
            self.ports.close(port, self.now);
            return Err(NatDrop::NoPort);
        };
        // TCP's is noted below.
        let class = if key.protocol() == protocol::UDP { DATAGRAMS } else { ECHOES };
        self.table.set_class(handle, class);
        self.note(handle, seen);
        Ok(port)
    }

    /// Removes expired connections, some places at a time. Returns the number of connections.
    pub fn expire(&mut self) -> usize {
        let now = self.now;
        self.table.expire(now, EXPIRE_BUDGET, |_, expired| self.ports.close(expired.port, now));
        self.table.len()
    }

    /// Continues a listing, some places at a time.
    pub fn list(&self, lister: &mut ConnectionLister) {
        lister.tick(|(), from, budget, rows| {
            self.table.scan(from, budget, |key, connection| rows.push((*key, *connection)))
        });
    }
}
