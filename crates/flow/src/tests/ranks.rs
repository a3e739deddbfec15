//! The eviction order of a full table with ranks.

use std::collections::VecDeque;

use super::{Plainly, Random, at, check, table};
use crate::group::GROUP_SLOTS;
use crate::{Class, Classes, Config, Full, Refused, STEP_NS, Table};

/// The lowest rank leaves first; flows of this rank or above stay.
const RANKS: u64 = 4;

/// A function for flows that leave.
fn ignore(_: [u64; 2], _: u64) {}

/// A rank from a value; `None` for some.
fn rank_of(value: u64) -> Option<u8> {
    (value % (RANKS + 1) < RANKS).then_some((value % (RANKS + 1)) as u8)
}

fn evicting(capacity: usize, idle_ns: u64) -> Table<[u64; 2], u64> {
    table(Config { full: Full::Evict(Classes::ALL), ..Config::new(capacity, idle_ns) })
}

/// Tables of up to four flows; the search looks at all of them.
#[test]
fn rank_0_leaves_or_else_the_flow_of_the_lowest_rank_that_was_silent_for_longest() {
    let mut random = Random::new();
    let idle_steps = 15;
    let (mut refused_count, mut at_once_count, mut left_count) = (0, 0, 0);
    for capacity in [1, 2, 3, 4] {
        let mut table = evicting(capacity, idle_steps * STEP_NS);
        // Keys with values and the steps in which they were seen.
        let mut flows: Vec<([u64; 2], u64, u64)> = Vec::new();
        for step in 1..5_000 {
            if random.below(2) == 0 && !flows.is_empty() {
                let index = random.below(flows.len() as u64) as usize;
                let (key, _, seen) = flows[index];
                let is_expired = step - seen > idle_steps;
                assert_eq!(table.get(&key, step * STEP_NS).is_none(), is_expired);
                flows[index].2 = if is_expired { seen } else { step };
                continue;
            }
            let (key, value) = ([step, 0], random.next());
            let mut left = None;
            let rank = |other: &u64, class: Class, silent_ns: u64| {
                let &(_, _, seen) =
                    flows.iter().find(|flow| flow.1 == *other).expect("the flow is there");
                let silent_steps = (step - seen).saturating_sub(1);
                assert_eq!((class, silent_ns), (Class::default(), silent_steps * STEP_NS));
                rank_of(*other)
            };
            let leaves = |key, value| left = Some((key, value));
            let result = table.insert(key, value, at(step * STEP_NS), &mut (rank, leaves));
            let is_expired = |seen: u64| step - seen > idle_steps;
            if flows.len() == capacity {
                let first = |&&(_, value, seen): &&(_, u64, u64)| (rank_of(value), seen);
                let ranked = flows.iter().filter(|flow| rank_of(flow.1).is_some());
                let leaves_at_once = |&&(_, value, seen): &&(_, u64, u64)| {
                    rank_of(value) == Some(0) || is_expired(seen)
                };
                if flows.iter().any(|flow| leaves_at_once(&flow)) {
                    let (key, _) = left.expect("one that leaves at once");
                    assert!(flows.iter().filter(leaves_at_once).any(|flow| flow.0 == key));
                    at_once_count += 1;
                } else if let Some(&(key, value, _)) = ranked.min_by_key(first) {
                    assert_eq!(left, Some((key, value)));
                    left_count += 1;
                } else {
                    assert_eq!((result, left), (Err(Refused), None));
                    refused_count += 1;
                }
                flows.retain(|flow| Some(flow.0) != left.map(|left| left.0));
            }
            if result.is_ok() {
                flows.push((key, value, step));
            }
        }
        check(&table);
    }
    let counts = (refused_count, at_once_count, left_count);
    assert!(refused_count > 100 && at_once_count > 100 && left_count > 1_000, "{counts:?}");
}

