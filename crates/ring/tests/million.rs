//! A million random operations on rings of items of many sizes, beside a `VecDeque`.
#![cfg(not(loom))]

mod payload;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use hotloop_ring::{Consumer, Producer, ring};
use payload::{Counted, Payload, alive_count};

/// For each of ten payloads, over rings of all the capacities below.
const OP_COUNT: usize = if cfg!(miri) { 25 } else { 100_000 };

const CAPACITIES: [usize; 5] = [1, 5, 16, 64, 300];

/// Pseudo-random numbers (xorshift), the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// A ring, its expected contents, and the number of the next item.
struct Run<T> {
    tx: Producer<T>,
    rx: Consumer<T>,
    oracle: VecDeque<u64>,
    next: u64,
}

impl<T> Run<T> {
    fn new(capacity: usize) -> Self {
        let (tx, rx) = ring(capacity);
        Self { tx, rx, oracle: VecDeque::new(), next: 0 }
    }

    /// Records that `pushed_count` of `offered_count` items went in.
    fn pushed(&mut self, pushed_count: usize, offered_count: usize) {
        let count = self.oracle.len();
        assert!(pushed_count >= offered_count.min(self.tx.capacity().saturating_sub(count)));
        assert!(count + pushed_count <= self.tx.slot_count());
        self.oracle.extend(self.next..self.next + pushed_count as u64);
        self.next += pushed_count as u64;
    }

    fn check_lengths(&self) {
        let count = self.oracle.len();
        assert_eq!((self.rx.len(), self.rx.is_empty()), (count, count == 0));
    }
}

impl<P: Payload> Run<Counted<P>> {
    fn step(&mut self, random: &mut Random) {
        let count = random.below(1 + random.0 as usize % 80);
        let stop = if random.below(16) == 0 { random.below(count + 1) } else { usize::MAX };
        match random.below(5) {
            0 => {
                let is_pushed = self.tx.push(Counted::of(self.next)).is_ok();
                self.pushed(usize::from(is_pushed), 1);
            }
            1 => {
                let expected = self.oracle.pop_front().map(P::of);
                assert_eq!(self.rx.pop().map(|item| item.0), expected);
            }
            2 | 3 => self.push_burst(count, stop),
            _ => self.pop_burst(count, stop),
        }
        self.check_lengths();
        assert_eq!(alive_count(), self.oracle.len() as i64);
    }

    /// Panics before item number `stop`.
    fn push_burst(&mut self, count: usize, stop: usize) {
        let (first, mut made_count) = (self.next, 0);
        let pushed = catch_unwind(AssertUnwindSafe(|| {
            self.tx.push_burst(count, || {
                if made_count == stop {
                    resume_unwind(Box::new("next"));
                }
                made_count += 1;
                Counted::of(first + made_count as u64 - 1)
            })
        }));
        assert_eq!(pushed.unwrap_or(made_count), made_count, "called once for each item");
        self.pushed(made_count, count.min(stop));
    }

    /// Panics with the item after `stop`.
    fn pop_burst(&mut self, count: usize, stop: usize) {
        let ready_count = count.min(self.oracle.len());
        let mut popped_count = 0;
        let popped = catch_unwind(AssertUnwindSafe(|| {
            self.rx.pop_burst(count, |item| {
                assert_eq!(Some(item.0), self.oracle.pop_front().map(P::of));
                popped_count += 1;
                if popped_count > stop {
                    resume_unwind(Box::new("each"));
                }
            })
        }));
        assert_eq!(popped.unwrap_or(popped_count), popped_count);
        assert_eq!(popped_count, ready_count.min(stop.saturating_add(1)));
    }
}

fn operations_on_counted_items<P: Payload>() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for (index, capacity) in CAPACITIES.into_iter().enumerate() {
        let mut run = Run::<Counted<P>>::new(capacity);
        for _ in 0..OP_COUNT / CAPACITIES.len() {
            run.step(&mut random);
        }
        let Run { tx, rx, oracle, .. } = run;
        if index % 2 == 0 {
            drop(tx);
            assert_eq!((rx.is_closed(), rx.is_finished()), (true, oracle.is_empty()));
            drop(rx);
        } else {
            drop(rx);
            assert!(tx.is_closed());
            drop(tx);
        }
        assert_eq!(alive_count(), 0, "what was left is dropped, {} items", oracle.len());
    }
}

#[test]
fn any_operations_move_each_item_once() {
    for_each_payload!(operations_on_counted_items);
}
