//! The order in which flows leave a full table, where their owner has one.

use super::{Random, check, table};
use crate::group::GROUP_SLOTS;
use crate::{Class, Classes, Config, Full, Refused, STEP_NS, Table};

/// What a rank is for: the lowest go first, and above these none does.
const RANKS: u64 = 4;

/// A rank from a value: of some none.
fn rank_of(value: u64) -> Option<u8> {
    (value % (RANKS + 1) < RANKS).then_some((value % (RANKS + 1)) as u8)
}

fn evicting(capacity: usize, idle_ns: u64) -> Table<[u64; 2], u64> {
    table(Config { full: Full::Evict(Classes::ALL), ..Config::new(capacity, idle_ns) })
}

/// Tables of up to four flows, of which all are looked at.
#[test]
fn the_lowest_rank_leaves_and_of_it_the_flow_that_was_silent_for_longest() {
    let mut random = Random::new();
    let idle_steps = 15;
    let (mut refused_count, mut expired_count, mut left_count) = (0, 0, 0);
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
                let &(_, _, seen) = flows.iter().find(|it| it.1 == *other).expect("it is there");
                assert_eq!((class, silent_ns), (Class::default(), (step - seen + 1) * STEP_NS));
                rank_of(*other)
            };
            let result = table.insert_ranked(
                key,
                value,
                Class::default(),
                step * STEP_NS,
                rank,
                |key, value| left = Some((key, value)),
            );
            let is_expired = |seen: u64| step - seen > idle_steps;
            if flows.len() == capacity {
                let first = |&&(_, value, seen): &&(_, u64, u64)| (rank_of(value), seen);
                let ranked = flows.iter().filter(|it| rank_of(it.1).is_some());
                if flows.iter().any(|it| is_expired(it.2)) {
                    let (key, _) = left.expect("one whose time is up");
                    assert!(flows.iter().any(|it| it.0 == key && is_expired(it.2)));
                    expired_count += 1;
                } else if let Some(&(key, value, _)) = ranked.min_by_key(first) {
                    assert_eq!(left, Some((key, value)));
                    left_count += 1;
                } else {
                    assert_eq!((result, left), (Err(Refused), None));
                    refused_count += 1;
                }
                flows.retain(|it| Some(it.0) != left.map(|left| left.0));
            }
            if result.is_ok() {
                flows.push((key, value, step));
            }
        }
        check(&table);
    }
    let counts = (refused_count, expired_count, left_count);
    assert!(refused_count > 100 && expired_count > 100 && left_count > 1_000, "{counts:?}");
}

#[test]
fn without_a_rank_a_flow_stays_and_thirty_are_asked_at_most() {
    let mut table = evicting(3_000, u64::MAX);
    for number in 0..3_000 {
        table.insert([number, 0], u64::from(number % 10 == 0), 0_u64).unwrap();
    }
    let (mut refused_count, mut most) = (0, 0);
    for number in 3_000..30_000 {
        let mut asked_count = 0;
        let rank = |value: &u64, _, _| {
            asked_count += 1;
            (*value == 1).then_some(0)
        };
        let class = Class::default();
        let result =
            table.insert_ranked([number, 0], 1, class, number * STEP_NS, rank, |_, left| {
                assert_eq!(left, 1);
            });
        refused_count += u64::from(result.is_err());
        most = asked_count.max(most);
    }
    assert!(refused_count > 0 && refused_count < 27_000 / 4, "{refused_count}");
    assert_eq!(most, 2 * GROUP_SLOTS);
    assert_eq!(table.iter().filter(|(_, value)| **value == 0).count(), 2_700);
    check(&table);
}

/// The higher the lowest rank, the more flows are looked at.
#[test]
fn a_low_rank_is_found_soon() {
    let asked_count = |rank_of: fn(u64) -> Option<u8>| {
        let mut table = evicting(3_000, u64::MAX);
        let asked_counts = (0..6_000).map(|number| {
            let mut asked_count = 0;
            let rank = |value: &u64, _, _| {
                asked_count += 1;
                rank_of(*value)
            };
            let (class, now_ns) = (Class::default(), number * STEP_NS);
            table.insert_ranked([number, 0], number, class, now_ns, rank, |_, _| ()).unwrap();
            asked_count
        });
        asked_counts.skip(3_000).collect::<Vec<usize>>()
    };
    let mean = |counts: &[usize]| counts.iter().sum::<usize>() as f64 / counts.len() as f64;
    for (rank_of, expected) in
        [((|_| Some(0)) as fn(u64) -> Option<u8>, 4), (|_| Some(1), 8), (|_| Some(2), 8)]
    {
        // Where the groups of a key have fewer flows, all of these.
        let counts = asked_count(rank_of);
        let exact_count = counts.iter().filter(|count| **count == expected).count();
        assert!(exact_count > 2_900 && counts.iter().all(|&count| count <= expected));
    }
    // Of several high ranks, sixteen.
    let counts = asked_count(|value| Some(2 + (value % 8) as u8));
    assert!(mean(&counts) > 8.0 && counts.iter().all(|&count| count <= 16), "{}", mean(&counts));
}

#[test]
fn classes_that_may_not_leave_are_not_asked_for_a_rank() {
    let full = Full::Evict(Classes::of(&[Class::new(1)]));
    let mut table: Table<[u64; 2], u64> = table(Config { full, ..Config::new(10, u64::MAX) });
    for number in 0..10 {
        let class = Class::new(number as usize % 2);
        table.insert_ranked([number, 0], number, class, 0_u64, |_, _, _| None, |_, _| ()).unwrap();
    }
    for number in 10..15 {
        let rank = |_: &u64, class: Class, _| {
            assert_eq!(class, Class::new(1));
            Some(0)
        };
        let class = Class::new(0);
        table.insert_ranked([number, 0], number, class, STEP_NS, rank, |_, _| ()).unwrap();
    }
    let rank = |_: &u64, _, _| unreachable!("all of that class have left");
    let result = table.insert_ranked([15, 0], 15, Class::new(0), STEP_NS, rank, |_, _| ());
    assert_eq!(result, Err(Refused));
}
