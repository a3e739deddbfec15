//! The ring between two cores, beside DPDK's and those of other crates.
//!
//! One core sends numbers, the other adds them up; each fills or empties an array of `batch` numbers
//! a step, the same for all. An end that finds its ring full or empty pauses and tries again. What an end
//! keeps to itself lies on lines of its own, as it does in a program whose ends belong to their threads.

use crate::Bench;
use crossbeam_queue::ArrayQueue;
use crossbeam_utils::CachePadded;
use hotloop::dpdk::Eal;
use hotloop_benches::bare_lines::BareLines;
use hotloop_benches::contest::Contest;
use hotloop_benches::cores::Pair;
use hotloop_benches::peers::rte_ring;
use ringbuf::HeapRb;
use ringbuf::traits::{Consumer as _, Producer as _, Split as _};
use std::hint::spin_loop;
use std::time::Duration;

const CAPACITY: usize = 1_024;

const BATCH_MAX: usize = 64;

/// By batch: the aims beside `rte_ring`, `rtrb` and `ringbuf`, and `ArrayQueue` where it has one.
const AIMS: [(usize, [Option<f64>; 4]); 4] = [
    (1, [Some(5.0), Some(2.0), Some(1.2), None]),
    (8, [Some(2.0), Some(1.8), Some(1.2), None]),
    (32, [Some(3.0), Some(1.0), Some(1.2), Some(8.0)]),
    (64, [Some(2.2), Some(1.0), Some(1.2), None]),
];

/// All batches.
pub fn bench(bench: &mut Bench<'_>, pair: Pair) -> Result<(), String> {
    let lines = BareLines::default();
    for (batch, aims) in AIMS {
        let contest = Contest::new(&format!("ring/{batch}"))
            .side("hotloop", hotloop(pair, batch))
            .side("rte_ring", dpdk(bench.eal, pair, batch)?)
            .side("rtrb", rtrb(pair, batch))
            .side("ringbuf", ringbuf(pair, batch))
            .side("ArrayQueue", array_queue(pair, batch))
            .witnessed_by(|| lines.trip_ns(pair));
        let Some(outcome) = contest.run(bench.criterion) else { continue };
        let name = format!("ring between two cores, batch {batch}");
        for (peer, aim) in ["rte_ring", "rtrb", "ringbuf", "ArrayQueue"].into_iter().zip(aims) {
            match aim {
                Some(aim) => {
                    bench.table.rows.push(outcome.row(&name, "ns an item", ("hotloop", peer), aim))
                }
                None => bench
                    .table
                    .notes
                    .push(format!("{name}: {peer} took {:.2} ns an item", outcome.median_ns(peer))),
            }
        }
        bench.table.notes.extend(crate::witness_note(&name, &outcome));
    }
    Ok(())
}

fn hotloop(pair: Pair, batch: usize) -> impl FnMut(u64) -> Duration {
    let (mut tx, mut rx) = apart(hotloop::ring::ring::<u64>(CAPACITY));
    move |count| match batch {
        1 => singly(pair, count, |item| tx.push(item).is_ok(), || rx.pop()),
        _ => in_bursts(
            pair,
            count,
            batch,
            |items| {
                let mut items = items.iter();
                tx.push_burst(items.len(), || *items.next().expect("called once for each"))
            },
            |out| {
                let mut places = out.iter_mut();
                rx.pop_burst(places.len(), |item| {
                    *places.next().expect("called at most once for each") = item;
                })
            },
        ),
    }
}

/// Its loops are C, with the inline functions of `rte_ring.h` in them.
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

/// Slices, which it copies whole; they look at the other end's index only when they must.
fn rtrb(pair: Pair, batch: usize) -> impl FnMut(u64) -> Duration {
    let (mut tx, mut rx) = apart(rtrb::RingBuffer::<u64>::new(CAPACITY));
    move |count| match batch {
        1 => singly(pair, count, |item| tx.push(item).is_ok(), || rx.pop().ok()),
        _ => in_bursts(
            pair,
            count,
            batch,
            |items| tx.push_partial_slice(items).0.len(),
            |out| rx.pop_partial_slice(out).0.len(),
        ),
    }
}

/// Slices, by the ends that remember the other end's index.
fn ringbuf(pair: Pair, batch: usize) -> impl FnMut(u64) -> Duration {
    let (mut tx, mut rx) = apart(HeapRb::<u64>::new(CAPACITY).split());
    move |count| match batch {
        1 => singly(pair, count, |item| tx.try_push(item).is_ok(), || rx.try_pop()),
        _ => in_bursts(pair, count, batch, |items| tx.push_slice(items), |out| rx.pop_slice(out)),
    }
}

/// It has no bursts: items go one by one, as often as the batch says.
fn array_queue(pair: Pair, batch: usize) -> impl FnMut(u64) -> Duration {
    let queue = ArrayQueue::new(CAPACITY);
    move |count| match batch {
        1 => singly(pair, count, |item| queue.push(item).is_ok(), || queue.pop()),
        _ => in_bursts(
            pair,
            count,
            batch,
            |items| items.iter().take_while(|item| queue.push(**item).is_ok()).count(),
            |out| {
                let filled =
                    out.iter_mut().map_while(|place| queue.pop().map(|item| *place = item));
                filled.count()
            },
        ),
    }
}

fn apart<P, C>((producer, consumer): (P, C)) -> (CachePadded<P>, CachePadded<C>) {
    (CachePadded::new(producer), CachePadded::new(consumer))
}

/// The numbers below `count`, one by one.
fn singly(
    pair: Pair,
    count: u64,
    mut push: impl FnMut(u64) -> bool + Send,
    mut pop: impl FnMut() -> Option<u64>,
) -> Duration {
    let produce = || {
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

/// The numbers below `count`, in bursts. `push` takes a prefix and `pop` fills one; both say how long
/// it is.
fn in_bursts(
    pair: Pair,
    count: u64,
    batch: usize,
    mut push: impl FnMut(&[u64]) -> usize + Send,
    mut pop: impl FnMut(&mut [u64]) -> usize,
) -> Duration {
    let produce = || {
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
        let mut items = [0; BATCH_MAX];
        let (mut taken_count, mut sum) = (0, 0);
        while taken_count < count {
            let popped_count = pop(&mut items[..batch]);
            if popped_count == 0 {
                spin_loop();
            }
            sum += items[..popped_count].iter().sum::<u64>();
            taken_count += popped_count as u64;
        }
        assert_eq!(sum, sum_below(count));
    };
    pair.run(produce, consume)
}

/// What the consumer must have got.
fn sum_below(count: u64) -> u64 {
    count * (count - 1) / 2
}
