//! Two programs that each poll without pause, kept off each other's CPUs.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPUs of this process in two halves; `None` where there is only one, or where they can't be
/// told.
pub fn halves() -> Option<[CpuSet; 2]> {
    split(&sched_getaffinity(None).ok()?)
}

/// Runs something with the calling thread on these CPUs: a process started meanwhile inherits them.
/// Where the thread may not be moved it runs where it is, which costs speed only.
pub fn on<T>(cpus: Option<&CpuSet>, start: impl FnOnce() -> T) -> T {
    let Some((cpus, before)) = cpus.zip(sched_getaffinity(None).ok()) else { return start() };
    sched_setaffinity(None, cpus).ok();
    let started = start();
    sched_setaffinity(None, &before).ok();
    started
}

fn split(all: &CpuSet) -> Option<[CpuSet; 2]> {
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)).collect();
    let (lower, upper) = cpus.split_at(cpus.len() / 2);
    let set = |cpus: &[usize]| {
        let mut set = CpuSet::new();
        cpus.iter().for_each(|cpu| set.set(*cpu));
        set
    };
    (!lower.is_empty()).then(|| [set(lower), set(upper)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(list: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        list.iter().for_each(|cpu| set.set(*cpu));
        set
    }

    #[test]
    fn the_halves_share_no_cpu_and_leave_none_out() {
        assert!(split(&cpus(&[3])).is_none());
        let [lower, upper] = split(&cpus(&[1, 4, 5])).unwrap();
        assert!(lower == cpus(&[1]) && upper == cpus(&[4, 5]));
    }

    #[test]
    fn a_process_started_meanwhile_inherits_them_and_the_thread_gets_its_own_back() {
        let before = sched_getaffinity(None).unwrap();
        let Some([lower, _]) = halves() else { return println!("skipped: one CPU only") };
        let read = || std::process::Command::new("cat").arg("/proc/self/status").output().unwrap();
        let status = String::from_utf8(on(Some(&lower), read).stdout).unwrap();
        let list = status.lines().find(|line| line.starts_with("Cpus_allowed_list:")).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|cpu| lower.is_set(*cpu)).unwrap();
        assert!(list.split_whitespace().nth(1).unwrap().starts_with(&first.to_string()), "{list}");
        assert!(sched_getaffinity(None).unwrap() == before);
    }
}
