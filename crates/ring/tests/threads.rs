//! Two threads on one ring, with items of many sizes.
#![cfg(not(loom))]

mod payload;

use std::thread;

use hotloop_ring::{Consumer, Producer, ring};
use payload::{Counted, Payload, alive_count};

const ITEM_COUNT: u64 = if cfg!(debug_assertions) { 20_000 } else { 200_000 };

/// Pushes all items, one at a time and in bursts. Returns the number of items made minus those
/// dropped.
fn send<P: Payload>(mut tx: Producer<Counted<P>>) -> i64 {
    let mut next = 0;
    while next < ITEM_COUNT {
        let burst_count = (next % 67).min(ITEM_COUNT - next);
        let first = next;
        if burst_count < 2 {
            next += u64::from(tx.push(Counted::of(next)).is_ok());
        } else {
            tx.push_burst(burst_count as usize, || {
                next += 1;
                Counted::of(next - 1)
            });
        }
        if next == first {
            thread::yield_now();
        }
    }
    alive_count()
}

/// Takes `take_count` items and checks their order.
fn receive<P: Payload>(rx: &mut Consumer<Counted<P>>, take_count: u64) {
    let mut expected = 0;
    while expected < take_count && !rx.is_finished() {
        let first = expected;
        let len = rx.len();
        let burst_count = (1 + expected % 71).min(take_count - expected) as usize;
        let popped_count = rx.pop_burst(burst_count, |item| {
            assert_eq!(item.0, P::of(expected));
            expected += 1;
        });
        assert!(popped_count >= len.min(burst_count), "what is counted can be popped");
        if let Some(item) = (expected < take_count).then(|| rx.pop()).flatten() {
            assert_eq!(item.0, P::of(expected));
            expected += 1;
        }
        if expected == first {
            thread::yield_now();
        }
    }
    assert_eq!(expected, take_count);
}

fn items_cross_in_order<P: Payload>() {
    for capacity in [1, 20, 512] {
        let (tx, mut rx) = ring(capacity);
        let sender = thread::spawn(move || send::<P>(tx));
        let before = alive_count();
        receive(&mut rx, ITEM_COUNT);
        drop(rx);
        assert_eq!(sender.join().unwrap() + alive_count() - before, 0, "each dropped once");
    }
}

#[test]
fn items_of_any_size_cross_in_order() {
    for_each_payload!(items_cross_in_order);
}

fn what_is_left_is_dropped<P: Payload>() {
    for left_count in [0, 1, 7, 100] {
        let (tx, mut rx) = ring(512);
        let sender = thread::spawn(move || send::<P>(tx));
        let before = alive_count();
        receive(&mut rx, ITEM_COUNT - left_count);
        let made_count = sender.join().unwrap();
        assert_eq!(rx.len() as u64, left_count);
        drop(rx);
        assert_eq!(made_count + alive_count() - before, 0, "each dropped once");
    }
}

#[test]
fn what_is_left_is_dropped_by_the_last_end() {
    for_each_payload!(what_is_left_is_dropped);
}
