//! ipip-lb's network function, beside hello-forward's graph between the same source and sink, and on
//! real frames beside `dpdk-testpmd`.
//!
//! `cargo xtask bench balancer -- hits` measures only that part; the others are `arrivals`,
//! `pipeline` and `frames`. `growth` and `sessions` are groups of their own, each with its own
//! table. `--quick` leaves out the largest tables, to check that everything runs.
#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a benchmark prints its figures, for the project's developers"
)]

mod arrivals;
mod frames;
mod growth;
mod hits;
mod pipeline;
mod sessions;

use hotloop_benches::forwarder;
use hotloop_measure::contest::run_all;
use hotloop_measure::cores::Pair;
use hotloop_measure::hugepages::Reserved;
use hotloop_measure::instrument::Instrument;
use hotloop_measure::table::Table;
use std::process::ExitCode;

/// Pages of 2 MiB for all tables together, each with both IP versions, and for bare lines of the
/// size of IPv4's table; and some to spare for others on the machine.
const HUGEPAGE_COUNT: usize = 2_600;

/// State shared by all parts of the bench.
struct Bench {
    instrument: Instrument,
    table: Table,
    quick: bool,
}

fn main() -> ExitCode {
    forwarder::main(frames::forward, run)
}

fn run(words: &[&str]) -> Result<(), String> {
    if let Some(sessions) = words.iter().position(|word| *word == sessions::GROUP) {
        return sessions::run(&words[sessions + 1..]);
    }
    let growth = words.iter().position(|word| *word == growth::GROUP);
    // Growing tables are filled once.
    let instrument = Instrument::new(false, growth.is_none())?;
    if let Some(growth) = growth {
        return growth::run(instrument, &words[growth + 1..]);
    }
    let quick = words.contains(&"--quick");
    let parts: Vec<_> = words.iter().filter(|word| !word.starts_with("--")).collect();
    let wants = |part: &str| parts.is_empty() || parts.iter().any(|word| **word == part);
    let mut bench = Bench { instrument, table: Table::default(), quick };
    let reserved = Reserved::hugepages(HUGEPAGE_COUNT);
    if let Err(reason) = &reserved {
        bench.table.unshown.push(format!("all rows on reserved 2 MiB pages: {reason}"));
    }
    if wants("pipeline") && !bench.instrument.is_part() {
        pipeline::bench(&mut bench)?;
    }
    if wants("frames") && !bench.instrument.is_counting() {
        frames::bench(&mut bench, reserved.is_ok());
    }
    Pair::pin()?;
    one_core(&mut bench, wants)?;
    drop(reserved);
    bench.instrument.publish("balancer", bench.table)
}

/// The parts that take turns on one core.
fn one_core(bench: &mut Bench, wants: impl Fn(&str) -> bool) -> Result<(), String> {
    let hits = if wants("hits") { hits::sizes(bench)? } else { Vec::new() };
    let is_counting = bench.instrument.is_counting();
    let arrivals = wants("arrivals").then(|| arrivals::Measured::new(is_counting));
    let contests = hits.iter().map(hits::Measured::contest);
    let contests = contests.chain(arrivals.as_ref().map(arrivals::Measured::contest)).collect();
    let mut outcomes = run_all(contests, &mut bench.instrument).into_iter();
    for measured in hits {
        measured.finish(bench, outcomes.next().flatten().as_ref())?;
    }
    match arrivals {
        Some(measured) => measured.finish(bench, outcomes.next().flatten().as_ref()),
        None => Ok(()),
    }
}
