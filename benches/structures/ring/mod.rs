//! The ring between two cores, compared with DPDK's and those of other crates.
//!
//! One core sends numbers, the other adds them up; each fills or empties an array of `batch`
//! numbers per step. An end that finds its ring full or empty pauses and tries again. Each end's
//! private data has lines of its own, as in a program with each end owned by a thread.

mod turns;

use crate::Bench;
use crossbeam_utils::CachePadded;
use hotloop::dpdk::Eal;
use hotloop_benches::peers::rte_ring;
use hotloop_measure::contest::Contest;
use hotloop_measure::cores::Pair;
use hotloop_measure::distance::Distance;
use ringbuf::HeapRb;
use ringbuf::traits::{Consumer as _, Producer as _, Split as _};
use std::hint::spin_loop;
use std::time::Duration;

const CAPACITY: usize = 1_024;

const BATCH_MAX: usize = 64;

const PEERS: [&str; 3] = ["rte_ring", "rtrb", "ringbuf"];

/// By batch: the targets relative to `rte_ring`, between near cores and far ones.
const AIMS: [(usize, [f64; 2]); 4] =
    [(1, [2.6, 10.0]), (8, [1.0, 1.0]), (32, [1.3, 1.1]), (64, [1.7, 1.1])];

/// Relative to all others: never slower.
const OTHERS_AIM: f64 = 1.0;

/// All batches.
pub fn bench(bench: &mut Bench, pair: Pair) -> Result<(), String> {
    for (batch, aims) in AIMS {
        let contest = Contest::new(&format!("ring/{batch}"))
            .side("hotloop", hotloop(pair, batch))
            .side(PEERS[0], dpdk(bench.eal, pair, batch)?)
            .side(PEERS[1], rtrb(pair, batch))
            .side(PEERS[2], ringbuf(pair, batch))
            .between(pair);
        let Some(outcome) = contest.run(&mut bench.instrument) else { continue };
        let name = |distance: Distance| format!("ring, {} cores, batch {batch}", distance.name());
        outcome.add_by_distance(&mut bench.table, name, |outcome, name, distance| {
            let aim = |peer| if peer == PEERS[0] { aims[distance as usize] } else { OTHERS_AIM };
            let row = |peer| outcome.row(name, "ns an item", ("hotloop", peer), aim(peer));
            PEERS.map(row).into()
        });
    }
    turns::bench(bench)
}

fn hotloop(pair: Pair, batch: usize) -> impl FnMut(u64) -> Duration {
    let (mut tx, mut rx) = apart(hotloop::ring::ring::<u64>(CAPACITY));
    between(pair, batch, (move |item| tx.push(item).is_ok(), move || rx.pop()), hotloop_ends())
}

/// Both ends of a ring, for bursts: items are pushed from one piece, and popped into one.
fn hotloop_ends() -> (impl Push, impl Pop) {
    let (mut tx, mut rx) = apart(hotloop::ring::ring::<u64>(CAPACITY));
    let mut taken = Vec::with_capacity(BATCH_MAX);
    let pop = move |count_max| {
        taken.clear();
        (rx.pop_into(count_max, &mut taken), taken.iter().sum())
    };
    (move |mut items: &[u64]| tx.push_from(&mut items), pop)
}

/// DPDK's loops are in C, and inline the functions of `rte_ring.h`.
fn dpdk(eal: Eal, pair: Pair, batch: usize) -> Result<impl FnMut(u64) -> Duration, String> {
    let (mut tx, mut rx) = apart(rte_ring::ring(eal, CAPACITY as u32)?);
    let batch = batch as u32;
    Ok(move |count| {
        pair.run(
            || tx.produce(count, batch),
            || assert_eq!(rx.consume(count, batch), sum_below(count)),
        )
    })
}

fn rtrb(pair: Pair, batch: usize) -> impl FnMut(u64) -> Duration {
    let (mut tx, mut rx) = apart(rtrb::RingBuffer::<u64>::new(CAPACITY));
    between(pair, batch, (move |item| tx.push(item).is_ok(), move || rx.pop().ok()), rtrb_ends())
}

/// Slices, which are copied whole; an end reads the other's index only if necessary.
fn rtrb_ends() -> (impl Push, impl Pop) {
    let (mut tx, mut rx) = apart(rtrb::RingBuffer::<u64>::new(CAPACITY));
    let push = move |items: &[u64]| tx.push_partial_slice(items).0.len();
    (push, added_up(move |out| rx.pop_partial_slice(out).0.len()))
}

