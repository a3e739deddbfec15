//! The cost and the savings of sleeping: `--idle adaptive` compared with `spin`, over a ring in
//! memory.

use super::sleeper;
use crate::programs::{SINK, number};
use hotloop::engine::Idle;
use hotloop_measure::distance::{Distance, around};
use hotloop_measure::figure::{Figure, KeptMin, QUARTER_COUNT};
use hotloop_measure::row::Row;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Number of runs at full rate between near cores that is enough, for each mode; and the maximum
/// number of rounds.
const FULL_COUNT: usize = 4 * QUARTER_COUNT;
const FULL_ROUNDS_MAX: usize = 24;

/// Number of rounds at a hundredth of the rate.
const ROUND_COUNT: usize = 9;

/// Maximum number of attempts for a round of latencies: one counts if the machine wakes sleepers in
/// time.
const LATENCY_TRIES: usize = 400;

/// Length of runs in seconds. At full rate, short enough for the cores to stay near. For latencies,
/// short enough for the machine to wake sleepers in time.
const FULL_SECONDS: &str = "0.3";
const SHARE_SECONDS: &str = "0.7";
const LATENCY_SECONDS: &str = "0.1";

/// Target share of spinning's rate at full load.
const FULL_AIM: f64 = 0.95;

/// Maximum share of a core's time at a hundredth of the full rate.
const SHARE_MAX: f64 = 0.15;

const SPIN: &str = "spin";
const ADAPTIVE: &str = "adaptive";

/// The rows, and the ones that could not be shown. `folder` has the program.
///
/// # Errors
/// The error message of a program that fails; and lost datagrams.
pub fn rows(folder: &Path, unshown: &mut Vec<String>) -> Result<Vec<Row>, String> {
    let full = full_mpps(folder)?;
    let spin_mpps = full.near.as_ref().map_or(full.spin_max_mpps, |[spin, _]| spin.value);
    let rate = Some((spin_mpps * 1e4) as u64);
    let mut shares = Vec::new();
    for round in 0..ROUND_COUNT {
        eprintln!("a core that may sleep, round {} of {ROUND_COUNT}", round + 1);
        let report = run(folder, ADAPTIVE, SHARE_SECONDS, rate)?;
        let time = &report["cores"][0]["time"];
        shares.push(number(&time["cpu_ns"]) as f64 / number(&time["wall_ns"]).max(1) as f64);
    }
    let mut rows = Vec::new();
    match &full.near {
        Some([spin, adaptive]) => {
            let full = (adaptive, spin);
            rows.push(Row::rate("net_ring, sleeping allowed", SPIN, "Mpps", full, FULL_AIM));
        }
        None => unshown
            .push("sleeping beside spinning at full rate: the cores were hardly ever near".into()),
    }
    let share = Figure::of_rounds(shares);
    rows.push(Row::limit("time of a core at 1 % of the rate", "of it", &share, SHARE_MAX));
    match added_latency_ns(folder, rate)? {
        Some(added_ns) => {
            let bound_ns = Idle::SLEEP_MAX.as_nanos() as f64;
            rows.push(Row::limit("added to the latency of 99.9 %", "ns", &added_ns, bound_ns));
        }
        None => unshown.push(format!(
            "the latency of cores that sleep: in none of {LATENCY_TRIES} tries did the machine wake bare sleepers \
             within {} µs",
            sleeper::LATE_MAX.as_micros()
        )),
    }
    Ok(rows)
}

