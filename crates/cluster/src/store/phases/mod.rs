//! A change of the configuration in two phases: all nodes prepare it, then one key commits it.
//!
//! ```text
//! current              the configuration in force, in the form of `layout`
//! phases/prepared      the proposal, under the lease of the proposer
//! phases/nodes/NAME    a node's revision and its answer to a proposal, under the node's lease
//! phases/members       changes whenever a node comes
//! ```
//!
//! This module has neither time nor connections: a [`Coordinator`] and a [`Member`] are repeatedly
//! shown the store's state, and return the next step. So a lost event or answer costs only time.
//!
//! # Guarantees
//!
//! - A node never switches to a configuration that was not committed.
//! - Without force, a commit has the answers of all expected nodes, and of all others that are
//!   present: the committing transaction holds only if each node is unchanged since it was seen,
//!   and no node has come. A node that has started again counts as another one.
//! - The proposer may fail at any time: the proposal ends with the lease, and can't be committed after that.

mod coordinator;
mod member;

use super::error::StoreError;
use super::etcd::{Condition, Etcd, KeyValue, Operation};
use super::gateway::Key;
use super::layout::current_key;
pub use coordinator::{Change, Coordinator, Outcome, Step};
pub use member::{Action, Member};
use serde_json::{Value, json};

/// The store's functions that the phases need.
pub trait Store {
    /// All keys of the phases, as of one revision.
    ///
    /// # Errors
    /// If the store can't be read.
    fn read(&self) -> Result<Snapshot, StoreError>;

    /// Does all of a transaction if its conditions hold, or nothing; leased keys use this lease.
    /// Returns whether the conditions held, and the store's revision.
    ///
    /// # Errors
    /// If it is unknown whether the transaction was done.
    fn transact(&self, transaction: &Transaction, lease: i64) -> Result<(bool, i64), StoreError>;
}

/// The first part of all keys of the phases except `current`, without the prefix of the store.
pub(super) const PHASES: &str = "phases/";
/// A key of the phases, without the prefix of the store.
pub(super) const PREPARED: &str = "phases/prepared";
pub(super) const MEMBERS: &str = "phases/members";
pub(super) const NODES: &str = "phases/nodes/";
pub(super) const CURRENT: &str = "current";

/// All keys of the phases, as of one revision.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Snapshot(Vec<KeyValue>);

impl Snapshot {
    /// A snapshot of these keys, without the prefix of the store.
    #[must_use]
    pub const fn new(values: Vec<KeyValue>) -> Self {
        Self(values)
    }

    /// The configuration in force: its revision, and the key's value; 0 if the store has no configuration.
    #[must_use]
    pub fn current(&self) -> (i64, &str) {
        self.get(CURRENT).map_or((0, ""), |current| (current.changed_at, &current.value))
    }

    /// The proposal, with its revision.
    #[must_use]
    pub fn proposed(&self) -> Option<(i64, &str)> {
        self.get(PREPARED).map(|prepared| (prepared.changed_at, prepared.value.as_str()))
    }

    /// The present nodes, each with its name and its state; `None` if the entry was not written by
    /// a node.
    pub fn states(&self) -> impl Iterator<Item = (&str, Option<NodeReport>)> {
        self.nodes().map(|(name, report)| (name, NodeReport::read(&report.value)))
    }

    /// The conditions of a transaction that the configuration in force and the proposal are
    /// unchanged.
    pub(super) fn unchanged(&self) -> Vec<(String, i64)> {
        [CURRENT, PREPARED].map(|key| (key.to_owned(), self.changed_at(key))).to_vec()
    }

    fn get(&self, key: &str) -> Option<&KeyValue> {
        self.0.iter().find(|value| value.key == key)
    }

    /// The revision that last changed a key: 0 if the key doesn't exist.
    fn changed_at(&self, key: &str) -> i64 {
        self.get(key).map_or(0, |value| value.changed_at)
    }

