//! Finds the threads that run on a core's CPU while the core loses packets.

use crate::figures::{CoreFigures, share};
use crate::task::{Stat, Times};
use hotloop_privileges::{Capabilities, keep};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long to measure the CPU time of the threads there.
const WATCH_TIME: Duration = Duration::from_millis(500);

/// The most threads named.
const NAMED_COUNT_MAX: usize = 3;

/// How often to warn about the same core.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

/// The least part of a CPU's time for a thread to be named.
const PART_MIN: f64 = 0.01;

/// Finds the threads on a core's CPU if the core loses packets, and logs them.
#[derive(Debug, Default)]
pub struct Intruders {
    warned: BTreeMap<String, Instant>,
    /// Whether a search is running, on a thread of its own: there are thousands of files to read.
    is_looking: Arc<AtomicBool>,
}

/// A core that lost the CPU in a second in which packets were lost.
#[derive(Debug)]
struct Hindered {
    core: String,
    cpu: usize,
    thread_id: i32,
    imissed: u64,
    switches: u64,
    steal_percent: f64,
}

/// A thread that runs on a core's CPU.
#[derive(Clone, Debug, PartialEq)]
struct Intruder {
    process_id: i32,
    thread_id: i32,
    name: String,
    is_pinned: bool,
    /// The part of the CPU's time that it took.
    part: f64,
}

impl Intruders {
    /// Evaluates a second in which devices lost `imissed` packets, by each core's figures.
    pub fn look(&mut self, imissed: u64, figures: &[(Option<i32>, CoreFigures)]) {
        if imissed == 0 {
            return;
        }
        for (thread_id, figures) in figures {
            let switches = figures.involuntary_switches.unwrap_or(0);
            let Some(thread_id) = thread_id.filter(|_| switches > 0) else { continue };
            let Some(cpu) = figures.load.cpu.or_else(|| last_cpu(thread_id)) else { continue };
            let core = figures.load.core.clone();
            let warned = self.warned.get(&core);
            if warned.is_some_and(|at| at.elapsed() < WARN_INTERVAL)
                || self.is_looking.swap(true, Ordering::Acquire)
            {
                continue;
            }
            self.warned.insert(core.clone(), Instant::now());
            let steal_percent = figures.steal_percent.unwrap_or(0.0);
            let hindered = Hindered { core, cpu, thread_id, imissed, switches, steal_percent };
            let is_looking = Arc::clone(&self.is_looking);
            let spawned = std::thread::Builder::new().name("intruder".into()).spawn(move || {
                keep(Capabilities::empty());
                let intruders = find(Path::new("/"), &hindered, WATCH_TIME);
                tracing::warn!("{}", hindered.text(&intruders));
                is_looking.store(false, Ordering::Release);
            });
            if spawned.is_err() {
                self.is_looking.store(false, Ordering::Release);
            }
        }
    }
}

impl Hindered {
    fn text(&self, intruders: &[Intruder]) -> String {
        let Self { core, cpu, imissed, switches, steal_percent, .. } = self;
        let lost = format!(
            "{core}: {imissed} packets were lost (imissed) in a second in which the kernel took CPU \
             {cpu} from it {switches} times"
        );
        if intruders.is_empty() {
            return format!(
                "{lost}: no thread was found that still runs there: look at interrupts \
                 (/proc/interrupts); the hypervisor took {steal_percent:.0} % of it"
            );
        }
        let named: Vec<_> = intruders.iter().map(ToString::to_string).collect();
        format!(
            "{lost}: there ran {}; move them to another CPU (taskset), or keep others off this one \
             (isolcpus)",
            named.join(", ")
        )
    }
}

impl std::fmt::Display for Intruder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { process_id, thread_id, name, is_pinned, part } = self;
        let (pinned, percent) = (if *is_pinned { ", pinned to it" } else { "" }, part * 100.0);
        write!(f, "{name} (process {process_id}, thread {thread_id}{pinned}) for {percent:.0} %")
    }
}

/// The CPU that a thread of this process ran on last.
fn last_cpu(thread_id: i32) -> Option<usize> {
    Stat::read(&PathBuf::from(format!("/proc/self/task/{thread_id}"))).map(|stat| stat.cpu)
}

