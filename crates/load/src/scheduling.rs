//! The kernel's figures on threads and CPUs (proc(5)).

use crate::figures::share;
use crate::task::Times;
use hotloop_engine::LoadCounts;
use std::collections::BTreeMap;
use std::path::Path;

/// The parent of `proc`.
pub const ROOT: &str = "/";

/// The kernel's counters of a thread.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Scheduled {
    /// Nanoseconds on a CPU, perhaps short of the current tick.
    pub ran_ns: Option<u64>,
    /// Nanoseconds in which it was ready and waited for a CPU.
    pub waited_ns: Option<u64>,
    /// Number of times that it lost the CPU without giving it up.
    pub involuntary_switches: Option<u64>,
}

impl Scheduled {
    /// Reads the counters of a thread of this process. `None` if there is no such thread. Counters
    /// that the kernel was built without are unknown.
    pub(crate) fn read(root: &Path, thread_id: i32) -> Option<Self> {
        let folder = root.join(format!("proc/self/task/{thread_id}"));
        let status = std::fs::read_to_string(folder.join("status")).ok()?;
        let Times { ran_ns, waited_ns } = Times::read(&folder);
        let switches =
            status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
        Some(Self {
            ran_ns,
            waited_ns,
            involuntary_switches: switches.and_then(|count| count.trim().parse().ok()),
        })
    }

    /// The counts since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let since = |of: fn(&Self) -> Option<u64>| Some(of(self)?.saturating_sub(of(before)?));
        Self {
            ran_ns: since(|counts| counts.ran_ns),
            waited_ns: since(|counts| counts.waited_ns),
            involuntary_switches: since(|counts| counts.involuntary_switches),
        }
    }
}

/// The time of each CPU, in the kernel's ticks: the total, and the part that the hypervisor gave to
/// others.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Cpus(BTreeMap<usize, (u64, u64)>);

impl Cpus {
    /// Reads every CPU. Empty if the kernel does not report them.
    pub fn read(root: &Path) -> Self {
        Self::parse(&std::fs::read_to_string(root.join("proc/stat")).unwrap_or_default())
    }

    fn parse(stat: &str) -> Self {
        let cpu = |line: &str| {
            let mut words = line.strip_prefix("cpu")?.split_whitespace();
            let id = words.next()?.parse().ok()?;
            // user nice system idle iowait irq softirq steal; guests are within user.
            let ticks: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
            Some((id, (ticks.iter().sum(), *ticks.get(7)?)))
        };
        Self(stat.lines().filter_map(cpu).collect())
    }

    /// The seconds of a CPU that the hypervisor has given to others since the machine started.
    #[allow(clippy::cast_precision_loss, reason = "ticks of years")]
    fn steal_s(&self, cpu: usize) -> Option<f64> {
        let (_, steal) = self.0.get(&cpu)?;
        Some(*steal as f64 / rustix::param::clock_ticks_per_second() as f64)
    }

    /// The part of a CPU's time since `before` that the hypervisor gave to others, at most 1.
    pub fn steal_since(&self, before: &Self, cpu: usize) -> Option<f64> {
        let ((all, steal), (all_before, steal_before)) = (self.0.get(&cpu)?, before.0.get(&cpu)?);
        Some(share(steal.saturating_sub(*steal_before), all.saturating_sub(*all_before)))
    }
}

/// The kernel's current figures on the cores' threads and CPUs.
#[derive(Debug)]
pub struct Scheduling(Cpus);

impl Scheduling {
    /// Reads them.
    #[must_use]
    pub fn read() -> Self {
        Self(Cpus::read(Path::new(ROOT)))
    }

    /// The counters of a core's thread, and the seconds that the hypervisor took of its CPU.
    #[must_use]
    pub fn of(&self, core: &LoadCounts) -> (Scheduled, Option<f64>) {
        let thread = core.thread_id.and_then(|id| Scheduled::read(Path::new(ROOT), id));
        (thread.unwrap_or_default(), core.cpu.and_then(|cpu| self.0.steal_s(cpu)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calling_threads_own_figures_are_read() {
        let id = rustix::thread::gettid().as_raw_nonzero().get();
        let first = Scheduled::read(Path::new("/"), id).unwrap();
        assert!(first.involuntary_switches.is_some());
        let later = Scheduled::read(Path::new("/"), id).unwrap();
        assert_eq!(later.since(&first).ran_ns.is_some(), first.ran_ns.is_some());
        assert_eq!(Scheduled::read(Path::new("/"), i32::MAX), None);
    }

    #[test]
    fn steal_is_a_part_of_a_cpus_time() {
        let before = Cpus::parse("cpu  1 2 3 4 5 6 7 8\ncpu0 0 0 0 100 0 0 0 10 0 0\nintr 5");
        let now = Cpus::parse("cpu  1 2 3 4 5 6 7 8\ncpu0 40 0 0 130 0 0 0 40 0 0\ncpu1 1 2");
        assert_eq!(now.steal_since(&before, 0), Some(0.3));
        assert_eq!(now.steal_since(&now, 0), Some(0.0));
        assert_eq!(now.steal_since(&before, 1), None);
    }

    #[test]
    fn what_the_kernel_does_not_say_is_unknown() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("proc/self/task/7");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("status"), "Name:\tcore-0\n").unwrap();
        assert_eq!(Scheduled::read(root.path(), 7), Some(Scheduled::default()));
        std::fs::write(folder.join("schedstat"), "12 34 5\n").unwrap();
        let read = Scheduled::read(root.path(), 7).unwrap();
        assert_eq!((read.ran_ns, read.waited_ns), (Some(12), Some(34)));
        assert_eq!(Cpus::read(root.path()), Cpus::default());
    }
}
