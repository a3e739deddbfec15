//! The end of a ring's life, and two threads on one ring.
#![cfg(not(loom))]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use hotloop_ring::{Consumer, Mesh, Producer, ring};

fn assert_send<T: Send>(_: &T) {}

#[test]
fn ends_may_move_to_other_threads() {
    let (tx, rx) = ring::<Box<u8>>(1);
    assert_send(&tx);
    assert_send(&rx);
    let mesh = Mesh::<Box<u8>>::new(1, 1, 1);
    assert_send(&mesh.producers[0]);
    assert_send(&mesh.consumers[0]);
}

#[test]
fn the_capacity_fits_wherever_the_ring_stands() {
    // Under Miri, a millisecond of work takes seconds.
    let (step, round_count) = if cfg!(miri) { (9, 5) } else { (1, 100) };
    for capacity in (0..40).step_by(step) {
        let (mut tx, mut rx) = ring(capacity);
        assert_eq!((tx.capacity(), tx.slot_count()), (rx.capacity(), rx.slot_count()));
        assert_eq!(tx.capacity(), capacity);
        for _ in 0..round_count {
            // Never sees an empty ring, so nothing is given back early.
            for _ in 0..capacity {
                tx.push(0_u64).unwrap();
            }
            assert_eq!(rx.pop_burst(capacity, drop), capacity);
        }
        let pushed_count = (0..100).take_while(|&number| tx.push(number).is_ok()).count();
        assert!((capacity..=tx.slot_count()).contains(&pushed_count));
        assert!(tx.slot_count() <= capacity + 6.max(capacity / 8));
    }
}

#[test]
fn a_burst_that_fills_a_pop_stays_whole_after_others() {
    let (mut tx, mut rx) = ring(512);
    let numbers: Vec<u64> = (0..).take(64).collect();
    let mut popped = Vec::with_capacity(64);
    let mut pop = |count_max: usize| {
        popped.clear();
        rx.pop_into(count_max, &mut popped)
    };
    for count in [40, 64, 32, 32, 40, 50, 64] {
        assert_eq!(tx.push_from(&mut &numbers[..count]), count);
    }
    assert_eq!([64; 7].map(&mut pop), [40, 64, 64, 64, 26, 64, 0]);
    for count in [64, 30] {
        assert_eq!(tx.push_from(&mut &numbers[..count]), count);
    }
    assert_eq!([20, 64, 20, 64].map(&mut pop), [20, 64, 10, 0]);
}

#[test]
fn one_item_a_line_is_exactly_the_capacity_of_small_rings() {
    let (mut tx, _rx) = ring(4);
    assert_eq!(tx.push_burst(9, || [0_u64; 7]), 4);
    assert_eq!(tx.slot_count(), 4);
}

#[test]
#[should_panic(expected = "at most 2^62")]
fn too_large_a_ring_is_refused() {
    drop(ring::<()>(usize::MAX));
}

#[test]
fn a_ring_without_memory_for_it_panics_and_ends_nothing_else() {
    // 2^62 lines exceed the address space, 2^56 exceed the memory of any machine. Miri itself stops
    // at the allocations of the second half.
    let capacities = [1 << 62, 1 << 60, 1 << 56, 1 << 53];
    for &capacity in &capacities[..if cfg!(miri) { 2 } else { 4 }] {
        let panic = catch_unwind(|| drop(ring::<()>(capacity))).unwrap_err();
        let said = panic.downcast::<String>().unwrap();
        let expected = format!("no memory for a ring of {capacity} items: ");
        assert!(said.starts_with(&expected), "{said}");
    }
    let panic = catch_unwind(|| drop(Mesh::<[u64; 7]>::new(2, 2, 1 << 62))).unwrap_err();
    assert!(panic.downcast::<String>().unwrap().starts_with("no memory for a ring"));
}

#[test]
fn items_without_size_are_counted() {
    let (mut tx, mut rx) = ring(3);
    let slot_count = tx.slot_count();
    assert_eq!(tx.push_burst(50, || ()), slot_count);
    assert_eq!(rx.pop_burst(50, |()| ()), slot_count);
    assert_eq!(rx.pop(), None);
}

#[test]
fn a_closed_ring_is_finished_once_empty() {
    let (mut tx, mut rx) = ring(4);
    tx.push(1).unwrap();
    tx.push(2).unwrap();
    drop(tx);
    assert!(rx.is_closed() && !rx.is_finished());
    assert_eq!((rx.pop(), rx.pop(), rx.pop()), (Some(1), Some(2), None));
    assert!(rx.is_finished());
}

