//! Every interleaving of two threads on small rings. Loom also reports an item that is touched by
//! both threads without an order between them, and an `Arc` that is never dropped.
#![cfg(loom)]

use hotloop_ring::{Consumer, Mesh, Producer, ring};
use loom::sync::Arc;
use loom::thread;

/// An item whose leak or second drop loom notices.
type Item = Arc<usize>;

fn push_all(tx: &mut Producer<Item>, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let mut item = Arc::new(number);
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
            numbers.push(*item);
        }
        if is_finished {
            return numbers;
        }
        thread::yield_now();
    }
}

#[test]
fn items_cross_in_order() {
    // Waiting for room and for items multiplies the interleavings: three preemptions in each are
    // what a minute covers.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    for capacity in [1, 2] {
        model.check(move || {
            let (mut tx, rx) = ring(capacity);
            let sender = thread::spawn(move || push_all(&mut tx, 0..3));
            assert_eq!(pop_to_the_end(rx), [0, 1, 2]);
            sender.join().unwrap();
        });
    }
}

#[test]
fn bursts_cross_whole() {
    loom::model(|| {
        let (mut tx, mut rx) = ring::<Item>(3);
        let sender = thread::spawn(move || {
            let mut next = 0;
            let mut make = || {
                next += 1;
                Arc::new(next - 1)
            };
            assert_eq!(tx.push_burst(2, &mut make), 2);
            let second_count = tx.push_burst(2, &mut make);
            assert!((1..=2).contains(&second_count));
            second_count
        });
        let mut numbers = Vec::new();
        let first_count = rx.pop_burst(2, |item| numbers.push(*item));
        assert_ne!(first_count, 1, "a burst is seen whole");
        rx.pop_burst(2, |item| numbers.push(*item));
        let second_count = sender.join().unwrap();
        while rx.pop_burst(2, |item| numbers.push(*item)) > 0 {}
        assert!(numbers.into_iter().eq(0..2 + second_count));
        assert!(rx.is_finished());
    });
}

#[test]
fn ends_dropped_at_any_time_drop_every_item() {
    loom::model(|| {
        let (mut tx, mut rx) = ring(2);
        let sender = thread::spawn(move || {
            for number in 0..3 {
                let _ = tx.push(Arc::new(number));
            }
        });
        if let Some(item) = rx.pop() {
            assert_eq!(*item, 0);
        }
        drop(rx);
        sender.join().unwrap();
    });
}

#[test]
fn the_producer_learns_that_the_consumer_left() {
    loom::model(|| {
        let (mut tx, mut rx) = ring(1);
        let receiver = thread::spawn(move || rx.pop_burst(1, |item: Item| assert_eq!(*item, 0)));
        let _ = tx.push(Arc::new(0));
        while !tx.is_closed() {
            thread::yield_now();
        }
        let popped_count = receiver.join().unwrap();
        assert_eq!(tx.len(), 1 - popped_count);
    });
}

#[test]
fn lengths_stay_within_bounds() {
    loom::model(|| {
        let (mut tx, mut rx) = ring(2);
        let sender = thread::spawn(move || {
            for number in 0..3 {
                let _ = tx.push(Arc::new(number));
                assert!(tx.len() <= 2);
            }
            let free_count = tx.free_count();
            assert_eq!(tx.room_for(2).min(free_count), free_count, "room only grows");
            assert!((1..=2).contains(&tx.high_water()));
        });
        for _ in 0..2 {
            let len = rx.len();
            assert!(len <= 2);
            assert!(rx.pop().is_some() || len == 0, "only the consumer takes items away");
        }
        sender.join().unwrap();
    });
}

#[test]
fn a_column_gathers_from_two_threads() {
    loom::model(|| {
        let Mesh { rows, mut columns } = Mesh::new(2, 1, 1);
        let senders: Vec<_> = rows
            .into_iter()
            .enumerate()
            .map(|(from, mut row)| {
                thread::spawn(move || assert!(row.push(0, Arc::new(from)).is_ok()))
            })
            .collect();
        let mut column = columns.remove(0);
        let mut came = Vec::new();
        while !column.is_finished() {
            column.pop_burst(2, |item: Item| came.push(*item));
            thread::yield_now();
        }
        came.sort();
        assert_eq!(came, [0, 1]);
        for sender in senders {
            sender.join().unwrap();
        }
    });
}