/// The threads that take most of a core's CPU, other than the core's own.
fn find(root: &Path, hindered: &Hindered, watch_time: Duration) -> Vec<Intruder> {
    let before = threads_on(root, hindered);
    let start = Instant::now();
    std::thread::sleep(watch_time);
    let now = threads_on(root, hindered);
    let passed_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let ran = |(thread, ran_ns): ((Ids, PathBuf), u64)| {
        let before_ns = before.get(&thread).copied().unwrap_or(ran_ns);
        (share(ran_ns.saturating_sub(before_ns), passed_ns), thread)
    };
    let mut ran: Vec<_> = now.into_iter().map(ran).filter(|(part, _)| *part >= PART_MIN).collect();
    ran.sort_by(|one, other| other.0.total_cmp(&one.0));
    let named = ran.into_iter().take(NAMED_COUNT_MAX);
    named.map(|(part, (ids, folder))| Intruder::read(ids, &folder, hindered.cpu, part)).collect()
}

impl Intruder {
    fn read((process_id, thread_id): Ids, folder: &Path, cpu: usize, part: f64) -> Self {
        let text = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        let (name, status) = (text("comm").trim().to_owned(), text("status"));
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let is_pinned = allowed.is_some_and(|list| list.trim() == cpu.to_string());
        Self { process_id, thread_id, name, is_pinned, part }
    }
}

/// The numbers of a process and of a thread of it.
type Ids = (i32, i32);

/// The threads that last ran on a core's CPU, other than its own, with their CPU time in
/// nanoseconds.
fn threads_on(root: &Path, hindered: &Hindered) -> BTreeMap<(Ids, PathBuf), u64> {
    let mut threads = BTreeMap::new();
    for (process_id, process) in numbered(&root.join("proc")) {
        for (thread_id, folder) in numbered(&process.join("task")) {
            let is_there = Stat::read(&folder).is_some_and(|stat| stat.cpu == hindered.cpu);
            if is_there
                && thread_id != hindered.thread_id
                && let Some(ran_ns) = Times::read(&folder).ran_ns
            {
                threads.insert(((process_id, thread_id), folder), ran_ns);
            }
        }
    }
    threads
}

/// The entries of a folder with numbers for names.
fn numbered(folder: &Path) -> impl Iterator<Item = (i32, PathBuf)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hindered() -> Hindered {
        let core = "core 0".to_owned();
        Hindered { core, cpu: 3, thread_id: 71, imissed: 900, switches: 250, steal_percent: 2.4 }
    }

    #[test]
    fn the_thread_that_takes_most_of_the_cpu_is_named() {
        let root = tempfile::tempdir().unwrap();
        let write = |thread: (i32, i32), cpu: usize, ran_ns: u64| {
            let (process, id) = thread;
            let folder = root.path().join(format!("proc/{process}/task/{id}"));
            std::fs::create_dir_all(&folder).unwrap();
            let before_cpu = "0 ".repeat(35);
            let stat = format!("{id} (a (b) c) R {before_cpu}{cpu} 0 0\n");
            std::fs::write(folder.join("stat"), stat).unwrap();
            std::fs::write(folder.join("schedstat"), format!("{ran_ns} 0 1\n")).unwrap();
            std::fs::write(folder.join("comm"), format!("spin-{id}\n")).unwrap();
            std::fs::write(folder.join("status"), "Cpus_allowed_list:\t3\n").unwrap();
        };
        // The core's own, one that ran long ago, one elsewhere, one that runs.
        let threads = [((70, 71), 3), ((80, 80), 3), ((80, 81), 2), ((90, 92), 3)];
        threads.iter().for_each(|&(ids, cpu)| write(ids, cpu, 5_000_000_000));
        let found = std::thread::scope(|scope| {
            let found = scope.spawn(|| find(root.path(), &hindered(), Duration::from_secs(2)));
            std::thread::sleep(Duration::from_secs(1));
            for (ids, cpu) in [threads[0], threads[2], threads[3]] {
                write(ids, cpu, 5_900_000_000);
            }
            found.join().unwrap()
        });
        let [spinning] = &found[..] else { panic!("{found:?}") };
        assert!(spinning.is_pinned && spinning.part > PART_MIN, "{spinning:?}");
        let text = hindered().text(&found);
        for part in
            ["core 0: 900 packets", "CPU 3 from it 250 times", "spin-92 (process 90, thread 92"]
        {
            assert!(text.contains(part), "{text}");
        }
        assert!(hindered().text(&[]).contains("/proc/interrupts"));
        assert!(hindered().text(&[]).contains("2 % of it"));
    }

    #[test]
    fn this_very_thread_ran_somewhere() {
        let id = rustix::thread::gettid().as_raw_nonzero().get();
        assert!(last_cpu(id).is_some());
        assert_eq!(last_cpu(i32::MAX), None);
    }
}