/// The latency that sleeping adds to spinning's at 99.9 %, in nanoseconds, over rounds in which
/// bare sleeps before and after all ended in time; `None` without such a round.
fn added_latency_ns(folder: &Path, rate: Option<u64>) -> Result<Option<Figure>, String> {
    let mut latencies_ns = [Vec::new(), Vec::new()];
    for attempt in 0..LATENCY_TRIES {
        if latencies_ns[0].len() == ROUND_COUNT {
            break;
        }
        if !sleeper::is_in_time()? {
            continue;
        }
        eprintln!("latencies, try {} of up to {LATENCY_TRIES}", attempt + 1);
        let of = |mode| -> Result<f64, String> {
            let report = run(folder, mode, LATENCY_SECONDS, rate)?;
            Ok(number(&report["udp"]["latency"]["p999_ns"]) as f64)
        };
        let round_ns = [of(SPIN)?, of(ADAPTIVE)?];
        if sleeper::is_in_time()? {
            latencies_ns.iter_mut().zip(round_ns).for_each(|(all, ns)| all.push(ns));
        }
    }
    if latencies_ns[0].is_empty() {
        return Ok(None);
    }
    let [of_spin_ns, of_adaptive_ns] = latencies_ns.map(Figure::of_rounds);
    Ok(Some(of_adaptive_ns.with(&of_spin_ns, |ours, theirs| ours - theirs)))
}

/// The results of runs at full rate, in millions of datagrams a second.
struct Full {
    /// For spinning and for sleeping, between near cores; `None` if these were hardly ever near.
    near: Option<[Figure; 2]>,
    /// The maximum over all runs of spinning.
    spin_max_mpps: f64,
}

fn full_mpps(folder: &Path) -> Result<Full, String> {
    let mut runs_ns = [Vec::new(), Vec::new()];
    let mut spin_max_mpps: f64 = 0.0;
    for round in 0..FULL_ROUNDS_MAX {
        eprintln!("sleeping and spinning, round {} of up to {FULL_ROUNDS_MAX}", round + 1);
        for (mode, runs_ns) in [SPIN, ADAPTIVE].into_iter().zip(&mut runs_ns) {
            let (is_near, report) = look_at_distance(|| run(folder, mode, FULL_SECONDS, None))?;
            let ns = seconds(&report) * 1e9 / datagrams(&report);
            if mode == SPIN {
                spin_max_mpps = spin_max_mpps.max(1e3 / ns);
            }
            runs_ns.extend(is_near.then_some(ns));
        }
        if runs_ns.iter().all(|runs| runs.len() >= FULL_COUNT) {
            break;
        }
    }
    // Disturbances make a run slower, never faster.
    let near = runs_ns.iter().all(|runs| runs.len() >= QUARTER_COUNT).then(|| {
        runs_ns.map(|runs_ns| {
            let quarter = |index| index * QUARTER_COUNT / runs_ns.len();
            let rounds: Vec<_> =
                runs_ns.iter().enumerate().map(|(index, ns)| (quarter(index), *ns)).collect();
            Figure::of_slices(&rounds, KeptMin::ROUNDS).map(|ns| 1e3 / ns)
        })
    });
    Ok(Full { near, spin_max_mpps })
}

/// The result of `act`, and whether the cores were near before and after it.
fn look_at_distance<T>(act: impl FnOnce() -> Result<T, String>) -> Result<(bool, T), String> {
    let (seen, done) = around(act)?;
    Ok((seen.distance() == Some(Distance::Near), done))
}

/// Runs the sink with a source of its own, in an idle mode. Returns its report.
fn run(folder: &Path, idle: &str, duration: &str, rate: Option<u64>) -> Result<Value, String> {
    let mut command = Command::new(folder.join(SINK));
    command.args(["--with-source", "--verify", "--latency", "--report", "json", "--idle", idle]);
    command.args(["--duration", duration]).env("XDG_RUNTIME_DIR", folder);
    if let Some(rate) = rate {
        command.args(["--rate", &rate.to_string()]);
    }
    let output = command.output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    let report: Value =
        serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    match number(&report["udp"]["verified"]["lost"]) {
        0 => Ok(report),
        lost => Err(format!("{idle}: {lost} datagrams were lost")),
    }
}

fn datagrams(report: &Value) -> f64 {
    number(&report["udp"]["datagrams"]) as f64
}

fn seconds(report: &Value) -> f64 {
    report["udp"]["seconds"].as_f64().unwrap_or(f64::NAN)
}
