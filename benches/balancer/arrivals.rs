//! Packets of flows that are not known: new connections, and what comes when the table is full.

use crate::Bench;
use crate::bed::{Bed, LazyBed, Setup};
use hotloop_benches::contest::{Contest, Outcome, Side};
use hotloop_benches::traffic::{ACK, SYN};
use std::cell::Cell;
use std::time::Duration;

/// Connections that are established throughout.
const FLOW_COUNT: u32 = 1_000_000;

/// Connections while instructions are counted: as many as are looked up in stages.
const COUNTED_FLOWS: u32 = 100_000;

/// New flows before those that are counted.
const TURN_FLOWS: u64 = 50_000;

/// Beside the rate of hits.
const NEW_AIM: f64 = 0.55;

/// At most 1.2 times the time of new connections that find room.
const FULL_AIM: f64 = 1.0 / 1.2;

const HITS: &str = "hits";
const NEW: &str = "new connections";
const FULL: &str = "full table";
const FLOOD: &str = "SYN flood";
const FLOOD_WITHIN: &str = "SYN flood, full of SYNs";

/// A balancer, and the next flow that was never seen.
struct Visited<'a> {
    bed: LazyBed<'a>,
    next: Cell<u32>,
}

impl Visited<'_> {
    /// With `flow_count` flows entered, and then as many SYNs as `syn_count`.
    fn new(flow_count: u32, connections_max: u32, syn_count: u32) -> Self {
        let setup = Setup { connections_max, ..Setup::hits(10, flow_count) };
        let bed = LazyBed::new(move || {
            let mut bed = Bed::balancer(&setup)?;
            if syn_count > 0 {
                bed.arrive(flow_count, u64::from(syn_count), SYN);
                bed.play(u64::from(syn_count));
            }
            Ok(bed)
        });
        Self { bed, next: Cell::new(flow_count + syn_count + 64) }
    }

    /// The time of a packet with these flags of each of so many flows that were never seen.
    fn arrive(&self, count: u64, flags: u8) -> Duration {
        let first = self.next.replace(self.next.get() + count as u32 + 64);
        self.bed.with(|bed| {
            bed.arrive(first, count, flags);
            bed.play(count)
        })
    }
}

/// New connections beside hits, and a full table beside new connections.
pub fn bench(bench: &mut Bench) -> Result<(), String> {
    let flow_count = if bench.instrument.is_counting() { COUNTED_FLOWS } else { FLOW_COUNT };
    let roomy = Visited::new(flow_count, 2 * flow_count, 0);
    // A last few may find both their groups full before the table is.
    let full = Visited::new(flow_count + flow_count / 16, flow_count, 0);
    let flooded = Visited::new(flow_count, 2 * flow_count, flow_count);
    let forget = || roomy.bed.with(|bed| bed.forget(flow_count));
    let hits = Side::new(HITS, |count| {
        roomy.bed.with(|bed| {
            bed.hit(flow_count);
            bed.play(count)
        })
    });
    let arrivals = [
        Side::new(NEW, |count| roomy.arrive(count, SYN)).reset(forget),
        Side::new(FULL, |count| full.arrive(count, ACK)),
        Side::new(FLOOD, |count| full.arrive(count, SYN)),
        Side::new(FLOOD_WITHIN, |count| flooded.arrive(count, SYN)),
    ];
    let contest =
        Contest::new("balancer/arrivals").with(hits.reset(forget).pass(u64::from(flow_count)));
    let contest =
        arrivals.into_iter().fold(contest, |contest, side| contest.with(side.pass(TURN_FLOWS)));
    if let Some(outcome) = contest.run(&mut bench.instrument) {
        show(bench, &outcome);
        let full_count = full.bed.with(|bed| bed.connection_count());
        if full_count != u64::from(flow_count) {
            return Err(format!("{full_count} connections are left in the full table"));
        }
    }
    [roomy, full, flooded].into_iter().try_for_each(|visited| visited.bed.finish())
}

fn show(bench: &mut Bench, outcome: &Outcome) {
    let unit = "ns a packet";
    let rows = [
        ("new connections, beside 1M others", (NEW, HITS), NEW_AIM),
        ("packets of new flows, table full of established", (FULL, NEW), FULL_AIM),
        ("SYN flood, table full of established", (FLOOD, NEW), FULL_AIM),
        ("SYN flood, table half full of its SYNs", (FLOOD_WITHIN, NEW), FULL_AIM),
    ];
    let rows = rows.map(|(name, sides, aim)| outcome.row(name, unit, sides, aim));
    bench.table.rows.extend(rows);
}
