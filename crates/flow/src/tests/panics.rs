//! Panics in callbacks: no flow is lost or duplicated.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use super::{Plainly, at, check, table};
use crate::{Class, Classes, Config, Full, Hint, STEP_NS, Table};

type Counted = Rc<()>;

/// A full table of flows that may leave, each with a value that counts in `counter`.
fn full_table(count: u64, counter: &Counted) -> Table<[u64; 1], Counted> {
    let full = Full::Evict(Classes::ALL);
    let mut table = table(Config { full, ..Config::new(count as usize, 0) });
    for number in 0..count {
        table.put([number], counter.clone(), 0).unwrap();
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
    panics(|| table.insert([200], counter.clone(), at(0), &mut |_, _| fail()));
    check(&table);
    assert_eq!((table.len(), Rc::strong_count(&counter)), (100, 101));
    assert!(table.get(&[200], 0).is_some());

    let late_ns = 5 * STEP_NS;
    for left_count in (90..100).rev() {
        panics(|| table.expire(at(late_ns), usize::MAX, |_, _| fail()));
        check(&table);
        assert_eq!((table.len(), Rc::strong_count(&counter)), (left_count, left_count + 1));
    }
    assert_eq!(table.expire(at(late_ns), usize::MAX, |_, _| ()), 90);
    assert_eq!(Rc::strong_count(&counter), 1);
}

/// In both searches: in turn if flows are worth nothing, and otherwise by a sample.
#[test]
fn while_a_flow_is_ranked_or_leaves() {
    let counter = Counted::default();
    for (number, cost, is_rank_to_fail) in
        [(200, 0, true), (201, 0, false), (202, 1, true), (203, 1, false)]
    {
        let mut table = full_table(100, &counter);
        let rank = |_: &Counted, _: Class, _: u64| {
            if is_rank_to_fail {
                fail();
            }
            Some(cost)
        };
        let leaves = |_, _| fail();
        let vacancy = table.peek(&[number], Hint::NONE, at(0)).unwrap_err();
        let value = counter.clone();
        panics(|| table.insert(vacancy, value, at(0), &mut (rank, leaves)));
        check(&table);
        // In turn, a flow leaves before the new one comes.
        let count = if cost == 0 && !is_rank_to_fail { 99 } else { 100 };
        assert_eq!((table.len(), Rc::strong_count(&counter)), (count, count + 1));
    }
}
