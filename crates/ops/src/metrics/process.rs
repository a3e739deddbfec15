//! The metrics of the process, by the names that Prometheus gives them in all client libraries
//! ("Writing client libraries", section "Process metrics").

use hotloop_metrics::{Metric, Scrape};
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

pub const CPU: Metric = Metric::counter(
    "process_cpu_seconds_total",
    &[],
    "CPU time of all threads; cores that spin take all of their CPUs' time.",
);
pub const START: Metric = Metric::gauge(
    "process_start_time_seconds",
    &[],
    "When the process began, in seconds since 1970-01-01 UTC.",
);
pub const RESIDENT: Metric = Metric::gauge(
    "process_resident_memory_bytes",
    &[],
    "Memory in use, without huge pages of hugetlbfs.",
);
pub const VIRTUAL: Metric = Metric::gauge(
    "process_virtual_memory_bytes",
    &[],
    "Address space in use: DPDK reserves much more than it uses.",
);
pub const OPEN_FILES: Metric = Metric::gauge(
    "process_open_fds",
    &[],
    "Open file descriptors; absent if the process may not count them.",
);
pub const FILES_MAX: Metric = Metric::gauge(
    "process_max_fds",
    &[],
    "The maximum number of open file descriptors; absent if there is none.",
);

/// Adds the metrics of this process. A value that the kernel doesn't provide is left out.
pub fn add(scrape: &mut Scrape) {
    if let Some(figures) = fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(read) {
        scrape.set_seconds(&CPU, &[], figures.cpu.as_secs_f64());
        scrape.set_seconds(&START, &[], started(figures.began).as_secs_f64());
        scrape.add(&RESIDENT, &[], figures.resident_bytes);
        scrape.add(&VIRTUAL, &[], figures.virtual_bytes);
    }
    if let Ok(files) = fs::read_dir("/proc/self/fd") {
        // One of them is the folder's.
        scrape.add(&OPEN_FILES, &[], files.count().saturating_sub(1) as u64);
    }
    if let Some(files_max) = getrlimit(Resource::Nofile).current {
        scrape.add(&FILES_MAX, &[], files_max);
    }
}

/// The part of proc_pid_stat(5) that is used.
#[derive(Debug, Eq, PartialEq)]
struct Figures {
    cpu: Duration,
    /// Since the machine's start.
    began: Duration,
    virtual_bytes: u64,
    resident_bytes: u64,
}

fn read(stat: &str) -> Option<Figures> {
    // The command's name, in parentheses, may have any characters in it.
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    // The first of these is field 3 there.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let time = |ticks: u64| Duration::from_millis(ticks * 1_000 / clock_ticks_per_second());
    Some(Figures {
        cpu: time(field(14)? + field(15)?),
        began: time(field(22)?),
        virtual_bytes: field(23)?,
        resident_bytes: field(24)? * page_size() as u64,
    })
}

/// The time of the process's start, since the epoch. It stays the same if a clock is set later.
fn started(began: Duration) -> Duration {
    static STARTED: OnceLock<Duration> = OnceLock::new();
    *STARTED.get_or_init(|| {
        let up = clock_gettime(ClockId::Boottime);
        let up = Duration::new(up.tv_sec as u64, up.tv_nsec as u32);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        (now + began).saturating_sub(up)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_those_of_this_process() {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
        let mut scrape = Scrape::default();
        add(&mut scrape);
        let text = scrape.to_text();
        let value = |metric: &Metric| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(metric.name));
            line.unwrap_or_else(|| panic!("{}: {text}", metric.name)).trim().parse().unwrap()
        };
        let age = now - value(&START);
        assert!((-1.0..3_600.0).contains(&age), "{age}");
        assert!(value(&CPU) <= 8_192.0 * (age + 1.0), "{text}");
        assert!(value(&RESIDENT) > 1e6 && value(&VIRTUAL) >= value(&RESIDENT), "{text}");
        let open = value(&OPEN_FILES);
        assert!(open >= 3.0 && open <= value(&FILES_MAX), "{text}");
    }

    #[test]
    fn the_name_of_a_command_may_have_parentheses_and_spaces() {
        let rest = "S 1 1 1 0 -1 0 0 0 0 0 100 50 0 0 20 0 1 0 700 4096000 3 0";
        let figures = read(&format!("7 (a) b) {rest}")).unwrap();
        assert_eq!((figures.cpu.as_millis(), figures.began.as_secs()), (1_500, 7));
        assert_eq!(figures.virtual_bytes, 4_096_000);
        assert_eq!(figures.resident_bytes, 3 * page_size() as u64);
        assert_eq!(read("7 (a) S 1"), None);
    }
}
