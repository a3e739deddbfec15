//! Judges whether a thread makes progress, by samples from time to time.

/// A thread that used less than this part of the time counts as one that got no CPU: it takes some
/// to wake up and be put off again.
const NO_CPU_PART: u64 = 100;

/// A thread was absent in a time without samples if it ran and slept for less than this part of it.
const AWAY_PART: u64 = 4;

/// A sample of a thread.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Sample {
    /// Nanoseconds of a clock that goes on while the machine is paused.
    pub now_ns: u64,
    /// Number of boundaries that it has passed.
    pub passed: u64,
    /// Nanoseconds of CPU time that it has used, if known.
    pub cpu_ns: Option<u64>,
    /// Nanoseconds in which it slept on purpose.
    pub slept_ns: u64,
}

/// A problem with a thread.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Trouble {
    /// It used too much CPU time without passing a boundary.
    Stuck,
    /// It got no CPU, or wanted none, for too long.
    Starved,
}

/// A change since the last sample.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// A problem, and how long it has lasted in nanoseconds: of CPU time if stuck.
    Begins(Trouble, u64),
    /// It passes boundaries again, after this many nanoseconds.
    Ends(u64),
}

/// Follows one thread.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    last: Option<Sample>,
    /// The first sample after its last boundary.
    since: Sample,
    /// The last sample in which it had used CPU time.
    ran: Sample,
    trouble: Option<Trouble>,
}

impl Progress {
    /// The problem in the last sample, if any.
    pub const fn trouble(&self) -> Option<Trouble> {
        self.trouble
    }

    /// Takes a sample of a thread, which may use `max_ns` of its own CPU time between two
    /// boundaries, and go without CPU for as long.
    pub fn see(&mut self, sample: Sample, max_ns: u64) -> Option<Change> {
        let last = self.last.replace(sample).unwrap_or_else(|| {
            (self.since, self.ran) = (sample, sample);
            sample
        });
        if sample.passed != last.passed {
            let lasted = sample.now_ns.saturating_sub(self.since.now_ns);
            let was_absent = was_absent(&last, &sample, max_ns);
            (self.since, self.ran) = (sample, sample);
            return match self.trouble.take() {
                Some(_) => Some(Change::Ends(lasted)),
                // There were no samples meanwhile: the watching thread itself got no CPU.
                None if was_absent => {
                    self.trouble = Some(Trouble::Starved);
                    Some(Change::Begins(Trouble::Starved, lasted))
                }
                None => None,
            };
        }
        let used = |since: &Sample| Some(sample.cpu_ns?.saturating_sub(since.cpu_ns?));
        if used(&self.ran).is_some_and(|ns| ns >= max_ns / NO_CPU_PART) {
            self.ran = sample;
        }
        if self.trouble == Some(Trouble::Stuck) {
            return None;
        }
        if let Some(ns) = used(&self.since).filter(|&ns| ns >= max_ns) {
            self.trouble = Some(Trouble::Stuck);
            return Some(Change::Begins(Trouble::Stuck, ns));
        }
        let absent_ns = sample.now_ns.saturating_sub(self.ran.now_ns);
        if self.trouble.is_none() && absent_ns >= max_ns {
            self.trouble = Some(Trouble::Starved);
            return Some(Change::Begins(Trouble::Starved, absent_ns));
        }
        None
    }
}

