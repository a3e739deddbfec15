//! A change of the configuration in two phases: all nodes prepare it, then one key commits it.
//!
//! ```text
//! current              what is in force, as `layout` has it
//! phases/prepared      what is proposed, under the lease of the proposer
//! phases/nodes/NAME    what a node has in force, and its answer to a proposal, under the node's lease
//! phases/members       changes whenever a node comes
//! ```
//!
//! Here is neither time nor a connection: a [`Coordinator`] and a [`Member`] are shown what the store has,
//! again and again, and say what to do. So an event that is lost, or an answer, costs nothing but time.
//!
//! # Guarantees
//!
//! - A node goes over to nothing that was not committed.
//! - Without force, a commit has the answers of all nodes that are expected, and of all others that are
//!   there: the transaction that commits holds only if each of them is as it was seen, and none has come.
//!   A node that has started again counts as another one.
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

/// What the phases need of a store.
pub trait Store {
    /// All that the phases are about, as of one revision.
    ///
    /// # Errors
    /// The store can't be read.
    fn read(&self) -> Result<Snapshot, StoreError>;

    /// Does all of a transaction if its conditions hold, or nothing; keys that go with a lease go with
    /// this one. Returns whether they held, and the store's revision.
    ///
    /// # Errors
    /// Whether it was done is not known.
    fn transact(&self, transaction: &Transaction, lease: i64) -> Result<(bool, i64), StoreError>;
}

/// What all keys of the phases but `current` begin with, without the prefix of the store.
pub(super) const PHASES: &str = "phases/";
/// A key of the phases, without the prefix of the store.
pub(super) const PREPARED: &str = "phases/prepared";
pub(super) const MEMBERS: &str = "phases/members";
pub(super) const NODES: &str = "phases/nodes/";
pub(super) const CURRENT: &str = "current";

/// All that the phases are about, as of one revision.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Snapshot(Vec<KeyValue>);

impl Snapshot {
    /// Of these keys, without the prefix of the store.
    #[must_use]
    pub const fn new(values: Vec<KeyValue>) -> Self {
        Self(values)
    }

    /// What is in force: its revision, and what the key says; 0 is none.
    #[must_use]
    pub fn current(&self) -> (i64, &str) {
        self.get(CURRENT).map_or((0, ""), |it| (it.changed_at, &it.value))
    }

    /// What is proposed, with its revision.
    #[must_use]
    pub fn proposed(&self) -> Option<(i64, &str)> {
        self.get(PREPARED).map(|it| (it.changed_at, it.value.as_str()))
    }

    /// The nodes that are there, each with its name and what it says of itself; nothing where what is
    /// there was not written by a node.
    pub fn states(&self) -> impl Iterator<Item = (&str, Option<NodeState>)> {
        self.nodes().map(|(name, it)| (name, NodeState::read(&it.value)))
    }

    /// That what is in force and what is proposed is still the same, as conditions of a transaction.
    pub(super) fn unchanged(&self) -> Vec<(String, i64)> {
        [CURRENT, PREPARED].map(|key| (key.to_owned(), self.changed_at(key))).to_vec()
    }

    fn get(&self, key: &str) -> Option<&KeyValue> {
        self.0.iter().find(|it| it.key == key)
    }

    /// The revision that last changed a key: 0 where there is none.
    fn changed_at(&self, key: &str) -> i64 {
        self.get(key).map_or(0, |it| it.changed_at)
    }

    /// The nodes that are there, each with its name.
    fn nodes(&self) -> impl Iterator<Item = (&str, &KeyValue)> {
        self.0.iter().filter_map(|it| Some((it.key.strip_prefix(NODES)?, it)))
    }
}

/// What is done at once, or not at all.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Transaction {
    /// Keys, without the prefix of the store, and the revisions that last changed them: 0 for those that
    /// must not be there.
    pub conditions: Vec<(String, i64)>,
    /// What is written.
    pub writes: Vec<Write>,
}

/// What a transaction writes. Keys have no prefix of the store.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Write {
    /// A key gets a value.
    Put(String, String),
    /// A key gets a value, which goes with the lease.
    PutLeased(String, String),
    /// A key is deleted.
    Delete(String),
    /// All keys from the first on are deleted, up to the second, which is not one of them.
    DeleteFrom(String, String),
}

/// What a node says of itself.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NodeState {
    /// Which start of the node says so: no two have the same.
    pub start: String,
    /// The revision that it has in force.
    pub in_force: i64,
    /// The proposal that it has answered, by the revision, and why it refuses it, if it does.
    pub answer: Option<(i64, Option<String>)>,
}

impl NodeState {
    fn to_text(&self) -> String {
        let (to, refused) = self.answer.clone().unzip();
        let (start, in_force, refused) = (&self.start, self.in_force, refused.flatten());
        json!({ "start": start, "in_force": in_force, "answer_to": to, "refused": refused })
            .to_string()
    }

    /// Nothing where it was not written by a node.
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
        // A node for each, of which a transaction could not take more.
        let phases = self.page(Key::From(&from, &end), current.revision, 1000)?;
        let all = current.values.into_iter().chain(phases.values);
        let without_prefix = |it: KeyValue| {
            let key = it.key.strip_prefix(prefix).map(str::to_owned);
            KeyValue { key: key.unwrap_or_default(), ..it }
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
