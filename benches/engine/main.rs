//! The engine on two cores compared with two loops in C and DPDK's ring, and a UDP sink on one core
//! with a loop in C. The cost of captures, and a core's reported load compared with the true one.
#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a benchmark prints its figures, for the project's developers"
)]

mod capture;
mod load;
mod pipeline;
mod sink;

use hotloop::dpdk::Eal;
use hotloop_benches::datagrams::Frames;
use hotloop_measure::cores::Pair;
use hotloop_measure::hugepages::Reserved;
use hotloop_measure::instrument::Instrument;
use hotloop_measure::program;
use hotloop_measure::table::Table;
use std::process::ExitCode;

/// EAL's arguments for the pipelines: 2 MiB pages, as in production. With 4 KiB pages, the mempool alone would take up
/// about all of a core's TLB entries.
const EAL_ON_HUGEPAGES: [&str; 6] =
    ["--in-memory", "-m", "512", "--no-pci", "--no-telemetry", "-l0"];

/// Enough 2 MiB pages for [`EAL_ON_HUGEPAGES`].
const HUGEPAGE_COUNT: usize = 300;

fn main() -> ExitCode {
    program::main(|_| run())
}

fn run() -> Result<(), String> {
    let mut instrument = Instrument::new(false, true)?;
    let (mut table, frames) = (Table::default(), Frames::new()?);
    let reserved = (!instrument.is_part()).then(|| Reserved::hugepages(HUGEPAGE_COUNT));
    let eal = match &reserved {
        Some(Ok(_)) => Eal::with_args(&EAL_ON_HUGEPAGES),
        _ => Eal::embedded(),
    };
    let eal = eal.map_err(|error| error.to_string())?;
    if let Some(reserved) = &reserved {
        if let Err(reason) = reserved {
            table.unshown.push(format!("pipelines on reserved 2 MiB pages: {reason}"));
        }
        pipeline::bench(eal, &frames, &mut table)?;
        load::bench(&mut table).map_err(|error| error.to_string())?;
    }
    Pair::pin()?;
    sink::bench(eal, &mut instrument, &mut table).map_err(|error| error.to_string())?;
    capture::bench(eal, sink::DEVICE_COUNT, &mut instrument, &mut table)?;
    instrument.publish("engine", table)
}
