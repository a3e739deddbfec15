//! Two processes that take turns on one CPU.
//!
//! A peer that is a program of its own can't be called in slices. Both run from the beginning to the end
//! of a row instead, and one of them is always stopped by SIGSTOP: turns of a few milliseconds
//! see the same machine. Both are compared by packets over the CPU time of their forwarding threads.

use crate::figure::Figure;
use crate::forwarder::Measured;
use rustix::process::{Pid, Signal, kill_process};
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long one of them runs before the other one does.
const TURN: Duration = Duration::from_millis(5);

/// How long both take turns in a round.
const ROUND: Duration = Duration::from_millis(800);

/// A process that forwards.
pub trait Forwarding {
    /// The process.
    fn process(&self) -> &Child;

    /// Begins to count.
    ///
    /// # Errors
    /// Where the process has ended.
    fn begin(&mut self) -> Result<(), String>;

    /// Ends counting.
    ///
    /// # Errors
    /// Where the process has ended, or what it prints is not understood.
    fn end(&mut self) -> Result<Measured, String>;

    /// Has it run, or stop where it is.
    ///
    /// # Errors
    /// Where the process has ended.
    fn signal(&self, signal: Signal) -> Result<(), String> {
        let pid = Pid::from_child(self.process());
        kill_process(pid, signal).map_err(|error| format!("process {pid:?}: {error}"))
    }
}

/// Rates of two sides by round, in millions of packets a second of CPU time.
#[derive(Debug, Default)]
pub struct Rates {
    ours: Vec<f64>,
    theirs: Vec<f64>,
}

impl Rates {
    /// Our figure, and the peer's.
    ///
    /// # Panics
    /// Before a round.
    #[must_use]
    pub fn figures(&self) -> (Figure, Figure) {
        (Figure::of_rounds(&self.ours), Figure::of_rounds(&self.theirs))
    }

    /// Plays `count` rounds, and adds what came of them.
    ///
    /// # Errors
    /// Where a process has ended.
    pub fn play(
        &mut self,
        ours: &mut impl Forwarding,
        theirs: &mut impl Forwarding,
        count: usize,
    ) -> Result<(), String> {
        ours.signal(Signal::STOP)?;
        theirs.signal(Signal::STOP)?;
        for _ in 0..count {
            alone(theirs, Forwarding::begin)?;
            alone(ours, Forwarding::begin)?;
            let start = Instant::now();
            while start.elapsed() < ROUND {
                alone(ours, turn)?;
                alone(theirs, turn)?;
            }
            self.ours.push(alone(ours, Forwarding::end)?.mpps());
            self.theirs.push(alone(theirs, Forwarding::end)?.mpps());
        }
        ours.signal(Signal::CONT)?;
        theirs.signal(Signal::CONT)
    }
}

/// Has a side run for as long as `act` takes.
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
