//! The page of the book: the cost of a walk, and of a snapshot.

use super::rounds::{Measured, RATIO_MAX, Snapshot, Walks};
use super::short;
use hotloop_measure::figure::median;
use hotloop_measure::table::Table;

/// The explanation of the tables.
pub fn notes(all: &[Measured]) -> Vec<String> {
    let mut notes = vec![
        "bursts of 64 small TCP packets of known connections in random order, on one core; 10 services of 10 \
         backends, of which one is drained in a second table, with which connections are compared, too"
            .to_owned(),
        "control takes a turn each 5 ms, as in the program, on the other core, which the thread that talks to the peer \
         and the peer use, too"
            .to_owned(),
        format!(
            "two workers alike play in turns of 0.1 s on the same core; a round is some walks of one of them, of which every \
             other one begins exceptions and the next one ends them, within `prepare_ms_max`, a second for each million \
             connections; its ratio is that of what 99.9 % of all bursts of the one took at most, and of the other one, but \
             for the first 10 ms of each turn; the limit is {RATIO_MAX}"
        ),
        "slices of 0.4 ms in which a burst took 1.5 times as long in the mean as in the middle one don't count: the \
         thread was not on its CPU"
            .to_owned(),
        "bytes are those of frames, without what TCP and IP add; there is no TLS".to_owned(),
    ];
    notes.extend(all.iter().map(kept));
    notes
}

/// The share of bursts in slices that count.
fn kept(measured: &Measured) -> String {
    let percent = |get: fn(&Walks) -> f64| 100.0 * median(measured.walks.iter().map(get));
    format!(
        "{} connections: {:.1} % of bursts without a walk count, and {:.1} % with one",
        short(measured.flow_count),
        percent(|walks| walks.quiet.kept_share),
        percent(|walks| walks.walking.kept_share),
    )
}

/// The tables, with their notes.
pub fn markdown(all: &[Measured], table: &Table) -> String {
    let mut text = "| connections | walk | bursts without one: median, 99.9 % | with one | ratio of 99.9 % | limit | \
                    result | spread | rounds |\n\
                    |---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    text.extend(all.iter().map(walk_row));
    text.push_str("\n| snapshot of | records | bytes | a record | time |\n|---|---|---|---|---|\n");
    text.extend(all.iter().map(snapshot_row));
    text + "\n" + &table.list()
}

fn walk_row(measured: &Measured) -> String {
    let of = |get: fn(&Walks) -> f64| median(measured.walks.iter().map(get));
    let row = measured.row();
    format!(
        "| {} | {:.2} s | {:.2} µs, {:.2} µs | {:.2} µs, {:.2} µs | {:.2} | {RATIO_MAX} | {} | {:.0} % | {} |\n",
        short(measured.flow_count),
        of(|walks| walks.took_s),
        of(|walks| walks.quiet.median_ns) / 1e3,
        of(|walks| walks.quiet.most_ns) / 1e3,
        of(|walks| walks.walking.median_ns) / 1e3,
        of(|walks| walks.walking.most_ns) / 1e3,
        row.ours,
        row.result,
        row.spread * 100.0,
        row.rounds,
    )
}

fn snapshot_row(measured: &Measured) -> String {
    let of = |get: fn(&Snapshot) -> f64| median(measured.snapshots.iter().map(get));
    let records = of(|snapshot| snapshot.heard.claim_count as f64);
    let bytes = of(|snapshot| snapshot.heard.bytes as f64);
    format!(
        "| {} | {records:.0} | {:.2} MB | {:.1} | {:.2} s |\n",
        short(measured.flow_count),
        bytes / 1e6,
        bytes / records,
        of(|snapshot| snapshot.took_s),
    )
}
