//! The connections of one core, and its share of the WAN address's ports.

use crate::drops::NatDrop;
use crate::seen::{Seen, Side};
use hotloop::flow::{CLASS_COUNT, Class, Config, FlowError, Hints};
use hotloop::packet::tcp::flags::{ACK, FIN, RST, SYN};
use hotloop::packet::{ethernet::MacAddress, flow_key::FlowKeyV4, ip::protocol};
use hotloop::prelude::*;
use std::{collections::VecDeque, net::SocketAddrV4};

/// The lowest port for connections: lower ones are for services.
const PORT_MIN: u16 = 1024;

/// Number of places checked for expired connections in each turn of the core.
const EXPIRE_BUDGET: usize = 15;

const TRANSITORY: Class = Class::new(0);
const ESTABLISHED: Class = Class::new(1);
const DATAGRAMS: Class = Class::new(2);
const ECHOES: Class = Class::new(3);

/// Time in minutes for which a silent connection of each class is kept: RFC 5382, section 5
/// (TCP), RFC 4787, section 4.3 (UDP), RFC 5508, section 3.2 (echoes).
const IDLE_MINUTES: [u64; CLASS_COUNT] = [4, 124, 5, 1, 0, 0, 0, 0];

/// The state of a connection, beside its key.
#[derive(Clone, Copy, Debug)]
pub struct Connection {
    /// The connection's port of the WAN address, or its echo identifier.
    port: u16,
    /// The last known station of its host.
    station: MacAddress,
}

/// The connections of one core. Their keys are those of packets to the WAN, before translation.
pub struct Connections {
    table: Table<FlowKeyV4, Connection>,
    /// The unused ports. The one that has been free for longest is the next: packets still on their
    /// way to its former connection must not reach another.
    free_ports: VecDeque<u16>,
    /// The connection that got each port last.
    owners: Box<[Option<FlowKeyV4>]>,
}

impl Connections {
    /// An empty table with room for one connection on each port that leads to this core: `port %
    /// cores` is its index. `make` makes the table: [`Table::new`], except in benchmarks.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn new(
        core: &Core,
        make: impl FnOnce(Arena, Config) -> Result<Table<FlowKeyV4, Connection>, FlowError>,
    ) -> hotloop::Result<Self> {
        let leads_here = |port: &u16| usize::from(*port) % core.count() == core.index();
        let free_ports: VecDeque<_> = (PORT_MIN..=u16::MAX).filter(leads_here).collect();
        let idle_ns = IDLE_MINUTES.map(|minutes| minutes * 60_000_000_000);
        let config = Config { idle_ns, ..Config::new(free_ports.len(), 0) };
        let table = make(Arena::on(core.node())?, config)?;
        Ok(Self { table, free_ports, owners: vec![None; 1 << 16].into() })
    }

    /// Prefetches the connections of a burst's packets, which came from these sides and have these
    /// keys.
    #[inline(always)]
    pub fn hint_burst(
        &self,
        packets: impl Iterator<Item = (Side, Option<FlowKeyV4>)>,
        hints: &mut Hints,
    ) {
        let of_table = |(side, key)| if side == Side::Lan { key } else { self.owner(&key?) };
        self.table.hint_burst(packets.map(of_table), hints);
    }

    /// The connection that last got the destination port of a packet from the WAN, if it has the
    /// packet's peer.
    #[inline(always)]
    fn owner(&self, seen: &FlowKeyV4) -> Option<FlowKeyV4> {
        let peer = |key: &FlowKeyV4| (key.destination(), key.protocol());
        self.owners[usize::from(seen.source_port())].filter(|key| peer(key) == peer(seen))
    }

    /// The source port for a packet from the LAN: its connection's. May open a connection.
    ///
    /// # Errors
    /// The packet belongs to no connection and opens none, or no port is left.
    pub fn port(&mut self, seen: &Seen, now: Instant) -> Result<u16, NatDrop> {
        let opens = !seen.is_error && seen.tcp_flags.is_none_or(|flags| flags & (SYN | ACK) == SYN);
        let (handle, Connection { port, station }) = match self.find(&seen.key, seen, now) {
            Some(found) => found,
            None if opens => self.open(seen, now)?,
            None => return Err(NatDrop::NoConnection),
        };
        self.classify(handle, seen);
        if station != seen.station {
            self.table[handle].station = seen.station;
        }
        Ok(port)
    }

    /// The destination of a packet from the WAN: the host's address and port, and its station.
    /// `None` if the packet belongs to no connection, or comes from an address that the host
    /// doesn't talk to (RFC 4787, section 5).
    pub fn host(&mut self, seen: &Seen, now: Instant) -> Option<(SocketAddrV4, MacAddress)> {
        let (key, port) = (self.owner(&seen.key)?, seen.key.source_port());
        // A connection that was reopened has another port.
        let (handle, found) =
            self.find(&key, seen, now).filter(|(_, connection)| connection.port == port)?;
        self.classify(handle, seen);
        Some((SocketAddrV4::new(key.source(), key.source_port()), found.station))
    }

    /// The connection of a packet, which keeps it alive; an error does not (RFC 5508, section 4.3).
    #[inline(always)]
    fn find(&mut self, key: &FlowKeyV4, seen: &Seen, now: Instant) -> Option<(Handle, Connection)> {
        if seen.is_error {
            return self.peek(key, seen, now);
        }
        self.table.find(key, seen.hint, now).map(|(handle, found)| (handle, *found))
    }

    #[cold]
    fn peek(&self, key: &FlowKeyV4, seen: &Seen, now: Instant) -> Option<(Handle, Connection)> {
        let (handle, _) = self.table.peek(key, seen.hint, now).ok()?;
        Some((handle, self.table[handle]))
    }

    fn open(&mut self, seen: &Seen, now: Instant) -> Result<(Handle, Connection), NatDrop> {
        let Self { table, free_ports, owners } = self;
        let port = *free_ports.front().ok_or(NatDrop::NoPort)?;
        let new = Connection { port, station: seen.station };
        // An expired connection may still have its place, and its port.
        let mut release = |_, expired: Connection| free_ports.push_back(expired.port);
        let handle = table.insert(seen.key, new, now, &mut release);
        let handle = handle.map_err(|_| NatDrop::NoPort)?;
        free_ports.pop_front();
        owners[usize::from(port)] = Some(seen.key);
        Ok((handle, new))
    }

    /// TCP is established once a SYN was answered, until one end is done.
    fn classify(&mut self, handle: Handle, seen: &Seen) {
        let class = match (seen.key.protocol(), seen.tcp_flags) {
            (protocol::UDP, _) => DATAGRAMS,
            (protocol::ICMP, _) => ECHOES,
            (_, Some(flags)) if flags & (FIN | RST) != 0 => TRANSITORY,
            (_, Some(flags)) if flags & (SYN | ACK) == SYN | ACK => ESTABLISHED,
            _ => return,
        };
        self.table.set_class(handle, class);
    }

    /// Removes expired connections, some places at a time, and frees their ports. Returns their
    /// number.
    pub fn expire(&mut self, now: Instant) -> usize {
        let Self { table, free_ports, .. } = self;
        table.expire(now, EXPIRE_BUDGET, |_, expired| free_ports.push_back(expired.port));
        table.len()
    }
}