    /// The present nodes, each with its name.
    fn nodes(&self) -> impl Iterator<Item = (&str, &KeyValue)> {
        self.0.iter().filter_map(|value| Some((value.key.strip_prefix(NODES)?, value)))
    }
}

/// A group of writes that are done at once, or not at all.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Transaction {
    /// Keys, without the prefix of the store, and the revisions that last changed them: 0 for keys
    /// that must not exist.
    pub conditions: Vec<(String, i64)>,
    /// The writes.
    pub writes: Vec<Write>,
}

/// A write of a transaction. Keys have no prefix of the store.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Write {
    /// A key gets a value.
    Put(String, String),
    /// A key gets a value, which disappears with the lease.
    PutLeased(String, String),
    /// A key is deleted.
    Delete(String),
    /// All keys from the first on are deleted, up to the second, exclusive.
    DeleteFrom(String, String),
}

/// A node's report of its own state.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NodeReport {
    /// The start of the node that reports: no two have the same.
    pub start: String,
    /// The revision in force on the node.
    pub in_force: i64,
    /// The proposal that the node has answered, by the revision, and the reason if it refuses.
    pub answer: Option<(i64, Option<String>)>,
}

impl NodeReport {
    fn to_text(&self) -> String {
        let (to, refused) = self.answer.clone().unzip();
        let (start, in_force, refused) = (&self.start, self.in_force, refused.flatten());
        json!({ "start": start, "in_force": in_force, "answer_to": to, "refused": refused })
            .to_string()
    }

    /// `None` if the text was not written by a node.
    fn read(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let refused = value["refused"].as_str().map(str::to_owned);
        let answer = value["answer_to"].as_i64().map(|to| (to, refused));
        let start = value["start"].as_str()?.to_owned();
        Some(Self { start, in_force: value["in_force"].as_i64()?, answer })
    }
}

impl Store for Etcd {
    fn read(&self) -> Result<Snapshot, StoreError> {
        let prefix = self.address().prefix();
        let current = self.page(Key::One(&current_key(self)), 0, 1)?;
        let (from, end) = (format!("{prefix}phases/"), format!("{prefix}phases0"));
        // One key per node, and a transaction could not handle more nodes.
        let phases = self.page(Key::From(&from, &end), current.revision, 1000)?;
        let all = current.values.into_iter().chain(phases.values);
        let without_prefix = |value: KeyValue| {
            let key = value.key.strip_prefix(prefix).map(str::to_owned);
            KeyValue { key: key.unwrap_or_default(), ..value }
        };
        Ok(Snapshot::new(all.map(without_prefix).collect()))
    }

    fn transact(&self, transaction: &Transaction, lease: i64) -> Result<(bool, i64), StoreError> {
        let with_prefix = |key: &String| format!("{}{key}", self.address().prefix());
        let conditions = transaction.conditions.iter().map(|(key, at)| (with_prefix(key), *at));
        let conditions: Vec<_> = conditions.collect();
        let conditions: Vec<_> =
            conditions.iter().map(|(key, at)| Condition::ChangedAt(key, *at)).collect();
        let writes = transaction.writes.iter().map(|write| match write {
            Write::Put(key, value) => Write::Put(with_prefix(key), value.clone()),
            Write::PutLeased(key, value) => Write::PutLeased(with_prefix(key), value.clone()),
            Write::Delete(key) => Write::Delete(with_prefix(key)),
            Write::DeleteFrom(from, end) => Write::DeleteFrom(with_prefix(from), with_prefix(end)),
        });
        let writes: Vec<_> = writes.collect();
        let operations: Vec<_> = writes
            .iter()
            .map(|write| match write {
                Write::Put(key, value) => Operation::Put(key, value),
                Write::PutLeased(key, value) => Operation::PutLeased(key, value, lease),
                Write::Delete(key) => Operation::Delete(Key::One(key)),
                Write::DeleteFrom(from, end) => Operation::Delete(Key::From(from, end)),
            })
            .collect();
        Self::transact(self, &conditions, &operations)
    }
}
