//! The entries of connections, and waiting fragments.

use super::net::Target;
use super::packet::Packet;
use super::rules::Datagram;
use super::wire::{TCP, UDP};
use std::net::IpAddr;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum State {
    Opening,
    Established,
    Closing,
    Udp,
    Other,
}

#[derive(Clone, Copy, Debug)]
pub struct Connection {
    pub target: Target,
    pub state: State,
    pub last_ns: u64,
    /// The time of its backend's first packet, or of the SYN that may have begun another connection
    /// there.
    pub since_ns: u64,
    /// Whether the server sent any packet, and any packet other than an RST.
    is_server_seen: bool,
    pub is_answered: bool,
    /// Whether the client sent more than one packet.
    pub is_repeated: bool,
    /// Whether it is marked that its backend differs from the configuration's choice.
    pub is_exception: bool,
    client_said_fin: bool,
    server_said_fin: bool,
    /// Whether it is certainly in the table: a full table may have refused it, or evicted it for
    /// another.
    pub is_sure: bool,
    /// Whether it may have been entered anew without the model's notice, so that it may be unknown
    /// which side has sent packets.
    pub is_vague: bool,
}

/// A connection in the balancer's table.
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    /// Its backend, by service and address, if that is present.
    pub target: Option<(u32, IpAddr)>,
    pub state: State,
    pub is_exception: bool,
}

/// A fragment that waits for its first.
#[derive(Clone, Debug)]
pub struct Waiting {
    pub datagram: Datagram,
    pub since: u64,
    pub hash: u32,
    pub packet: Packet,
}

/// A limit per second; a second begins with the first event after the last second's end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    start: Option<u64>,
    count: u32,
}

impl Window {
    pub fn has_room(&self, now: u64, most: u32) -> bool {
        match self.start {
            Some(start) if now - start < 1_000_000_000 => self.count < most,
            _ => most > 0,
        }
    }

    pub fn count(&mut self, now: u64) {
        if self.start.is_none_or(|start| now - start >= 1_000_000_000) {
            *self = Self { start: Some(now), count: 0 };
        }
        self.count += 1;
    }
}

/// The errors of one kind that were sent in this second, with their networks.
#[derive(Clone, Debug, Default)]
pub struct Errors {
    window: Window,
    networks: Vec<Vec<u8>>,
}

impl Errors {
    /// Whether one more may go to this host now, in total and to its network.
    pub fn have_room(&mut self, now: u64, to: IpAddr) -> [bool; 2] {
        let in_all = self.window.has_room(now, 1_000);
        if self.window.start.is_some_and(|start| now - start >= 1_000_000_000) {
            self.networks.clear();
        }
        let network = network(to);
        [in_all, self.networks.iter().filter(|it| **it == network).count() < 100]
    }

    pub fn count(&mut self, now: u64, to: IpAddr) {
        self.window.count(now);
        self.networks.push(network(to));
    }
}

/// The first bytes of an address: 24 bits of IPv4, 64 of IPv6.
fn network(host: IpAddr) -> Vec<u8> {
    match host {
        IpAddr::V4(host) => host.octets()[..3].to_vec(),
        IpAddr::V6(host) => host.octets()[..8].to_vec(),
    }
}

/// Whether these flags of TCP open a connection.
pub fn is_syn(flags: Option<u8>) -> bool {
    flags.is_some_and(|flags| flags & (SYN | ACK | RST | FIN) == SYN)
}

/// Whether these TCP flags are sent with data, and neither begin nor end a connection.
fn is_data(flags: Option<u8>) -> bool {
    flags.is_some_and(|flags| flags & (SYN | RST | FIN | PSH) == PSH)
}

impl Connection {
    pub fn new(target: Target, protocol: u8, flags: Option<u8>, now: u64) -> Self {
        let state = match (protocol, is_syn(flags)) {
            (TCP, true) => State::Opening,
            (TCP, false) => State::Established,
            (UDP, _) => State::Udp,
            _ => State::Other,
        };
        let mut connection = Self {
            target,
            state,
            last_ns: now,
            since_ns: now,
            is_server_seen: false,
            is_answered: false,
            is_repeated: false,
            is_exception: false,
            client_said_fin: false,
            server_said_fin: false,
            is_sure: true,
            is_vague: false,
        };
        connection.client_sent(flags, now);
        connection.is_repeated = false;
        connection
    }

    /// Follows a packet of the client on this connection, or one that begins a new connection with the
    /// same ports on the same backend.
    pub fn client_sent(&mut self, flags: Option<u8>, now: u64) {
        self.last_ns = now;
        self.is_repeated = true;
        if (is_syn(flags) || is_data(flags)) && self.state == State::Closing {
            let anew = Self::new(self.target, TCP, flags, now);
            let Self { is_exception, is_sure, is_vague, .. } = *self;
            *self = Self { is_exception, is_sure, is_vague, ..anew };
        }
        if is_syn(flags) && self.state == State::Established {
            self.since_ns = now;
        }
        let Some(flags) = flags else { return };
        self.client_said_fin |= flags & FIN != 0;
        if self.state == State::Opening && flags & (SYN | RST) == 0 {
            self.state = State::Established;
        }
        self.close_where_over(flags);
    }

    pub fn server_sent(&mut self, flags: Option<u8>, now: u64) {
        self.last_ns = now;
        let Some(flags) = flags else { return };
        self.is_server_seen = true;
        self.is_answered |= flags & RST == 0;
        self.server_said_fin |= flags & FIN != 0;
        self.close_where_over(flags);
    }

    /// Its backend is gone, and it continues with another.
    pub fn moves_to(&mut self, target: Target, now: u64) {
        (self.target, self.since_ns, self.is_answered) = (target, now, false);
    }

    /// Whether it is of the kind that leaves a full table last, if openings are remembered for this
    /// long; `None` if only the table's own clock can tell.
    pub fn stays(&self, opening_ns: u64) -> Option<bool> {
        let lasted_ns = self.last_ns - self.since_ns;
        let has_lasted = match lasted_ns.abs_diff(opening_ns) {
            0..50_000_000 => None,
            _ => Some(lasted_ns > opening_ns),
        };
        let is_established = match self.state {
            State::Opening | State::Closing => Some(false),
            State::Established if self.is_answered => Some(true),
            State::Established => has_lasted,
            State::Udp | State::Other if self.is_repeated => has_lasted,
            State::Udp | State::Other => Some(false),
        };
        if self.is_exception { is_established } else { Some(false) }
    }

    fn close_where_over(&mut self, flags: u8) {
        let both = self.client_said_fin && self.server_said_fin;
        let client_alone = self.client_said_fin && !self.is_server_seen;
        if flags & RST != 0 || both || client_alone {
            self.state = State::Closing;
        }
    }
}
