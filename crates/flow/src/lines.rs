//! The cache lines of tables that a thread touches, counted for tests.

use std::cell::RefCell;
use std::collections::BTreeSet;

/// Control groups of one line.
const LINE_GROUPS: usize = 4;

thread_local! {
    /// Whether it is of control groups, and its number, for each line touched.
    static TOUCHED: RefCell<BTreeSet<(bool, usize)>> = const { RefCell::new(BTreeSet::new()) };
}

pub(crate) fn note_group(group: usize) {
    TOUCHED.with_borrow_mut(|touched| touched.insert((true, group / LINE_GROUPS)));
}

/// An entry counts as one line, however large.
pub(crate) fn note_entry(slot: usize) {
    TOUCHED.with_borrow_mut(|touched| touched.insert((false, slot)));
}

/// How many lines `operation` touches in tables.
pub(crate) fn count<R>(operation: impl FnOnce() -> R) -> (usize, R) {
    TOUCHED.take();
    let result = operation();
    (TOUCHED.take().len(), result)
}
