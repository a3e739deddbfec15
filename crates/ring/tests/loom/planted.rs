//! Makes each ordering of the ring relaxed in turn, and checks that the models detect it. So no
//! ordering is stronger than needed, and a wrong one would not go unnoticed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use hotloop_ring::{planted, ring};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering::Relaxed};
use loom::thread;

/// Items shown are read.
fn cross() {
    let (mut tx, mut rx) = ring(1);
    let sender = thread::spawn(move || {
        let mut pushed_count = 0;
        while pushed_count < 3 {
            pushed_count += usize::from(tx.push([pushed_count; 3]).is_ok());
            thread::yield_now();
        }
    });
    let mut expected = 0;
    while expected < 3 {
        while let Some(numbers) = rx.pop() {
            assert_eq!(numbers, [expected; 3]);
            expected += 1;
        }
        thread::yield_now();
    }
    sender.join().unwrap();
}

/// Pairs of items go round the six lines of the smallest ring: items given back are overwritten.
fn cross_two_laps() {
    const PAIR_COUNT: usize = 7;
    let (mut tx, mut rx) = ring(1);
    let sender = thread::spawn(move || {
        for number in 0..PAIR_COUNT {
            let pair = [[number; 3]; 2];
            let mut rest = &pair[..];
            while !rest.is_empty() {
                tx.push_from(&mut rest);
                thread::yield_now();
            }
        }
    });
    let mut popped = Vec::with_capacity(2 * PAIR_COUNT);
    while popped.len() < 2 * PAIR_COUNT {
        rx.pop_into(2, &mut popped);
        thread::yield_now();
    }
    assert!(popped.into_iter().eq((0..2 * PAIR_COUNT).map(|index| [index / 2; 3])));
    sender.join().unwrap();
}

/// A finished ring returns no more items.
fn finish() {
    let (mut tx, mut rx) = ring(1);
    let sender = thread::spawn(move || assert!(tx.push([0_usize; 3]).is_ok()));
    if rx.is_finished() {
        panic!("finished before its item was popped");
    }
    while !rx.is_finished() {
        rx.pop();
        thread::yield_now();
    }
    sender.join().unwrap();
}

/// Once the consumer is gone, everything its thread did before is visible.
fn leave() {
    let (mut tx, mut rx) = ring(1);
    assert!(tx.push([0_usize; 3]).is_ok());
    let done = Arc::new(AtomicBool::new(false));
    let receiver = thread::spawn({
        let done = done.clone();
        move || {
            assert!(rx.pop().is_some());
            done.store(true, Relaxed);
        }
    });
    if tx.is_closed() {
        assert!(done.load(Relaxed));
    }
    receiver.join().unwrap();
}

/// Items counted can be popped.
fn count() {
    let (mut tx, mut rx) = ring(1);
    let sender = thread::spawn(move || assert!(tx.push([0_usize; 3]).is_ok()));
    assert!(rx.is_empty() || rx.pop().is_some());
    sender.join().unwrap();
}

fn explore_all() {
    let models: [(fn(), usize); 5] =
        [(cross, 3), (cross_two_laps, 1), (finish, 3), (leave, 3), (count, 3)];
    for (model, preemption_bound) in models {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemption_bound);
        builder.check(model);
    }
}

#[test]
fn each_weakened_ordering_is_found() {
    explore_all();
    for &name in planted::ORDER_NAMES {
        planted::weaken(Some(name));
        let explored = catch_unwind(AssertUnwindSafe(explore_all));
        planted::weaken(None);
        assert!(explored.is_err(), "`{name}` may be relaxed, or nothing notices");
    }
}
