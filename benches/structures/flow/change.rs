//! Changing tables: flows come and go for a long time.

use super::keys::key;
use super::tables::{Hashbrown, Ours, START};
use crate::Bench;
use hotloop::arena::Pages;
use hotloop::flow::{Config, Hints};
use hotloop_measure::contest::{Contest, Side};
use std::cell::{LazyCell, RefCell};
use std::hint::black_box;
use std::ops::Range;
use std::time::{Duration, Instant};

const CHURN_FLOWS: u64 = 1_000_000;

/// Number of flows that leave and come at once, in bursts.
const BURST: usize = 64;

/// Number of flows that leave and come before each turn. hashbrown's removed entries slow it down
/// until it clears them away, every 800,000 turnovers: short turns cover all phases.
const TURNOVERS: u64 = 100_000;

const HASHBROWN_AIM: f64 = 1.2;

/// The oldest flows leave and new ones come, in a table that stays full: in bursts, like packets;
/// in hashbrown one at a time, which is all that it supports.
pub fn churn(bench: &mut Bench, pages: Pages) {
    let ours = LazyCell::new(|| {
        let config = Config::new(CHURN_FLOWS as usize, u64::MAX);
        RefCell::new((Ours::new(config, CHURN_FLOWS, pages), 0))
    });
    let hashbrown = LazyCell::new(|| {
        // With room to grow, in case the remains of removed entries cause that.
        let table = Hashbrown::with_spare(CHURN_FLOWS as usize, CHURN_FLOWS, pages);
        RefCell::new((table, 0))
    });
    let in_bursts = Side::new("hotloop", |count| {
        let (table, oldest) = &mut *ours.borrow_mut();
        in_bursts(table, oldest, count)
    });
    let singly = Side::new("hashbrown", |count| {
        let (table, oldest) = &mut *hashbrown.borrow_mut();
        turn_over(oldest, count, 1, |old| {
            table.remove(&key(old.start));
            table.insert(key(old.start + CHURN_FLOWS));
        })
    });
    let contest = Contest::new("flow/churn");
    let contest = contest.with(in_bursts.pass(TURNOVERS)).with(singly.pass(TURNOVERS));
    let Some(outcome) = contest.run(&mut bench.instrument) else { return };
    let name = format!("churn of 1M flows, {pages}");
    let row = outcome.row(&name, "ns a turnover", ("hotloop", "hashbrown"), HASHBROWN_AIM);
    bench.table.rows.push(row);
}

fn in_bursts(Ours(table): &mut Ours, oldest: &mut u64, count: u64) -> Duration {
    let mut hints = Hints::new();
    turn_over(oldest, count, BURST as u64, |old| {
        // If packets show the end of a flow, the flow is looked up anyway.
        table.hint_burst(old.clone().map(key), &mut hints);
        for (index, number) in old.clone().enumerate() {
            black_box(table.find(&key(number), hints.at(index), START));
        }
        for number in old.clone() {
            // A flow that was refused can't be removed.
            table.remove(&key(number));
        }
        let new = old.map(|number| key(number + CHURN_FLOWS));
        table.hint_burst(new.clone(), &mut hints);
        let ahead = new.clone().enumerate();
        ahead.for_each(|(index, key)| table.prefetch_insert(&key, &mut hints, index));
        for (index, key) in new.enumerate() {
            if let Err(vacancy) = table.peek(&key, hints.at(index), START) {
                // The table counts refused flows.
                let _ = table.insert(vacancy, [1; 5], START, &mut |_, _| ());
            }
        }
    })
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
