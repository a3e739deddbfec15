//! The mesh: connections between cores, fairness, and how it ends.
#![cfg(not(loom))]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use hotloop_ring::{Consumers, Mesh, Producers};

/// Pushes one item, which must find room.
fn push<T>(producers: &mut Producers<T>, to: usize, item: T) {
    let mut item = Some(item);
    assert_eq!(producers.push_burst(to, 1, || item.take().unwrap()), 1);
}

#[test]
fn every_sender_reaches_every_receiver() {
    let Mesh { mut producers, mut consumers } = Mesh::new(3, 2, 4);
    assert_eq!((producers.len(), consumers.len()), (3, 2));
    for (from, producers) in producers.iter_mut().enumerate() {
        assert_eq!(producers.consumer_count(), 2);
        for to in 0..2 {
            push(producers, to, (from, to));
        }
    }
    for (to, consumers) in consumers.iter_mut().enumerate() {
        assert_eq!(consumers.len(), 3);
        assert!((12..=12 + 3 * 6).contains(&consumers.slot_count()));
        let mut from = Vec::new();
        assert_eq!(consumers.pop_burst(64, |item| from.push(item)), 3);
        from.sort();
        assert_eq!(from, [(0, to), (1, to), (2, to)]);
        assert!(consumers.is_empty());
    }
}

#[test]
fn a_burst_of_one_sender_is_not_split_after_that_of_another() {
    let Mesh { mut producers, mut consumers } = Mesh::new(2, 1, 256);
    for (from, counts) in [[40, 64], [64, 20]].iter().enumerate() {
        for count in counts {
            assert_eq!(producers[from].push_from(0, &mut &vec![from; *count][..]), *count);
        }
    }
    let mut popped = Vec::with_capacity(64);
    let counts = [64; 5].map(|count_max| {
        popped.clear();
        consumers[0].pop_into(count_max, &mut popped);
        [0, 1].map(|from| popped.iter().filter(|&&it| it == from).count())
    });
    assert_eq!(counts, [[40, 0], [0, 64], [64, 0], [0, 20], [0, 0]]);
}

#[test]
fn pairs_that_are_not_joined_have_no_ring() {
    let Mesh { mut producers, mut consumers } = Mesh::joined(3, 3, 4, |from, to| from != to);
    for (from, producers) in producers.iter_mut().enumerate() {
        assert_eq!(producers.consumer_count(), 3);
        (0..3).filter(|&to| to != from).for_each(|to| push(producers, to, from));
    }
    for (to, consumers) in consumers.iter_mut().enumerate() {
        assert_eq!(consumers.pop_burst(64, |from| assert_ne!(from, to)), 2);
    }
}

#[test]
fn a_core_alone_has_nothing_to_wait_for() {
    let Mesh { mut producers, mut consumers } = Mesh::<u8>::joined(1, 1, 4, |_, _| false);
    assert_eq!(producers[0].free_count_min(), usize::MAX);
    assert_eq!(consumers[0].pop_burst(64, |_| unreachable!()), 0);
    assert!(consumers[0].is_finished());
}

#[test]
#[should_panic(expected = "a ring leads to that core")]
fn pushing_where_no_ring_leads_is_a_mistake() {
    let mut mesh = Mesh::joined(2, 2, 4, |from, to| from != to);
    mesh.producers[1].push_burst(1, 1, || ());
}

#[test]
fn room_is_that_of_the_fullest_ring() {
    // With one item a line, exactly the capacity fits.
    let Mesh { mut producers, mut consumers } = Mesh::new(1, 2, 4);
    let producers = &mut producers[0];
    assert_eq!(producers.free_count_min(), 4);
    assert_eq!(producers.push_burst(1, 9, || [0_u64; 7]), 4);
    push(producers, 0, [0; 7]);
    assert_eq!(producers.free_count_min(), 0);
    consumers[1].pop_burst(2, drop);
    assert_eq!(producers.free_count_min(), 2);
}

#[test]
fn busy_senders_take_turns() {
    let Mesh { mut producers, mut consumers } = Mesh::new(3, 1, 1_000);
    for (from, producers) in producers.iter_mut().enumerate() {
        assert_eq!(producers.push_burst(0, 1_000, || from), 1_000);
    }
    let mut counts = [0; 3];
    for _ in 0..30 {
        assert_eq!(consumers[0].pop_burst(64, |from| counts[from] += 1), 64);
    }
    assert_eq!(counts, [640; 3]);
}

#[test]
fn a_burst_is_gathered_from_all_rings() {
    let Mesh { mut producers, mut consumers } = Mesh::new(4, 1, 8);
    for producers in &mut producers {
        producers.push_burst(0, 3, || ());
    }
    assert_eq!(consumers[0].pop_burst(10, |()| ()), 10);
    assert_eq!(consumers[0].pop_burst(10, |()| ()), 2);
}

#[test]
fn a_panic_leaves_the_others_in_their_rings() {
    let Mesh { mut producers, mut consumers } = Mesh::new(2, 1, 8);
    for producers in &mut producers {
        producers.push_burst(0, 3, || ());
    }
    let mut seen_count = 0;
    let stopped = catch_unwind(AssertUnwindSafe(|| {
        consumers[0].pop_burst(64, |()| {
            seen_count += 1;
            if seen_count == 4 {
                resume_unwind(Box::new("each"));
            }
        })
    }));
    assert!(stopped.is_err());
    assert_eq!(consumers[0].len(), 2);
    assert_eq!(consumers[0].pop_burst(64, |()| ()), 2);
}

#[test]
fn finished_when_every_sender_is_gone_and_all_is_taken() {
    let Mesh { mut producers, mut consumers } = Mesh::new(2, 1, 8);
    push(&mut producers[1], 0, ());
    producers.remove(0);
    assert!(!consumers[0].is_finished());
    producers.clear();
    assert!(!consumers[0].is_finished());
    consumers[0].pop_burst(1, drop);
    assert!(consumers[0].is_finished());
}

/// Sends `total` numbered items to the receivers in turn.
fn send(mut producers: Producers<(usize, usize)>, from: usize, total: usize) {
    let consumer_count = producers.consumer_count();
    for number in 0..total {
        while producers.push_burst(number % consumer_count, 1, || (from, number)) == 0 {
            thread::yield_now();
        }
    }
}

/// Takes all items, checks the order of each sender's, and returns their number.
fn receive(mut consumers: Consumers<(usize, usize)>, sender_count: usize) -> usize {
    let mut last = vec![None; sender_count];
    let mut count = 0;
    while !consumers.is_finished() {
        let popped_count = consumers.pop_burst(64, |(from, number)| {
            assert!(last[from] < Some(number));
            last[from] = Some(number);
        });
        count += popped_count;
        if popped_count == 0 {
            thread::yield_now();
        }
    }
    count
}

#[test]
fn threads_lose_nothing() {
    let (sender_count, receiver_count, total) = (2, 3, if cfg!(miri) { 60 } else { 30_000 });
    let Mesh { producers, consumers } = Mesh::new(sender_count, receiver_count, 32);
    for (from, producers) in producers.into_iter().enumerate() {
        thread::spawn(move || send(producers, from, total));
    }
    let receivers: Vec<_> = consumers
        .into_iter()
        .map(|consumers| thread::spawn(move || receive(consumers, sender_count)))
        .collect();
    let counts: Vec<_> = receivers.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(counts, [sender_count * total / receiver_count; 3]);
}
