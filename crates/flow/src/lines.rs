//! Counts the cache lines of tables that a thread touches, for tests.

use std::cell::RefCell;
use std::collections::BTreeSet;

/// Number of control groups in a line.
const LINE_GROUPS: usize = 4;

/// Number of eviction states in a line.
const LINE_EVICTION_STATES: usize = 16;

thread_local! {
    /// The kind and number of each line touched.
    static TOUCHED: RefCell<BTreeSet<(Kind, usize)>> = const { RefCell::new(BTreeSet::new()) };
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Control,
    EvictionState,
    Entry,
}

pub(crate) fn note_group(group: usize) {
    TOUCHED.with_borrow_mut(|touched| touched.insert((Kind::Control, group / LINE_GROUPS)));
}

pub(crate) fn note_eviction_state(group: usize) {
    TOUCHED.with_borrow_mut(|touched| {
        touched.insert((Kind::EvictionState, group / LINE_EVICTION_STATES))
    });
}

/// An entry counts as one line, however large.
pub(crate) fn note_entry(slot: usize) {
    TOUCHED.with_borrow_mut(|touched| touched.insert((Kind::Entry, slot)));
}

/// Number of lines that `operation` touches in tables.
pub(crate) fn count<R>(operation: impl FnOnce() -> R) -> (usize, R) {
    TOUCHED.take();
    let result = operation();
    (TOUCHED.take().len(), result)
}