#[test]
fn pushes_into_a_closed_ring_work_while_there_is_room() {
    let (mut tx, rx) = ring(2);
    let item = Arc::new(());
    drop(rx);
    assert!(tx.is_closed());
    let slot_count = tx.slot_count();
    assert_eq!(tx.push_burst(50, || item.clone()), slot_count);
    assert!(tx.push(item.clone()).is_err());
    drop(tx);
    assert_eq!(Arc::strong_count(&item), 1);
}

/// Counts its drops, and panics in them if the test asks for it.
struct Fragile {
    drops: Arc<AtomicUsize>,
    panics: bool,
}

impl Drop for Fragile {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::Relaxed);
        if self.panics {
            resume_unwind(Box::new("drop"));
        }
    }
}

#[test]
fn a_panic_in_an_items_drop_neither_repeats_nor_loses_a_drop() {
    for panic_index in 0..5 {
        let drops = Arc::new(AtomicUsize::new(0));
        let (mut tx, mut rx) = ring(5);
        // Makes the items lie across the end of the lines.
        let mut indices = 0..;
        for _ in 0..tx.slot_count() - 2 {
            tx.push(Fragile { drops: Arc::default(), panics: false }).ok().unwrap();
            rx.pop();
        }
        tx.push_burst(5, || Fragile {
            drops: drops.clone(),
            panics: indices.next() == Some(panic_index),
        });
        drop(tx);
        assert!(catch_unwind(AssertUnwindSafe(|| drop(rx))).is_err());
        assert_eq!(drops.load(Ordering::Relaxed), 5);
    }
}

#[test]
fn a_panic_in_a_popped_items_drop_leaves_the_rest_in_the_ring() {
    let drops = Arc::new(AtomicUsize::new(0));
    let (mut tx, mut rx) = ring(4);
    let mut panics = [false, true, false, false].into_iter();
    tx.push_burst(4, || Fragile { drops: drops.clone(), panics: panics.next().unwrap() });
    assert!(catch_unwind(AssertUnwindSafe(|| rx.pop_burst(4, drop))).is_err());
    assert_eq!((rx.len(), tx.free_count()), (2, tx.slot_count() - 2));
    assert_eq!(rx.pop_burst(4, drop), 2);
    assert_eq!(drops.load(Ordering::Relaxed), 4);
}

#[test]
fn a_panic_with_the_last_item_of_a_line_leaves_the_next_line() {
    let (mut tx, mut rx) = ring(14);
    (0..8).for_each(|number| tx.push(number).unwrap());
    let stopped = catch_unwind(AssertUnwindSafe(|| {
        rx.pop_burst(8, |number| assert_ne!(number, 6));
    }));
    assert!(stopped.is_err());
    assert_eq!((rx.len(), rx.pop(), rx.pop()), (1, Some(7), None));
}

/// Sends 0..`total` in bursts of changing sizes.
fn send(mut tx: Producer<Box<usize>>, total: usize) {
    let mut next = 0;
    while next < total {
        let burst_count = (next % 67).min(total - next).max(1);
        let pushed_count = tx.push_burst(burst_count, || {
            next += 1;
            Box::new(next - 1)
        });
        if pushed_count == 0 {
            thread::yield_now();
        }
    }
}

/// Takes items until the end, checks their order, and returns their number.
fn receive(mut rx: Consumer<Box<usize>>) -> usize {
    let mut expected = 0;
    while !rx.is_finished() {
        let popped_count = rx.pop_burst(1 + expected % 71, |item| {
            assert_eq!(*item, expected);
            expected += 1;
        });
        if popped_count == 0 {
            thread::yield_now();
        }
    }
    expected
}

#[test]
fn a_million_items_cross_in_order() {
    for capacity in [1, 7, 64, 1024] {
        let total = match capacity {
            _ if cfg!(miri) => 60,
            1024 => 1_000_000,
            _ => 20_000,
        };
        let (tx, rx) = ring(capacity);
        let sender = thread::spawn(move || send(tx, total));
        assert_eq!(receive(rx), total);
        sender.join().unwrap();
    }
}

#[test]
fn ends_dropped_on_two_threads_drop_every_item() {
    let alive = Arc::new(());
    for round in 0..if cfg!(miri) { 12 } else { 500 } {
        let (mut tx, mut rx) = ring(8);
        let item = alive.clone();
        let sender = thread::spawn(move || {
            for _ in 0..round % 11 {
                tx.push(item.clone()).ok();
            }
        });
        for _ in 0..round % 7 {
            rx.pop();
        }
        drop(rx);
        sender.join().unwrap();
        assert_eq!(Arc::strong_count(&alive), 1, "round {round}");
    }
}
