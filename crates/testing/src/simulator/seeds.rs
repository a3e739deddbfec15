//! Many seeds, or the single one that failed.

use crate::simulator::cut::{Cut, shrink};
use crate::simulator::{Failure, Scenario, Simulated, simulate, simulate_cut};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The environment variable that selects a single seed to run, such as `42`, or a [`Cut`] of its
/// run, such as `42:frames=3,steps=17`.
pub const SEED_VARIABLE: &str = "HOTLOOP_SEED";

/// Totals over many runs, so that a test can check that its subject occurred.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Totals {
    /// Number of seeds run.
    pub seed_count: u64,
    /// Peers' answers that arrived.
    pub answered: u64,
    /// Packets received.
    pub received: u64,
    /// Packets sent.
    pub sent: u64,
    /// Packets that stages created.
    pub created: u64,
    /// Packets passed from core to core.
    pub crossed: u64,
    /// Packets dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Frames that the device lost for want of a descriptor.
    pub imissed: u64,
    /// Frames that the device lost for want of an mbuf.
    pub rx_nombuf: u64,
    /// Runs in which a stage panicked.
    pub panicked_run_count: u64,
}

impl Totals {
    fn of(run: Simulated) -> Self {
        let report = run.report;
        Self {
            seed_count: 1,
            answered: run.answered_count,
            received: report.received,
            sent: report.sent,
            created: report.created,
            crossed: report.crossed,
            dropped: report.dropped,
            imissed: report.nic_loss.imissed.unwrap_or_default(),
            rx_nombuf: report.nic_loss.rx_nombuf,
            panicked_run_count: u64::from(run.has_panicked),
        }
    }

    fn merge(&mut self, other: Self) {
        self.seed_count += other.seed_count;
        self.answered += other.answered;
        self.received += other.received;
        self.sent += other.sent;
        self.created += other.created;
        self.crossed += other.crossed;
        self.imissed += other.imissed;
        self.rx_nombuf += other.rx_nombuf;
        self.panicked_run_count += other.panicked_run_count;
        for (reason, count) in other.dropped {
            *self.dropped.entry(reason).or_default() += count;
        }
    }
}

/// Runs a scenario for each seed, with a thread per CPU and each run on one thread; or for the
/// single seed in the environment's [`SEED_VARIABLE`].
///
/// # Errors
/// The failure with the lowest seed. Its run was cut: frames, steps and faults were lowered
/// as long as it failed for the same reason. The error prints the command that repeats the short
/// run.
///
/// # Panics
/// If the variable is not a number, with a cut or without.
pub fn simulate_seeds<S: Scenario + Sync>(
    seeds: Range<u64>,
    scenario: &S,
) -> Result<Totals, Box<Failure>> {
    let seeds = match std::env::var(SEED_VARIABLE) {
        Ok(text) => match read(&text).unwrap_or_else(|why| panic!("{SEED_VARIABLE}={text}: {why}"))
        {
            (seed, None) => seed..seed + 1,
            (seed, Some(cut)) => return simulate_cut(seed, &cut, scenario).map(Totals::of),
        },
        Err(_) => seeds,
    };
    let next = AtomicU64::new(seeds.start);
    // Seeds from here on need not run, because an earlier one has failed.
    let end = AtomicU64::new(seeds.end);
    let result = Mutex::new((Totals::default(), None::<Box<Failure>>));
    let thread_count = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..thread_count {
            scope.spawn(|| {
                let (totals, failure) = run_seeds(&next, &end, scenario);
                let mut result = result.lock().expect("no thread panics with it");
                result.0.merge(totals);
                result.1 = [result.1.take(), failure].into_iter().flatten().min_by_key(|f| f.seed);
            });
        }
    });
    let (totals, failure) = result.into_inner().expect("no thread panicked with it");
    failure.map_or(Ok(totals), |failure| Err(shrink(scenario, failure)))
}

/// Reads a seed, and a cut if there is one.
fn read(text: &str) -> Result<(u64, Option<Cut>), String> {
    let (seed, cut) = text.split_once(':').map_or((text, None), |(seed, cut)| (seed, Some(cut)));
    let seed = seed.parse().map_err(|_| "no number")?;
    Ok((seed, cut.map(str::parse).transpose()?))
}

/// Returns the command that repeats a run of the test on this thread.
pub(super) fn command(seed: u64, cut: &Cut) -> String {
    let mut command = format!("{SEED_VARIABLE}={seed}");
    if !cut.is_none() {
        command += &format!(":{cut}");
    }
    // Cargo sets the package, and the test harness names the thread after the test.
    let package = std::env::var("CARGO_PKG_NAME");
    if let (Ok(package), Some(test)) = (package, std::thread::current().name()) {
        command += &format!(" cargo test -p {package} {test} -- --exact");
    }
    command
}

/// Takes one seed after the other until none is left, or one fails.
fn run_seeds(
    next: &AtomicU64,
    end: &AtomicU64,
    scenario: &impl Scenario,
) -> (Totals, Option<Box<Failure>>) {
    let mut totals = Totals::default();
    loop {
        let seed = next.fetch_add(1, Relaxed);
        if seed >= end.load(Relaxed) {
            return (totals, None);
        }
        match simulate(seed, scenario) {
            Ok(run) => totals.merge(Totals::of(run)),
            Err(failure) => {
                end.fetch_min(seed, Relaxed);
                return (totals, Some(failure));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_repeats_its_seed_and_cut() {
        let cut: Cut = "frames=3,steps=17".parse().unwrap();
        for (seed, cut) in [(7, Cut::default()), (42, cut)] {
            let command = command(seed, &cut);
            let (assignment, test) = command.split_once(' ').expect("cargo runs this");
            let value = assignment.strip_prefix("HOTLOOP_SEED=").unwrap();
            let expected = (seed, Some(cut).filter(|cut| !cut.is_none()));
            assert_eq!(read(value), Ok(expected));
            let this = "simulator::seeds::tests::a_command_repeats_its_seed_and_cut";
            assert_eq!(test, format!("cargo test -p hotloop-testing {this} -- --exact"));
        }
        assert_eq!(read("x").unwrap_err(), "no number");
        assert!(read("7:x").unwrap_err().contains("no part"));
    }
}
