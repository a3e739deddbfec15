//! The walk through a worker's connections: which are exceptions, and which of them other nodes are to hear of
//! again.

use super::Worker;
use super::schedule::is_exception;
use super::serve::service_of_connection;
use crate::connection::{Connection, State};
use crate::connections::{Connections, Journal, Walk};
use crate::services::ServiceTable;
use hotloop::packet::flow_key::FlowKey;
use hotloop::stage::Instant;

/// How many places it looks at in a turn, whatever the time. Where it has time for more turns than it needs, it is
/// done earlier.
const SLOTS_A_TURN_MIN: usize = 4;

/// How many places a walk looks at in a turn at most, where there is nothing in them: each takes some nanoseconds.
const SLOTS_A_TURN_MAX: usize = 1_024;

/// After how many connections a walk is through with its turn: each may take a look at two service tables, some 100 ns
/// or more, so some 10 µs a turn.
const CONNECTIONS_A_TURN: usize = 48;

/// How many places it looks at before it counts the connections in them.
const SLOTS_A_STEP: usize = 16;

/// How often connections are looked at within the shortest idle timeout: a connection that is
/// [due](Connection::is_due) after a third is claimed again long before the other nodes forget it.
const PASSES_PER_IDLE_TIMEOUT: u64 = 12;

/// How often a walk that marks is done once more where connections have moved meanwhile, some of which it may have
/// missed.
const REPEATS_MAX: u32 = 2;

/// How far the walk is.
#[derive(Debug, Default)]
pub(super) struct Marking {
    pass: Option<Pass>,
    /// Whether exceptions are not all marked since the service table has changed.
    is_incomplete: bool,
    /// Whether there may be exceptions of this node's.
    has_found: bool,
}

/// A walk through all places.
#[derive(Clone, Copy, Debug)]
struct Pass {
    purpose: Purpose,
    walk: Walk,
    /// Whether it begins anew at the end, as it began somewhere in between.
    comes_round: bool,
    slot_count: usize,
    /// How many places it has looked at.
    done_count: usize,
    begin: Instant,
    /// How long it is to take, in nanoseconds.
    length_ns: u64,
    /// What [`Connections::moved_count`] was when it began.
    moved_count: u64,
    has_found: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Purpose {
    /// To mark exceptions, and to repeat that as many times at most.
    Mark { repeats_left: u32 },
    /// To journal those that are due.
    Refresh,
}

impl Pass {
    fn new(purpose: Purpose, connections: &Connections, now: Instant, length_ns: u64) -> Self {
        Self {
            purpose,
            walk: Walk::default(),
            comes_round: false,
            slot_count: connections.slot_count(),
            done_count: 0,
            begin: now,
            length_ns: length_ns.max(1),
            moved_count: connections.moved_count(),
            has_found: false,
        }
    }

    /// How many places to look at now, to be through in time.
    fn budget(&self, now: Instant) -> usize {
        let passed_ns = now.ns_since(self.begin);
        if passed_ns >= self.length_ns {
            return SLOTS_A_TURN_MAX;
        }
        let due = self.slot_count as u128 * u128::from(passed_ns) / u128::from(self.length_ns);
        let slots_min = if self.purpose == Purpose::Refresh { 0 } else { SLOTS_A_TURN_MIN };
        (due as usize).saturating_sub(self.done_count).clamp(slots_min, SLOTS_A_TURN_MAX)
    }
}

impl Marking {
    /// Whether the exceptions of the service table in use are marked.
    pub(super) const fn is_complete(&self) -> bool {
        !self.is_incomplete
    }
}

impl<P> Worker<P> {
    /// Begins to mark the exceptions of a service table that has just been taken up.
    #[cold]
    pub(super) fn begin_marking(&mut self, prepare_ns_max: u64, now: Instant) {
        let purpose = Purpose::Mark { repeats_left: REPEATS_MAX };
        let pass = Pass::new(purpose, &self.connections, now, prepare_ns_max);
        // One that is under way goes on from where it is: however often the table changes, it comes everywhere.
        let pass = match self.marking.pass {
            Some(Pass { walk, purpose: Purpose::Mark { .. }, has_found, .. }) => {
                let slot_count = 2 * pass.slot_count;
                Pass { walk, comes_round: true, slot_count, has_found, ..pass }
            }
            _ => pass,
        };
        self.marking.pass = Some(pass);
        self.marking.is_incomplete = true;
    }

