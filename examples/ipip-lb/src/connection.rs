//! One connection: where it goes, and how far it has come.

use crate::services::TargetId;
use hotloop::flow::STEP_NS;
use hotloop::packet::ip::protocol;
use hotloop::stage::Instant;

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
    /// TCP, of which nothing but SYNs was seen.
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

/// The server has sent something.
const SERVER_SEEN: u8 = 1;
/// The server has sent something that is no RST.
const ANSWERED: u8 = 2;
const CLIENT_FIN: u8 = 4;
const SERVER_FIN: u8 = 8;
/// Where it isn't TCP: the client has sent more than one packet.
const SEVERAL: u8 = 16;
/// See [`Connection::is_exception`].
const EXCEPTION: u8 = 32;

/// In `moved_by`: every packet changes something, also those of other protocols, whose echo requests
/// and neighbours' messages may not be for the backend.
const ANY: u8 = 0x20;

/// For how long a connection must have been silent before a SYN takes its place, where its backend
/// takes no new connections. Anybody can send a SYN, which must not end a connection that is in use.
pub const ABANDONED_NS: u64 = 60_000_000_000;

/// What a worker remembers of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Connection {
    /// Where its packets go.
    pub target: TargetId,
    /// When its backend got its first packet, in steps of [`STEP_NS`], of which it has the lower bits.
    since: u32,
    state: State,
    notes: u8,
    /// Those of TCP's flags that change something when the client sends them, or [`ANY`].
    moved_by: u8,
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

/// A time as connections keep it.
#[inline]
const fn step(now: Instant) -> u32 {
    (now.as_ns() / STEP_NS) as u32
}

impl Connection {
    /// A new one, of which the packet at hand is the first that is seen. `flags` are those of TCP.
    #[must_use]
    pub const fn new(target: TargetId, protocol: u8, flags: u8, now: Instant) -> Self {
        let state = match protocol {
            protocol::TCP if is_syn(flags) => State::Opening,
            protocol::TCP => State::Established,
            protocol::UDP => State::Udp,
            _ => State::Other,
        };
        let mut connection = Self { target, since: step(now), state, notes: 0, moved_by: ANY };
        // A SYN changes nothing.
        if matches!(state, State::Established) {
            connection.follow_client(flags, now);
        }
        connection
    }

    /// How far it has come.
    #[inline]
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// Whether a packet from the client with these flags (of TCP; elsewhere any) changes nothing: what
    /// nearly all do.
    #[inline(always)]
    #[must_use]
    pub const fn is_unmoved_by(&self, flags: u8) -> bool {
        (flags | ANY) & self.moved_by == 0
    }

    /// Whether a packet of it might go elsewhere if it were forgotten: its backend is not the one that
    /// the configuration alone says.
    #[must_use]
    pub const fn is_exception(&self) -> bool {
        self.notes & EXCEPTION != 0
    }

    /// Notes whether it is an [exception](Self::is_exception).
    pub const fn set_exception(&mut self, is_exception: bool) {
        self.notes = if is_exception { self.notes | EXCEPTION } else { self.notes & !EXCEPTION };
    }

    /// Whether it is over, as far as one can know: then a SYN begins another where its backend takes
    /// none.
    #[must_use]
    pub const fn is_over(&self, silent_ns: u64) -> bool {
        matches!(self.state, State::Closing) || silent_ns >= ABANDONED_NS
    }

    /// How much is lost when it leaves a full table, where its last packet came `silent_ns` before
    /// `now`, rounded up as the table says it: 0 of a connection that is over or proves nothing, 1 of one in
    /// use; none where it is to stay.
    ///
    /// Anybody can send packets of connections that there are not. So one counts as established when
    /// something is known that a sender who can't receive doesn't bring about: its backend has answered
    /// with more than a RST, or, where answers aren't seen, packets have kept coming for longer than
    /// openings are remembered. Of UDP, an answer proves nothing.
    #[must_use]
    pub const fn rank(&self, silent_ns: u64, now: Instant, opening_ns: u64) -> Option<u8> {
        // No `match`, which would be a jump table: in a full table, this is done for each new connection.
        let state = self.state as u8;
        if state == State::Opening as u8 || state == State::Closing as u8 {
            return Some(0);
        }
        let last = step(now).wrapping_add(1).wrapping_sub((silent_ns / STEP_NS) as u32);
        let has_lasted = last.wrapping_sub(self.since) as u64 > opening_ns / STEP_NS;
        let (is_begun, is_established) = if state == State::Established as u8 {
            let is_established = self.notes & ANSWERED != 0 || has_lasted;
            (is_established, is_established)
        } else {
            (self.notes & SEVERAL != 0, has_lasted)
        };
        match is_begun {
            false => Some(0),
            true if is_established && self.is_exception() => None,
            true => Some(1),
        }
    }

