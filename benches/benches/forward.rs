//! Forwarding between two net_null ports on one core, compared with `dpdk-testpmd` and with its
//! loops in this process, and the cost of the engine itself.
//!
//! testpmd and our forwarder are processes of their own that take turns of 5 ms on one CPU; figures
//! are packets per second of CPU time. The loops in this process are compared in slices.
#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a benchmark prints its figures, for the project's developers"
)]

use hotloop::dpdk::{Eal, Port, PortConfig};
use hotloop::engine::Graph;
use hotloop::stage::Instant;
use hotloop_benches::engines::assembled;
use hotloop_benches::forwarder::{self, Case, Forwarder, Mode};
use hotloop_benches::peers::forward::{From, OneWay};
use hotloop_benches::testpmd::{Settings, Testpmd};
use hotloop_measure::alternate::Rates;
use hotloop_measure::contest::Contest;
use hotloop_measure::cores::Pair;
use hotloop_measure::hugepages::Reserved;
use hotloop_measure::instrument::Instrument;
use hotloop_measure::row::Row;
use hotloop_measure::table::Table;
use std::process::ExitCode;
use std::time::{self, Duration};

/// Number of 2 MiB pages that our forwarder and testpmd need at a time.
const HUGEPAGE_COUNT: usize = 600;

/// Targets relative to testpmd, with hugepages and without.
const AIM: f64 = 1.0;
const AIM_SMALL_PAGES: f64 = 2.5;

/// Target relative to the loop in C in the same process, and the maximum for one of five stages.
const LOOP_AIM: f64 = 1.0;
const RX_ONLY_AIM: f64 = 1.15;
const STAGE_NS_MAX: f64 = 1.0;

fn main() -> ExitCode {
    forwarder::main(forwarder::forward, |_| run())
}

fn run() -> Result<(), String> {
    let mut instrument = Instrument::new(false, true)?;
    let mut table = Table::default();
    if !instrument.is_counting() {
        beside_testpmd(&instrument, &mut table);
    }
    Pair::pin()?;
    in_process(&mut instrument, &mut table).map_err(|error| error.to_string())?;
    instrument.publish("forward", table)
}

/// Receiving and freeing; and both modes with bursts of both lengths, with hugepages and without.
fn cases() -> Vec<(String, Case, f64)> {
    let rx_only = Case { mode: Mode::RxOnly, burst: 64, hugepages: true };
    let mut cases = vec![("rxonly".to_owned(), rx_only, AIM)];
    for mode in [Mode::Io, Mode::MacSwap] {
        for burst in [32, 64] {
            for (hugepages, pages, aim) in
                [(true, "hugepages", AIM), (false, "no hugepages", AIM_SMALL_PAGES)]
            {
                let name = format!("{}, burst {burst}, {pages}", mode.name());
                cases.push((name, Case { mode, burst, hugepages }, aim));
            }
        }
    }
    cases
}

/// Our forwarder and testpmd, in turns on one CPU.
fn beside_testpmd(instrument: &Instrument, table: &mut Table) {
    let reserved = Reserved::hugepages(HUGEPAGE_COUNT);
    for (name, case, aim) in cases() {
        eprintln!("measuring {name}");
        let rates = match &reserved {
            Err(reason) if case.hugepages => Err(reason.clone()),
            _ => Rates::of(&name, instrument, || {
                let theirs = Testpmd::start(&Settings::of(&case))?;
                Ok((Forwarder::start(&case)?, theirs))
            }),
        };
        match rates {
            Ok(None) => (),
            Ok(Some(rates)) => {
                let (ours, theirs) = rates.figures();
                table.rows.push(Row::rate(&name, "testpmd", "Mpps", (&ours, &theirs), aim));
            }
            Err(reason) => table.unshown.push(format!("{name}: {reason}")),
        }
    }
}

