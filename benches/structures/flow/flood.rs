//! A flood of new flows: into a full table, where each replaces another, and into an empty one.

use super::keys::key;
use super::tables::{Ours, START_NS, Value};
use crate::Bench;
use hotloop::arena::Pages;
use hotloop::flow::{Class, Classes, Config, Full, Hints, STEP_NS};
use hotloop::packet::Instant as Time;
use hotloop_measure::contest::{Contest, Side};
use hotloop_measure::row::Row;
use std::cell::{LazyCell, RefCell};
use std::time::{Duration, Instant};

const CAPACITY: usize = 1_000_000;

/// Number of new flows before the counted ones.
const PASS: u64 = 100_000;

const FULL: &str = "full table";
const EMPTY: &str = "empty table";

/// Number of packets in a burst, each from a flow of its own.
const BURST: usize = 32;

/// Number of flows that memory is prefetched for at once.
const AHEAD: usize = 8;

/// Maximum time of the former relative to the latter.
const LIMIT: f64 = 3.0;

/// A table, and the flood's position.
struct Flooded {
    table: Ours,
    /// The first flow that `clear` removes.
    first: u64,
    next: u64,
    now_ns: u64,
}

pub fn bench(bench: &mut Bench, pages: Pages) {
    let make = |flow_count| {
        move || {
            let full = Full::Evict(Classes::ALL);
            let config = Config { full, ..Config::new(CAPACITY, u64::MAX) };
            let table = Ours::new(config, flow_count, pages);
            RefCell::new(Flooded { table, first: flow_count, next: flow_count, now_ns: START_NS })
        }
    };
    let (full, empty) = (LazyCell::new(make(CAPACITY as u64)), LazyCell::new(make(0)));
    let full = Side::new(FULL, |count| full.borrow_mut().flood(count));
    let into_empty = Side::new(EMPTY, |count| empty.borrow_mut().flood(count));
    let into_empty = into_empty.reset(|| empty.borrow_mut().clear());
    let contest = Contest::new("flow/flood").with(full.pass(PASS)).with(into_empty.pass(PASS));
    let Some(outcome) = contest.run(&mut bench.instrument) else { return };
    let (full, empty) = (outcome.figure(FULL), outcome.figure(EMPTY));
    let times = full.with(&empty, |full, empty| full / empty);
    let name = format!("flood into a full table of 1M, {pages}");
    let row = Row::limit(&name, "x empty table", &times, LIMIT);
    bench.table.rows.push(row.counted([outcome.instructions(FULL), outcome.instructions(EMPTY)]));
    bench.table.notes.push(format!(
        "{name}: {:.1} ns a flow, {:.1} ns into an empty table",
        full.value, empty.value
    ));
}

/// The rank of the flood's flows.
fn worthless(_: &Value, _: Class, _: u64) -> Option<u8> {
    Some(0)
}

impl Flooded {
    /// Looks up and inserts `count` new flows, or a few more. Returns the time for exactly `count`.
    fn flood(&mut self, count: u64) -> Duration {
        let key_count = count.next_multiple_of(BURST as u64);
        let keys: Vec<_> = (self.next..self.next + key_count).map(key).collect();
        self.next += key_count;
        let table = &mut self.table.0;
        let mut hints = Hints::new();
        let (mut placed_count, mut evicted_count) = (0, 0);
        let before = table.len();
        let start = Instant::now();
        for burst in keys.chunks(BURST) {
            table.hint_burst(burst.iter().copied(), &mut hints);
            let now = Time::from_ns(self.now_ns);
            let seen_at = table.seen_at(now);
            for (index, key) in burst.iter().enumerate() {
                if index.is_multiple_of(AHEAD) {
                    let next = index..BURST.min(index + AHEAD);
                    next.for_each(|at| table.prefetch_insert(&burst[at], &mut hints, at));
                }
                let hint = hints.at(index);
                assert!(table.find_hinted(key, hint, seen_at).is_none());
                if let Err(vacancy) = table.peek(key, hint, now) {
                    let eviction = &mut (worthless, |_, _| evicted_count += 1);
                    placed_count +=
                        usize::from(table.insert(vacancy, [1; 5], now, eviction).is_ok());
                }
            }
            self.now_ns += STEP_NS;
        }
        let taken = start.elapsed();
        assert_eq!(placed_count, keys.len());
        assert_eq!(table.len(), before + keys.len() - evicted_count);
        taken.mul_f64(count as f64 / key_count as f64)
    }

    /// Removes all flows that were inserted.
    fn clear(&mut self) {
        for number in self.first..self.next {
            // A flow that was replaced is not there.
            self.table.0.remove(&key(number));
        }
        self.first = self.next;
    }
}
