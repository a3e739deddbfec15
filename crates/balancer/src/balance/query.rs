//! Control's queries for a worker's connections, which it answers between bursts, by a
//! [`Lister`](hotloop::engine::Lister). Reads this worker's connections, and changes none.

use crate::connection::Connection;
use crate::connections::{Connections, Walk};
use crate::services::TargetId;
use hotloop::engine::{ListPage, ListRows, Mailbox};
use hotloop::packet::flow_key::FlowKey;
use hotloop::packet::prefix::Prefix;
use hotloop::stage::Instant;
use std::sync::Arc;

/// A query from control.
#[derive(Clone, Debug)]
pub enum Query {
    /// List connections.
    Matching(Filter),
    /// Look up the connection of a flow.
    Flow(FlowKey),
}

/// A row of the answer to a [`Query`].
#[derive(Debug)]
pub enum Row {
    /// A connection that matches the filter.
    Matching(FlowKey, Connection),
    /// The flow that was looked up, with its connection if there is one.
    Flow(FlowKey, Option<Connection>),
}

/// A query on its way to a worker and back.
pub type QueryPage = Box<ListPage<Query, Walk, Row>>;

/// A worker's mailbox for queries.
pub type QueryMailbox = Mailbox<QueryPage, QueryPage>;

/// The connections to list: they match every condition that is set.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// The client's address.
    pub client: Option<Prefix>,
    /// The service's address.
    pub vip: Option<Prefix>,
    /// The service's port.
    pub port: Option<u16>,
    /// IP's protocol number.
    pub protocol: Option<u8>,
    /// The connection's target is in this set.
    pub targets: Option<TargetSet>,
}

/// A set of targets, in the form that control makes for workers: a test is one load and one
/// comparison, however many targets there are. Cloning it copies no target.
#[derive(Clone, Debug)]
pub struct TargetSet {
    /// The generation of the target in each slot; 0, which no target has, for slots outside the
    /// set.
    generations: Arc<[u32]>,
}

impl TargetSet {
    /// Makes the set of these targets. If several are in one slot, the last one counts.
    #[must_use]
    pub fn new(targets: impl IntoIterator<Item = TargetId>) -> Self {
        let mut generations = Vec::new();
        for target in targets {
            if generations.len() <= target.slot() {
                generations.resize(target.slot() + 1, 0);
            }
            generations[target.slot()] = target.generation;
        }
        Self { generations: generations.into() }
    }

    /// Whether the set contains the target.
    #[inline]
    #[must_use]
    pub fn contains(&self, target: TargetId) -> bool {
        self.generations.get(target.slot()) == Some(&target.generation)
    }
}

impl Filter {
    fn takes(&self, key: &FlowKey, connection: &Connection) -> bool {
        self.client.is_none_or(|prefix| prefix.contains(key.source()))
            && self.vip.is_none_or(|prefix| prefix.contains(key.destination()))
            && self.port.is_none_or(|port| port == key.destination_port())
            && self.protocol.is_none_or(|protocol| protocol == key.protocol())
            && self.targets.as_ref().is_none_or(|targets| targets.contains(connection.target))
    }
}

impl Query {
    /// A step of the answer: examines up to `budget` connections of the tables from `walk` on.
    pub(super) fn walk(
        &self,
        (connections, now): (&Connections, Instant),
        walk: Walk,
        budget: usize,
        rows: &mut ListRows<Row>,
    ) -> Option<Walk> {
        match self {
            Self::Matching(filter) => connections.scan(walk, budget, |key, connection| {
                if filter.takes(&key, &connection) {
                    rows.push(Row::Matching(key, connection));
                }
            }),
            Self::Flow(key) => {
                rows.push(Row::Flow(*key, connections.peek(key, now)));
                None
            }
        }
    }
}
