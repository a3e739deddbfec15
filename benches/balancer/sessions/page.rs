//! The page of the book: the cost of a walk, of a snapshot, and of exceptions at a steady rate.

use super::rounds::{Measured, RATIO_MAX, Snapshot, Walks};
use super::short;
use super::steady::{Steady, Window};
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
        "bytes are those of frames, without what TCP and IP add; there is no TLS; the peer takes claims, and enters them in \
         no table"
            .to_owned(),
        "memory is that of the connections of a worker, for both IP versions, with room for one in 16 more".to_owned(),
        "at the steady rate, a connection has a SYN, a packet 10 ms later, and a FIN after a second, and each of the three \
         makes a claim to an exception; some exceptions are claimed once more until they are forgotten, also in the window \
         after, which has none; 1M other connections are open; windows of 5 s, with the range of all; the \
         instructions are those of a SYN at the worker, with its source and its sink, until it has journalled it"
            .to_owned(),
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
pub fn markdown((all, steady): (&[Measured], Option<&[Steady; 2]>), table: &Table) -> String {
    let mut text = "| connections | memory | walk | bursts without one: median, 99.9 % | with one | ratio of 99.9 % | limit | \
                    result | spread | rounds |\n\
                    |---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    text.extend(all.iter().map(walk_row));
    text.push_str("\n| snapshot of | records | bytes | a record | time |\n|---|---|---|---|---|\n");
    text.extend(all.iter().map(snapshot_row));
    text.push_str(
        "\n| connections that begin, a second | exceptions | claims | bytes | CPU of control | of the thread for peers | \
         instructions |\n|---|---|---|---|---|---|---|\n",
    );
    text.extend(steady.into_iter().flatten().map(steady_row));
    text + "\n" + &table.list()
}

fn walk_row(measured: &Measured) -> String {
    let of = |get: fn(&Walks) -> f64| median(measured.walks.iter().map(get));
    let row = measured.row();
    format!(
        "| {} | {:.2} GB | {:.2} s | {:.2} µs, {:.2} µs | {:.2} µs, {:.2} µs | {:.2} | {RATIO_MAX} | {} | {:.0} % | {} |\n",
        short(measured.flow_count),
        measured.memory_bytes as f64 / 1e9,
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

fn steady_row(steady: &Steady) -> String {
    let all = |get: fn(&Window) -> f64| steady.windows.iter().map(get);
    let of = |get| median(all(get));
    let range = |get| {
        let (least, most) = all(get).fold((f64::MAX, f64::MIN), |(least, most), figure| {
            (least.min(figure), most.max(figure))
        });
        format!("{:.1} ms ({least:.1} to {most:.1})", of(get))
    };
    format!(
        "| {:.0} | {} | {:.0} | {:.1} KB | {} | {} | {} |\n",
        of(|window| window.begin_count),
        if steady.is_apart { "a tenth" } else { "none" },
        of(|window| window.claim_count),
        of(|window| window.bytes) / 1e3,
        range(|window| window.cpu_ms[0]),
        range(|window| window.cpu_ms[1]),
        steady.instructions.map_or_else(String::new, |count| format!("{count:.1}")),
    )
}
