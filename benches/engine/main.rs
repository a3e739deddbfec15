//! The engine on one core compared with `dpdk-testpmd` and a loop in C, and on two compared with
//! two loops in C and DPDK's ring. The cost of captures, and a core's reported load compared with
//! the true one.
//!
//! The group `forward` has io and macswap in more detail.
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
use hotloop_benches::beside_testpmd;
use hotloop_benches::datagrams::Frames;
use hotloop_benches::forwarder::{self, Case, Mode};
use hotloop_measure::bars;
use hotloop_measure::cores::Pair;
use hotloop_measure::hugepages::Reserved;
use hotloop_measure::instrument::Instrument;
use hotloop_measure::row::Row;
use hotloop_measure::table::{Table, markdown, write};
use std::process::ExitCode;

/// Relative to testpmd.
const AIM: f64 = 1.0;

/// EAL's arguments for the pipelines: 2 MiB pages, as in production. With 4 KiB pages, the mempool alone would take up
/// about all of a core's TLB entries.
const EAL_ON_HUGEPAGES: [&str; 6] =
    ["--in-memory", "-m", "512", "--no-pci", "--no-telemetry", "-l0"];

/// Enough 2 MiB pages for [`EAL_ON_HUGEPAGES`].
const HUGEPAGE_COUNT: usize = 300;

fn main() -> ExitCode {
    forwarder::main(forwarder::forward, |_| run())
}

fn run() -> Result<(), String> {
    let mut instrument = Instrument::new(false, true)?;
    let (mut table, frames) = (Table::default(), Frames::new()?);
    if !instrument.is_counting() {
        beside_testpmd::bench(&cases(&frames), &instrument, &mut table);
    }
    let is_part = instrument.is_part();
    let reserved = (!is_part).then(|| Reserved::hugepages(HUGEPAGE_COUNT));
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
    if is_part {
        return Ok(());
    }
    table.notes.extend(instrument.finish());
    publish(&table)
}

/// Prints the table, and writes it with a chart of both sides of each row.
fn publish(table: &Table) -> Result<(), String> {
    table.print();
    let sides = |row: &Row| {
        let rate = |figure: f64| if row.unit == "Mpps" { figure * 1e6 } else { 1e9 / figure };
        [("hotloop", row.ours), (row.peer.as_str(), row.theirs)]
            .map(|(side, figure)| (format!("{}: {side}", row.name), rate(figure)))
    };
    let rates: Vec<_> = table.rows.iter().flat_map(sides).collect();
    write("engine", "json", &table.json())?;
    write("engine", "svg", &bars::svg(&rates))?;
    let picture = "![Packets a second on both sides of each row](engine.svg)";
    write("engine", "md", &format!("{picture}\n\n{}", markdown(table)))
}

/// testpmd's modes, with hugepages.
fn cases(frames: &Frames) -> Vec<(String, Case, f64)> {
    let swap = Mode::FiveTupleSwap { capture: frames.path() };
    let modes = [Mode::RxOnly, Mode::Io, Mode::MacSwap, swap];
    let case =
        |mode: Mode| (mode.name().to_owned(), Case { mode, burst: 64, hugepages: true }, AIM);
    modes.map(case).into()
}