/// The engine compared with a loop in C over ports of the same kind, and five stages compared with
/// no stage.
fn in_process(instrument: &mut Instrument, table: &mut Table) -> hotloop::Result<()> {
    let eal = Eal::embedded()?;
    for (swaps, name) in [(false, "io"), (true, "macswap")] {
        for burst in [32, 64] {
            let (lan, wan) = (open(eal, 0)?, open(eal, 1)?);
            let (lan_c, wan_c) = (open(eal, 2)?, open(eal, 3)?);
            let mut theirs = OneWay::new(&lan_c, &wan_c)?;
            let contest = Contest::new(&format!("forward/{name}/{burst}"));
            let contest = match swaps {
                false => contest.side("hotloop", play(forwarder::graph(&lan, &wan, burst))?),
                true => {
                    contest.side("hotloop", play(forwarder::swapping_graph(&lan, &wan, burst))?)
                }
            };
            let contest = contest.side("loop in C", |count| {
                played(count, || theirs.forward(count, burst as u16, swaps))
            });
            if let Some(outcome) = contest.run(instrument) {
                let name = format!("{name}, burst {burst}, one process");
                let sides = ("hotloop", "loop in C");
                table.rows.push(outcome.row(&name, "ns a packet", sides, LOOP_AIM));
            }
        }
    }
    rx_only(eal, instrument, table)?;
    stages(eal, instrument, table)
}

/// Receiving and freeing.
fn rx_only(eal: Eal, instrument: &mut Instrument, table: &mut Table) -> hotloop::Result<()> {
    let (ours, theirs) = (open(eal, 0)?, open(eal, 1)?);
    let mut from = From::claim(&theirs)?;
    let contest = Contest::new("forward/rxonly")
        .side("hotloop", play(forwarder::receiving_graph(&ours, 64))?)
        .side("loop in C", |count| played(count, || from.receive(count)));
    if let Some(outcome) = contest.run(instrument) {
        let sides = ("hotloop", "loop in C");
        let name = "rxonly, burst 64, one process";
        table.rows.push(outcome.row(name, "ns a packet", sides, RX_ONLY_AIM));
    }
    Ok(())
}

/// The cost of a stage.
fn stages(eal: Eal, instrument: &mut Instrument, table: &mut Table) -> hotloop::Result<()> {
    let (lan, wan, lan_5, wan_5) = (open(eal, 0)?, open(eal, 1)?, open(eal, 2)?, open(eal, 3)?);
    let contest = Contest::new("forward/stages")
        .side("none", play(forwarder::graph(&lan, &wan, 64))?)
        .side("five", play(forwarder::five_stages(&lan_5, &wan_5, 64))?);
    if let Some(outcome) = contest.run(instrument) {
        let each = |with, without| (with - without) / 5.0;
        let figure = outcome.figure("five").with(&outcome.figure("none"), each);
        let counts = outcome.instructions("five").zip(outcome.instructions("none"));
        let counted = [counts.map(|(with, without)| each(with, without)), None];
        let row = Row::limit("a stage, of five", "ns a packet", &figure, STAGE_NS_MAX);
        table.rows.push(row.counted(counted));
    }
    Ok(())
}

fn open(eal: Eal, index: usize) -> hotloop::Result<Port> {
    let config =
        PortConfig { rx_descriptor_count: 64, tx_descriptor_count: 64, ..PortConfig::default() };
    Ok(Port::open_with(eal, &format!("net_null{index},size=64,copy=0"), config)?)
}

/// Steps the only core of a graph. Returns the number of packets received in a step. Time advances
/// by a microsecond per step: the loop in C reads no clock.
fn stepper<'a>(graph: impl Graph + 'a) -> hotloop::Result<impl FnMut() -> u64 + 'a> {
    let mut assembly = assembled(graph)?;
    let mut now_ns = 0;
    Ok(move || {
        now_ns += 1_000;
        assembly.step(0, Instant::from_ns(now_ns)) as u64
    })
}

/// The time of `count` packets, if `play` returns how many there were.
#[inline]
fn played(count: u64, play: impl FnOnce() -> u64) -> Duration {
    let start = time::Instant::now();
    let done = play();
    start.elapsed().mul_f64(count as f64 / done as f64)
}

fn play<'a>(graph: impl Graph + 'a) -> hotloop::Result<impl FnMut(u64) -> Duration + 'a> {
    let mut step = stepper(graph)?;
    Ok(move |count| {
        played(count, || {
            let mut done = 0;
            while done < count {
                done += step();
            }
            done
        })
    })
}
