//! Two processes that take turns on one CPU.
//!
//! A peer that is a program of its own can't be called in slices. Instead, both run from the
//! beginning to the end of a row, and one of them is always stopped by SIGSTOP: turns of a few
//! milliseconds see the same machine. Both are compared by packets per CPU time of their forwarding
//! threads.
//!
//! Code that waits for memory doesn't slow down with the core, other code does. So rounds of such
//! turns are kept and ranked like the slices of a contest: by calibrations on the same CPU, one
//! before each turn.

use crate::figure::{Figure, KeptMin};
use crate::instrument::{Instrument, Played};
use crate::slices::{Slice, figure, level_ns};
use crate::watch::calibration_ns;
use core_affinity::CoreId;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::process::Child;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

/// The CPU that both processes forward on.
pub const CPU: usize = 1;

/// Duration of one process's turn.
const TURN: Duration = Duration::from_millis(5);

/// Length of a round, in which both take turns.
const ROUND: Duration = Duration::from_millis(40);

/// Minimum number of rounds of a pair of processes.
const ROUND_COUNT_MIN: usize = 24;

/// Maximum number of rounds, if too few were undisturbed before.
const ROUND_COUNT_MAX: usize = 80;

/// Number of undisturbed rounds that is enough.
const UNDISTURBED_COUNT: usize = 10;

/// The measured results.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Measured {
    /// Packets forwarded.
    pub packets: u64,
    /// CPU time for them.
    pub cpu_ns: u64,
}

impl Measured {
    /// Millions of packets per second of CPU time.
    #[must_use]
    pub fn mpps(self) -> f64 {
        self.packets as f64 * 1e3 / self.cpu_ns as f64
    }
}

/// A process that forwards.
pub trait Forwarding: Send {
    /// The process.
    fn process(&self) -> &Child;

    /// Begins counting.
    ///
    /// # Errors
    /// If the process has ended.
    fn begin(&mut self) -> Result<(), String>;

    /// Ends counting.
    ///
    /// # Errors
    /// If the process has ended, or if its output is not understood.
    fn end(&mut self) -> Result<Measured, String>;

    /// Continues or stops the process.
    ///
    /// # Errors
    /// If the process has ended.
    fn signal(&self, signal: Signal) -> Result<(), String> {
        let pid = Pid::from_child(self.process());
        kill_process(pid, signal).map_err(|error| format!("process {pid:?}: {error}"))
    }
}

/// The results of two sides, by round.
#[derive(Debug, Default)]
pub struct Rates {
    ours: Vec<Slice>,
    theirs: Vec<Slice>,
}

impl Rates {
    /// Our figure and the peer's, in millions of packets per second of CPU time.
    #[must_use]
    pub fn figures(&self) -> (Figure, Figure) {
        let sides = [&self.ours[..], &self.theirs[..]];
        let level_ns = level_ns(&sides, KeptMin::ROUNDS);
        let [ours, theirs] = sides.map(|side| {
            let kept = side.iter().filter(|round| round.is_kept(level_ns));
            figure(kept, KeptMin::ROUNDS).map(|packet_ns| 1e3 / packet_ns)
        });
        (ours, theirs)
    }

    /// Plays this process's part of the rounds of a row, with the pair of processes that `start`
    /// has started. Returns nothing if this process plays a part of another one's run.
    ///
    /// # Errors
    /// If a process does not start, or has ended.
    ///
    /// # Panics
    /// If both have no CPU in common.
    pub fn of<O: Forwarding, T: Forwarding>(
        row: &str,
        instrument: &Instrument,
        start: impl FnOnce() -> Result<(O, T), String>,
    ) -> Result<Option<Self>, String> {
        let mut rates = Self::default();
        let (mut ours, mut theirs) = start()?;
        rates.play(&mut ours, &mut theirs, instrument.quarter())?;
        let Self { ours, theirs } = &mut rates;
        for (side, slices) in [("ours", ours), ("theirs", theirs)] {
            if instrument.is_part() {
                let (contest, side) = (row.to_owned(), side.to_owned());
                let slices = std::mem::take(slices);
                instrument.hand_over(&Played { contest, side, slices });
            } else {
                slices.extend(instrument.earlier(row, side));
            }
        }
        Ok((!instrument.is_part()).then_some(rates))
    }

    fn play(
        &mut self,
        ours: &mut impl Forwarding,
        theirs: &mut impl Forwarding,
        quarter: usize,
    ) -> Result<(), String> {
        ours.signal(Signal::STOP)?;
        theirs.signal(Signal::STOP)?;
        let rounds = || {
            assert!(core_affinity::set_for_current(CoreId { id: CPU }), "there is no CPU {CPU}");
            for round in 0..ROUND_COUNT_MAX {
                if round >= ROUND_COUNT_MIN && self.undisturbed_count(quarter) >= UNDISTURBED_COUNT
                {
                    break;
                }
                self.play_round(ours, theirs, quarter)?;
            }
            Ok::<_, String>(())
        };
        scope(|scope| scope.spawn(rounds).join().expect("it says how it went"))?;
        ours.signal(Signal::CONT)?;
        theirs.signal(Signal::CONT)
    }

    /// Number of rounds of a quarter with calibrations like the fastest so far.
    fn undisturbed_count(&self, quarter: usize) -> usize {
        let all_ns = self.ours.iter().map(|round| round.calibration_ns);
        let fastest_ns = all_ns.fold(f64::MAX, f64::min);
        let of_quarter = self.ours.iter().filter(|round| round.quarter == quarter);
        of_quarter.filter(|round| round.is_kept(fastest_ns)).count()
    }

    fn play_round(
        &mut self,
        ours: &mut impl Forwarding,
        theirs: &mut impl Forwarding,
        quarter: usize,
    ) -> Result<(), String> {
        alone(theirs, Forwarding::begin)?;
        alone(ours, Forwarding::begin)?;
        let mut calibrations_ns = Vec::new();
        let start = Instant::now();
        while start.elapsed() < ROUND {
            calibrations_ns.push(calibration_ns());
            alone(ours, turn)?;
            calibrations_ns.push(calibration_ns());
            alone(theirs, turn)?;
        }
        calibrations_ns.sort_by(f64::total_cmp);
        // Three quarters of the calibrations: if another program took the CPU, a calibration means
        // nothing.
        let calibration_ns = calibrations_ns[calibrations_ns.len() * 3 / 4];
        let slice = |measured: Measured| Slice {
            quarter,
            op_ns: measured.cpu_ns as f64 / measured.packets as f64,
            calibration_ns,
            was_switched: false,
            distance: None,
            bursts_ns: Vec::new(),
        };
        self.ours.push(slice(alone(ours, Forwarding::end)?));
        self.theirs.push(slice(alone(theirs, Forwarding::end)?));
        Ok(())
    }
}

/// Lets a side run for as long as `act` takes.
fn alone<F: Forwarding, T>(
    side: &mut F,
    act: impl FnOnce(&mut F) -> Result<T, String>,
) -> Result<T, String> {
    side.signal(Signal::CONT)?;
    let done = act(side)?;
    side.signal(Signal::STOP)?;
    Ok(done)
}

fn turn<F>(_: &mut F) -> Result<(), String> {
    sleep(TURN);
    Ok(())
}
