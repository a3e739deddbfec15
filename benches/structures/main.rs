//! The ring, the flow table and the parser, each compared with its peers.
//!
//! `cargo xtask bench structures -- ring/8` measures only contests with `ring/8` in their names.
#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a benchmark prints its figures, for the project's developers"
)]

mod flow;
mod parse;
mod ring;

use hotloop::dpdk::Eal;
use hotloop_measure::cores::Pair;
use hotloop_measure::instrument::Instrument;
use hotloop_measure::program;
use hotloop_measure::table::Table;
use std::process::ExitCode;

/// State shared by all parts of the bench.
struct Bench {
    instrument: Instrument,
    eal: Eal,
    table: Table,
}

fn main() -> ExitCode {
    program::main(|_| run())
}

fn run() -> Result<(), String> {
    let instrument = Instrument::new(true, true)?;
    let eal = Eal::embedded().map_err(|error| error.to_string())?;
    let mut bench = Bench { instrument, eal, table: Table::default() };
    match Pair::pin()? {
        Some(pair) => ring::bench(&mut bench, pair)?,
        None => bench.table.unshown.push("ring between two cores: there is one CPU".to_owned()),
    }
    flow::bench(&mut bench);
    parse::bench(&mut bench);
    if bench.table.rows.is_empty() {
        println!("nothing was measured");
        return Ok(());
    }
    bench.instrument.publish("structures", bench.table)
}
