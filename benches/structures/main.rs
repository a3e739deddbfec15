//! The ring, the flow table and the parser, each compared with its peers.
//!
//! `cargo xtask bench structures -- ring/8` measures only rows with `ring/8` in their names. An
//! option of criterion's that takes a value is given as `--OPTION=VALUE`.
#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a benchmark prints its figures, for the project's developers"
)]

mod flow;
mod latency;
mod parse;
mod ring;

use hotloop::dpdk::Eal;
use hotloop_benches::cores::Pair;
use hotloop_benches::instrument::Instrument;
use hotloop_benches::table::{Table, publish};
use std::process::ExitCode;

/// State shared by all parts of the bench.
struct Bench {
    instrument: Instrument,
    eal: Eal,
    table: Table,
}

fn main() -> ExitCode {
    // `cargo test --all-targets` starts this as well; there is nothing to test.
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
    let instrument = Instrument::new(true, true)?;
    let eal = Eal::embedded().map_err(|error| error.to_string())?;
    let mut bench = Bench { instrument, eal, table: Table::default() };
    match Pair::pin()? {
        Some(pair) => {
            ring::bench(&mut bench, pair)?;
            latency::bench(&mut bench, pair);
        }
        None => bench.table.unshown.push("ring between two cores: there is one CPU".to_owned()),
    }
    flow::bench(&mut bench);
    parse::bench(&mut bench);
    let Bench { instrument, mut table, .. } = bench;
    let is_part = instrument.is_part();
    table.notes.extend(instrument.finish());
    if is_part || table.rows.is_empty() {
        println!("nothing was measured");
        return Ok(());
    }
    publish("structures", &table).map_err(|error| format!("the table can't be written: {error}"))
}
