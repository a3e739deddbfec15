//! The walk through a worker's connections, which finds the exceptions and the ones to claim again.
//! Reads two service tables, sets marks and fills the journal. Each turn takes a bounded step, and
//! a pass ends in time for the shortest idle timeout.

use super::Worker;
use super::schedule::Placement;
use crate::connection::{Connection, State};
use crate::connections::{Connections, Journal, Walk};
use crate::services::ServiceTable;
use hotloop::packet::flow_key::FlowKey;
use hotloop::packet::seed::Seed;
use hotloop::stage::Instant;

/// Minimum number of slots to examine in a turn, whatever the time. With more turns than it needs,
/// the walk ends earlier.
const SLOTS_A_TURN_MIN: usize = 2;

/// Maximum number of slots that a walk examines in a turn if they are empty: each takes some
/// nanoseconds.
const SLOTS_A_TURN_MAX: usize = 1_024;

/// Number of connections after which a walk ends its turn: each may read two service tables, some
/// 100 ns or more, so some 10 µs a turn.
const CONNECTIONS_A_TURN: usize = 48;

/// A late walk examines up to this multiple of the mean number of slots per turn, and at least one
/// step.
const HURRY: u64 = 2;

/// Number of fractional bits of [`Pass::slots_per_ns`].
const PACE_BITS: u32 = 32;

/// Number of slots to examine together, in a turn with at least that many due: their memory is then
/// awaited at once.
const SLOTS_A_STEP: usize = 8;

/// Number of passes within the shortest idle timeout: a connection that is
/// [due](Connection::is_due) after a third is claimed again long before the other nodes forget it.
const PASSES_PER_IDLE_TIMEOUT: u64 = 12;

/// Maximum number of repetitions of a marking walk if connections have moved meanwhile, since it
/// may have missed some of them.
const REPEATS_MAX: u32 = 2;

/// State of the walk.
#[derive(Debug, Default)]
pub(super) struct Marking {
    pass: Option<Pass>,
    /// Whether some exceptions are still unmarked since the service table changed.
    is_incomplete: bool,
    /// Whether this node may have exceptions.
    has_found: bool,
}

/// A walk through all slots.
#[derive(Clone, Copy, Debug)]
struct Pass {
    purpose: Purpose,
    walk: Walk,
    /// Whether the walk wraps around at the end, because it began in the middle.
    comes_round: bool,
    /// Number of slots due per nanosecond, with [`PACE_BITS`] fractional bits.
    slots_per_ns: u64,
    /// Number of slots examined.
    done_count: usize,
    begin: Instant,
    /// Number of turns since the walk began.
    all_turn_count: u64,
    /// Number of turns since the walk last examined slots.
    turn_count: usize,
    /// Intended duration, in nanoseconds.
    length_ns: u64,
    /// The value of [`Connections::moved_count`] when the walk began.
    moved_count: u64,
    has_found: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Purpose {
    /// Mark exceptions, and repeat the walk at most this many times.
    Mark { repeats_left: u32 },
    /// Journal the connections that are due.
    Refresh,
}

impl Pass {
    fn new(purpose: Purpose, connections: &Connections, now: Instant, length_ns: u64) -> Self {
        let (slot_count, length_ns) = (connections.slot_count() as u128, length_ns.max(1));
        Self {
            purpose,
            walk: Walk::default(),
            comes_round: false,
            slots_per_ns: ((slot_count << PACE_BITS) / u128::from(length_ns)) as u64,
            done_count: 0,
            begin: now,
            all_turn_count: 0,
            turn_count: 0,
            length_ns,
            moved_count: connections.moved_count(),
            has_found: false,
        }
    }

