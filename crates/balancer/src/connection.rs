//! One connection: its target and its state. Uses only the flags and times that callers pass. Must
//! stay at 16 bytes, so that a table entry with the longest key fits a cache line.

use crate::exceptions::{MOVES, Record, is_ahead};
use crate::services::TargetId;
pub use crate::state::State;
use hotloop::flow::STEP_NS;
use hotloop::packet::ip::protocol;
use hotloop::packet::tcp::flags::{FIN, PSH, RST, SYN};
use hotloop::packet::tcp::is_syn;
use hotloop::stage::Instant;

/// The bits of `progress` that hold the [`State`]. All bits above count moves, so that the count
/// wraps without a mask.
const STATE: u8 = 7;
/// One move, in `progress`.
const MOVE: u8 = STATE + 1;
const _: () = assert!(MOVE as u16 * MOVES as u16 == 1 << u8::BITS);

/// The server has sent a packet.
const SERVER_SEEN: u8 = 1;
/// The server has sent a packet other than an RST.
const ANSWERED: u8 = 2;
const CLIENT_FIN: u8 = 4;
const SERVER_FIN: u8 = 8;
/// Protocols other than TCP: the client has sent more than one packet.
const SEVERAL: u8 = 16;
/// See [`Connection::is_exception`].
const EXCEPTION: u8 = 32;
/// See [`Connection::is_remote`].
const REMOTE: u8 = 64;
/// See [`Connection::has_seen_syn`].
const SAW_SYN: u8 = 128;

/// Number of parts of an idle timeout, for noting when the last packet came that other nodes know
/// of. It is small enough that a byte's 256 parts cover several idle timeouts.
const PARTS: u64 = 24;
/// Number of parts after which the connection is due to be claimed again: at most a third of the
/// idle timeout, since the first part may have been nearly over and the last part counts, too.
const DUE_PARTS: u8 = 7;

/// In `moved_by`: every packet changes the connection. Also for protocols other than TCP, since
/// their echo requests and neighbour messages may not be for the backend.
const ANY: u8 = 0x20;

/// Minimum silence of a connection before a SYN takes its place, if its backend takes no new
/// connections. Any host can send a SYN, which must not end a connection that is in use.
pub const ABANDONED_NS: u64 = 60_000_000_000;

/// A worker's entry for a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Connection {
    /// The target of the connection's packets.
    pub target: TargetId,
    /// When the backend got its first packet, in steps of [`STEP_NS`]: the lower bits of that
    /// number.
    since: u32,
    /// The [`STATE`], and the number of [moves](Self::moves).
    progress: u8,
    notes: u8,
    /// The TCP flags that change the connection if the client sends them, or [`ANY`].
    moved_by: u8,
    /// When the last packet came that the other nodes know of: see [`is_due`](Self::is_due).
    journalled: u8,
}

/// Whether these flags are sent with data, and neither begin nor end a connection. Not all data has
/// these flags, but the last packet of each write has.
#[inline]
#[must_use]
const fn is_data(flags: u8) -> bool {
    flags & (SYN | RST | FIN | PSH) == PSH
}

/// A time in the unit that connections store.
#[inline]
const fn step(now: Instant) -> u32 {
    (now.as_ns() / STEP_NS) as u32
}

/// The number of the part of an idle timeout that a time is in, counted from time 0: its lower
/// bits.
const fn part(idle_ns: u64, time_ns: u64) -> u8 {
    match time_ns.checked_div(idle_ns / PARTS) {
        Some(number) => number as u8,
        None => 0,
    }
}

impl Connection {
    /// A new connection that begins with the current packet. `flags` are TCP's.
    #[must_use]
    pub const fn new(target: TargetId, protocol: u8, flags: u8, now: Instant) -> Self {
        let state = match protocol {
            protocol::TCP if is_syn(flags) => State::Opening,
            protocol::TCP => State::Established,
            protocol::UDP => State::Udp,
            _ => State::Other,
        };
        let notes = if matches!(state, State::Opening) { SAW_SYN } else { 0 };
        let since = step(now);
        let progress = state as u8;
        let mut connection = Self { target, since, progress, notes, moved_by: ANY, journalled: 0 };
        // A SYN changes nothing.
        if matches!(state, State::Established) {
            connection.follow_client(flags, now);
        }
        connection
    }

