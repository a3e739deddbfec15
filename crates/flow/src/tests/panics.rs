//! Panics in callbacks: no flow is lost or duplicated.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use super::{check, table};
use crate::{Class, Classes, Config, Full, Hint, STEP_NS, Table};

type Counted = Rc<()>;

/// A full table of flows that may leave, each with a value that counts in `counter`.
fn full_table(count: u64, counter: &Counted) -> Table<[u64; 1], Counted> {
    let full = Full::Evict(Classes::ALL);
    let mut table = table(Config { full, ..Config::new(count as usize, 0) });
    for number in 0..count {
        table.insert([number], counter.clone(), 0_u64).unwrap();
    }
    table
}

fn panics<R>(operation: impl FnOnce() -> R) {
    assert!(catch_unwind(AssertUnwindSafe(operation)).is_err());
}

fn fail() {
    resume_unwind(Box::new("on purpose"))
}

#[test]
fn while_a_flow_is_reported() {
    let counter = Counted::default();
    let mut table = full_table(100, &counter);
    panics(|| table.insert_evicting([200], counter.clone(), 0_u64, |_, _| fail()));
    check(&table);
    assert_eq!((table.len(), Rc::strong_count(&counter)), (100, 101));
    assert!(table.get(&[200], 0_u64).is_some());

    let late_ns = 5 * STEP_NS;
    for left_count in (90..100).rev() {
        panics(|| table.age(late_ns, usize::MAX, |_, _| fail()));
        check(&table);
        assert_eq!((table.len(), Rc::strong_count(&counter)), (left_count, left_count + 1));
    }
    assert_eq!(table.age(late_ns, usize::MAX, |_, _| ()), 90);
    assert_eq!(Rc::strong_count(&counter), 1);
}

/// In both searches: in turn if flows are worth nothing, and otherwise by a sample.
#[test]
fn while_a_flow_is_ranked_or_leaves() {
    let counter = Counted::default();
    for (number, rank, is_rank_to_fail) in
        [(200, 0, true), (201, 0, false), (202, 1, true), (203, 1, false)]
    {
        let mut table = full_table(100, &counter);
        let rank = |_: &Counted, _: Class, _: u64| {
            if is_rank_to_fail {
                fail();
            }
            Some(rank)
        };
        let leaves = |_: &[u64; 1], _: &Counted| fail();
        let vacancy = table.get_silent([number], Hint::default(), 0_u64).unwrap_err();
        let (value, class) = (counter.clone(), Class::default());
        panics(|| table.insert_ranked(vacancy, value, class, 0_u64, &mut (rank, leaves)));
        check(&table);
        assert_eq!((table.len(), Rc::strong_count(&counter)), (100, 101));
    }
}

#[test]
fn in_the_middle_of_a_burst() {
    let counter = Counted::default();
    let mut table = full_table(100, &counter);
    let mut placed = [None; 64];
    let mut reported_count = 0;
    let flows = (200..264).map(|number| ([number], counter.clone()));
    panics(|| {
        table.insert_burst(flows, 0_u64, &mut placed, |_, _| {
            reported_count += 1;
            if reported_count == 10 {
                fail();
            }
        })
    });
    check(&table);
    assert_eq!((table.len(), Rc::strong_count(&counter)), (100, 101));
    assert_eq!(table.stats().inserted_count, 110, "the rest was dropped");

    let flows = (300..).map(|number| {
        if number == 310 {
            fail();
        }
        ([number], counter.clone())
    });
    panics(|| table.insert_burst(flows, 0_u64, &mut placed, |_, _| ()));
    check(&table);
    assert_eq!((table.stats().inserted_count, Rc::strong_count(&counter)), (110, 101));
}

#[test]
fn while_a_value_is_made() {
    let counter = Counted::default();
    let mut table = full_table(100, &counter);
    let before = table.stats();
    for number in 0..200 {
        panics(|| {
            // The flows there are expired: a value is made for each key.
            table.get_or_insert_with([number], 3 * STEP_NS, || {
                fail();
                counter.clone()
            })
        });
    }
    check(&table);
    assert_eq!((table.stats(), Rc::strong_count(&counter)), (before, 101));
}