    /// The client sent a packet with these flags.
    pub const fn follow_client(&mut self, flags: u8, now: Instant) {
        if !self.is_tcp() {
            self.notes |= SEVERAL;
        } else if is_syn(flags) && matches!(self.state, State::Closing) {
            // The next one of the same ports, on the same backend.
            (self.state, self.since) = (State::Opening, step(now));
            self.notes &= EXCEPTION;
        } else {
            if flags & FIN != 0 {
                self.notes |= CLIENT_FIN;
            }
            if flags & RST != 0 || self.is_closed() {
                self.state = State::Closing;
            } else if matches!(self.state, State::Opening) && flags & SYN == 0 {
                self.state = State::Established;
            }
        }
        self.moved_by = match self.state {
            State::Established => SYN | RST | FIN,
            State::Udp => 0,
            State::Opening | State::Closing | State::Other => ANY,
        };
    }

    /// The server sent a packet with these flags.
    pub const fn follow_server(&mut self, flags: u8) {
        if !self.is_tcp() {
            return;
        }
        self.notes |= SERVER_SEEN;
        if flags & RST == 0 {
            self.notes |= ANSWERED;
        }
        if flags & FIN != 0 {
            self.notes |= SERVER_FIN;
        }
        if flags & RST != 0 || self.is_closed() {
            (self.state, self.moved_by) = (State::Closing, ANY);
        }
    }

    /// Its backend is gone, and it goes on with another one, which has not answered yet.
    pub const fn go_on_with(&mut self, target: TargetId, now: Instant) {
        (self.target, self.since) = (target, step(now));
        self.notes &= !ANSWERED;
    }

    const fn is_tcp(&self) -> bool {
        matches!(self.state, State::Opening | State::Established | State::Closing)
    }