    /// Number of slots to examine now, to end in time. A delay, such as after a time off the CPU,
    /// is made up over many turns, so that no turn takes much longer than the others.
    fn budget(&self, now: Instant) -> usize {
        let count_in =
            |ns| ((u128::from(self.slots_per_ns) * u128::from(ns)) >> PACE_BITS) as usize;
        let passed_ns = now.ns_since(self.begin);
        let late_count = if passed_ns >= self.length_ns {
            usize::MAX
        } else {
            count_in(passed_ns).saturating_sub(self.done_count)
        };
        let is_refresh = self.purpose == Purpose::Refresh;
        let slots_min = if is_refresh { 0 } else { SLOTS_A_TURN_MIN * self.turn_count };
        if late_count.max(slots_min) < SLOTS_A_STEP {
            // Less than a step is due: no need to divide.
            return 0;
        }
        let turn_ns = passed_ns / self.all_turn_count.max(1);
        let in_a_turn = count_in(HURRY * turn_ns).max(SLOTS_A_STEP);
        late_count.min(in_a_turn).max(slots_min).min(SLOTS_A_TURN_MAX)
    }
}

impl Marking {
    /// Whether the exceptions of the service table in use are marked.
    pub(super) const fn is_complete(&self) -> bool {
        !self.is_incomplete
    }
}

impl<P> Worker<P> {
    /// Begins to mark the exceptions of a service table that the worker has just switched to.
    #[cold]
    pub(super) fn begin_marking(&mut self, prepare_ns_max: u64, now: Instant) {
        let purpose = Purpose::Mark { repeats_left: REPEATS_MAX };
        let pass = Pass::new(purpose, &self.connections, now, prepare_ns_max);
        // A walk in progress continues from its position: however often the table changes, it
        // reaches every slot.
        let pass = match self.marking.pass {
            Some(Pass { walk, purpose: Purpose::Mark { .. }, has_found, .. }) => {
                let slots_per_ns = 2 * pass.slots_per_ns;
                Pass { walk, comes_round: true, slots_per_ns, has_found, ..pass }
            }
            _ => pass,
        };
        self.marking.pass = Some(pass);
        self.marking.is_incomplete = true;
    }

    /// Continues the walk, if there is one: a bounded step.
    #[inline]
    pub(super) fn walk(&mut self, services: &ServiceTable, now: Instant) {
        if self.marking.pass.is_some() {
            self.go_on_walking(services, now);
        } else if self.connections.journal().is_kept() {
            self.begin_refreshing(services, now);
        }
    }

    /// Begins to look for due exceptions, if there may be any.
    fn begin_refreshing(&mut self, services: &ServiceTable, now: Instant) {
        if self.connections.journal().take_has_new() {
            self.marking.has_found = true;
        }
        if !self.marking.has_found || self.connections.is_empty() {
            return;
        }
        let lasting = [State::Established, State::Udp, State::Other];
        let idle_ns = lasting.map(|state| services.settings.idle_ns[state as usize]);
        let length_ns = idle_ns.into_iter().min().unwrap_or(0) / PASSES_PER_IDLE_TIMEOUT;
        self.marking.pass = Some(Pass::new(Purpose::Refresh, &self.connections, now, length_ns));
    }

    #[cold]
    fn go_on_walking(&mut self, services: &ServiceTable, now: Instant) {
        let Some(pass) = &mut self.marking.pass else { return };
        (pass.turn_count, pass.all_turn_count) = (pass.turn_count + 1, pass.all_turn_count + 1);
        let (mut step_count, mut connection_count) = (pass.budget(now) / SLOTS_A_STEP, 0);
        if step_count > 0 {
            pass.turn_count = 0;
        }
        while step_count > 0 && connection_count < CONNECTIONS_A_TURN {
            step_count -= 1;
            connection_count += self.step(services, now);
        }
    }

    /// Examines the next slots, and ends the walk after the last ones. Returns the number of
    /// connections in them.
    fn step(&mut self, services: &ServiceTable, now: Instant) -> usize {
        let Self { connections, seed, marking, .. } = self;
        let Some(pass) = &mut marking.pass else { return 0 };
        let idle_ns = &services.settings.idle_ns;
        let (mut connection_count, has_found) = (0, &mut pass.has_found);
        let mut refresh = |key: &FlowKey,
                           connection: &mut Connection,
                           silent_ns: u64,
                           journal: &mut Journal,
                           is_news| {
            connection_count += 1;
            *has_found |= connection.is_own_exception();
            let idle_ns = idle_ns[connection.state() as usize];
            let seen = now.earlier_by(silent_ns);
            let is_due = || connection.is_own_exception() && connection.is_due(idle_ns, seen, now);
            if journal.is_kept() && (is_news || is_due()) {
                journal.claim(key, connection, idle_ns, seen);
            }
        };
        let next = match pass.purpose {
            Purpose::Refresh => connections.walk(
                pass.walk,
                SLOTS_A_STEP,
                now,
                |key, _, connection, silent_ns, journal| {
                    refresh(key, connection, silent_ns, journal, false);
                },
            ),
            Purpose::Mark { .. } => {
                let placements = placements(services, seed, connections, pass.walk, now);
                let mut placements = placements.iter();
                connections.walk(
                    pass.walk,
                    SLOTS_A_STEP,
                    now,
                    |key, _, connection, silent_ns, journal| {
                        let was_exception = connection.is_exception();
                        let placement = placements.next().copied().unwrap_or_default();
                        let target = connection.target;
                        connection.set_exception(placement.is_exception(services, key, target));
                        let is_news = connection.is_exception() && !was_exception;
                        refresh(key, connection, silent_ns, journal, is_news);
                    },
                )
            }
        };
        pass.done_count += SLOTS_A_STEP;
        match next {
            Some(walk) => pass.walk = walk,
            None if pass.comes_round => (pass.walk, pass.comes_round) = (Walk::default(), false),
            None => self.end_pass(now),
        }
        connection_count
    }

