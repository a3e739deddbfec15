//! The mesh: who reaches whom, fairness, and its ends.
#![cfg(not(loom))]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use hotloop_ring::{Column, Mesh, Row};

#[test]
fn every_dispatcher_reaches_every_worker() {
    let Mesh { mut rows, mut columns } = Mesh::new(3, 2, 4);
    assert_eq!((rows.len(), columns.len()), (3, 2));
    for (from, row) in rows.iter_mut().enumerate() {
        assert_eq!(row.worker_count(), 2);
        for to in 0..2 {
            row.push(to, (from, to)).unwrap();
        }
    }
    for (to, column) in columns.iter_mut().enumerate() {
        assert_eq!((column.len(), column.capacity()), (3, 12));
        assert!((12..=12 + 3 * 6).contains(&column.slot_count()));
        let mut from = Vec::new();
        assert_eq!(column.pop_burst(64, |item| from.push(item)), 3);
        from.sort();
        assert_eq!(from, [(0, to), (1, to), (2, to)]);
        assert!(column.is_empty());
    }
}

#[test]
fn all_to_all_has_no_ring_to_oneself() {
    let Mesh { mut rows, mut columns } = Mesh::all_to_all(3, 4);
    for (from, row) in rows.iter_mut().enumerate() {
        let workers: Vec<_> = row.rings().map(|(worker, _)| worker).collect();
        assert_eq!(workers, (0..3).filter(|&to| to != from).collect::<Vec<_>>());
        for to in workers {
            row.push(to, from).unwrap();
        }
    }
    for (to, column) in columns.iter_mut().enumerate() {
        assert_eq!(column.capacity(), 8);
        assert_eq!(column.pop_burst(64, |from| assert_ne!(from, to)), 2);
    }
}

#[test]
fn a_core_alone_has_nothing_to_wait_for() {
    let Mesh { mut rows, mut columns } = Mesh::<u8>::all_to_all(1, 4);
    assert_eq!(rows[0].free_count_min(), usize::MAX);
    assert_eq!((rows[0].len(), rows[0].high_water()), (0, 0));
    assert!(rows[0].is_empty());
    assert_eq!(columns[0].pop_burst(64, |_| unreachable!()), 0);
    assert!(columns[0].is_finished());
}

#[test]
#[should_panic(expected = "no ring to itself")]
fn pushing_to_oneself_is_a_mistake() {
    let mut mesh = Mesh::all_to_all(2, 4);
    let _ = mesh.rows[1].push(1, ());
}

#[test]
fn room_is_that_of_the_fullest_ring() {
    // Of an item a line, as many fit as are asked for.
    let Mesh { mut rows, mut columns } = Mesh::new(1, 2, 4);
    let row = &mut rows[0];
    assert_eq!(row.free_count_min(), 4);
    assert_eq!(row.push_burst(1, 9, || [0_u64; 7]), 4);
    assert_eq!(row.push(1, [5; 7]), Err([5; 7]));
    row.push(0, [0; 7]).unwrap();
    assert_eq!((row.free_count_min(), row.len(), row.high_water()), (0, 5, 4));
    columns[1].pop_burst(2, drop);
    assert_eq!(row.free_count_min(), 2);
}

#[test]
fn busy_dispatchers_take_turns() {
    let Mesh { mut rows, mut columns } = Mesh::new(3, 1, 1_000);
    for (from, row) in rows.iter_mut().enumerate() {
        assert_eq!(row.push_burst(0, 1_000, || from), 1_000);
    }
    let mut counts = [0; 3];
    for _ in 0..30 {
        assert_eq!(columns[0].pop_burst(64, |from| counts[from] += 1), 64);
    }
    assert_eq!(counts, [640; 3]);
}

#[test]
fn a_burst_is_gathered_from_all_rings() {
    let Mesh { mut rows, mut columns } = Mesh::new(4, 1, 8);
    for row in &mut rows {
        row.push_burst(0, 3, || ());
    }
    assert_eq!(columns[0].pop_burst(10, |()| ()), 10);
    assert_eq!(columns[0].pop_burst(10, |()| ()), 2);
}

#[test]
fn a_panic_leaves_the_others_in_their_rings() {
    let Mesh { mut rows, mut columns } = Mesh::new(2, 1, 8);
    for row in &mut rows {
        row.push_burst(0, 3, || ());
    }
    let mut seen_count = 0;
    let stopped = catch_unwind(AssertUnwindSafe(|| {
        columns[0].pop_burst(64, |()| {
            seen_count += 1;
            if seen_count == 4 {
                resume_unwind(Box::new("each"));
            }
        })
    }));
    assert!(stopped.is_err());
    assert_eq!(columns[0].len(), 2);
    assert_eq!(columns[0].pop_burst(64, |()| ()), 2);
}

#[test]
fn finished_when_every_dispatcher_is_gone_and_all_is_taken() {
    let Mesh { mut rows, mut columns } = Mesh::new(2, 1, 8);
    rows[1].push(0, ()).unwrap();
    rows.remove(0);
    assert!(!columns[0].is_finished());
    rows.clear();
    assert!(!columns[0].is_finished());
    columns[0].pop_burst(1, drop);
    assert!(columns[0].is_finished());
}

/// Sends `total` numbered items to workers in turn.
fn dispatch(mut row: Row<(usize, usize)>, from: usize, total: usize) {
    let worker_count = row.worker_count();
    for number in 0..total {
        let mut item = (from, number);
        while let Err(back) = row.push(number % worker_count, item) {
            item = back;
            thread::yield_now();
        }
    }
}

/// Takes all, checks the order of each dispatcher's, and returns how many came.
fn work(mut column: Column<(usize, usize)>, dispatcher_count: usize) -> usize {
    let mut last = vec![None; dispatcher_count];
    let mut count = 0;
    while !column.is_finished() {
        let popped_count = column.pop_burst(64, |(from, number)| {
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
    let (dispatcher_count, worker_count, total) = (2, 3, if cfg!(miri) { 60 } else { 30_000 });
    let Mesh { rows, columns } = Mesh::new(dispatcher_count, worker_count, 32);
    for (from, row) in rows.into_iter().enumerate() {
        thread::spawn(move || dispatch(row, from, total));
    }
    let workers: Vec<_> = columns
        .into_iter()
        .map(|column| thread::spawn(move || work(column, dispatcher_count)))
        .collect();
    let counts: Vec<_> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
    assert_eq!(counts, [dispatcher_count * total / worker_count; 3]);
}
