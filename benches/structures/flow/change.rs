//! Changing tables: flows come and go for a long time.

use super::keys::key;
use super::tables::{Hashbrown, Ours, START_NS};
use crate::Bench;
use hotloop::arena::Pages;
use hotloop::flow::{Config, Hints};
use hotloop_measure::contest::{Contest, Side};
use hotloop_measure::row::Row;
use std::cell::{LazyCell, RefCell};
use std::hint::black_box;
use std::ops::Range;
use std::time::{Duration, Instant};

const CHURN_FLOWS: u64 = 1_000_000;

/// Number of flows that leave and come at once, in bursts.
const BURST: usize = 64;

/// The sides.
const OURS: &str = "hotloop";
const WORN: &str = "hotloop, worn";
const SINGLY: &str = "hotloop, one at a time";

/// Number of flows that leave and come before each turn. hashbrown's removed entries slow it down
/// until it clears them away, every 800,000 turnovers: short turns cover all phases.
const TURNOVERS: u64 = 100_000;

/// Number of flows that have left and come in the worn table before the measurement.
const TURNOVERS_WORN: u64 = 20_000_000;

/// Limit for the worn table's time relative to the other's.
const DECAY_MAX: f64 = 1.1;

const HASHBROWN_AIM: f64 = 1.2;

/// A table that stays full.
struct Churned {
    table: Ours,
    oldest: u64,
    refused_count: usize,
}

/// The oldest flows leave and new ones come, in a table that stays full: in bursts, like packets,
/// and one at a time, which is all that hashbrown supports.
pub fn churn(bench: &mut Bench, pages: Pages) {
    let fresh = || RefCell::new(Churned::new(pages));
    let (in_bursts, singly) = (LazyCell::new(fresh), LazyCell::new(fresh));
    // Instructions are the same in a worn table.
    let turnovers = if bench.instrument.is_counting() { BURST as u64 } else { TURNOVERS_WORN };
    let worn = LazyCell::new(|| {
        let mut churned = Churned::new(pages);
        churned.in_bursts(turnovers);
        RefCell::new(churned)
    });
    let hashbrown = LazyCell::new(|| {
        // With room to grow, in case the remains of removed entries cause that.
        let table = Hashbrown::with_spare(CHURN_FLOWS as usize, CHURN_FLOWS, pages);
        RefCell::new((table, 0))
    });
    let browns = Side::new("hashbrown", |count| {
        let (table, oldest) = &mut *hashbrown.borrow_mut();
        turn_over(oldest, count, 1, |old| {
            table.remove(&key(old.start));
            table.insert(key(old.start + CHURN_FLOWS));
        })
    });
    let sides = [
        Side::new(OURS, |count| in_bursts.borrow_mut().in_bursts(count)),
        Side::new(WORN, |count| worn.borrow_mut().in_bursts(count)),
        Side::new(SINGLY, |count| singly.borrow_mut().one_by_one(count)),
        browns,
    ];
    let sides = sides.map(|side| side.pass(TURNOVERS));
    let contest = sides.into_iter().fold(Contest::new("flow/churn"), Contest::with);
    let Some(outcome) = contest.run(&mut bench.instrument) else { return };
    let name = format!("churn of 1M flows, {pages}");
    bench.table.notes.push(format!(
        "{name}: {:.1} M turnovers in a worn table, of which {} were refused; one at a time a turnover took \
         {:.0} ns; hashbrown began with {} slots and ended with {}",
        worn.borrow().oldest as f64 / 1e6,
        worn.borrow().refused_count,
        outcome.figure(SINGLY).value,
        (CHURN_FLOWS as usize * 8).div_ceil(7).next_power_of_two(),
        hashbrown.borrow().0.0.num_buckets()
    ));
    let row = outcome.row(&name, "ns a turnover", (OURS, "hashbrown"), HASHBROWN_AIM);
    bench.table.rows.push(row);
    let decay = outcome.figure(WORN).with(&outcome.figure(OURS), |worn, fresh| worn / fresh);
    let name = format!("{name}, after 20M turnovers");
    bench.table.rows.push(Row::limit(&name, "x fresh table", &decay, DECAY_MAX));
}

impl Churned {
    fn new(pages: Pages) -> Self {
        let config = Config::new(CHURN_FLOWS as usize, u64::MAX);
        Self { table: Ours::new(config, CHURN_FLOWS, pages), oldest: 0, refused_count: 0 }
    }

    fn in_bursts(&mut self, count: u64) -> Duration {
        let Self { table: Ours(table), oldest, refused_count } = self;
        let (mut hints, mut placed) = (Hints::new(), [None; BURST]);
        turn_over(oldest, count, BURST as u64, |old| {
            // If packets show the end of a flow, the flow is looked up anyway.
            table.hint_burst(old.clone().map(key), &mut hints);
            for (index, number) in old.clone().enumerate() {
                black_box(table.find(&key(number), hints.at(index), START_NS));
            }
            for number in old.clone() {
                // A flow that was refused can't be removed.
                table.remove(&key(number));
            }
            let new = old.map(|number| (key(number + CHURN_FLOWS), [1; 5]));
            *refused_count += BURST - table.insert_burst(new, START_NS, &mut placed, |_, _| ());
        })
    }

    fn one_by_one(&mut self, count: u64) -> Duration {
        let Self { table: Ours(table), oldest, .. } = self;
        turn_over(oldest, count, 1, |old| {
            table.remove(&key(old.start));
            // The table counts refused flows.
            let _ = table.insert(key(old.start + CHURN_FLOWS), [1; 5], START_NS);
        })
    }
}

/// Replaces the oldest flows by new ones, a burst at a time, `count` in total.
fn turn_over(
    oldest: &mut u64,
    count: u64,
    burst: u64,
    mut turn: impl FnMut(Range<u64>),
) -> Duration {
    let start = Instant::now();
    let turn_count = count.div_ceil(burst);
    for _ in 0..turn_count {
        turn(*oldest..*oldest + burst);
        *oldest += burst;
    }
    start.elapsed().mul_f64(count as f64 / (turn_count * burst) as f64)
}
