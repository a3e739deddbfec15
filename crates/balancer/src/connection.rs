//! One connection: its target and its state. Uses only the flags and times that callers pass. Must
//! stay at 16 bytes, so that a table entry with the longest key fits a cache line.

use crate::exceptions::Record;
use crate::services::TargetId;
pub use crate::state::State;
use hotloop::flow::STEP_NS;
use hotloop::packet::ip::protocol;
use hotloop::packet::tcp::flags::{FIN, PSH, RST, SYN};
use hotloop::packet::tcp::is_syn;
use hotloop::stage::Instant;
use hotloop_agreement::{Birth, Entry, Stage};
use std::net::IpAddr;

/// The bits of `progress` that hold the [`State`].
const STATE: u8 = 7;
/// In `progress`: `since` is the connection's birth. Otherwise, the birth is unknown.
const BORN: u8 = 8;
/// In `progress`: the birth is that of the connection before, [adopted](Birth::adopted).
const ADOPTED: u8 = 16;
/// In `progress`: see [`Connection::is_shared`].
const SHARED: u8 = 32;

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
    /// The birth or, if that is unknown, when the first packet came here: the lower bits of the
    /// number of steps of [`STEP_NS`] by the cluster's [clock](crate::clock).
    since: u32,
    /// The [`STATE`], and flags about the birth.
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
    /// A new connection that begins with the current packet. `flags` are TCP's, and `now` is by the
    /// cluster's [clock](crate::clock), as in all functions below.
    #[inline(always)]
    #[must_use]
    pub const fn new(target: TargetId, protocol: u8, flags: u8, now: Instant) -> Self {
        let state = match protocol {
            protocol::TCP if is_syn(flags) => State::Opening,
            protocol::TCP => State::Established,
            protocol::UDP => State::Udp,
            _ => State::Other,
        };
        let born = if matches!(state, State::Opening) { BORN } else { 0 };
        let (since, progress) = (step(now), state as u8 | born);
        let (notes, moved_by, journalled) = (0, ANY, 0);
        let mut connection = Self { target, since, progress, notes, moved_by, journalled };
        // A SYN changes nothing.
        if matches!(state, State::Established) {
            connection.follow_on(flags);
            connection.update_moved_by();
        }
        connection
    }

    /// A peer's connection on this target, as it claims it.
    #[must_use]
    pub const fn remote(target: TargetId, claim: &Record, now: Instant) -> Self {
        let (since, progress) = (step(now), claim.state as u8 | SHARED);
        let (notes, moved_by, journalled) = (REMOTE, ANY, 0);
        let mut remote = Self { target, since, progress, notes, moved_by, journalled };
        remote.set_birth(claim.birth, now);
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

    /// When the connection began.
    #[must_use]
    pub const fn birth(&self, now: Instant) -> Birth {
        let birth = if self.progress & BORN == 0 {
            Birth::UNKNOWN
        } else {
            Birth::new((now.as_ns() / STEP_NS).saturating_add_signed(-self.passed(now)))
        };
        if self.progress & ADOPTED == 0 { birth } else { birth.adopted() }
    }

    /// Sets when the connection began.
    pub const fn set_birth(&mut self, birth: Birth, now: Instant) {
        self.progress &= !(BORN | ADOPTED);
        if birth.is_adopted() {
            self.progress |= ADOPTED;
        }
        if birth.number() == 0 {
            self.since = step(now);
        } else {
            self.progress |= BORN;
            self.since = birth.number() as u32;
        }
    }

    /// Makes this connection a later one than before, which begins now.
    pub const fn begin(&mut self, now: Instant) {
        let is_later = self.progress & BORN == 0 || self.passed(now) > 0;
        self.since = if is_later { step(now) } else { self.since.wrapping_add(1) };
        self.progress = self.progress & !ADOPTED | BORN;
    }

    /// The number of steps since the birth: at most two years. A birth may be a little later than the clock.
    const fn passed(&self, now: Instant) -> i64 {
        const AHEAD_MAX: u32 = 1 << 20;
        let passed = step(now).wrapping_sub(self.since);
        if passed > u32::MAX - AHEAD_MAX { passed as i32 as i64 } else { passed as i64 }
    }

    /// The connection on `backend`, as the rules of the agreement see it.
    #[must_use]
    pub const fn entry(&self, backend: IpAddr, now: Instant) -> Entry<IpAddr> {
        let stage = self.state().stage();
        Entry {
            backend,
            birth: self.birth(now),
            is_shared: self.is_shared(),
            stage,
            is_used: matches!(stage, Stage::Established) && !self.is_remote(),
        }
    }

    /// Whether peers count on the connection: this node or another one has claimed it.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        self.progress & SHARED != 0
    }

    /// Notes that peers count on the connection.
    pub const fn share(&mut self) {
        self.progress |= SHARED;
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

    /// Whether no packet of the connection has come here since a peer claimed it.
    #[must_use]
    pub const fn is_remote(&self) -> bool {
        self.notes & REMOTE != 0
    }

    /// Whether this node claims the connection again as long as packets of it come.
    #[inline]
    #[must_use]
    pub const fn is_own_exception(&self) -> bool {
        self.notes & (EXCEPTION | REMOTE) == EXCEPTION
    }

    /// Whether peers learn of changes of the connection.
    #[inline]
    #[must_use]
    pub const fn is_claimed(&self) -> bool {
        self.is_exception() || self.is_shared()
    }

    /// Takes the state of a claim. Every packet may change it then.
    pub const fn take_state(&mut self, state: State) {
        self.set_state(state);
        self.moved_by = ANY;
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
    /// has answered with more than an RST or, if answers aren't seen, packets have kept coming since
    /// its last SYN for longer than openings are remembered. For UDP, an answer proves nothing.
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
        self.notes &= !REMOTE;
        if !self.is_tcp() {
            self.notes |= SEVERAL;
        } else if is_syn(flags) && !self.is_unclaimed_opening() {
            // Perhaps the next connection of the same ports, on the same backend. Only the backend can
            // distinguish the two; peers may have ended the first.
            if matches!(self.state(), State::Closing) {
                self.set_state(State::Opening);
                self.notes &= EXCEPTION;
            }
            self.begin(now);
        } else if is_data(flags) && matches!(self.state(), State::Closing) {
            // Likewise, but its SYN came to another node: after its FIN, a client sends no more
            // data.
            self.set_state(State::Established);
            self.set_birth(self.birth(now).after_end(), now);
            self.notes &= EXCEPTION;
        } else {
            self.follow_on(flags);
        }
        self.update_moved_by();
    }

    /// Updates the connection from a client's packet with these flags, which begins no other one in its
    /// place.
    #[inline(always)]
    const fn follow_on(&mut self, flags: u8) {
        if flags & FIN != 0 {
            self.notes |= CLIENT_FIN;
        }
        if flags & RST != 0 || self.is_closed() {
            self.set_state(State::Closing);
        } else if matches!(self.state(), State::Opening) && flags & SYN == 0 {
            self.set_state(State::Established);
        }
    }

    #[inline(always)]
    const fn update_moved_by(&mut self) {
        self.moved_by = match self.state() {
            State::Established => SYN | RST | FIN,
            State::Udp => 0,
            State::Opening | State::Closing | State::Other => ANY,
        };
    }

    /// Updates the connection from a server's packet with these flags. It stays remote: replies may
    /// come back by another node than the client's packets.
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
            self.set_state(State::Closing);
            self.moved_by = ANY;
        }
    }

    /// Moves the connection to another backend, which has not answered yet, because its own is
    /// gone.
    pub const fn go_on_with(&mut self, target: TargetId, now: Instant) {
        self.target = target;
        self.begin(now);
        self.notes &= !ANSWERED;
    }

    /// Begins another connection of the same key in this one's place, with the current packet, like
    /// [`new`](Self::new). It is later than this one.
    pub const fn begin_anew(&mut self, target: TargetId, protocol: u8, flags: u8, now: Instant) {
        let before = *self;
        *self = Self::new(target, protocol, flags, now);
        if before.is_shared() {
            (self.since, self.progress) = (before.since, self.progress | before.progress & BORN);
            self.begin(now);
            self.share();
        }
    }

    /// Whether a SYN is the same one, sent again, and no peer knows the connection.
    const fn is_unclaimed_opening(&self) -> bool {
        matches!(self.state(), State::Opening) && !self.is_shared()
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