    /// Goes on with the walk where there is one: a bounded step.
    #[inline]
    pub(super) fn walk(&mut self, services: &ServiceTable, now: Instant) {
        if let Some(pass) = self.marking.pass {
            self.go_on_walking(services, pass, now);
        } else if self.connections.journal().is_kept() {
            self.begin_refreshing(services, now);
        }
    }

    /// Begins to look for exceptions that are due, where there may be any.
    fn begin_refreshing(&mut self, services: &ServiceTable, now: Instant) {
        if self.connections.journal().take_has_new() {
            self.marking.has_found = true;
        }
        if !self.marking.has_found {
            return;
        }
        let lasting = [State::Established, State::Udp, State::Other];
        let idle_ns = lasting.map(|state| services.settings.idle_ns[state as usize]);
        let length_ns = idle_ns.into_iter().min().unwrap_or(0) / PASSES_PER_IDLE_TIMEOUT;
        self.marking.pass = Some(Pass::new(Purpose::Refresh, &self.connections, now, length_ns));
    }

    #[cold]
    fn go_on_walking(&mut self, services: &ServiceTable, mut pass: Pass, now: Instant) {
        let budget = pass.budget(now);
        let (mut slot_count, mut connection_count) = (0, 0);
        while slot_count < budget && connection_count < CONNECTIONS_A_TURN {
            let step = SLOTS_A_STEP.min(budget - slot_count);
            slot_count += step;
            let Some(next) = self.step(services, pass, (step, &mut connection_count), now) else {
                self.marking.pass = None;
                return;
            };
            pass = next;
        }
        self.marking.pass = Some(pass);
    }

    /// Looks at the next `budget` places, and counts the connections in them. Returns how the walk goes on, or none at its
    /// end.
    fn step(
        &mut self,
        services: &ServiceTable,
        mut pass: Pass,
        (budget, connection_count): (usize, &mut usize),
        now: Instant,
    ) -> Option<Pass> {
        let Self { connections, seed, .. } = self;
        let idle_ns = &services.settings.idle_ns;
        let has_found = &mut pass.has_found;
        let mut refresh = |key: &FlowKey, it: &mut Connection, journal: &mut Journal, is_news| {
            *connection_count += 1;
            *has_found |= it.is_own_exception();
            let idle_ns = idle_ns[it.state() as usize];
            let is_due = || it.is_own_exception() && it.is_due(idle_ns, now);
            if journal.is_kept() && (is_news || is_due()) && journal.note(*key) {
                it.set_journalled(idle_ns, now);
            }
        };
        let next = match pass.purpose {
            Purpose::Refresh => connections.walk(pass.walk, budget, |key, it, journal| {
                refresh(key, it, journal, false);
            }),
            Purpose::Mark { .. } => connections.walk(pass.walk, budget, |key, it, journal| {
                let was_own_exception = it.is_own_exception();
                let service = service_of_connection(services, key);
                it.set_exception(is_exception(services, service, key, seed.hash(key), it.target));
                refresh(key, it, journal, was_own_exception != it.is_own_exception());
            }),
        };
        pass.done_count += budget;
        match next {
            Some(walk) => Some(Pass { walk, ..pass }),
            None if pass.comes_round => {
                Some(Pass { walk: Walk::default(), comes_round: false, ..pass })
            }
            None => self.end_pass(pass, now),
        }
    }

    /// Ends a walk. Returns another one where some connections may have been missed.
    fn end_pass(&mut self, pass: Pass, now: Instant) -> Option<Pass> {
        self.marking.has_found = pass.has_found;
        let Purpose::Mark { repeats_left } = pass.purpose else { return None };
        if repeats_left > 0 && pass.moved_count != self.connections.moved_count() {
            let purpose = Purpose::Mark { repeats_left: repeats_left - 1 };
            return Some(Pass::new(purpose, &self.connections, now, pass.length_ns));
        }
        self.marking.is_incomplete = false;
        None
    }
}
