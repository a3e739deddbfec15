//! Work that takes too long for the control thread.
//!
//! Uses nothing of control. A thread has one job at a time, and nothing waits for it.

use hotloop_privileges::Capabilities;
use std::io;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread;

/// A thread that does one job after another. Dropping this ends the thread after its last job
/// without waiting for it: the thread may be in a system call that never returns.
#[derive(Debug)]
pub struct Background<J, R> {
    name: &'static str,
    jobs: Sender<J>,
    results: Receiver<R>,
    is_busy: bool,
}

impl<J: Send + 'static, R: Send + 'static> Background<J, R> {
    /// Starts the thread, with no capabilities except `kept`. A name has at most 15 bytes.
    ///
    /// # Errors
    /// The system grants no thread.
    pub fn start(
        name: &'static str,
        kept: Capabilities,
        mut work: impl FnMut(J) -> R + Send + 'static,
    ) -> io::Result<Self> {
        let (jobs, inbox) = mpsc::channel();
        let (outbox, results) = mpsc::channel();
        thread::Builder::new().name(name.into()).spawn(move || {
            hotloop_privileges::keep(kept);
            // Ends when the other side of either channel is gone.
            while let Ok(job) = inbox.recv() {
                if outbox.send(work(job)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { name, jobs, results, is_busy: false })
    }

    /// Whether the thread has a job, or a result that was not taken yet.
    pub const fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Gives the thread a job.
    ///
    /// # Panics
    /// If the thread is busy.
    pub fn give(&mut self, job: J) {
        assert!(!self.is_busy, "{}: one job at a time", self.name);
        self.is_busy = true;
        // If the thread has ended, taking the result reports that.
        let _ = self.jobs.send(job);
    }

    /// The job's result, once the job is done; an error if the thread has panicked.
    pub fn take(&mut self) -> Option<Result<R, String>> {
        if !self.is_busy {
            return None;
        }
        let result = match self.results.try_recv() {
            Ok(result) => Ok(result),
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => {
                Err(format!("the thread {} has ended by a panic: restart the program", self.name))
            }
        };
        self.is_busy = false;
        Some(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait<J: Send + 'static, R: Send + 'static>(it: &mut Background<J, R>) -> Result<R, String> {
        loop {
            if let Some(result) = it.take() {
                return result;
            }
            thread::yield_now();
        }
    }

    #[test]
    fn jobs_are_done_one_after_the_other_and_a_panic_is_named() {
        let mut halves = Background::start("halves", Capabilities::empty(), |number: u32| {
            assert!(number.is_multiple_of(2), "odd");
            number / 2
        })
        .unwrap();
        assert!(halves.take().is_none() && !halves.is_busy());
        for number in [8, 6] {
            halves.give(number);
            assert!(halves.is_busy());
            assert_eq!(wait(&mut halves), Ok(number / 2));
        }
        for number in [3, 4] {
            halves.give(number);
            assert!(wait(&mut halves).unwrap_err().contains("thread halves has ended"));
        }
    }
}