    /// Another node's connection on this target, with the state that the node claims.
    #[must_use]
    pub const fn remote(target: TargetId, claim: &Record, now: Instant) -> Self {
        let since = step(now).wrapping_sub((claim.age_ms as u64 * 1_000_000 / STEP_NS) as u32);
        let progress = claim.state as u8;
        let notes = REMOTE;
        let mut remote = Self { target, since, progress, notes, moved_by: ANY, journalled: 0 };
        remote.set_moves(claim.moves);
        remote
    }

    /// The connection's state.
    #[inline]
    #[must_use]
    pub const fn state(&self) -> State {
        // A minimum, not a jump table.
        match self.progress & STATE {
            0 => State::Opening,
            1 => State::Established,
            2 => State::Closing,
            3 => State::Udp,
            _ => State::Other,
        }
    }

    const fn set_state(&mut self, state: State) {
        self.progress = self.progress & !STATE | state as u8;
    }

    /// Number of times that a packet moved the connection to another node, modulo [`MOVES`].
    #[must_use]
    pub const fn moves(&self) -> u8 {
        self.progress / MOVE
    }

    /// Sets the number of [moves](Self::moves), modulo [`MOVES`].
    pub const fn set_moves(&mut self, moves: u8) {
        self.progress = (self.progress & STATE) + (moves % MOVES) * MOVE;
    }

    /// Notes that a packet of the connection has come: it is this node's own, and has moved here if
    /// it was another's.
    const fn make_own(&mut self) {
        if self.is_remote() {
            self.notes &= !REMOTE;
            self.progress = self.progress.wrapping_add(MOVE);
        }
    }

    /// Whether a client's packet with these flags (TCP's; any for other protocols) leaves the
    /// connection unchanged, as nearly all packets do.
    #[inline(always)]
    #[must_use]
    pub const fn is_unmoved_by(&self, flags: u8) -> bool {
        (flags | ANY) & self.moved_by == 0
    }

    /// Whether the connection's packets might go elsewhere if it were forgotten: its backend
    /// differs from the one that the configuration chooses.
    #[must_use]
    pub const fn is_exception(&self) -> bool {
        self.notes & EXCEPTION != 0
    }

    /// Sets whether the connection is an [exception](Self::is_exception).
    pub const fn set_exception(&mut self, is_exception: bool) {
        self.notes = if is_exception { self.notes | EXCEPTION } else { self.notes & !EXCEPTION };
    }

    /// Whether the connection is another node's: no packet of it has come here since that node
    /// claimed it.
    #[must_use]
    pub const fn is_remote(&self) -> bool {
        self.notes & REMOTE != 0
    }

    /// Whether the other nodes need to learn of the connection from this one.
    #[inline]
    #[must_use]
    pub const fn is_own_exception(&self) -> bool {
        self.notes & (EXCEPTION | REMOTE) == EXCEPTION
    }

    /// Whether the SYN that opened the connection came to this node.
    #[must_use]
    pub const fn has_seen_syn(&self) -> bool {
        self.notes & SAW_SYN != 0
    }

    /// Time since its backend got its first packet, in milliseconds.
    #[must_use]
    pub const fn age_ms(&self, now: Instant) -> u32 {
        let steps = step(now).wrapping_sub(self.since);
        let ms = steps as u64 * STEP_NS / 1_000_000;
        if ms > u32::MAX as u64 { u32::MAX } else { ms as u32 }
    }

    /// Another node has seen a later packet of the connection, and owns it now. `claim` is the
    /// connection [as that node knows it](Self::remote).
    pub const fn renew(&mut self, claim: &Self) {
        if !matches!(claim.state(), State::Opening) {
            self.set_state(claim.state());
        }
        if is_ahead(claim.moves(), self.moves()) {
            self.set_moves(claim.moves());
        }
        if self.since.wrapping_sub(claim.since) < u32::MAX / 2 {
            self.since = claim.since;
        }
        self.notes |= REMOTE;
        self.moved_by = ANY;
    }

    /// Another node has seen that the connection is established, while this node has seen only its
    /// SYN.
    pub const fn establish(&mut self) {
        self.set_state(State::Established);
    }

    /// Whether to claim the connection again, if it is kept for `idle_ns` after its last packet,
    /// which came at `seen`. It is due if the last packet that the other nodes know of came a third
    /// of `idle_ns` ago, and another one has come since. As a rule it is due a little earlier.
    #[must_use]
    pub const fn is_due(&self, idle_ns: u64, seen: Instant, now: Instant) -> bool {
        part(idle_ns, now.as_ns()).wrapping_sub(self.journalled) >= DUE_PARTS
            && part(idle_ns, seen.as_ns()) != self.journalled
    }

