//! The engine on one core beside `dpdk-testpmd` and a loop in C, and on two beside two loops in C with DPDK's ring.
//!
//! The group `forward` has io and macswap in more detail.
#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a benchmark prints its figures, for the project's developers"
)]

mod frames;
mod pipeline;
mod sink;

use frames::Frames;
use hotloop::dpdk::Eal;
use hotloop_benches::beside_testpmd;
use hotloop_benches::cores::Pair;
use hotloop_benches::forwarder::{self, Case, Mode};
use hotloop_benches::instrument::Instrument;
use hotloop_benches::table::{Table, publish};
use std::process::ExitCode;

/// Beside testpmd.
const AIM: f64 = 1.0;

fn main() -> ExitCode {
    forwarder::main(run)
}

fn run() -> Result<(), String> {
    let mut instrument = Instrument::new(false, true)?;
    let (mut table, frames) = (Table::default(), Frames::new()?);
    if !instrument.is_counting() {
        beside_testpmd::bench(&cases(&frames), &instrument, &mut table);
    }
    let eal = Eal::embedded().map_err(|error| error.to_string())?;
    let is_part = instrument.is_part();
    if !is_part {
        pipeline::bench(eal, &frames, &mut table)?;
    }
    Pair::pin()?;
    sink::bench(eal, &mut instrument, &mut table).map_err(|error| error.to_string())?;
    if is_part {
        return Ok(());
    }
    table.notes.extend(instrument.finish());
    publish("engine", &table).map_err(|error| format!("the table can't be written: {error}"))
}

/// testpmd's modes, with hugepages.
fn cases(frames: &Frames) -> Vec<(String, Case, f64)> {
    let swap = Mode::FiveTupleSwap { capture: frames.path() };
    let modes = [Mode::RxOnly, Mode::Io, Mode::MacSwap, swap];
    let case =
        |mode: Mode| (mode.name().to_owned(), Case { mode, burst: 64, hugepages: true }, AIM);
    modes.map(case).into()
}