#[test]
fn without_a_rank_a_flow_stays_and_45_are_asked_at_most() {
    let mut table = evicting(3_000, u64::MAX);
    for number in 0..3_000 {
        table.put([number, 0], u64::from(number % 10 == 0), 0).unwrap();
    }
    let (mut refused_count, mut most) = (0, 0);
    for number in 3_000..30_000 {
        let mut asked_count = 0;
        let rank = |value: &u64, _: Class, _: u64| {
            asked_count += 1;
            (*value == 1).then_some(0)
        };
        let is_worthless = |_, left| assert_eq!(left, 1);
        let eviction = &mut (rank, is_worthless);
        let result = table.insert([number, 0], 1, at(number * STEP_NS), eviction);
        refused_count += u64::from(result.is_err());
        most = asked_count.max(most);
    }
    assert!(refused_count > 0 && refused_count < 27_000 / 4, "{refused_count}");
    assert_eq!(most, 3 * GROUP_SLOTS);
    assert_eq!(table.iter().filter(|(_, value)| **value == 0).count(), 2_700);
    check(&table);
}

/// The higher the lowest rank, the more flows are looked at.
#[test]
fn a_low_rank_is_found_soon() {
    let asked_count = |rank_of: fn(u64) -> Option<u8>| {
        let mut table = evicting(3_000, u64::MAX);
        let asked_counts = (0..12_000).map(|number| {
            let mut asked_count = 0;
            let rank = |value: &u64, _: Class, _: u64| {
                asked_count += 1;
                rank_of(*value)
            };
            let now = at(number * STEP_NS);
            table.insert([number, 0], number, now, &mut (rank, ignore)).unwrap();
            asked_count
        });
        // When each has been met once.
        asked_counts.skip(9_000).collect::<Vec<usize>>()
    };
    let mean = |counts: &[usize]| counts.iter().sum::<usize>() as f64 / counts.len() as f64;
    for (rank_of, expected) in
        [((|_| Some(0)) as fn(u64) -> Option<u8>, 1), (|_| Some(1), 9), (|_| Some(2), 9)]
    {
        // If the groups of a key have fewer flows, all of them count, and flows found through other
        // groups.
        let counts = asked_count(rank_of);
        let exact_count = counts.iter().filter(|count| **count == expected).count();
        let most = counts.iter().max();
        assert!(exact_count > 2_500 && most <= Some(&(expected + 7)), "{exact_count} {most:?}");
    }
    // For several high ranks, sixteen.
    let counts = asked_count(|value| Some(2 + (value % 8) as u8));
    assert!(
        mean(&counts) > 8.0 && counts.iter().all(|&count| count <= 17 + 7),
        "{}",
        mean(&counts)
    );
}

/// In each group, flows leave in the order of arrival: the newest has the longest time to prove its
/// worth.
#[test]
fn a_flood_takes_the_places_of_its_own_with_one_look_each() {
    let mut table = evicting(3_000, u64::MAX);
    for number in 0..3_000 {
        table.put([number, 0], 1, 0).unwrap();
    }
    let mut queues = vec![VecDeque::new(); table.slot_count() / GROUP_SLOTS];
    let (mut worthy_count, mut one_look_count) = (0, 0);
    for number in 3_000..33_000 {
        let (mut asked_count, mut left) = (0, None);
        let rank = |value: &u64, _: Class, _: u64| {
            asked_count += 1;
            Some(*value as u8)
        };
        let leaves = |key: [u64; 2], value| left = Some((key[0], value));
        let placed = table.insert([number, 0], 0, at(0), &mut (rank, leaves));
        let queue = &mut queues[placed.unwrap().slot as usize / GROUP_SLOTS];
        match left.unwrap() {
            (_, 1) => worthy_count += 1,
            (left, _) => assert_eq!(queue.pop_front(), Some(left)),
        }
        queue.push_back(number);
        one_look_count += usize::from(asked_count == 1);
    }
    // One of each group, or nearly.
    assert!(worthy_count <= 2 * queues.len(), "{worthy_count}");
    assert!(one_look_count > 29_000, "{one_look_count}");
    check(&table);
}