    /// Notes that the other nodes are about to get a claim, and that the last packet came at
    /// `seen`.
    pub const fn set_journalled(&mut self, idle_ns: u64, seen: Instant) {
        self.journalled = part(idle_ns, seen.as_ns());
    }

    /// Whether the connection is probably over: then a SYN begins another one if its backend takes
    /// no new connections. `silent_ns` is rounded down as in the table.
    #[must_use]
    pub const fn is_over(&self, silent_ns: u64) -> bool {
        // A connection that the table no longer counts as recent must not seem to be.
        matches!(self.state(), State::Closing) || silent_ns >= ABANDONED_NS - 2 * STEP_NS
    }

    /// The loss if the connection leaves a full table. Its last packet came `silent_ns` before
    /// `now`, rounded down as in the table. 0 for a connection that is over or unproven, 1 for one
    /// in use; `None` for one that must stay.
    ///
    /// Any host can send packets of connections that don't exist. A connection therefore counts as
    /// established only after evidence that a sender who can't receive doesn't produce: its backend
    /// has answered with more than an RST or, if answers aren't seen, packets have kept coming for
    /// longer than openings are remembered. For UDP, an answer proves nothing.
    #[must_use]
    #[inline(always)]
    pub const fn rank(&self, silent_ns: u64, now: Instant, opening_ns: u64) -> Option<u8> {
        // No `match`, because it would be a jump table: in a full table, each new connection comes
        // here.
        let state = self.progress & STATE;
        if state == State::Opening as u8 || state == State::Closing as u8 {
            return Some(0);
        }
        // At most a step after the last packet's, which is the step allowed for.
        let last = step(now).wrapping_sub((silent_ns / STEP_NS) as u32);
        let has_lasted = last.wrapping_sub(self.since) as u64 > opening_ns / STEP_NS + 1;
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

    /// Updates the connection from a client's packet with these flags.
    pub const fn follow_client(&mut self, flags: u8, now: Instant) {
        self.make_own();
        if !self.is_tcp() {
            self.notes |= SEVERAL;
        } else if is_syn(flags) && matches!(self.state(), State::Closing) {
            // The next connection of the same ports, on the same backend.
            self.set_state(State::Opening);
            self.since = step(now);
            self.notes = self.notes & EXCEPTION | SAW_SYN;
        } else if is_data(flags) && matches!(self.state(), State::Closing) {
            // Likewise, but its SYN came to another node: after its FIN, a client sends no more
            // data.
            self.set_state(State::Established);
            self.since = step(now);
            self.notes &= EXCEPTION;
        } else {
            if flags & FIN != 0 {
                self.notes |= CLIENT_FIN;
            }
            if flags & RST != 0 || self.is_closed() {
                self.set_state(State::Closing);
            } else if matches!(self.state(), State::Opening) && flags & SYN == 0 {
                self.set_state(State::Established);
            }
        }
        self.moved_by = match self.state() {
            State::Established => SYN | RST | FIN,
            State::Udp => 0,
            State::Opening | State::Closing | State::Other => ANY,
        };
    }

    /// Updates the connection from a server's packet with these flags.
    pub const fn follow_server(&mut self, flags: u8) {
        self.make_own();
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
            self.set_state(State::Closing);
            self.moved_by = ANY;
        }
    }

    /// Moves the connection to another backend, which has not answered yet, because its own is
    /// gone.
    pub const fn go_on_with(&mut self, target: TargetId, now: Instant) {
        (self.target, self.since) = (target, step(now));
        self.notes &= !(ANSWERED | SAW_SYN);
    }

    /// Begins another connection of the same key in this one's place, with the current packet, like
    /// [`new`](Self::new). The count of moves continues: otherwise claims to the new connection
    /// would look older than claims to this one.
    pub const fn begin_anew(&mut self, target: TargetId, protocol: u8, flags: u8, now: Instant) {
        self.make_own();
        let moves = self.moves();
        *self = Self::new(target, protocol, flags, now);
        self.set_moves(moves);
    }

    const fn is_tcp(&self) -> bool {
        matches!(self.state(), State::Opening | State::Established | State::Closing)
    }

    /// Whether both sides have sent a FIN. If the server answers clients directly, its FIN is not
    /// seen here, and the client's is enough.
    const fn is_closed(&self) -> bool {
        const BOTH: u8 = CLIENT_FIN | SERVER_FIN;
        self.notes & BOTH == BOTH || self.notes & (CLIENT_FIN | SERVER_SEEN) == CLIENT_FIN
    }
}

#[cfg(test)]
mod tests;
