//! Every interleaving of two threads on small rings. Loom also reports an item that is touched by
//! both threads without an order between them, and an `Arc` that is never dropped.
//!
//! Items are of 24 bytes, two to a line, so that few of them make lines end and laps begin.
#![cfg(loom)]

#[path = "loom/planted.rs"]
mod planted;

use hotloop_ring::{Consumer, Mesh, Producer, ring};
use loom::sync::Arc;
use loom::thread;

/// An item whose leak or second drop loom notices; two fill a line.
struct Item {
    number: Arc<usize>,
    _filling: usize,
}

const _: () = assert!(size_of::<Item>() == 24, "two fill a line");

fn item(number: usize) -> Item {
    Item { number: Arc::new(number), _filling: 0 }
}

/// Explores all interleavings with up to this many preemptions: when threads wait for each other in
/// loops, exploring all of them takes more than a minute.
fn explore(preemption_bound: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemption_bound);
    builder.check(model);
}

fn push_all(tx: &mut Producer<Item>, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let mut item = item(number);
        while let Err(back) = tx.push(item) {
            item = back;
            thread::yield_now();
        }
    }
}

/// Pops until the end and returns the numbers that came.
fn pop_to_the_end(mut rx: Consumer<Item>) -> Vec<usize> {
    let mut numbers = Vec::new();
    loop {
        let is_finished = rx.is_finished();
        while let Some(item) = rx.pop() {
            assert!(!is_finished, "an item came after the end");
            numbers.push(*item.number);
        }
        if is_finished {
            return numbers;
        }
        thread::yield_now();
    }
}

#[test]
fn items_cross_in_order() {
    // One line of two slots and two laps; then two lines.
    for (capacity, item_count) in [(1, 4), (2, 5)] {
        explore(4, move || {
            let (mut tx, rx) = ring(capacity);
            let sender = thread::spawn(move || push_all(&mut tx, 0..item_count));
            assert!(pop_to_the_end(rx).into_iter().eq(0..item_count));
            sender.join().unwrap();
        });
    }
}

#[test]
fn bursts_cross_over_lines_and_laps() {
    loom::model(|| {
        // Two lines; three of their slots may be full.
        let (mut tx, mut rx) = ring::<Item>(2);
        let sender = thread::spawn(move || {
            let mut numbers = 0..;
            let mut make = || item(numbers.next().unwrap());
            assert_eq!(tx.push_burst(3, &mut make), 3);
            3 + tx.push_burst(2, &mut make)
        });
        let mut numbers = Vec::new();
        rx.pop_burst(3, |item| numbers.push(*item.number));
        rx.pop_burst(3, |item| numbers.push(*item.number));
        let pushed_count = sender.join().unwrap();
        while rx.pop_burst(2, |item| numbers.push(*item.number)) > 0 {}
        assert!(numbers.into_iter().eq(0..pushed_count));
        assert!(rx.is_finished());
    });
}

/// Under loom the items of two lines are a long record. The first word of its second line was a
/// header in the previous lap, and is one again in the next.
#[test]
fn long_records_cross_over_laps() {
    for (before_count, sizes) in [(5, [5, 4]), (6, [3, 3]), (5, [4, 1])] {
        explore(3, move || {
            let (mut tx, mut rx) = ring::<[usize; 3]>(5);
            // Up to the last lines.
            let mut popped = Vec::with_capacity(16);
            for _ in 0..before_count {
                assert_eq!(tx.push_from(&mut &[[9; 3]; 4][..]), 4);
                assert_eq!(rx.pop_into(16, &mut popped), 4);
                popped.clear();
            }
            let sender = thread::spawn(move || {
                let numbers: Vec<_> = (0..9).map(|number| [number; 3]).collect();
                let mut next = 0;
                for size in sizes {
                    next += tx.push_from(&mut &numbers[next..next + size]);
                }
                next
            });
            rx.pop_into(3, &mut popped);
            rx.pop_burst(4, |item| popped.push(item));
            popped.extend(rx.pop());
            let pushed_count = sender.join().unwrap();
            rx.pop_into(16, &mut popped);
            assert!(popped.into_iter().eq((0..pushed_count).map(|number| [number; 3])));
        });
    }
}

#[test]
fn the_capacity_fits_once_items_are_popped() {
    explore(3, || {
        let (mut tx, mut rx) = ring(2);
        tx.push_burst(3, || item(0));
        let receiver = thread::spawn(move || {
            rx.pop_burst(2, drop);
            rx
        });
        // There is room for at most one more than was popped.
        let is_pushed = tx.push(item(0)).is_ok();
        let rx = receiver.join().unwrap();
        assert_eq!(rx.len(), 1 + usize::from(is_pushed));
        assert!(rx.len() >= 2 || tx.push(item(0)).is_ok());
        assert_eq!(rx.len(), 2);
    });
}

#[test]
fn ends_dropped_at_any_time_drop_every_item() {
    loom::model(|| {
        let (mut tx, mut rx) = ring(2);
        let sender = thread::spawn(move || {
            for number in 0..4 {
                let _ = tx.push(item(number));
            }
        });
        if let Some(item) = rx.pop() {
            assert_eq!(*item.number, 0);
        }
        drop(rx);
        sender.join().unwrap();
    });
}

#[test]
fn the_producer_learns_that_the_consumer_left() {
    loom::model(|| {
        let (mut tx, mut rx) = ring(1);
        let receiver = thread::spawn(move || {
            let popped_count = rx.pop_burst(1, |item: Item| assert_eq!(*item.number, 0));
            drop(rx);
            popped_count
        });
        let _ = tx.push(item(0));
        while !tx.is_closed() {
            thread::yield_now();
        }
        receiver.join().unwrap();
    });
}

#[test]
fn lengths_stay_within_bounds() {
    explore(5, || {
        let (mut tx, mut rx) = ring(2);
        let slot_count = tx.slot_count();
        let sender = thread::spawn(move || {
            for number in 0..4 {
                let _ = tx.push(item(number));
            }
            let free_count = tx.free_count();
            assert_eq!(tx.room_for(2).min(free_count), free_count.min(2), "room only grows");
            assert!(free_count <= slot_count);
        });
        for _ in 0..2 {
            let len = rx.len();
            assert!(len <= slot_count);
            assert!(len == 0 || !rx.is_empty());
            assert!(rx.pop_burst(len, drop) == len, "only the consumer takes items away");
        }
        sender.join().unwrap();
    });
}

#[test]
fn a_core_gathers_from_two_threads() {
    explore(3, || {
        let Mesh { producers, mut consumers } = Mesh::new(2, 1, 1);
        let senders: Vec<_> = producers
            .into_iter()
            .enumerate()
            .map(|(from, mut producers)| {
                thread::spawn(move || assert_eq!(producers.push_burst(0, 1, || item(from)), 1))
            })
            .collect();
        let mut consumers = consumers.remove(0);
        let mut came = Vec::new();
        while !consumers.is_finished() {
            consumers.pop_burst(2, |item: Item| came.push(*item.number));
            thread::yield_now();
        }
        came.sort();
        assert_eq!(came, [0, 1]);
        for sender in senders {
            sender.join().unwrap();
        }
    });
}
