//! Tables that change: flows that come and go for long, and a table that grows.

use super::keys::key;
use super::tables::{Hashbrown, Ours, START_NS};
use crate::Bench;
use hotloop::arena::Pages;
use hotloop::flow::{Config, LINES_MAX};
use hotloop_benches::contest::{Contest, ROUND_COUNT};
use hotloop_benches::row::Row;
use std::cell::{Cell, LazyCell, RefCell};
use std::ops::Range;
use std::time::{Duration, Instant};

const CHURN_FLOWS: u64 = 1_000_000;

/// Flows that leave and come at once, where they do so in bursts: a divisor of `CHURN_WORK`.
const BURST: usize = 64;

const SINGLY: &str = "hotloop, one at a time";

/// Flows that leave and come in a round: sixty millions in all.
const CHURN_WORK: u64 = 60_000_000 / ROUND_COUNT as u64;

/// Rounds of about a quarter of the churn.
const QUARTER: usize = ROUND_COUNT / 4;

/// How many times as long the last quarter may take as the first.
const DECAY_MAX: f64 = 1.1;

const HASHBROWN_AIM: f64 = 1.2;

/// What the flow table may touch at worst: two control groups and the entries of both.
const WORST_LINES_MAX: f64 = 32.0;

/// As many flows as hashbrown's table takes without growing, the largest such number below 8 M: seven
/// eighths of 2^23.
const GROWTH_FLOWS: u64 = (1 << 23) / 8 * 7;

/// The oldest flows leave and new ones come, in a table that stays full: in bursts, as packets do,
/// and one at a time, which is all that hashbrown can do.
pub fn churn(bench: &mut Bench<'_>, pages: Pages) {
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
    let contest = Contest::new("flow/churn")
        .side_of(CHURN_WORK, "hotloop", |count| {
            let (table, oldest) = &mut *in_bursts.borrow_mut();
            let mut found = [None; BURST];
            turn_over(oldest, count, BURST as u64, |old| {
                // Where the end of a flow shows in its packets, these are looked up anyway.
                table.0.lookup_burst(old.clone().map(key), START_NS, &mut found);
                for number in old.clone() {
                    // One that was refused is not there to be taken out.
                    table.0.remove(&key(number));
                }
                let new = old.map(|number| (key(number + CHURN_FLOWS), [1; 5]));
                let placed_count = table.0.insert_burst(new, START_NS, &mut found, |_, _| ());
                refused_count.set(refused_count.get() + (BURST - placed_count) as u64);
            })
        })
        .side_of(CHURN_WORK, SINGLY, |count| {
            let (table, oldest) = &mut *singly.borrow_mut();
            turn_over(oldest, count, 1, |old| {
                table.0.remove(&key(old.start));
                // A refused one is counted by the table.
                let _ = table.0.insert(key(old.start + CHURN_FLOWS), [1; 5], START_NS);
            })
        })
        .side_of(CHURN_WORK, "hashbrown", |count| {
            let (table, oldest) = &mut *hashbrown.borrow_mut();
            turn_over(oldest, count, 1, |old| {
                table.remove(&key(old.start));
                table.insert(key(old.start + CHURN_FLOWS));
            })
        });
    let Some(outcome) = contest.run(bench.criterion) else { return };
    let name = format!("churn, 60M of 1M flows, {pages}");
    let (ours, unit) = ("hotloop", "ns a turnover");
    bench.table.notes.push(format!(
        "{name}: {} flows were refused; one at a time a turnover took {:.0} ns; hashbrown began \
         with {} slots and ended with {}",
        refused_count.get(),
        outcome.median_ns(SINGLY),
        (CHURN_FLOWS as usize * 8).div_ceil(7).next_power_of_two(),
        hashbrown.borrow().0.0.num_buckets()
    ));
    bench.table.rows.push(outcome.row(&name, unit, (ours, "hashbrown"), HASHBROWN_AIM));
    let times = outcome.times_ns(ours);
    let (first, last) = (&times[..QUARTER], &times[times.len() - QUARTER..]);
    let decay: Vec<_> = last.iter().zip(first).map(|(last, first)| last / first).collect();
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
    for _ in 0..count / burst {
        turn(*oldest..*oldest + burst);
        *oldest += burst;
    }
    start.elapsed()
}

/// The worst single operation: hashbrown's is an insert that makes the table grow.
pub fn growth(bench: &mut Bench<'_>, pages: Pages) {
    let hashbrown = LazyCell::new(|| {
        RefCell::new(Hashbrown::with_spare(GROWTH_FLOWS as usize, GROWTH_FLOWS, pages))
    });
    let contest = Contest::new("flow/growth").side_of(1, "hashbrown", |_| {
        let table = &mut *hashbrown.borrow_mut();
        let slots_before = table.0.num_buckets();
        let start = Instant::now();
        table.insert(key(GROWTH_FLOWS));
        let taken = start.elapsed();
        assert!(table.0.num_buckets() > slots_before, "it has not grown");
        table.remove(&key(GROWTH_FLOWS));
        table.shrink();
        assert_eq!(table.0.num_buckets(), slots_before);
        taken
    });
    let Some(outcome) = contest.run(bench.criterion) else { return };
    let name = "worst operation, by the bound that tests assert";
    let bound = [LINES_MAX as f64];
    bench.table.rows.push(Row::limit(name, "lines touched", &bound, WORST_LINES_MAX));
    bench.table.notes.push(format!(
        "{name}: hashbrown's is an insert that moves all flows: {:.1} ms at 7.3M flows, {pages}",
        outcome.median_ns("hashbrown") / 1e6
    ));
}
