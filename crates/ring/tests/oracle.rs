//! Any sequence of operations on a ring has the same results as on a `VecDeque`, and every item is
//! dropped once.
#![cfg(not(loom))]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use hotloop_ring::{MoveOut, ring};
use proptest::prelude::*;

/// Number of drops of each item, by its number.
type Drops = Rc<RefCell<Vec<u32>>>;

/// Maximum number of items in one piece: sixteen lines of three.
const TOGETHER_MAX: usize = 48;

struct Item {
    number: usize,
    drops: Drops,
}

impl Drop for Item {
    fn drop(&mut self) {
        self.drops.borrow_mut()[self.number] += 1;
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Push,
    /// A burst of this many; the closure panics at the second number, if any.
    PushBurst(usize, Option<usize>),
    Pop,
    /// The same for a pop.
    PopBurst(usize, Option<usize>),
    /// A push of this many items at once.
    PushFrom(usize),
    PopInto(usize),
    Room(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let panic_at = || prop_oneof![4 => Just(None), 1 => (0..8_usize).prop_map(Some)];
    prop_oneof![
        2 => Just(Op::Push),
        3 => (0..12_usize, panic_at()).prop_map(|(count, at)| Op::PushBurst(count, at)),
        2 => Just(Op::Pop),
        3 => (0..12_usize, panic_at()).prop_map(|(count, at)| Op::PopBurst(count, at)),
        3 => (0..150_usize).prop_map(Op::PushFrom),
        3 => (0..150_usize).prop_map(Op::PopInto),
        1 => (0..12_usize).prop_map(Op::Room),
    ]
}

/// Items to be pushed together.
struct Waiting(Vec<Item>);

// SAFETY: 1. The items are the vector's own. 2. Items that were moved out are no longer in it.
unsafe impl MoveOut for Waiting {
    type Item = Item;

    fn items(&self) -> &[Item] {
        &self.0
    }

    unsafe fn forget_front(&mut self, count: usize) {
        self.0.drain(..count).for_each(std::mem::forget);
    }
}

/// The ring, its expected contents, and the items made so far.
struct Run {
    tx: hotloop_ring::Producer<Item>,
    rx: hotloop_ring::Consumer<Item>,
    oracle: VecDeque<usize>,
    drops: Drops,
}

fn make(drops: &Drops) -> Item {
    let number = drops.borrow().len();
    drops.borrow_mut().push(0);
    Item { number, drops: drops.clone() }
}

impl Run {
    fn new(capacity: usize) -> Self {
        let (tx, rx) = ring(capacity);
        Self { tx, rx, oracle: VecDeque::new(), drops: Drops::default() }
    }

    fn made_count(&self) -> usize {
        self.drops.borrow().len()
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Push => {
                let item = make(&self.drops);
                let number = item.number;
                match self.tx.push(item) {
                    Ok(()) => self.oracle.push_back(number),
                    Err(back) => {
                        assert_eq!(back.number, number);
                        assert!(self.oracle.len() >= self.tx.capacity());
                    }
                }
            }
            Op::PushBurst(count, panic_at) => self.push_burst(count, panic_at),
            Op::Pop => {
                assert_eq!(self.rx.pop().map(|item| item.number), self.oracle.pop_front());
            }
            Op::PopBurst(count, panic_at) => self.pop_burst(count, panic_at),
            Op::PushFrom(count) => self.push_from(count),
            Op::PopInto(count) => {
                let mut popped = Vec::with_capacity(count);
                let popped_count = self.rx.pop_into(count, &mut popped);
                assert_eq!(popped.len(), popped_count);
                let ready_count = count.min(self.oracle.len());
                // Only a piece that can fill a whole pop is left for the next one.
                let may_leave = (1..=TOGETHER_MAX).contains(&count);
                let least_count = if may_leave { ready_count.min(1) } else { ready_count };
                assert!((least_count..=ready_count).contains(&popped_count));
                let expected = self.oracle.drain(..popped_count);
                assert!(popped.iter().map(|item| item.number).eq(expected), "order, and all");
            }
            Op::Room(wanted_count) => {
                let room_count = self.tx.room_for(wanted_count);
                let free_count = self.tx.free_count();
                assert_eq!(room_count, wanted_count.min(free_count));
                let count = self.oracle.len();
                assert!(free_count + count >= self.tx.capacity(), "what fits always");
                assert!(free_count + count <= self.tx.slot_count(), "what is there at most");
            }
        }
        self.check();
    }

    fn push_burst(&mut self, count: usize, panic_at: Option<usize>) {
        let expected_count = self.tx.room_for(count);
        assert!(expected_count + self.oracle.len() >= self.tx.capacity().min(count));
        let first = self.made_count();
        let drops = self.drops.clone();
        let pushed = catch_unwind(AssertUnwindSafe(|| {
            self.tx.push_burst(count, || {
                if panic_at == Some(drops.borrow().len() - first) {
                    resume_unwind(Box::new("next"));
                }
                make(&drops)
            })
        }));
        match pushed {
            Ok(pushed_count) => assert_eq!(pushed_count, expected_count),
            Err(_) => assert!(panic_at.is_some_and(|at| at < expected_count)),
        }
        let written_count = expected_count.min(panic_at.unwrap_or(usize::MAX));
        assert_eq!(self.made_count() - first, written_count, "`next` is called once an item");
        self.oracle.extend(first..first + written_count);
    }

    fn push_from(&mut self, count: usize) {
        let expected_count = self.tx.room_for(count);
        let mut waiting = Waiting((0..count).map(|_| make(&self.drops)).collect());
        let first = self.made_count() - count;
        assert_eq!(self.tx.push_from(&mut waiting), expected_count);
        self.oracle.extend(first..first + expected_count);
    }

    fn pop_burst(&mut self, count: usize, panic_at: Option<usize>) {
        let mut popped = Vec::new();
        let result = catch_unwind(AssertUnwindSafe(|| {
            self.rx.pop_burst(count, |item| {
                popped.push(item.number);
                if panic_at == Some(popped.len() - 1) {
                    resume_unwind(Box::new("each"));
                }
            })
        }));
        let ready_count = count.min(self.oracle.len());
        match result {
            Ok(popped_count) => assert_eq!(popped_count, ready_count),
            Err(_) => assert!(panic_at.is_some_and(|at| at < ready_count)),
        }
        let taken_count = ready_count.min(panic_at.map_or(usize::MAX, |at| at + 1));
        assert!(popped.iter().copied().eq(self.oracle.drain(..taken_count)), "order, and all");
    }

    fn check(&self) {
        let count = self.oracle.len();
        assert_eq!((self.rx.len(), self.rx.is_empty()), (count, count == 0));
        assert!(!self.tx.is_closed() && !self.rx.is_closed() && !self.rx.is_finished());
        let inside: Vec<_> = self.oracle.iter().copied().collect();
        for (number, &dropped_count) in self.drops.borrow().iter().enumerate() {
            assert_eq!(dropped_count, u32::from(!inside.contains(&number)), "item {number}");
        }
    }

    fn end(self, is_producer_first: bool) {
        let Self { tx, rx, oracle, drops, .. } = self;
        if is_producer_first {
            drop(tx);
            assert!(rx.is_closed());
            assert_eq!(rx.is_finished(), oracle.is_empty());
            drop(rx);
        } else {
            drop(rx);
            assert!(tx.is_closed());
            let alive_count = drops.borrow().iter().filter(|&&count| count == 0).count();
            assert_eq!(alive_count, oracle.len(), "items outlive the consumer");
            drop(tx);
        }
        assert!(drops.borrow().iter().all(|&count| count == 1));
    }
}

proptest! {
    #[test]
    fn behaves_like_a_queue(
        capacity in prop_oneof![0..20_usize, 60..300_usize],
        ops in prop::collection::vec(op(), 0..100),
        is_producer_first: bool,
    ) {
        let mut run = Run::new(capacity);
        for op in ops {
            run.apply(op);
        }
        run.end(is_producer_first);
    }
}
