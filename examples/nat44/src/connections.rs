//! The connections of one core, and its ports of the WAN address.

use crate::{nat::NatDrop, seen::Seen};
use hotloop::flow::{CLASS_COUNT, Class, Config};
use hotloop::packet::tcp::flags::{ACK, FIN, RST, SYN};
use hotloop::packet::{ethernet::MacAddress, flow_key::FlowKeyV4, ip::protocol};
use hotloop::prelude::*;
use std::{collections::VecDeque, net::SocketAddrV4};

/// The lowest port that a connection gets: those below are for services.
const PORT_MIN: u16 = 1024;

/// The number of places that are looked at for expired connections in each turn of the core.
const AGE_BUDGET: usize = 15;

const TRANSITORY: Class = Class::new(0);
const ESTABLISHED: Class = Class::new(1);
const DATAGRAMS: Class = Class::new(2);
const ECHOES: Class = Class::new(3);

/// How long a connection of each class is kept after its last packet, in minutes: RFC 5382, section 5
/// (TCP), RFC 4787, section 4.3 (UDP), RFC 5508, section 3.2 (echoes).
const IDLE_MINUTES: [u64; CLASS_COUNT] = [4, 124, 5, 1, 0, 0, 0, 0];

/// What is kept of a connection, beside its key.
#[derive(Clone, Copy, Debug)]
struct Connection {
    /// Its port of the WAN address, or its echo identifier.
    port: u16,
    /// The station that it came from last.
    station: MacAddress,
}

/// The connections of one core. Their keys are those of packets to the WAN, before translation.
pub struct Connections {
    table: Table<FlowKeyV4, Connection>,
    /// The ports that no connection has. The one that has been free for longest is the next: what is
    /// still on its way to the connection that had it must not reach another.
    free_ports: VecDeque<u16>,
    /// The connection that got each port last.
    owners: Box<[Option<FlowKeyV4>]>,
}

impl Connections {
    /// No connection yet, and room for one on each port that leads to this core: `port % cores` is its
    /// index.
    ///
    /// # Errors
    /// There is no memory for them.
    pub fn new(core: &Core) -> hotloop::Result<Self> {
        let leads_here = |port: &u16| usize::from(*port) % core.count() == core.index();
        let free_ports: VecDeque<_> = (PORT_MIN..=u16::MAX).filter(leads_here).collect();
        let idle_ns = IDLE_MINUTES.map(|minutes| minutes * 60_000_000_000);
        let config = Config { idle_ns, ..Config::new(free_ports.len(), 0) };
        let table = Table::new(Arena::on(core.node())?, config)?;
        Ok(Self { table, free_ports, owners: vec![None; 1 << 16].into() })
    }

    /// The port that a packet from the LAN leaves by: that of its connection, which it may open.
    ///
    /// # Errors
    /// It belongs to no connection and opens none, or no port is left.
    pub fn port(&mut self, seen: &Seen, now: Instant) -> Result<u16, NatDrop> {
        let opens = !seen.is_error && seen.tcp_flags.is_none_or(|flags| flags & (SYN | ACK) == SYN);
        let handle = match self.find(&seen.key, seen, now) {
            Some(handle) => handle,
            None if opens => self.open(seen, now)?,
            None => return Err(NatDrop::NoConnection),
        };
        self.classify(handle, seen);
        self.table[handle].station = seen.station;
        Ok(self.table[handle].port)
    }

    /// The host that a packet from the WAN goes to: its address and port, and its station. None where
    /// the packet belongs to no connection, or comes from another address than the host talks to (RFC
    /// 4787, section 5).
    pub fn host(&mut self, seen: &Seen, now: Instant) -> Option<(SocketAddrV4, MacAddress)> {
        let port = seen.key.source_port();
        let peer = |key: &FlowKeyV4| (key.destination(), key.protocol());
        let key = self.owners[usize::from(port)].filter(|key| peer(key) == peer(&seen.key))?;
        // A connection that was opened again has another port.
        let handle = self.find(&key, seen, now).filter(|it| self.table[*it].port == port)?;
        self.classify(handle, seen);
        let host = SocketAddrV4::new(key.source(), key.source_port());
        Some((host, self.table[handle].station))
    }

    /// The connection of a packet, which keeps it alive; an error does not (RFC 5508, section 4.3).
    fn find(&mut self, key: &FlowKeyV4, seen: &Seen, now: Instant) -> Option<Handle> {
        if seen.is_error { self.table.peek(key, now) } else { self.table.get(key, now) }
    }

    fn open(&mut self, seen: &Seen, now: Instant) -> Result<Handle, NatDrop> {
        let Self { table, free_ports, owners } = self;
        let port = *free_ports.front().ok_or(NatDrop::NoPort)?;
        let new = Connection { port, station: seen.station };
        // One that has expired may still have its place, and its port.
        let release = |_, expired: Connection| free_ports.push_back(expired.port);
        let handle = table.insert_evicting(seen.key, new, now, release);
        let handle = handle.map_err(|_| NatDrop::NoPort)?;
        free_ports.pop_front();
        owners[usize::from(port)] = Some(seen.key);
        Ok(handle)
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

    /// Lets go of connections that have expired, some places at a time, and of their ports. Returns
    /// how many there are.
    pub fn age(&mut self, now: Instant) -> usize {
        let Self { table, free_ports, .. } = self;
        table.age(now, AGE_BUDGET, |_, expired| free_ports.push_back(expired.port));
        table.len()
    }
}
