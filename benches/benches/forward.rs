//! Forwarding beside `dpdk-testpmd`, and what the engine itself costs.
//!
//! Each round starts the peer, then us, each in a process of its own, forwarding between two net_null
//! ports on one core; figures are packets a second of that core's CPU time.
#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a benchmark prints its figures, for the project's developers"
)]

use hotloop_benches::figure::Figure;
use hotloop_benches::forwarder::{self, Case, Mode};
use hotloop_benches::hugepages::Reserved;
use hotloop_benches::row::Row;
use hotloop_benches::table::{Table, publish};
use hotloop_benches::testpmd;
use std::process::ExitCode;

const ROUND_COUNT: usize = 7;

/// 2 MiB pages that both need, one after the other.
const HUGEPAGE_COUNT: usize = 300;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(place) = arguments.iter().position(|argument| argument == "--measure") {
        let settings = arguments.get(place + 1).map_or("", String::as_str);
        return match forwarder::run(settings) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    let mut table = Table::default();
    let reserved = Reserved::hugepages(HUGEPAGE_COUNT);
    for (mode, name) in [(Mode::Io, "io"), (Mode::MacSwap, "macswap")] {
        for burst in [32, 64] {
            let case = Case { mode, burst, hugepages: true, stages: 0 };
            let name = format!("{name}, burst {burst}");
            match &reserved {
                Ok(_) => compare(&format!("{name}, hugepages"), case, 1.0, &mut table),
                Err(reason) => table.unshown.push(format!("{name}, hugepages: {reason}")),
            }
            let case = Case { hugepages: false, ..case };
            compare(&format!("{name}, no hugepages"), case, 2.5, &mut table);
        }
    }
    price_stages(reserved.is_ok(), &mut table);
    drop(reserved);
    match publish("forward", &table) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the table can't be written: {error}");
            ExitCode::FAILURE
        }
    }
}

fn compare(name: &str, case: Case, aim: f64, table: &mut Table) {
    eprintln!("measuring {name}");
    let rounds: Result<Vec<_>, String> = (0..ROUND_COUNT)
        .map(|_| {
            let theirs = testpmd::measure(case)?;
            let ours = forwarder::measure(case)?;
            Ok((ours.mpps(), theirs.mpps()))
        })
        .collect();
    match rounds {
        Ok(rounds) => {
            let (ours, theirs): (Vec<_>, Vec<_>) = rounds.into_iter().unzip();
            let figures = (&Figure::of_rounds(&ours), &Figure::of_rounds(&theirs));
            table.rows.push(Row::rate(name, "testpmd", "Mpps", figures, aim));
        }
        Err(reason) => table.unshown.push(format!("{name}: {reason}")),
    }
}

/// What a stage costs: the time with five of them less the time without, by five.
fn price_stages(hugepages: bool, table: &mut Table) {
    let name = "a stage, of five";
    eprintln!("measuring {name}");
    let bare = Case { mode: Mode::Io, burst: 64, hugepages, stages: 0 };
    let rounds: Result<Vec<_>, String> = (0..ROUND_COUNT)
        .map(|_| {
            let without = forwarder::measure(bare)?;
            let with = forwarder::measure(Case { stages: 5, ..bare })?;
            Ok((with.ns_per_packet() - without.ns_per_packet()) / 5.0)
        })
        .collect();
    match rounds {
        Ok(rounds) => {
            table.rows.push(Row::limit(name, "ns a packet", &Figure::of_rounds(&rounds), 1.0))
        }
        Err(reason) => table.unshown.push(format!("{name}: {reason}")),
    }
}
