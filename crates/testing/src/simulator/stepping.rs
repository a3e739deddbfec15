//! Draws from the seed which core has its turn next, and how time passes.

use crate::simulator::wires::Wires;
use crate::simulator::{Scenario, Settings, Simulated, World};
use crate::{Frame, Rng};
use hotloop_engine::Assembly;
use hotloop_stage::Instant;

/// Maximum number of steps of a run: far more than the slowest drawn one takes. A run that exceeds
/// this goes round in circles.
const STEP_COUNT_MAX: u64 = 100_000;

/// Number of steps without an arrival after which nothing is expected to leave any more: 20 s on
/// average.
const QUIET_STEPS: u64 = 2_000;

/// Number of steps for which the cores keep their shares of the turns, so that now one starves and
/// now another.
const SHARES_STEPS: u64 = 40;

/// Maximum length of a turn in nanoseconds, except for pauses.
const TURN_NS_MAX: u64 = 2_000;

/// Maximum length of a pause in nanoseconds.
const PAUSE_NS_MAX: u64 = 2_000_000_000;

/// A run in progress.
pub struct Stepping<'a, S, P> {
    assembly: Assembly<'a>,
    wires: Wires<'a, S, P>,
    world: &'a World,
    rng: Rng,
    now: Instant,
    step_count: u64,
    /// The step of the latest arrival.
    arrived_at: u64,
    /// Each core's share of the turns.
    shares: Vec<u64>,
}

impl<'a, S: Scenario, P: FnMut(&Frame, &mut Rng) -> Vec<Frame>> Stepping<'a, S, P> {
    pub fn new(
        assembly: Assembly<'a>,
        wires: Wires<'a, S, P>,
        world: &'a World,
        mut rng: Rng,
    ) -> Self {
        let now = Instant::from_ns(rng.below(PAUSE_NS_MAX));
        let shares = vec![1; assembly.core_count()];
        Self { assembly, wires, world, rng, now, step_count: 0, arrived_at: 0, shares }
    }

    /// Steps until everything has arrived and left, the run must be stopped, or a stage has
    /// panicked. Returns the problems found on the way.
    pub fn run(&mut self) -> Vec<String> {
        loop {
            if self.settings().stop_after_steps.is_some_and(|steps| self.step_count >= steps)
                || self.assembly.has_panicked()
                || (self.wires.has_ended() && self.assembly.is_exhausted())
            {
                return Vec::new();
            }
            if self.step_count >= STEP_COUNT_MAX {
                return vec![format!("the input is not exhausted after {STEP_COUNT_MAX} steps")];
            }
            self.step();
            let (inside, most) = (self.assembly.in_flight(), self.assembly.in_flight_max());
            if inside > most {
                return vec![format!("{inside} packets inside, where there are at most {most}")];
            }
        }
    }

    /// Stops, drains, and gathers the results.
    pub fn finish(self) -> Simulated {
        let settings = self.settings().clone();
        let report = self.assembly.finish(self.now);
        let [fed_count, answered_count] = self.wires.arrived_counts();
        Simulated {
            settings,
            // A panic may occur only in the drain.
            has_panicked: report.cores.iter().any(|core| core.panic.is_some()),
            report,
            fed_count,
            answered_count,
            sent: self.wires.into_sent(),
            step_count: self.step_count,
        }
    }

    const fn settings(&self) -> &'a Settings {
        self.world.settings()
    }

    fn step(&mut self) {
        if self.step_count.is_multiple_of(SHARES_STEPS) {
            let rng = &mut self.rng;
            self.shares.iter_mut().for_each(|share| *share = 1 << rng.below(6));
        }
        if self.rng.permille(300) && !self.wires.has_ended() {
            if self.wires.arrive(&mut self.rng) {
                self.arrived_at = self.step_count;
            } else if self.is_quiet() {
                self.wires.end_input();
            }
        }
        let pauses = self.rng.permille(10);
        let passed_ns_max = if pauses { PAUSE_NS_MAX } else { TURN_NS_MAX };
        self.now = Instant::from_ns(self.now.as_ns() + self.rng.below(passed_ns_max));
        let core_index = self.next_core();
        self.assembly.step(core_index, self.now);
        self.wires.answer(&mut self.rng);
        self.step_count += 1;
    }

    /// Whether no answer is expected: there are no peers, or everything has left, or nothing has
    /// arrived for long.
    fn is_quiet(&mut self) -> bool {
        !self.wires.has_peers()
            || (self.world.waiting_count() == 0 && self.assembly.in_flight() == 0)
            || self.step_count - self.arrived_at >= QUIET_STEPS
    }

    fn next_core(&mut self) -> usize {
        let mut ticket = self.rng.below(self.shares.iter().sum());
        for (core_index, &share) in self.shares.iter().enumerate() {
            if ticket < share {
                return core_index;
            }
            ticket -= share;
        }
        unreachable!("a ticket below the sum of the shares falls on one of them")
    }
}
