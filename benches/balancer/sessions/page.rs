//! The page of the book: the cost of a walk, and of a snapshot.

use super::node::Heard;
use super::rounds::{KINDS, Measured, RATIO_MAX, Walks};
use super::short;
use hotloop_measure::figure::median;
use hotloop_measure::table::Table;

/// How to read the tables.
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
        "an interrupt makes a burst several times as long as others, and they meet about one burst in a \
         thousand: so a second row leaves out the longest bursts, as many as the kernel counted interrupts on that CPU, which \
         hides nothing that a walk does to more of them"
            .to_owned(),
        "bytes are those of frames, without what TCP and IP add; there is no TLS".to_owned(),
    ];
    notes.extend(all.iter().map(of_peer));
    notes
}

/// The changes that the peers have received in all walks.
fn of_peer(measured: &Measured) -> String {
    let heard = |get: fn(&Heard) -> u64| measured.of_changes.iter().map(get).sum::<u64>();
    let kept = |get: fn(&Walks) -> f64| 100.0 * median(measured.walks.iter().map(get));
    format!(
        "{} connections: {:.1} % of bursts without a walk count, and {:.1} % with one; there were {:.0} and {:.0} \
         interrupts in a second; during the walks, the peers heard of {} beginnings and {} ends, and had {} snapshots",
        short(measured.flow_count),
        kept(|it| it.quiet.kept_share),
        kept(|it| it.walking.kept_share),
        kept(|it| it.quiet.interrupts_per_s) / 100.0,
        kept(|it| it.walking.interrupts_per_s) / 100.0,
        heard(|it| it.claim_count),
        heard(|it| it.end_count),
        heard(|it| it.snapshot_count)
    )
}

/// The tables, with their notes.
pub fn markdown(all: &[Measured], table: &Table) -> String {
    let mut text = "| connections | bursts | without a walk: median, 99.9 % | with one | ratio of 99.9 % | limit | \
                    result | spread | rounds |\n\
                    |---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    text.extend(all.iter().map(burst_rows));
    text.push_str(
        "\n| connections | walk, busy | idle | until the peer has entered all | CPU of control | of the connection |\n\
         |---|---|---|---|---|---|\n",
    );
    text.extend(all.iter().map(walk_row));
    text.push_str(
        "\n| snapshot of | records | bytes | a record | time | CPU of control | of the connection | \
         burst without: median, 99.9 % | with |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    text.extend(all.iter().map(snapshot_row));
    text + "\n" + &table.list()
}

fn burst_rows(measured: &Measured) -> String {
    let rows = KINDS.into_iter().zip(measured.rows()).map(|((kind, most_ns), row)| {
        let of = |get: &dyn Fn(&Walks) -> f64| {
            median(measured.walks.iter().map(get)) / 1e3
        };
        format!(
            "| {} | {kind} | {:.2} µs, {:.2} µs | {:.2} µs, {:.2} µs | {:.2} | {RATIO_MAX} | {} | {:.0} % | {} |\n",
            short(measured.flow_count),
            of(&|it| it.quiet.median_ns),
            of(&|it| most_ns(&it.quiet)),
            of(&|it| it.walking.median_ns),
            of(&|it| most_ns(&it.walking)),
            row.ours,
            row.result,
            row.spread * 100.0,
            row.rounds,
        )
    });
    rows.collect()
}

fn walk_row(measured: &Measured) -> String {
    let of = |get: fn(&Walks) -> f64| median(measured.walks.iter().map(get));
    format!(
        "| {} | {:.2} s | {:.2} s | {:.2} s | {:.0} ms | {:.0} ms |\n",
        short(measured.flow_count),
        of(|it| it.took_s),
        median(&measured.idle_s),
        of(|it| it.handover_s),
        of(|it| it.cpu_ms[0]),
        of(|it| it.cpu_ms[1]),
    )
}

fn snapshot_row(measured: &Measured) -> String {
    let of = |get: fn(&super::rounds::Snapshot) -> f64| median(measured.snapshots.iter().map(get));
    let (records, bytes) = (of(|it| it.heard.claim_count as f64), of(|it| it.heard.bytes as f64));
    format!(
        "| {} | {records:.0} | {:.2} MB | {:.1} | {:.2} s | {:.0} ms | {:.0} ms | {:.2} µs, {:.2} µs | \
         {:.2} µs, {:.2} µs |\n",
        short(measured.flow_count),
        bytes / 1e6,
        bytes / records,
        of(|it| it.took_s),
        of(|it| it.cpu_ms[0]),
        of(|it| it.cpu_ms[1]),
        of(|it| it.quiet.median_ns) / 1e3,
        of(|it| it.quiet.most_ns) / 1e3,
        of(|it| it.walking.median_ns) / 1e3,
        of(|it| it.walking.most_ns) / 1e3,
    )
}