/// Whether a thread that has passed boundaries since `last` can't have run for most of that time.
fn was_absent(last: &Sample, now: &Sample, max_ns: u64) -> bool {
    let passed_ns = now.now_ns.saturating_sub(last.now_ns);
    let slept_ns = now.slept_ns.saturating_sub(last.slept_ns);
    let used = last.cpu_ns.zip(now.cpu_ns).map(|(last, now)| now.saturating_sub(last));
    passed_ns >= max_ns && used.is_some_and(|used| used + slept_ns < passed_ns / AWAY_PART)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Change::{Begins, Ends};
    use Trouble::{Starved, Stuck};

    const MS: u64 = 1_000_000;
    const MAX: u64 = 1_000 * MS;

    /// Samples a thread at each (time, boundaries, CPU time), both times in milliseconds.
    fn seen(samples: &[(u64, u64, u64)]) -> Vec<Change> {
        let mut progress = Progress::default();
        let sample = |&(now, passed, cpu): &(u64, u64, u64)| {
            let sample = Sample {
                now_ns: now * MS,
                passed,
                cpu_ns: Some(cpu * MS),
                slept_ns: passed * MS / 10,
            };
            progress.see(sample, MAX)
        };
        samples.iter().filter_map(sample).collect()
    }

    #[test]
    fn a_thread_that_passes_boundaries_is_fine_however_much_it_uses() {
        let spinning: Vec<_> = (0..50).map(|at| (at * 100, at * 9, at * 100)).collect();
        assert_eq!(seen(&spinning), []);
        // A boundary in 900 ms of CPU time.
        let slow: Vec<_> = (0..50).map(|at| (at * 100, at / 9, at * 100)).collect();
        assert_eq!(seen(&slow), []);
        let sleeping: Vec<_> = (0..50).map(|at| (at * 100, at * 600, at)).collect();
        assert_eq!(seen(&sleeping), []);
    }

    #[test]
    fn cpu_time_without_a_boundary_is_stuck_and_said_once() {
        let stuck: Vec<_> = (0..40).map(|at| (at * 100, 7, at * 100)).collect();
        assert_eq!(seen(&stuck), [Begins(Stuck, MAX)]);
        // With half of a CPU it takes twice as long.
        let halved: Vec<_> = (0..40).map(|at| (at * 100, 7, at * 50)).collect();
        assert_eq!(seen(&halved[..20]), []);
        assert_eq!(seen(&halved), [Begins(Stuck, MAX)]);
    }

    #[test]
    fn no_cpu_is_starved_until_a_boundary_is_passed() {
        let mut samples: Vec<_> = (0..30).map(|at| (at * 100, 7, 500)).collect();
        assert_eq!(seen(&samples), [Begins(Starved, MAX)]);
        samples.push((3000, 8, 500));
        samples.push((3100, 9, 550));
        assert_eq!(seen(&samples), [Begins(Starved, MAX), Ends(3000 * MS)]);
        // A thread that wakes up and is put off at once has had hardly any CPU.
        let hardly: Vec<_> = (0..20).map(|at| (at * 100, 7, 500 + at / 4)).collect();
        assert_eq!(seen(&hardly), [Begins(Starved, MAX)]);
    }

    #[test]
    fn a_pause_of_all_threads_shows_once_it_is_over() {
        let pause = [(0, 7, 0), (100, 900, 100), (5_000, 902, 200), (5_100, 1800, 200)];
        assert_eq!(seen(&pause), [Begins(Starved, 4_900 * MS), Ends(100 * MS)]);
        // Only the watching thread had to wait.
        assert_eq!(seen(&[(0, 7, 0), (100, 900, 100), (5_000, 902, 5_000)]), []);
        assert_eq!(seen(&[(0, 7, 0), (100, 900, 1), (5_000, 40_000, 9)]), []);
        // It has not run since either.
        let stopped = [(0, 7, 0), (5_000, 7, 0), (5_100, 8, 10)];
        assert_eq!(seen(&stopped), [Begins(Starved, 5_000 * MS), Ends(5_100 * MS)]);
    }

    #[test]
    fn what_is_starved_first_may_be_stuck_then() {
        let mut samples: Vec<_> = (0..15).map(|at| (at * 100, 7, 0)).collect();
        samples.extend((15..40).map(|at| (at * 100, 7, (at - 15) * 100)));
        assert_eq!(seen(&samples), [Begins(Starved, MAX), Begins(Stuck, MAX)]);
    }

    #[test]
    fn without_a_cpu_clock_nothing_is_stuck() {
        let mut progress = Progress::default();
        let changes = (0..30).filter_map(|at| {
            let now_ns = at * 100 * MS;
            progress.see(Sample { now_ns, passed: 7, ..Sample::default() }, MAX)
        });
        assert_eq!(changes.collect::<Vec<_>>(), [Begins(Starved, MAX)]);
    }
}
