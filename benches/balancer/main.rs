//! ipip-lb's network function, beside hello-forward's graph between the same source and sink, and on
//! real frames beside `dpdk-testpmd`.
//!
//! `cargo xtask bench balancer -- hits` measures only that part; the others are `arrivals`,
//! `instructions`, `pipeline` and `frames`. With `--quick` the rounds are short and the largest tables
//! are left out, to see whether everything runs.
#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a benchmark prints its figures, for the project's developers"
)]

mod arrivals;
mod bed;
mod capture;
mod configuration;
mod frames;
mod hits;
mod instructions;
mod pipeline;

use criterion::Criterion;
use hotloop_benches::contest;
use hotloop_benches::hugepages::Reserved;
use hotloop_benches::row::{Table, publish};
use std::process::ExitCode;
use std::time::Duration;

/// Pages of 2 MiB that the largest tables take together: two of 8 million connections, each of both IP
/// versions, and as many bare lines as one has; with some to spare for others on the machine.
const HUGEPAGE_COUNT: usize = 2_000;

/// A side's part of a round.
const PART: Duration = Duration::from_millis(30);
const PART_QUICK: Duration = Duration::from_millis(5);

/// What every part of the bench needs.
struct Bench {
    criterion: Criterion,
    table: Table,
    quick: bool,
}

impl Bench {
    const fn part(&self) -> Duration {
        if self.quick { PART_QUICK } else { PART }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["--measure", settings] => frames::run(settings),
        ["--play", case, packet_count] => instructions::play(case, packet_count),
        // `cargo test --all-targets` starts it as well; there is nothing to be tested in it.
        _ if !words.contains(&"--bench") => {
            eprintln!("nothing is measured without --bench, which `cargo bench` gives");
            Ok(())
        }
        _ => run(&words),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<(), String> {
    let quick = words.contains(&"--quick");
    let parts: Vec<_> = words.iter().filter(|word| !word.starts_with("--")).collect();
    let wants = |part: &str| parts.is_empty() || parts.iter().any(|word| **word == part);
    let criterion = contest::criterion_alone();
    let mut bench = Bench { criterion, table: Table::default(), quick };
    let reserved = Reserved::hugepages(HUGEPAGE_COUNT);
    if let Err(reason) = &reserved {
        bench.table.unshown.push(format!("all rows on reserved 2 MiB pages: {reason}"));
    }
    if wants("instructions") {
        instructions::bench(&mut bench);
    }
    if wants("hits") {
        hits::bench(&mut bench)?;
    }
    if wants("arrivals") {
        arrivals::bench(&mut bench)?;
    }
    if wants("pipeline") {
        pipeline::bench(&mut bench)?;
    }
    if wants("frames") {
        frames::bench(&mut bench, reserved.is_ok());
    }
    drop(reserved);
    bench.criterion.final_summary();
    publish("balancer", &bench.table)
        .map_err(|error| format!("the table can't be written: {error}"))
}
