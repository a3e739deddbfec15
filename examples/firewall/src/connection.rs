//! Connections: their states, and how long each lasts without packets.

use crate::packet::{Meaning, Side};
use hotloop::flow::{Class, Classes, Config, Full};
use hotloop::packet::tcp::flags::{FIN, RST, SYN};
use hotloop::packet::tcp::{is_syn, is_syn_ack};

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

/// The configuration of a table for this many connections. If it is full, half-open ones make place,
/// so that a flood of SYNs ends no other one.
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
    /// Whether each side, the inside first, has sent a FIN, or may ask for echoes.
    pub done: [bool; 2],
}

impl Connection {
    /// The connection that a packet from `opener` opens if a rule allows it. `None` if it opens none:
    /// of TCP, only a SYN does.
    pub fn opened_by(opener: Side, meaning: Meaning) -> Option<Self> {
        let state = match meaning {
            Meaning::Segment(flags) if is_syn(flags) => State::Opening,
            Meaning::Request => State::Echoes,
            Meaning::Datagram => State::Datagrams,
            Meaning::Segment(_) | Meaning::Reply | Meaning::Message => return None,
        };
        let has_asked = |side| state == State::Echoes && side == opener;
        Some(Self { opener, state, done: [Side::Inside, Side::Outside].map(has_asked) })
    }

    /// The connection after a packet from `side`, or `None` if the packet isn't one of it. A SYN begins
    /// another one once this one is closing, and an echo needs that its side, or for a reply the
    /// other one, was allowed to ask.
    pub fn after(mut self, side: Side, meaning: Meaning) -> Option<Self> {
        let is_its = match meaning {
            Meaning::Segment(flags) => self.state != State::Closing || !is_syn(flags),
            Meaning::Request => self.done[side as usize],
            Meaning::Reply => self.done[side.other() as usize],
            Meaning::Message => false,
            Meaning::Datagram => true,
        };
        if let Meaning::Segment(flags) = meaning {
            self.done[side as usize] |= flags & FIN != 0;
            self.state = match self.state {
                _ if flags & RST != 0 || self.done == [true; 2] => State::Closing,
                State::Opening if side != self.opener && is_syn_ack(flags) => State::Answered,
                State::Answered if side == self.opener && flags & SYN == 0 => State::Established,
                state => state,
            };
        }
        is_its.then_some(self)
    }
}