/// In any slot: flows that were removed leave free slots anywhere.
#[test]
fn what_has_just_come_does_not_leave_next() {
    let mut random = Random::new();
    let mut table = evicting(3_000, u64::MAX);
    let mut newest = vec![None; table.slot_count() / GROUP_SLOTS];
    let (mut left_count, mut newest_left_count) = (0, 0);
    for number in 0..60_000 {
        let has_been_full = number > 4_000;
        if has_been_full && number % 3 == 0 {
            table.remove(&[number - 1 - random.below(2_000), 0]);
        }
        let mut left = None;
        let leaves = |key: [u64; 2], _| left = Some(key[0]);
        let rank = |_: &u64, _: Class, _: u64| Some(0);
        let now = at(number * STEP_NS);
        let placed = table.insert([number, 0], 0, now, &mut (rank, leaves));
        let group = placed.unwrap().slot as usize / GROUP_SLOTS;
        newest_left_count += usize::from(has_been_full && left.is_some() && left == newest[group]);
        left_count += usize::from(left.is_some());
        newest[group] = Some(number);
    }
    // If a table has room but the groups of a key don't, moves may leave too few lines for a
    // choice.
    let counts = (newest_left_count, left_count);
    assert!(newest_left_count < left_count / 1_000, "{counts:?}");
}

/// A flow that was worth keeping is checked again when its class changes.
#[test]
fn a_flow_that_was_spared_leaves_when_its_class_says_so() {
    let mut table = evicting(4, u64::MAX);
    let insert = |table: &mut Table<_, _>, number: u64, step: u64| {
        let (mut asked_count, mut left) = (0, None);
        let rank = |_: &u64, class: Class, _: u64| {
            asked_count += 1;
            Some(u8::from(class == Class::default()))
        };
        let leaves = |_, value| left = Some(value);
        let placed = table.insert([number, 0], number, at(step * STEP_NS), &mut (rank, leaves));
        (placed.unwrap(), asked_count, left)
    };
    insert(&mut table, 1, 1);
    let (second, ..) = insert(&mut table, 2, 2);
    insert(&mut table, 3, 3);
    insert(&mut table, 4, 4);
    // By silence, after looking at each flow, and once more.
    let (_, asked_count, left) = insert(&mut table, 5, 5);
    assert_eq!((asked_count, left), (8, Some(1)));
    assert!(table.set_class(second, Class::new(1)));
    table.get(&[2, 0], 9 * STEP_NS).unwrap();
    // After looking at five flows at most.
    let (_, asked_count, left) = insert(&mut table, 6, 10);
    assert!(asked_count <= 2 && left == Some(2), "{asked_count} {left:?}");
}

#[test]
fn classes_that_may_not_leave_are_not_asked_for_a_rank() {
    let full = Full::Evict(Classes::of(&[Class::new(1)]));
    let mut table: Table<[u64; 2], u64> = table(Config { full, ..Config::new(10, u64::MAX) });
    for number in 0..10 {
        let rank = |_: &u64, _: Class, _: u64| None;
        let placed = table.insert([number, 0], number, at(0), &mut (rank, ignore)).unwrap();
        table.set_class(placed, Class::new(number as usize % 2));
    }
    for number in 10..15 {
        let rank = |_: &u64, class: Class, _: u64| {
            assert_eq!(class, Class::new(1));
            Some(0)
        };
        table.insert([number, 0], number, at(STEP_NS), &mut (rank, ignore)).unwrap();
    }
    let rank = |_: &u64, _: Class, _: u64| unreachable!("all of that class have left");
    let result = table.insert([15, 0], 15, at(STEP_NS), &mut (rank, ignore));
    assert_eq!(result, Err(Refused));
}
