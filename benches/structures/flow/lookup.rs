//! Lookups in bursts: hits and misses.

use super::keys::{BURST, Key, Stream};
use super::tables::{Hashbrown, Ours, START_NS, Value, floor, rte_hash};
use crate::Bench;
use hotloop::arena::Pages;
use hotloop::dpdk::Eal;
use hotloop::flow::{Config, STEP_NS, Table};
use hotloop_benches::peers::floor::Floor;
use hotloop_benches::peers::rte_hash::Hash;
use hotloop_measure::contest::{Contest, Outcome, PASS_MAX, Side, run_all};
use hotloop_measure::figure::Figure;
use hotloop_measure::row::Row;
use std::cell::{LazyCell, RefCell};
use std::time::{Duration, Instant};

const UNIT: &str = "ns a lookup";

/// DPDK's table.
const RTE: &str = "rte_hash";

/// For misses, relative to rte_hash.
const MISS_AIM: f64 = 1.0;

/// Maximum bytes of a flow's entry, control bytes and free places.
const FLOW_BYTES_MAX: f64 = 77.0;

/// A size, the targets for hits relative to rte_hash and hashbrown and for their instructions, and
/// whether more than hits is measured.
struct Size {
    name: &'static str,
    flow_count: u64,
    hit: (f64, f64),
    instructions_max: f64,
    has_more: bool,
}

const SIZES: [Size; 3] = [
    Size {
        name: "10K",
        flow_count: 10_000,
        hit: (2.0, 0.8),
        instructions_max: 65.0,
        has_more: false,
    },
    Size {
        name: "1M",
        flow_count: 1_000_000,
        hit: (2.0, 1.5),
        instructions_max: 85.0,
        has_more: true,
    },
    Size {
        name: "8M",
        flow_count: 8_000_000,
        hit: (2.0, 1.5),
        instructions_max: 85.0,
        has_more: true,
    },
];

/// Number of flows of the tables that replace larger ones for counting instructions: enough for
/// lookups in stages.
const COUNTED_FLOWS: u64 = 200_000;

/// At most 1.4 times the floor's time.
const FLOOR_AIM: f64 = 1.0 / 1.4;

/// All tables of a size.
struct Tables {
    ours: Ours,
    hashbrown: Hashbrown,
    rte_hash: Hash,
    /// Only for the largest size.
    floor: Option<Floor>,
    now_ns: u64,
}

/// The tables, and the keys to look up in them.
struct Set {
    tables: Tables,
    hits: Stream,
    misses: Stream,
}

/// A set is made on first use, which takes seconds for the largest: never if the command
/// line leaves it out.
type LazySet = LazyCell<RefCell<Set>, Box<dyn FnOnce() -> RefCell<Set>>>;

/// The kind of lookup.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Kind {
    Hit,
    Miss,
    /// Hits that are recorded, as everywhere outside benchmarks: time advances.
    Seen,
}

/// A size on pages of one kind.
struct Measured {
    size: &'static Size,
    pages: Pages,
    set: LazySet,
    flow_count: u64,
}

/// All sizes.
pub fn bench(bench: &mut Bench, pages: Pages) {
    let sizes: Vec<_> = SIZES.iter().map(|size| Measured::new(bench, size, pages)).collect();
    let kinds = |measured| Measured::kinds(measured).iter().map(move |kind| (measured, *kind));
    let measured: Vec<_> = sizes.iter().flat_map(kinds).collect();
    let contests = measured.iter().map(|(measured, kind)| measured.contest(*kind)).collect();
    let outcomes = run_all(contests, &mut bench.instrument);
    for ((measured, kind), outcome) in measured.iter().zip(outcomes) {
        if let Some(outcome) = outcome {
            measured.show(bench, *kind, &outcome);
        }
    }
    if bench.table.rows.iter().any(|row| row.name.starts_with("flow hit, 8M")) {
        bench.table.rows.push(memory(8_000_000));
    }
}

impl Size {
    fn is_largest(&self) -> bool {
        self.name == SIZES[SIZES.len() - 1].name
    }
}

impl Measured {
    fn new(bench: &Bench, size: &'static Size, pages: Pages) -> Self {
        let eal = bench.eal;
        let flow_count = match bench.instrument.is_counting() {
            true => size.flow_count.min(COUNTED_FLOWS),
            false => size.flow_count,
        };
        let make = move || Set::new(eal, flow_count, pages, size.is_largest());
        Self { size, pages, set: LazyCell::new(Box::new(make)), flow_count }
    }

