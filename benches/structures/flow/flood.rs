//! A flood of new flows: into a full table, where each takes the place of another, and into an empty
//! one.

use super::keys::{Key, key};
use super::tables::{Ours, START_NS};
use crate::Bench;
use hotloop::arena::Pages;
use hotloop::flow::{Classes, Config, Full, STEP_NS};
use hotloop_benches::contest::Contest;
use hotloop_benches::row::Row;
use std::cell::{LazyCell, RefCell};
use std::time::{Duration, Instant};

const CAPACITY: usize = 1_000_000;

/// New flows of a round: not so many that the empty table becomes a full one.
const FLOW_COUNT: u64 = 400_000;

/// Packets of a burst, each of a flow of its own.
const BURST: usize = 32;

/// How many times as long it may take.
const LIMIT: f64 = 3.0;

/// A table, and where the flood has come to.
struct Flooded {
    table: Ours,
    next: u64,
    now_ns: u64,
}

pub fn bench(bench: &mut Bench<'_>, pages: Pages) {
    let make = |flow_count| {
        move || {
            let full = Full::Evict(Classes::ALL);
            let config = Config { full, ..Config::new(CAPACITY, u64::MAX) };
            let table = Ours::new(config, flow_count, pages);
            RefCell::new(Flooded { table, next: flow_count, now_ns: START_NS })
        }
    };
    let (full, empty) = (LazyCell::new(make(CAPACITY as u64)), LazyCell::new(make(0)));
    let contest = Contest::new("flow/flood")
        .side_of(FLOW_COUNT, "full table", |_| full.borrow_mut().flood(FLOW_COUNT).0)
        .side_of(FLOW_COUNT, "empty table", |_| {
            let mut flooded = empty.borrow_mut();
            let (taken, keys) = flooded.flood(FLOW_COUNT);
            for key in &keys {
                flooded.table.0.remove(key).expect("it was put in");
            }
            taken
        });
    let Some(outcome) = contest.run(bench.criterion) else { return };
    let pairs = outcome.times_ns("full table").into_iter().zip(outcome.times_ns("empty table"));
    let times: Vec<_> = pairs.map(|(full, empty)| full / empty).collect();
    let name = format!("flood into a full table of 1M, {pages}");
    bench.table.rows.push(Row::limit(&name, "x empty table", &times, LIMIT));
    bench.table.notes.push(format!(
        "{name}: {:.1} ns a flow, {:.1} ns into an empty table",
        outcome.median_ns("full table"),
        outcome.median_ns("empty table")
    ));
}

impl Flooded {
    /// Looks up and puts in so many new flows; the time, and their keys.
    fn flood(&mut self, count: u64) -> (Duration, Vec<Key>) {
        let keys: Vec<_> = (self.next..self.next + count).map(key).collect();
        self.next += count;
        let table = &mut self.table.0;
        let (mut found, mut placed) = ([None; 64], [None; 64]);
        let (mut placed_count, mut evicted_count) = (0, 0);
        let before = table.len();
        let start = Instant::now();
        for burst in keys.chunks(BURST) {
            table.lookup_burst(burst.iter().copied(), self.now_ns, &mut found);
            let missed = burst.iter().zip(&found).filter(|(_, found)| found.is_none());
            let flows = missed.map(|(key, _)| (*key, [1; 5]));
            let on_evict = |_, _| evicted_count += 1;
            placed_count += table.insert_burst(flows, self.now_ns, &mut placed, on_evict);
            self.now_ns += STEP_NS;
        }
        let taken = start.elapsed();
        assert_eq!(placed_count, keys.len());
        assert_eq!(table.len(), before + keys.len() - evicted_count);
        (taken, keys)
    }
}
