//! The ring, the flow table and the parser, each beside its peers.
//!
//! `cargo xtask bench structures -- ring/8` measures only what has `ring/8` in its name.
#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a benchmark prints its figures, for the project's developers"
)]

mod flow;
mod latency;
mod parse;
mod ring;

use criterion::Criterion;
use hotloop::dpdk::Eal;
use hotloop_benches::contest::{self, Outcome};
use hotloop_benches::cores::Pair;
use hotloop_benches::row::{Table, publish};
use std::process::ExitCode;

/// What every part of the bench needs.
struct Bench<'a> {
    criterion: &'a mut Criterion,
    eal: Eal,
    table: Table,
}

fn main() -> ExitCode {
    // `cargo test --all-targets` starts it as well; there is nothing to be tested in it.
    if !std::env::args().any(|argument| argument == "--bench") {
        eprintln!("nothing is measured without --bench, which `cargo bench` gives");
        return ExitCode::SUCCESS;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let mut criterion = contest::criterion();
    let pair = Pair::pin();
    let eal = Eal::embedded().map_err(|error| error.to_string())?;
    let mut bench = Bench { criterion: &mut criterion, eal, table: Table::default() };
    match pair {
        Ok(pair) => {
            ring::bench(&mut bench, pair)?;
            latency::bench(&mut bench, pair);
        }
        Err(reason) => bench.table.unshown.push(format!("ring between two cores: {reason}")),
    }
    flow::bench(&mut bench);
    parse::bench(&mut bench);
    let table = bench.table;
    criterion.final_summary();
    if table.rows.is_empty() {
        println!("nothing was measured");
        return Ok(());
    }
    publish("structures", &table).map_err(|error| format!("the table can't be written: {error}"))
}

/// What the bare cache lines took while this was measured.
fn witness_note(name: &str, outcome: &Outcome) -> Option<String> {
    let (least_ns, most_ns) = outcome.witnessed()?;
    Some(format!(
        "{name}: two bare lines took {least_ns:.1} to {most_ns:.1} ns one way, before and after each round"
    ))
}
