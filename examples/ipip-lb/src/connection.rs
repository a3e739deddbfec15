//! One connection: where it goes, and how far it has come.

use crate::directory::TargetId;
use hotloop::packet::ip::protocol;

/// TCP's flags (RFC 9293, section 3.1).
pub mod tcp_flags {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Synchronise sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Reset the connection.
    pub const RST: u8 = 0x04;
    /// The acknowledgment number counts.
    pub const ACK: u8 = 0x10;
}
use tcp_flags::{ACK, FIN, RST, SYN};

/// How far a connection has come, which says how long it is remembered after its last packet: the
/// [`Class`](hotloop::flow::Class) of its entry.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum State {
    /// TCP, of which nothing but SYNs was seen. It alone makes place for others in a full table, and
    /// is class 0, in which new flows begin.
    Opening = 0,
    /// TCP.
    Established = 1,
    /// TCP that was reset, or closed by both sides.
    Closing = 2,
    /// UDP.
    Udp = 3,
    /// Every other protocol.
    Other = 4,
}

/// What a server has shown of itself, and who has said goodbye.
const SERVER_SEEN: u8 = 1;
const CLIENT_FIN: u8 = 2;
const SERVER_FIN: u8 = 4;

/// What a worker remembers of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Connection {
    /// Where its packets go.
    pub target: TargetId,
    state: State,
    seen: u8,
}

/// Whether these flags open a connection.
#[inline]
#[must_use]
pub const fn is_syn(flags: u8) -> bool {
    flags & (SYN | ACK | RST | FIN) == SYN
}

/// Whether these flags answer a SYN.
#[inline]
#[must_use]
pub const fn is_syn_ack(flags: u8) -> bool {
    flags & (SYN | ACK | RST | FIN) == SYN | ACK
}

impl Connection {
    /// A new one, of which the packet at hand is the first that is seen. `flags` are those of TCP.
    #[must_use]
    pub const fn new(target: TargetId, protocol: u8, flags: u8) -> Self {
        let state = match protocol {
            protocol::TCP if is_syn(flags) => State::Opening,
            protocol::TCP => State::Established,
            protocol::UDP => State::Udp,
            _ => State::Other,
        };
        let mut connection = Self { target, state, seen: 0 };
        connection.follow_client(flags);
        connection
    }

    /// How far it has come.
    #[inline]
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// Whether a packet from the client with these flags (0 where it isn't TCP) changes nothing: what
    /// nearly all do.
    #[inline(always)]
    #[must_use]
    pub const fn is_unmoved_by(&self, flags: u8) -> bool {
        // By state, the flags that change something; one that is set in all packets stands for all: also
        // of other protocols, whose echo requests and neighbours' messages may not be for the backend.
        // A table in a register costs less than a jump by the state.
        const ALWAYS: u8 = 0x20;
        const MASKS: u64 =
            u64::from_le_bytes([ALWAYS, SYN | RST | FIN, ALWAYS, 0, ALWAYS, 0, 0, 0]);
        (flags | ALWAYS) & (MASKS >> (self.state as u8 * 8)) as u8 == 0
    }

    /// Whether a packet from the client with these flags begins another connection of the same five
    /// fields. A SYN that comes again does not.
    #[must_use]
    pub const fn begins_afresh(&self, flags: u8) -> bool {
        is_syn(flags) && matches!(self.state, State::Established | State::Closing)
    }

    /// The client sent a packet with these flags, which does not begin it afresh.
    pub const fn follow_client(&mut self, flags: u8) {
        if !self.is_tcp() {
            return;
        }
        if flags & FIN != 0 {
            self.seen |= CLIENT_FIN;
        }
        if flags & RST != 0 || self.is_closed() {
            self.state = State::Closing;
        } else if matches!(self.state, State::Opening) && flags & SYN == 0 {
            self.state = State::Established;
        }
    }

