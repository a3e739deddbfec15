//! Which core has its turn next, what arrives, and how time passes: all by the seed.

use crate::simulator::{Settings, Simulated, World};
use crate::{Frame, Rng};
use hotloop_engine::Assembly;
use hotloop_stage::Instant;

/// How many steps a run may take: far more than the slowest drawn one does. A run that takes more
/// goes round in circles.
const STEP_COUNT_MAX: u64 = 100_000;

/// How many steps the cores keep their shares of the turns, so that now one starves and now another.
const SHARES_STEPS: u64 = 40;

/// The most frames that arrive at once: more than a burst.
const ARRIVAL_COUNT_MAX: u64 = 100;

/// Nanoseconds that a turn takes at most, save for a pause.
const TURN_NS_MAX: u64 = 2_000;

/// Nanoseconds that a pause takes at most.
const PAUSE_NS_MAX: u64 = 2_000_000_000;

/// A run on its way.
pub struct Stepping<'a, F> {
    assembly: Assembly<'a>,
    world: &'a World,
    settings: &'a Settings,
    rng: Rng,
    frame: F,
    now: Instant,
    step_count: u64,
    /// How many frames arrived at each RX queue.
    fed_counts: Vec<u64>,
    /// For each core, its part of the turns.
    shares: Vec<u64>,
}

impl<'a, F: FnMut(usize, u64, &mut Rng) -> Frame> Stepping<'a, F> {
    pub fn new(
        assembly: Assembly<'a>,
        world: &'a World,
        settings: &'a Settings,
        mut rng: Rng,
        frame: F,
    ) -> Self {
        let now = Instant::from_ns(rng.below(PAUSE_NS_MAX));
        let fed_counts = vec![0; settings.deployment.cores_in(0)];
        let shares = vec![1; assembly.core_count()];
        Self { assembly, world, settings, rng, frame, now, step_count: 0, fed_counts, shares }
    }

    /// Steps until everything has arrived and gone, or the run is to be stopped, or a stage has
    /// panicked. Returns what was wrong on the way.
    pub fn run(&mut self) -> Vec<String> {
        loop {
            if self.settings.stop_after_steps.is_some_and(|steps| self.step_count >= steps)
                || self.assembly.has_panicked()
                || (self.arrivals_left() == 0 && self.assembly.is_exhausted())
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

    /// Stops, drains, and gathers what came out.
    pub fn finish(self) -> Simulated {
        let fed_count = self.fed_count();
        let report = self.assembly.finish(self.now);
        Simulated {
            settings: self.settings.clone(),
            // A panic may come in the drain only.
            has_panicked: report.cores.iter().any(|core| core.panic.is_some()),
            report,
            fed_count,
            sent: self.world.take_sent(),
            step_count: self.step_count,
        }
    }

    fn fed_count(&self) -> u64 {
        self.fed_counts.iter().sum()
    }

    fn arrivals_left(&self) -> u64 {
        self.settings.frame_count - self.fed_count()
    }

    fn step(&mut self) {
        if self.step_count.is_multiple_of(SHARES_STEPS) {
            let rng = &mut self.rng;
            self.shares.iter_mut().for_each(|share| *share = 1 << rng.below(6));
        }
        if self.rng.permille(300) {
            self.arrive();
        }
        let pauses = self.rng.permille(10);
        let passed_ns_max = if pauses { PAUSE_NS_MAX } else { TURN_NS_MAX };
        self.now = Instant::from_ns(self.now.as_ns() + self.rng.below(passed_ns_max));
        let core_index = self.next_core();
        self.assembly.step(core_index, self.now);
        self.step_count += 1;
    }

    fn arrive(&mut self) {
        let left = self.arrivals_left();
        if left == 0 {
            self.world.end_input();
            return;
        }
        let count = (1 + self.rng.below(ARRIVAL_COUNT_MAX)).min(left);
        let queue_index = self.rng.index(self.fed_counts.len());
        let first = self.fed_counts[queue_index];
        let (frame, rng) = (&mut self.frame, &mut self.rng);
        let numbers = first..first + count;
        self.world.feed(queue_index, numbers.map(|number| frame(queue_index, number, rng)));
        self.fed_counts[queue_index] += count;
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
