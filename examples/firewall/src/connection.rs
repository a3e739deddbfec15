//! Connections: their states, and how long each lasts without packets.

use crate::flow::Meaning;
use crate::side::Side;
use hotloop::flow::{Class, Classes, Config, Full};
use hotloop::packet::tcp::flags;

/// The state of a connection. Each is a class of the table, with a timeout of its own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    /// A SYN passed.
    Opening,
    /// The SYN was answered.
    Answered,
    /// The handshake is complete.
    Established,
    /// Both sides have sent a FIN, or one a RST.
    Closing,
    /// Datagrams of UDP, or of a protocol that the firewall doesn't know.
    Datagrams,
    /// ICMP echoes.
    Echoes,
}

impl State {
    /// Its class in the table.
    pub const fn class(self) -> Class {
        Class::new(self as usize)
    }
}

/// How long a connection in each state lasts after its last packet, in seconds: for TCP by RFC 5382,
/// section 5, for UDP by RFC 4787, section 4.3, for echoes by RFC 5508, section 3.2.
const TIMEOUTS_S: [u64; 6] = [240, 240, 7440, 240, 300, 60];

/// The configuration of a table for this many connections. Where it is full, half-open ones make place, so
/// that a flood of SYNs ends no other one.
pub fn config(connections_max: usize) -> Config {
    let mut config = Config::new(connections_max, 0);
    for (idle_ns, seconds) in config.idle_ns.iter_mut().zip(TIMEOUTS_S) {
        *idle_ns = seconds * 1_000_000_000;
    }
    config.full = Full::Evict(Classes::of(&[State::Opening, State::Answered].map(State::class)));
    config
}

/// A connection, from its first packet on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Connection {
    /// The side that opened it.
    pub opener: Side,
    /// Its state, which decides how long it lasts.
    pub state: State,
    /// What each side has done, inside first: sent a FIN, or asked for an echo.
    pub done: [bool; 2],
}

impl Connection {
    /// The connection that a packet from `opener` opens.
    pub fn opened_by(opener: Side, meaning: Meaning) -> Self {
        let state = match meaning {
            Meaning::Segment(_) => State::Opening,
            Meaning::Request | Meaning::Reply => State::Echoes,
            Meaning::Message | Meaning::Datagram => State::Datagrams,
        };
        let has_asked = |side| meaning == Meaning::Request && side == opener;
        Self { opener, state, done: [Side::Inside, Side::Outside].map(has_asked) }
    }

    /// Whether a packet from `side` is one of this connection: a SYN begins another one once this one is
    /// closing, and an echo needs that its side, or for a reply the other one, was allowed to ask.
    pub fn has(&self, side: Side, meaning: Meaning) -> bool {
        match meaning {
            Meaning::Request => self.done[side as usize],
            Meaning::Reply => self.done[side.other() as usize],
            Meaning::Segment(_) => self.state != State::Closing || !meaning.opens(),
            Meaning::Message => false,
            Meaning::Datagram => true,
        }
    }

    /// The connection after one of its packets, from `side`.
    pub fn after(mut self, side: Side, meaning: Meaning) -> Self {
        let Meaning::Segment(set) = meaning else { return self };
        self.done[side as usize] |= set & flags::FIN != 0;
        let is_syn_ack = set & (flags::SYN | flags::ACK) == flags::SYN | flags::ACK;
        self.state = match self.state {
            _ if set & flags::RST != 0 || self.done == [true; 2] => State::Closing,
            State::Opening if side != self.opener && is_syn_ack => State::Answered,
            State::Answered if side == self.opener && set & flags::SYN == 0 => State::Established,
            state => state,
        };
        self
    }
}