    fn kinds(&self) -> &'static [Kind] {
        match self.size.has_more {
            false => &[Kind::Hit],
            true if self.size.is_largest() => &[Kind::Hit, Kind::Miss, Kind::Seen],
            true => &[Kind::Hit, Kind::Miss],
        }
    }

    fn contest(&self, kind: Kind) -> Contest<'_> {
        let (set, pass) = (&self.set, Stream::pass(self.flow_count).min(PASS_MAX));
        let name = |what| format!("flow/{what}/{}/{}", self.size.name, super::short(self.pages));
        let contest = match kind {
            Kind::Hit if self.size.is_largest() => {
                let floor = side("floor", (set, pass, Set::hits), |set, keys| {
                    set.floor.as_ref().expect("beside the largest").read(keys)
                });
                contest(&name("hit"), set, pass, Set::hits).with(floor)
            }
            Kind::Hit => contest(&name("hit"), set, pass, Set::hits),
            Kind::Miss => contest(&name("miss"), set, pass, Set::misses),
            Kind::Seen => seen(&name("seen"), set, pass),
        };
        // Tables that are larger than the core's own cache differ in how they use the shared one.
        if self.size.has_more { contest.visits_a_turn(2) } else { contest }
    }

    fn show(&self, bench: &mut Bench, kind: Kind, outcome: &Outcome) {
        let Self { size, pages, .. } = self;
        let row = |what| format!("flow {what}, {} flows, {pages}", size.name);
        match kind {
            Kind::Hit => {
                push(bench, outcome, &row("hit"), RTE, size.hit.0);
                push(bench, outcome, &row("hit"), "hashbrown", size.hit.1);
                if let Some(count) = outcome.instructions("hotloop") {
                    let (count, max) = (Figure::exact(count), size.instructions_max);
                    bench.table.rows.push(Row::limit(&row("hit"), "instructions", &count, max));
                }
                if size.is_largest() {
                    push(bench, outcome, &row("hit"), "floor", FLOOR_AIM);
                }
            }
            Kind::Miss => push(bench, outcome, &row("miss"), RTE, MISS_AIM),
            Kind::Seen => {
                push(bench, outcome, &row("hit, seen written"), RTE, size.hit.0);
                push(bench, outcome, &row("hit, seen written"), "hashbrown", size.hit.1);
            }
        }
    }
}

fn memory(flow_count: u64) -> Row {
    let bytes = Table::<Key, Value>::bytes(flow_count as usize).expect("can be addressed");
    let each = bytes as f64 / flow_count as f64;
    Row::limit("memory a flow, table of 8M, full", "bytes", &Figure::exact(each), FLOW_BYTES_MAX)
}

fn push(bench: &mut Bench, outcome: &Outcome, name: &str, peer: &str, aim: f64) {
    bench.table.rows.push(outcome.row(name, UNIT, ("hotloop", peer), aim));
}

/// Selects from a set: its tables, a stream, and the sum that each key of the stream adds.
type Of = fn(&mut Set) -> (&mut Tables, &mut Stream, u64);

/// A side that looks keys up with `find`. A warm-up goes over the stream once.
fn side<'a>(
    name: &str,
    (set, pass, of): (&'a LazySet, u64, Of),
    find: impl Fn(&mut Tables, &[Key]) -> u64 + 'a,
) -> Side<'a> {
    let play = move |count| {
        let set = &mut *set.borrow_mut();
        let (tables, stream, each) = of(set);
        timed(stream, count, each, |keys| find(tables, keys))
    };
    Side::new(name, play).pass(pass)
}

/// Time stands still: a flow that is found was already seen at this time.
fn contest<'a>(name: &str, set: &'a LazySet, pass: u64, of: Of) -> Contest<'a> {
    let set = (set, pass, of);
    Contest::new(name)
        .with(side("hotloop", set, |set, keys| set.ours.find(keys, &mut set.now_ns, 0)))
        .with(side("hashbrown", set, |set, keys| set.hashbrown.find(keys)))
        .with(side(RTE, set, |set, keys| set.rte_hash.find(keys)))
}

/// Time advances by a step from burst to burst: every table writes it into each flow that is found.
fn seen<'a>(name: &str, set: &'a LazySet, pass: u64) -> Contest<'a> {
    let set = (set, pass, Set::hits as Of);
    Contest::new(name)
        .with(side("hotloop", set, |set, keys| set.ours.find(keys, &mut set.now_ns, STEP_NS)))
        .with(side(RTE, set, |set, keys| set.rte_hash.find_at(keys, set.now_ns, STEP_NS)))
        .with(side("hashbrown", set, |set, keys| set.hashbrown.find_at(keys, set.now_ns, STEP_NS)))
}

impl Set {
    fn new(eal: Eal, flow_count: u64, pages: Pages, has_floor: bool) -> RefCell<Self> {
        let config = Config::new(flow_count as usize, u64::MAX);
        let tables = Tables {
            ours: Ours::new(config, flow_count, pages),
            hashbrown: Hashbrown::new(flow_count as usize, flow_count, pages),
            rte_hash: rte_hash(eal, flow_count, pages),
            floor: has_floor.then(|| floor(flow_count, pages)),
            now_ns: START_NS,
        };
        let (hits, misses) = (Stream::new(0, flow_count), Stream::new(flow_count, flow_count));
        RefCell::new(Self { tables, hits, misses })
    }

    fn hits(&mut self) -> (&mut Tables, &mut Stream, u64) {
        (&mut self.tables, &mut self.hits, 1)
    }

    fn misses(&mut self) -> (&mut Tables, &mut Stream, u64) {
        (&mut self.tables, &mut self.misses, 0)
    }
}

/// The time of `count` lookups. Each key must add `each` to the sum.
fn timed(
    stream: &mut Stream,
    count: u64,
    each: u64,
    mut find: impl FnMut(&[Key]) -> u64,
) -> Duration {
    let key_count = (count as usize).next_multiple_of(BURST);
    let mut sum = 0;
    let start = Instant::now();
    stream.next(key_count, |keys| sum += find(keys));
    let taken = start.elapsed();
    assert_eq!(sum, key_count as u64 * each);
    taken.mul_f64(count as f64 / key_count as f64)
}
