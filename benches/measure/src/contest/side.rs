//! One side of a contest.

use super::Bursts;
use crate::slices::Slice;
use std::time::Duration;

/// Length of a slice.
const SLICE: Duration = Duration::from_micros(400);

/// Minimum length of a warm-up.
const WARM_UP_MIN: Duration = Duration::from_micros(50);

/// Maximum number of slices in a turn if the warm-up takes longer than a slice.
pub(super) const TURN_SLICES_MAX: u64 = 32;

/// One way of doing the work.
pub struct Side<'a> {
    pub(super) name: String,
    pub(super) play: Box<dyn FnMut(u64) -> Duration + 'a>,
    pub(super) reset: Option<Box<dyn FnMut() + 'a>>,
    /// Number of operations of a warm-up.
    pub(super) pass: u64,
    pub(super) slice_ops: u64,
    pub(super) turn_slices: u64,
    pub(super) slices: Vec<Slice>,
    /// Storage for the nanoseconds of each burst, if `play` records them.
    pub(super) bursts: Option<&'a Bursts>,
    /// Whether `play` sleeps and warms up, outside of the time that it returns.
    pub(super) sleeps: bool,
}

impl<'a> Side<'a> {
    /// A side. `play` takes a number of operations, does about that many, and returns how long exactly
    /// that number would have taken.
    pub fn new(name: &str, play: impl FnMut(u64) -> Duration + 'a) -> Self {
        Self {
            name: name.to_owned(),
            play: Box::new(play),
            reset: None,
            pass: 0,
            slice_ops: 0,
            turn_slices: 1,
            slices: Vec::new(),
            bursts: None,
            sleeps: false,
        }
    }

    /// `play` appends the nanoseconds of each burst to `bursts`.
    #[must_use]
    pub const fn bursts(mut self, bursts: &'a Bursts) -> Self {
        self.bursts = Some(bursts);
        self
    }

    /// Sets the operations of one pass over the working set. The pass is the warm-up of a turn if
    /// it takes longer than 50 µs; the slices of the turn then take about the same time in total,
    /// with a maximum of 32 slices.
    #[must_use]
    pub const fn pass(mut self, ops: u64) -> Self {
        self.pass = ops;
        self
    }

    /// `play` sleeps and warms up itself, both outside of the time that it returns. A turn then
    /// begins without a warm-up, and slices are kept although the thread gave up the CPU: `play`
    /// itself must make sure that nothing else ran.
    #[must_use]
    pub const fn sleeps(mut self) -> Self {
        self.sleeps = true;
        self
    }

    /// Calls `reset` before each turn, uncounted.
    #[must_use]
    pub fn reset(mut self, reset: impl FnMut() + 'a) -> Self {
        self.reset = Some(Box::new(reset));
        self
    }

    /// Determines the number of operations of a slice and of the warm-up.
    pub(super) fn calibrate(&mut self) {
        self.clear();
        let mut ops = 64;
        while (self.play)(ops) < SLICE / 4 {
            ops *= 2;
        }
        let times = (0..8).map(|_| (self.play)(ops));
        let op_s = times.min().unwrap_or(SLICE).as_secs_f64() / ops as f64;
        let ops_of = |time: Duration| ((time.as_secs_f64() / op_s) as u64).max(1);
        self.slice_ops = ops_of(SLICE);
        self.pass = self.pass.max(ops_of(WARM_UP_MIN));
        self.turn_slices = (self.pass / self.slice_ops).clamp(1, TURN_SLICES_MAX);
    }

    pub(super) fn clear(&mut self) {
        if let Some(reset) = &mut self.reset {
            reset();
        }
    }

    /// Begins a turn with operations that don't count.
    pub(super) fn warm_up(&mut self) {
        if !self.sleeps {
            (self.play)(self.pass);
        }
    }
}
