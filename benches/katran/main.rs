//! ipip-lb compared with Katran's XDP program, which the kernel runs through `BPF_PROG_TEST_RUN`,
//! with the same frames and equal numbers of services, backends and connections.
//!
//! Katran with its driver is one side of a contest, the driver by itself another: Katran's own time
//! is the difference. It is compared with ipip-lb's total, from source to sink, and with ipip-lb's
//! own work, which is the total less hello-forward's time between the same two. The environment
//! variable `KATRAN` names Katran's source.
//!
//! `--quick` leaves out the million connections, to check that everything runs.
#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a benchmark prints its figures, for the project's developers"
)]

mod arrivals;
mod hits;
mod lazy;
mod objects;

use hotloop_benches::peers::katran::Settings;
use hotloop_measure::contest::{Outcome, run_all};
use hotloop_measure::cores::Pair;
use hotloop_measure::figure::Figure;
use hotloop_measure::hugepages::Reserved;
use hotloop_measure::instrument::{Instrument, is_first_process};
use hotloop_measure::program;
use hotloop_measure::table::{Table, publish};
use objects::{Missing, Objects};
use std::fs;
use std::process::ExitCode;

const SERVICE_COUNT: u32 = 1;
const BACKEND_COUNT: u32 = 10;

/// The names of the sides.
const OURS: &str = "ipip-lb";
const HELLO: &str = "hello-forward";
const KATRAN: &str = "katran";
const DRIVER: &str = "driver";

const UNIT: &str = "ns a packet";

/// Number of packets before the driver is measured by itself; only its state is in the caches then.
const WARM_COUNT: u64 = 1_000;

/// Pages of 2 MiB that all tables take together, and some to spare for others on the machine.
const HUGEPAGE_COUNT: usize = 400;

/// The kernel's list of its mitigations. On some CPUs they take half of Katran's time among few connections.
const VULNERABILITIES: &str = "/sys/devices/system/cpu/vulnerabilities";

fn main() -> ExitCode {
    program::main(|words| run(words.contains(&"--quick")))
}

fn run(quick: bool) -> Result<(), String> {
    let mut table = Table::default();
    let objects = match Objects::make(is_first_process()) {
        Ok(objects) => objects,
        Err(Missing::Part(reason)) => {
            table.unshown.push(format!("all rows beside Katran: {reason}"));
            return publish("katran", &table);
        }
        Err(Missing::Broken(error)) => return Err(error),
    };
    let mut instrument = Instrument::new(false, true)?;
    let reserved = Reserved::hugepages(HUGEPAGE_COUNT);
    if let Err(reason) = &reserved {
        table.unshown.push(format!("all rows on reserved 2 MiB pages: {reason}"));
    }
    Pair::pin()?;
    measure(&objects, quick, &mut instrument, &mut table)?;
    drop(reserved);
    table.notes.push(format!(
        "Katran {} in the kernel, with the kernel's mitigations: {}",
        objects.version,
        mitigations()
    ));
    instrument.publish("katran", table)
}

fn measure(
    objects: &Objects,
    quick: bool,
    instrument: &mut Instrument,
    table: &mut Table,
) -> Result<(), String> {
    let is_counting = instrument.is_counting();
    let hits = hits::sizes(objects, quick, is_counting);
    let arrivals = (!quick).then(|| arrivals::Measured::new(objects, is_counting));
    let contests = hits.iter().map(hits::Measured::contest);
    let contests = contests.chain(arrivals.as_ref().map(arrivals::Measured::contest)).collect();
    let mut outcomes = run_all(contests, instrument).into_iter();
    for measured in hits {
        measured.finish(table, outcomes.next().flatten().as_ref())?;
    }
    match arrivals {
        Some(measured) => measured.finish(table, outcomes.next().flatten().as_ref()),
        None => Ok(()),
    }
}

/// The same for both balancers.
const fn settings(connections_max: u32) -> Settings {
    Settings { service_count: SERVICE_COUNT, backend_count: BACKEND_COUNT, connections_max }
}

/// Katran's own time per packet.
fn net(outcome: &Outcome) -> Figure {
    outcome.figure(KATRAN).with(&outcome.figure(DRIVER), |driven, driver| driven - driver)
}

/// The mitigations that the kernel has on, and those that are off.
fn mitigations() -> String {
    let Ok(entries) = fs::read_dir(VULNERABILITIES) else { return "unknown".to_owned() };
    let mut lines: Vec<_> = entries
        .flatten()
        .filter_map(|entry| {
            let text = fs::read_to_string(entry.path()).ok()?;
            let name = entry.file_name().into_string().ok()?;
            (text.trim() != "Not affected").then(|| format!("{name}: {}", text.trim()))
        })
        .collect();
    lines.sort();
    if lines.is_empty() { "none".to_owned() } else { lines.join("; ") }
}
