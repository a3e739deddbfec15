//! The ladder's results: the comparisons with their targets, a table of all rungs, and a chart.

use super::Climbed;
use super::rungs::{Part, UNSHOWN};
use crate::programs::Measured;
use hotloop_measure::bars;
use hotloop_measure::row::Row;
use hotloop_measure::table::{Table, markdown, write};
use std::fmt::Write as _;

/// The target of poll mode on the wire, relative to the kernel's best rung with the same sender;
/// and the target of a ring in memory, relative to the kernel's best rung.
const POLL_AIM: f64 = 1.7;
const MEMORY_AIM: f64 = 100.0;

/// The sender counts as the limit if this share of its datagrams arrives.
const ARRIVES_WHOLE: f64 = 0.99;

/// Prints the tables, and writes them with the chart.
///
/// # Errors
/// If a file can't be written.
pub fn publish(all: &[Climbed<'_>], more: Vec<Row>, unshown: Vec<String>) -> Result<(), String> {
    let mut table = comparisons(all);
    table.rows.extend(more);
    table.unshown.extend(unshown);
    table.print();
    let rungs = rungs(all);
    println!("\n{rungs}");
    let rate = |climbed: &Climbed<'_>| {
        (climbed.name(), climbed.figure(|measured| measured.received_pps).value)
    };
    let rates: Vec<_> = all.iter().filter(|climbed| !climbed.rounds.is_empty()).map(rate).collect();
    let picture = "![Datagrams a second on each rung](udp.svg)";
    let page = format!("{picture}\n\n{}\n{rungs}", markdown(&table));
    write("udp", "json", &table.json())?;
    write("udp", "svg", &bars::svg(&rates))?;
    write("udp", "md", &page)
}

/// The rung of these parts with the highest received rate.
fn best<'a, 'r>(all: &'a [Climbed<'r>], parts: &[Part]) -> Option<&'a Climbed<'r>> {
    let of_parts = all
        .iter()
        .filter(|climbed| parts.contains(&climbed.rung.part) && !climbed.rounds.is_empty());
    let rate = |climbed: &Climbed<'_>| climbed.figure(|measured| measured.received_pps).value;
    of_parts.max_by(|a, b| rate(a).total_cmp(&rate(b)))
}

fn comparisons(all: &[Climbed<'_>]) -> Table {
    let mut table = Table::default();
    let mpps = |climbed: &Climbed<'_>| climbed.figure(|measured| measured.received_pps / 1e6);
    let mut compare = |ours: Option<&Climbed<'_>>, theirs: Option<&Climbed<'_>>, aim| {
        if let Some((ours, theirs)) = ours.zip(theirs) {
            let (name, peer) = (ours.name(), theirs.name());
            table.rows.push(Row::rate(&name, &peer, "Mpps", (&mpps(ours), &mpps(theirs)), aim));
        }
    };
    let kernel = [Part::Essay, Part::KernelFedByPoll];
    compare(best(all, &[Part::Poll]), best(all, &[Part::KernelFedByPoll]), POLL_AIM);
    compare(best(all, &[Part::Memory]), best(all, &kernel), MEMORY_AIM);
    table.unshown.extend(UNSHOWN.map(str::to_owned));
    let failed = all.iter().filter_map(|climbed| {
        climbed.failure.as_ref().map(|why| format!("{}: {why}", climbed.name()))
    });
    table.unshown.extend(failed);
    table
}

/// A line for each rung: the median round by rate.
fn rungs(all: &[Climbed<'_>]) -> String {
    let mut text = "| rung | received, Mpps | spread | sent, Mpps | lost, of all sent | where | ns of the process | \
                    ns of softirqs | shares |\n|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for climbed in all {
        let Some(middle) = climbed.middle() else { continue };
        let received = climbed.figure(|measured| measured.received_pps / 1e6);
        let spread = received.spread() / received.value * 100.0;
        writeln!(
            text,
            "| {} | {:.3} | {spread:.0} % | {:.3}{} | {:.1} % | {} | {:.0} | {:.0} | {} |",
            climbed.name(),
            received.value,
            middle.sent_pps / 1e6,
            limit(middle),
            middle.lost_share() * 100.0,
            middle.places(),
            middle.process_ns,
            middle.softirq_ns,
            shares(middle),
        )
        .expect("text grows");
    }
    text + "\nRates are those of 1.2 s, or of 0.4 s without a wire, losses those of a whole run. ns: CPU time for each datagram received.\n"
}

/// Whether the sender is the limit, so that the receiver could do more.
fn limit(measured: &Measured) -> &'static str {
    if measured.received_pps >= measured.sent_pps * ARRIVES_WHOLE { " (the limit)" } else { "" }
}

/// The share of each thread, if there are several.
fn shares(measured: &Measured) -> String {
    let all: u64 = measured.shares.iter().sum();
    if measured.shares.len() < 2 {
        return String::new();
    }
    let share = |count: &u64| format!("{:.0} %", *count as f64 * 100.0 / all.max(1) as f64);
    measured.shares.iter().map(share).collect::<Vec<_>>().join(", ")
}