fn ringbuf(pair: Pair, batch: usize) -> impl FnMut(u64) -> Duration {
    let (mut tx, mut rx) = apart(HeapRb::<u64>::new(CAPACITY).split());
    let ends = (move |item| tx.try_push(item).is_ok(), move || rx.try_pop());
    between(pair, batch, ends, ringbuf_ends())
}

/// Slices, with ends that remember the other end's index.
fn ringbuf_ends() -> (impl Push, impl Pop) {
    let (mut tx, mut rx) = apart(HeapRb::<u64>::new(CAPACITY).split());
    (move |items: &[u64]| tx.push_slice(items), added_up(move |out| rx.pop_slice(out)))
}

fn apart<P, C>((producer, consumer): (P, C)) -> (CachePadded<P>, CachePadded<C>) {
    (CachePadded::new(producer), CachePadded::new(consumer))
}

/// Numbers from one core to the other: one by one, or in bursts of `batch`.
fn between(
    pair: Pair,
    batch: usize,
    (mut push_one, mut pop_one): (impl FnMut(u64) -> bool + Send, impl FnMut() -> Option<u64>),
    (mut push, mut pop): (impl Push, impl Pop),
) -> impl FnMut(u64) -> Duration {
    move |count| match batch {
        1 => singly(pair, count, &mut push_one, &mut pop_one),
        _ => in_bursts(pair, count, batch, &mut push, &mut pop),
    }
}

/// The numbers below `count`, one by one.
fn singly(
    pair: Pair,
    count: u64,
    mut push: impl FnMut(u64) -> bool + Send,
    mut pop: impl FnMut() -> Option<u64>,
) -> Duration {
    let produce = move || {
        for number in 0..count {
            while !push(number) {
                spin_loop();
            }
        }
    };
    let consume = || {
        let (mut taken_count, mut sum) = (0, 0);
        while taken_count < count {
            match pop() {
                Some(number) => {
                    sum += number;
                    taken_count += 1;
                }
                None => spin_loop(),
            }
        }
        assert_eq!(sum, sum_below(count));
    };
    pair.run(produce, consume)
}

/// Pushes items, and returns how many.
trait Push: FnMut(&[u64]) -> usize + Send {}

impl<F: FnMut(&[u64]) -> usize + Send> Push for F {}

/// Pops at most the given number of items. Returns how many, and their sum.
trait Pop: FnMut(usize) -> (usize, u64) {}

impl<F: FnMut(usize) -> (usize, u64)> Pop for F {}

/// Pops into a vector with `pop`, which returns the number of items popped.
fn added_up(mut pop: impl FnMut(&mut [u64]) -> usize) -> impl Pop {
    // On the heap, like the destination in `hotloop_ends`.
    let mut items = vec![0; BATCH_MAX];
    move |count_max| {
        let popped_count = pop(&mut items[..count_max]);
        (popped_count, items[..popped_count].iter().sum())
    }
}

/// The numbers below `count`, in bursts.
fn in_bursts(
    pair: Pair,
    count: u64,
    batch: usize,
    push: &mut impl Push,
    pop: &mut impl Pop,
) -> Duration {
    let produce = move || {
        let mut items = [0; BATCH_MAX];
        let mut next = 0;
        while next < count {
            let burst = &mut items[..batch.min((count - next) as usize)];
            for (place, number) in burst.iter_mut().zip(next..) {
                *place = number;
            }
            next += burst.len() as u64;
            let mut rest = &burst[..];
            while !rest.is_empty() {
                let pushed_count = push(rest);
                if pushed_count == 0 {
                    spin_loop();
                }
                rest = &rest[pushed_count..];
            }
        }
    };
    let consume = || {
        let (mut taken_count, mut sum) = (0, 0);
        while taken_count < count {
            let (popped_count, popped_sum) = pop(batch);
            if popped_count == 0 {
                spin_loop();
            }
            sum += popped_sum;
            taken_count += popped_count as u64;
        }
        assert_eq!(sum, sum_below(count));
    };
    pair.run(produce, consume)
}

/// The sum that the consumer must get.
fn sum_below(count: u64) -> u64 {
    count * (count - 1) / 2
}
