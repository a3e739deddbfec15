//! Tables that change: flows that come and go for long.

use super::keys::key;
use super::tables::{Hashbrown, Ours, START_NS};
use crate::Bench;
use hotloop::arena::Pages;
use hotloop::flow::{Config, Hints};
use hotloop_benches::contest::{Contest, Side};
use hotloop_benches::figure::{Figure, QUARTER_COUNT};
use hotloop_benches::row::Row;
use std::cell::{Cell, LazyCell, RefCell};
use std::hint::black_box;
use std::ops::Range;
use std::time::{Duration, Instant};

const CHURN_FLOWS: u64 = 1_000_000;

/// Flows that leave and come at once, where they do so in bursts: a divisor of `CHURN_WORK`.
const BURST: usize = 64;

/// The sides.
const OURS: &str = "hotloop";
const SINGLY: &str = "hotloop, one at a time";

/// Flows that leave and come before each turn. hashbrown's removed entries slow it down until it clears them
/// away, every 800,000 turnovers: short turns see all of that.
const TURNOVERS: u64 = 100_000;

/// How many times as long the last quarter may take as the first.
const DECAY_MAX: f64 = 1.1;

const HASHBROWN_AIM: f64 = 1.2;

/// The oldest flows leave and new ones come, in a table that stays full: in bursts, as packets do,
/// and one at a time, which is all that hashbrown can do.
pub fn churn(bench: &mut Bench, pages: Pages) {
    let ours = || {
        let config = Config::new(CHURN_FLOWS as usize, u64::MAX);
        RefCell::new((Ours::new(config, CHURN_FLOWS, pages), 0))
    };
    let (in_bursts, singly) = (LazyCell::new(ours), LazyCell::new(ours));
    let hashbrown = LazyCell::new(|| {
        // With room to grow, if what is left of removed entries makes it do so.
        let table = Hashbrown::with_spare(CHURN_FLOWS as usize, CHURN_FLOWS, pages);
        RefCell::new((table, 0))
    });
    let refused_count = Cell::new(0_u64);
    let ours = Side::new(OURS, |count| {
        let (table, oldest) = &mut *in_bursts.borrow_mut();
        let (mut hints, mut placed) = (Hints::new(), [None; BURST]);
        turn_over(oldest, count, BURST as u64, |old| {
            // Where the end of a flow shows in its packets, these are looked up anyway.
            table.0.hint_burst(old.clone().map(key), &mut hints);
            for (index, number) in old.clone().enumerate() {
                black_box(table.0.find(&key(number), hints.at(index), START_NS));
            }
            for number in old.clone() {
                // One that was refused is not there to be taken out.
                table.0.remove(&key(number));
            }
            let new = old.map(|number| (key(number + CHURN_FLOWS), [1; 5]));
            let placed_count = table.0.insert_burst(new, START_NS, &mut placed, |_, _| ());
            refused_count.set(refused_count.get() + (BURST - placed_count) as u64);
        })
    });
    let one_by_one = Side::new(SINGLY, |count| {
        let (table, oldest) = &mut *singly.borrow_mut();
        turn_over(oldest, count, 1, |old| {
            table.0.remove(&key(old.start));
            // A refused one is counted by the table.
            let _ = table.0.insert(key(old.start + CHURN_FLOWS), [1; 5], START_NS);
        })
    });
    let browns = Side::new("hashbrown", |count| {
        let (table, oldest) = &mut *hashbrown.borrow_mut();
        turn_over(oldest, count, 1, |old| {
            table.remove(&key(old.start));
            table.insert(key(old.start + CHURN_FLOWS));
        })
    });
    let sides = [ours, one_by_one, browns].map(|side| side.pass(TURNOVERS));
    let contest = sides.into_iter().fold(Contest::new("flow/churn"), Contest::with);
    let Some(outcome) = contest.run(&mut bench.instrument) else { return };
    let name = format!("churn of 1M flows, {pages}");
    bench.table.notes.push(format!(
        "{name}: {:.1} M turnovers, of which {} were refused; one at a time a turnover took {:.0} ns; \
         hashbrown began with {} slots and ended with {}",
        in_bursts.borrow().1 as f64 / 1e6,
        refused_count.get(),
        outcome.figure(SINGLY).value,
        (CHURN_FLOWS as usize * 8).div_ceil(7).next_power_of_two(),
        hashbrown.borrow().0.0.num_buckets()
    ));
    let row = outcome.row(&name, "ns a turnover", (OURS, "hashbrown"), HASHBROWN_AIM);
    bench.table.rows.push(row);
    let figure = outcome.figure(OURS);
    let decay = Figure::exact(figure.quarters[QUARTER_COUNT - 1] / figure.quarters[0]);
    let decay = Figure { count: figure.count, settled: figure.settled, ..decay };
    let name = format!("{name}, last quarter");
    bench.table.rows.push(Row::limit(&name, "x first quarter", &decay, DECAY_MAX));
}

/// Lets the oldest flows go for new ones, a burst at a time, so many of them.
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
