//! The precision of the source's rate, over any ten seconds.

use crate::programs::{Program, SOURCE};
use hotloop_measure::figure::{Figure, QUARTER_COUNT};
use hotloop_measure::row::Row;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Datagrams a second.
const RATES: [u64; 4] = [10_000, 100_000, 1_000_000, 10_000_000];

/// Length of the windows, which begin one second after the other.
const WINDOW_S: usize = 10;
const STEP: Duration = Duration::from_secs(1);

/// Maximum deviation of a window, in percent.
const OFF_MAX: f64 = 1.0;

/// A row for each rate, on net_null.
///
/// # Errors
/// The error message of the source, if it does not start.
pub fn rows(folder: &Path) -> Result<Vec<Row>, String> {
    RATES.into_iter().map(|rate| row(folder, rate)).collect()
}

fn row(folder: &Path, rate: u64) -> Result<Row, String> {
    eprintln!("{rate} datagrams a second");
    let arguments = ["--port", "net_null0", "--rate", &rate.to_string()].map(str::to_owned);
    let source = Program::start(None, SOURCE, folder, &arguments)?;
    let looks: Vec<_> = (0..WINDOW_S + QUARTER_COUNT)
        .map(|_| {
            sleep(STEP);
            (Instant::now(), source.count("sent"))
        })
        .collect();
    let off = |(first, last): (&(Instant, u64), &(Instant, u64))| {
        let sent_pps = (last.1 - first.1) as f64 / (last.0 - first.0).as_secs_f64();
        (sent_pps / rate as f64 - 1.0).abs() * 100.0
    };
    let off: Vec<_> = looks.iter().zip(&looks[WINDOW_S..]).map(off).collect();
    // Each window counts: the guarantee is for the worst.
    let worst = off.iter().copied().fold(0.0, f64::max);
    let figure = Figure { value: worst, ..Figure::of_rounds(&off) };
    let name = format!("rate of {rate} a second, the worst of {} windows of 10 s", off.len());
    Ok(Row::limit(&name, "% off", &figure, OFF_MAX))
}
