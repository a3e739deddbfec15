//! Packets of flows that are not known: new connections, and what comes when the table is full.

use crate::Bench;
use crate::bed::{Bed, Setup};
use hotloop_benches::contest::{Contest, Outcome};
use hotloop_benches::traffic::{ACK, SYN, Sizes};
use std::cell::RefCell;
use std::time::Duration;

/// Connections that are established throughout.
const FLOW_COUNT: u32 = 1_000_000;

/// New flows in a round.
const ROUND_FLOWS: u64 = 150_000;

/// At least half the rate of hits.
const NEW_AIM: f64 = 0.5;

/// At most 1.2 times the time of new connections that find room.
const FULL_AIM: f64 = 1.0 / 1.2;

const HITS: &str = "hits";
const NEW: &str = "new connections";
const FULL: &str = "full table";
const FLOOD: &str = "SYN flood";
const FLOOD_WITHIN: &str = "SYN flood, full of SYNs";

/// A balancer, and the next flow that was never seen.
struct Visited {
    bed: Bed,
    next: u32,
}

impl Visited {
    fn new(flow_count: u32, connections_max: u32) -> Result<RefCell<Self>, String> {
        let setup = Setup { service_count: 10, flow_count, connections_max, sizes: Sizes::Small };
        Ok(RefCell::new(Self { bed: Bed::balancer(&setup)?, next: flow_count }))
    }

    /// The time of a packet with these flags of each of so many flows that were never seen.
    fn arrive(&mut self, count: u64, flags: u8) -> Duration {
        self.bed.arrive(self.next, count, flags);
        self.next += count as u32 + 64;
        self.bed.play(count)
    }
}

/// New connections beside hits, and a full table beside new connections.
pub fn bench(bench: &mut Bench) -> Result<(), String> {
    eprintln!("new connections: entering {FLOW_COUNT} others");
    let roomy = Visited::new(FLOW_COUNT, 2 * FLOW_COUNT)?;
    // A last few may find both their groups full before the table is.
    let full = Visited::new(FLOW_COUNT + FLOW_COUNT / 16, FLOW_COUNT)?;
    let flooded = Visited::new(FLOW_COUNT, 2 * FLOW_COUNT)?;
    flooded.borrow_mut().arrive(u64::from(FLOW_COUNT), SYN);
    let contest = Contest::new("balancer/arrivals")
        .part(bench.part())
        .side(HITS, |count| {
            let bed = &mut roomy.borrow_mut().bed;
            bed.hit(FLOW_COUNT);
            bed.play(count)
        })
        .side_of(ROUND_FLOWS, NEW, |count| {
            let mut roomy = roomy.borrow_mut();
            let taken = roomy.arrive(count, SYN);
            roomy.bed.forget(FLOW_COUNT);
            taken
        })
        .side_of(ROUND_FLOWS, FULL, |count| full.borrow_mut().arrive(count, ACK))
        .side_of(ROUND_FLOWS, FLOOD, |count| full.borrow_mut().arrive(count, SYN))
        .side_of(ROUND_FLOWS, FLOOD_WITHIN, |count| flooded.borrow_mut().arrive(count, SYN));
    if let Some(outcome) = contest.run(&mut bench.criterion) {
        show(bench, &outcome);
    }
    let full_count = full.borrow().bed.connection_count();
    if full_count != u64::from(FLOW_COUNT) {
        return Err(format!("{full_count} connections are left in the full table"));
    }
    [roomy, full, flooded].into_iter().try_for_each(|visited| visited.into_inner().bed.finish())
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