    /// The server sent a packet with these flags.
    pub const fn follow_server(&mut self, flags: u8) {
        if !self.is_tcp() {
            return;
        }
        self.seen |= SERVER_SEEN;
        if flags & FIN != 0 {
            self.seen |= SERVER_FIN;
        }
        if flags & RST != 0 || self.is_closed() {
            self.state = State::Closing;
        }
    }

    const fn is_tcp(&self) -> bool {
        matches!(self.state, State::Opening | State::Established | State::Closing)
    }

    /// Whether both sides have said goodbye. Where the server answers clients directly, its goodbye is
    /// not seen here: there the client's is enough.
    const fn is_closed(&self) -> bool {
        const BOTH: u8 = CLIENT_FIN | SERVER_FIN;
        self.seen & BOTH == BOTH || self.seen & (CLIENT_FIN | SERVER_SEEN) == CLIENT_FIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: TargetId = TargetId { slot: 3, generation: 1 };

    fn tcp(flags: u8) -> Connection {
        Connection::new(TARGET, protocol::TCP, flags)
    }

    #[test]
    fn the_first_packet_says_how_a_connection_begins() {
        assert_eq!(tcp(SYN).state(), State::Opening);
        assert_eq!(tcp(ACK).state(), State::Established);
        assert_eq!(tcp(SYN | ACK).state(), State::Established);
        assert_eq!(tcp(RST).state(), State::Closing);
        assert_eq!(Connection::new(TARGET, protocol::UDP, 0).state(), State::Udp);
        assert_eq!(Connection::new(TARGET, 47, 0).state(), State::Other);
        // Five fields and a line of the table hold it.
        assert!(size_of::<Connection>() <= 16);
    }

    #[test]
    fn a_client_that_goes_on_has_established_its_connection() {
        let mut connection = tcp(SYN);
        connection.follow_client(SYN);
        assert_eq!(connection.state(), State::Opening);
        connection.follow_server(SYN | ACK);
        assert_eq!(connection.state(), State::Opening);
        connection.follow_client(ACK);
        assert_eq!(connection.state(), State::Established);
    }

    #[test]
    fn a_reset_closes_from_either_side_and_so_do_both_goodbyes() {
        let mut reset = tcp(ACK);
        reset.follow_client(RST | ACK);
        assert_eq!(reset.state(), State::Closing);
        let mut reset = tcp(ACK);
        reset.follow_server(RST);
        assert_eq!(reset.state(), State::Closing);

        for client_first in [true, false] {
            let mut closing = tcp(ACK);
            closing.follow_server(ACK);
            if client_first {
                closing.follow_client(FIN | ACK)
            } else {
                closing.follow_server(FIN)
            }
            assert_eq!(closing.state(), State::Established);
            if client_first {
                closing.follow_server(FIN)
            } else {
                closing.follow_client(FIN | ACK)
            }
            assert_eq!(closing.state(), State::Closing);
            closing.follow_client(ACK);
            assert_eq!(closing.state(), State::Closing);
        }
    }

    #[test]
    fn where_the_server_is_not_seen_the_clients_goodbye_is_enough() {
        let mut direct = tcp(ACK);
        direct.follow_client(FIN | ACK);
        assert_eq!(direct.state(), State::Closing);
        assert!(direct.begins_afresh(SYN) && !direct.begins_afresh(ACK));
    }

    #[test]
    fn a_syn_that_comes_again_begins_nothing() {
        assert!(!tcp(SYN).begins_afresh(SYN));
        assert!(tcp(ACK).begins_afresh(SYN) && !tcp(ACK).begins_afresh(SYN | ACK));
        assert!(!Connection::new(TARGET, protocol::UDP, 0).begins_afresh(SYN));
    }

    #[test]
    fn most_packets_change_nothing() {
        let mut established = tcp(ACK);
        for flags in 0..=u8::MAX {
            let before = established;
            if before.is_unmoved_by(flags) {
                established.follow_client(flags);
                assert_eq!(established, before, "{flags:#x}");
            }
        }
        assert!(established.is_unmoved_by(ACK) && !established.is_unmoved_by(FIN));
    }
}
