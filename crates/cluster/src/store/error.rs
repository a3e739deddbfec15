//! What can go wrong with a store.

use crate::settings::StoreAddress;

/// What went wrong with a store. It prints as one line that says what to do.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{store}: {problem}")]
pub struct StoreError {
    kind: StoreErrorKind,
    /// The store's address.
    store: String,
    problem: String,
}

/// What kind of thing went wrong.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StoreErrorKind {
    /// No member answered in time, or none that answered is in a state to.
    Unreachable,
    /// The store answered that it can't do what was asked.
    Refused,
    /// The requested revision is no longer kept.
    Compacted,
    /// What is in the store is no configuration, or none is.
    Content,
}

impl StoreError {
    /// Of the store at this address.
    pub fn new(kind: StoreErrorKind, store: impl ToString, problem: impl Into<String>) -> Self {
        Self { kind, store: store.to_string(), problem: problem.into() }
    }

    /// What kind of thing went wrong.
    #[must_use]
    pub const fn kind(&self) -> StoreErrorKind {
        self.kind
    }
}

/// That a store has no configuration.
#[must_use]
pub fn nothing_in(address: &StoreAddress) -> StoreError {
    let problem = "has no configuration; write one by `ipip-lb cluster apply`";
    StoreError::new(StoreErrorKind::Content, address, problem)
}
