//! What sleeping costs and saves: `--idle adaptive` beside `spin`, over a ring in memory.

use crate::programs::{SINK, number};
use hotloop::engine::Idle;
use hotloop_benches::distance::{Distance, trip_ns};
use hotloop_benches::figure::{Figure, KeptMin, QUARTER_COUNT};
use hotloop_benches::row::Row;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Runs between near cores that are enough, of each mode; and rounds at most.
const FULL_COUNT: usize = 4 * QUARTER_COUNT;
const LOW_COUNT: usize = 9;
const ROUND_COUNT_MAX: usize = 24;

/// The share of spinning's rate at full load.
const FULL_AIM: f64 = 0.95;

/// The most of a core's time at a hundredth of the full rate.
const SHARE_MAX: f64 = 0.15;

/// How long runs take: at full rate, while the cores stay as near as they are, and at a hundredth of it.
const FULL_SECONDS: &str = "0.3";
const LOW_SECONDS: &str = "0.7";

/// A mode in all runs between near cores.
#[derive(Default)]
struct Mode {
    name: &'static str,
    /// Nanoseconds a datagram at full rate.
    full_ns: Vec<f64>,
    /// Of the receiving core, at a hundredth of it.
    share: Vec<f64>,
    latency_ns: Vec<f64>,
}

impl Mode {
    fn named(name: &'static str) -> Self {
        Self { name, ..Self::default() }
    }

    /// What disturbs a run makes it slower, never faster.
    fn full_mpps(&self) -> Figure {
        let quarter = |index| index * QUARTER_COUNT / self.full_ns.len();
        let rounds: Vec<_> =
            self.full_ns.iter().enumerate().map(|(index, ns)| (quarter(index), *ns)).collect();
        Figure::of_slices(&rounds, KeptMin::ROUNDS).map(|ns| 1e3 / ns)
    }
}

/// The rows. `folder` has the program.
///
/// # Errors
/// What the program says that fails, datagrams that were lost, and cores that were hardly ever near.
pub fn rows(folder: &Path) -> Result<Vec<Row>, String> {
    let mut modes = ["spin", "adaptive"].map(Mode::named);
    for round in 0..ROUND_COUNT_MAX {
        let is_done =
            |it: &Mode| it.full_ns.len() >= FULL_COUNT && it.latency_ns.len() >= LOW_COUNT;
        if modes.iter().all(is_done) {
            break;
        }
        eprintln!("sleeping and spinning, round {} of up to {ROUND_COUNT_MAX}", round + 1);
        for mode in &mut modes {
            let report = near(|| run(folder, mode.name, FULL_SECONDS, None))?;
            mode.full_ns.extend(report.map(|it| seconds(&it) * 1e9 / datagrams(&it)));
        }
        let Some(full_ns) = modes[0].full_ns.last() else { continue };
        let rate = (1e9 / full_ns / 100.0) as u64;
        for mode in modes.iter_mut().filter(|it| it.latency_ns.len() < LOW_COUNT) {
            let report = near(|| run(folder, mode.name, LOW_SECONDS, Some(rate)))?;
            let Some(report) = report else { continue };
            let time = &report["cores"][0]["time"];
            let share = number(&time["cpu_ns"]) as f64 / number(&time["wall_ns"]).max(1) as f64;
            mode.share.push(share);
            mode.latency_ns.push(number(&report["udp"]["latency"]["p999_ns"]) as f64);
        }
    }
    let is_enough = |it: &Mode| it.full_ns.len().min(it.latency_ns.len()) >= QUARTER_COUNT;
    if !modes.iter().all(is_enough) {
        return Err("sleeping beside spinning: the cores were hardly ever near".to_owned());
    }
    let [spin, adaptive] = &modes;
    let figure = |of: &[f64]| Figure::of_rounds(of);
    let added_ns =
        figure(&adaptive.latency_ns).with(&figure(&spin.latency_ns), |ours, theirs| ours - theirs);
    let full = (&adaptive.full_mpps(), &spin.full_mpps());
    let (share, bound_ns) = (figure(&adaptive.share), Idle::SLEEP_MAX.as_nanos() as f64);
    Ok(vec![
        Row::rate("net_ring, sleeping allowed", "spin", "Mpps", full, FULL_AIM),
        Row::limit("time of a core at 1 % of the rate", "of it", &share, SHARE_MAX),
        Row::limit("added to the latency of 99.9 %", "ns", &added_ns, bound_ns),
    ])
}

/// What `act` returns, where the cores were near before it and after.
fn near<T>(act: impl FnOnce() -> Result<T, String>) -> Result<Option<T>, String> {
    let before_ns = trip_ns()?;
    let done = act()?;
    let trips_ns = before_ns.zip(trip_ns()?);
    let distance = trips_ns.and_then(|(before, after)| Distance::of(before, after));
    Ok((distance == Some(Distance::Near)).then_some(done))
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