    /// Ends a walk, and begins another one if it may have missed connections.
    fn end_pass(&mut self, now: Instant) {
        let Some(pass) = self.marking.pass.take() else { return };
        self.marking.has_found = pass.has_found;
        let Purpose::Mark { repeats_left } = pass.purpose else { return };
        if repeats_left > 0 && pass.moved_count != self.connections.moved_count() {
            let purpose = Purpose::Mark { repeats_left: repeats_left - 1 };
            self.marking.pass = Some(Pass::new(purpose, &self.connections, now, pass.length_ns));
        } else {
            self.marking.is_incomplete = false;
        }
    }
}

/// The services that take the next connections of a walk. Also prefetches the memory that their
/// choices read.
fn placements<'d>(
    services: &'d ServiceTable,
    seed: &Seed,
    connections: &mut Connections,
    walk: Walk,
    now: Instant,
) -> [Placement<'d>; SLOTS_A_STEP] {
    let (mut placements, mut count) = ([Placement::default(); SLOTS_A_STEP], 0);
    connections.walk(walk, SLOTS_A_STEP, now, |key, hash, _, _, _| {
        let hash = hash.unwrap_or_else(|| seed.hash(key));
        placements[count] = Placement::new(services, key, hash);
        placements[count].prefetch(services, key);
        count += 1;
    });
    placements
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;

    const SECOND_NS: u64 = 1_000_000_000;

    /// A walk through a million places in a second, at its beginning.
    fn pass(purpose: Purpose) -> Pass {
        let connections = Connections::new(64, [0; 8], None, Some(1)).unwrap();
        let slots_per_ns = (1_000_000 << PACE_BITS) / SECOND_NS;
        Pass { slots_per_ns, ..Pass::new(purpose, &connections, Instant::from_ns(0), SECOND_NS) }
    }

    /// Takes turns at a fixed interval in this range of times. Returns the most slots examined in
    /// one turn.
    fn take_turns(pass: &mut Pass, turn_ns: usize, times_ns: Range<u64>) -> usize {
        let mut most = 0;
        for now in times_ns.step_by(turn_ns) {
            pass.all_turn_count += 1;
            let budget = pass.budget(Instant::from_ns(now));
            pass.done_count += budget;
            most = most.max(budget);
        }
        most
    }

    #[test]
    fn a_walk_that_was_late_catches_up_over_many_turns() {
        let mut pass = pass(Purpose::Refresh);
        let ms = |ms: Range<u64>| ms.start * 1_000_000..ms.end * 1_000_000;
        assert!(take_turns(&mut pass, 20_000, ms(0..250)) <= 21);
        // The walk has no turn for a tenth of a second, which makes the mean turn longer.
        assert!((41..=60).contains(&take_turns(&mut pass, 20_000, ms(350..400))));
        assert!(pass.done_count < 390_000, "{}", pass.done_count);
        assert!((41..=60).contains(&take_turns(&mut pass, 20_000, ms(400..470))));
        assert!(pass.done_count.abs_diff(470_000) <= 40, "{}", pass.done_count);
        assert!(take_turns(&mut pass, 20_000, ms(470..500)) <= 21);
    }

    #[test]
    fn a_walk_ends_after_its_time_too() {
        let mut pass = pass(Purpose::Refresh);
        take_turns(&mut pass, 20_000, SECOND_NS..SECOND_NS * 155 / 100);
        assert!(pass.done_count >= 1_000_000, "{}", pass.done_count);
    }
}
