//! Errors of a store.

use crate::settings::StoreAddress;

/// An error of a store. Its text is one line, with a remedy.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{store}: {problem}")]
pub struct StoreError {
    kind: StoreErrorKind,
    /// The store's address.
    store: String,
    problem: String,
}

/// The kind of an error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StoreErrorKind {
    /// No member answered in time, or no answering member can serve requests.
    Unreachable,
    /// The node's files or its user give no access to the store.
    Access,
    /// The store answered that it can't carry out the request.
    Refused,
    /// The requested revision is no longer kept.
    Compacted,
    /// The store's content is not a configuration, or it is empty.
    Content,
}

impl StoreError {
    /// An error of the store at this address.
    pub fn new(kind: StoreErrorKind, store: impl ToString, problem: impl Into<String>) -> Self {
        Self { kind, store: store.to_string(), problem: problem.into() }
    }

    /// This error as one of access, with a remedy for it.
    pub(super) fn of_access(self, remedy: &str) -> Self {
        let problem = format!("{}; {remedy}", self.problem);
        Self { kind: StoreErrorKind::Access, problem, ..self }
    }

    /// The kind of this error.
    #[must_use]
    pub const fn kind(&self) -> StoreErrorKind {
        self.kind
    }
}

/// The error of a store without a configuration.
#[must_use]
pub fn nothing_in(address: &StoreAddress) -> StoreError {
    let problem = "has no configuration; write one by `ipip-lb cluster apply`";
    StoreError::new(StoreErrorKind::Content, address, problem)
}