    /// Whether both sides have said goodbye. Where the server answers clients directly, its goodbye is
    /// not seen here: there the client's is enough.
    const fn is_closed(&self) -> bool {
        const BOTH: u8 = CLIENT_FIN | SERVER_FIN;
        self.notes & BOTH == BOTH || self.notes & (CLIENT_FIN | SERVER_SEEN) == CLIENT_FIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: TargetId = TargetId { slot: 3, generation: 1 };
    const OPENING_NS: u64 = 10_000_000_000;

    fn at(ms: u64) -> Instant {
        Instant::from_ns(1_000_000_000 + ms * 1_000_000)
    }

    fn new(protocol: u8, flags: u8) -> Connection {
        Connection::new(TARGET, protocol, flags, at(0))
    }

    fn tcp(flags: u8) -> Connection {
        new(protocol::TCP, flags)
    }

    impl Connection {
        fn client(&mut self, flags: u8) {
            self.follow_client(flags, at(0));
        }

        /// Its rank at some time, with its last packet at another.
        fn rank_at(&self, last_ms: u64, ms: u64) -> Option<u8> {
            let silent_ns = (step(at(ms)) - step(at(last_ms)) + 1) as u64 * STEP_NS;
            self.rank(silent_ns, at(ms), OPENING_NS)
        }
    }

    #[test]
    fn the_first_packet_says_how_a_connection_begins() {
        assert_eq!(tcp(SYN).state(), State::Opening);
        assert_eq!(tcp(ACK).state(), State::Established);
        assert_eq!(tcp(SYN | ACK).state(), State::Established);
        assert_eq!(tcp(RST).state(), State::Closing);
        assert_eq!(new(protocol::UDP, 0).state(), State::Udp);
        assert_eq!(new(47, 0).state(), State::Other);
        // With the longest key it fits a line of the table.
        assert_eq!(size_of::<Connection>(), 16);
    }

    #[test]
    fn a_client_that_goes_on_has_established_its_connection() {
        let mut connection = tcp(SYN);
        connection.client(SYN);
        assert_eq!(connection.state(), State::Opening);
        connection.follow_server(SYN | ACK);
        assert_eq!(connection.state(), State::Opening);
        connection.client(ACK);
        assert_eq!(connection.state(), State::Established);
    }

    #[test]
    fn a_reset_closes_from_either_side_and_so_do_both_goodbyes() {
        let mut reset = tcp(ACK);
        reset.client(RST | ACK);
        assert_eq!(reset.state(), State::Closing);
        let mut reset = tcp(ACK);
        reset.follow_server(RST);
        assert_eq!(reset.state(), State::Closing);

        for client_first in [true, false] {
            let mut closing = tcp(ACK);
            closing.follow_server(ACK);
            if client_first {
                closing.client(FIN | ACK)
            } else {
                closing.follow_server(FIN)
            }
            assert_eq!(closing.state(), State::Established);
            if client_first {
                closing.follow_server(FIN)
            } else {
                closing.client(FIN | ACK)
            }
            assert_eq!(closing.state(), State::Closing);
            closing.client(ACK);
            assert_eq!(closing.state(), State::Closing);
        }
    }

    #[test]
    fn where_the_server_is_not_seen_the_clients_goodbye_is_enough() {
        let mut direct = tcp(ACK);
        direct.client(FIN | ACK);
        assert_eq!(direct.state(), State::Closing);
    }

    #[test]
    fn a_syn_opens_what_was_closing_and_changes_nothing_else() {
        for flags in [SYN, ACK] {
            let mut connection = tcp(flags);
            connection.follow_server(ACK);
            let before = connection;
            connection.follow_client(SYN, at(70_000));
            assert_eq!(connection, before);
        }
        let mut closing = tcp(ACK);
        closing.set_exception(true);
        closing.follow_server(FIN);
        closing.client(FIN);
        closing.follow_client(SYN, at(70_000));
        let mut anew = Connection::new(TARGET, protocol::TCP, SYN, at(70_000));
        anew.set_exception(true);
        assert_eq!(closing, anew);
    }

    #[test]
    fn a_connection_is_over_when_it_is_closing_or_abandoned() {
        assert!(tcp(RST).is_over(0));
        for connection in [tcp(SYN), tcp(ACK), new(protocol::UDP, 0)] {
            assert!(!connection.is_over(ABANDONED_NS - 1) && connection.is_over(ABANDONED_NS));
        }
    }

    #[test]
    fn most_packets_change_nothing() {
        let mut several = new(protocol::UDP, 0);
        assert!(!several.is_unmoved_by(0));
        several.client(0);
        for mut connection in [tcp(SYN), tcp(ACK), tcp(RST), several, new(47, 0)] {
            for flags in 0..=u8::MAX {
                let before = connection;
                if before.is_unmoved_by(flags) {
                    connection.follow_client(flags, at(70_000));
                    assert_eq!(connection, before, "{flags:#x}");
                }
            }
        }
        assert!(tcp(ACK).is_unmoved_by(ACK) && !tcp(ACK).is_unmoved_by(FIN));
        assert!((0..=u8::MAX).all(|flags| several.is_unmoved_by(flags)));
    }

    #[test]
    fn what_is_over_or_proves_nothing_leaves_first_and_exceptions_stay() {
        let answered = |first: u8, answer: u8| {
            let mut connection = tcp(first);
            connection.follow_server(answer);
            connection.client(ACK);
            connection
        };
        let mut pair = tcp(SYN);
        pair.client(ACK);
        let mut several = new(protocol::UDP, 0);
        several.client(0);
        // By the connection: its rank at once, and after 11 s of packets.
        let cases = [
            (tcp(RST), Some(0), Some(0)),
            (answered(ACK, RST), Some(0), Some(0)),
            (tcp(SYN), Some(0), Some(0)),
            (tcp(ACK), Some(0), Some(1)),
            (pair, Some(0), Some(1)),
            (answered(SYN, SYN | ACK), Some(1), Some(1)),
            (answered(ACK, ACK), Some(1), Some(1)),
            (new(protocol::UDP, 0), Some(0), Some(0)),
            (several, Some(1), Some(1)),
        ];
        for (mut connection, early, late) in cases {
            assert_eq!(connection.rank_at(100, 100), early, "{connection:?}");
            assert_eq!(connection.rank_at(11_000, 500_000), late, "{connection:?}");
            // Silence proves nothing.
            assert_eq!(connection.rank_at(9_900, 500_000), early, "{connection:?}");
            connection.set_exception(true);
            let stays = |rank| if rank == Some(1) { None } else { rank };
            let is_udp = connection.state() == State::Udp;
            let early = if is_udp { early } else { stays(early) };
            assert_eq!(connection.rank_at(100, 100), early, "{connection:?}");
            assert_eq!(connection.rank_at(11_000, 500_000), stays(late), "{connection:?}");
        }
    }

    #[test]
    fn another_backend_has_not_answered_yet() {
        let mut connection = tcp(ACK);
        connection.follow_server(ACK);
        assert_eq!(connection.rank_at(100, 100), Some(1));
        connection.go_on_with(TargetId { slot: 4, ..TARGET }, at(20_000));
        assert_eq!(connection.rank_at(20_100, 20_100), Some(0));
        assert_eq!(connection.rank_at(31_000, 31_000), Some(1));
    }
}
