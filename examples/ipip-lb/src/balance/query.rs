//! Queries from control to a worker, which replies between bursts, in bounded steps.

use crate::connection::Connection;
use crate::connections::{Connections, Walk};
use crate::prefix::Prefix;
use crate::services::TargetId;
use hotloop::engine::Mailbox;
use hotloop::packet::flow_key::FlowKey;
use hotloop::stage::Instant;
use std::sync::Arc;

/// How many slots of its tables a worker looks at in a turn for a [`Query`], whatever the filter:
/// less than 10 µs a turn.
pub const SLOTS_A_TURN: usize = 8;

/// A query from control. It brings the memory that the reply needs.
#[derive(Debug)]
pub enum Query {
    /// List connections.
    Connections(Box<Listing>),
    /// Look up a connection.
    Connection(FlowKey),
}

/// A reply from a worker.
#[derive(Debug)]
pub enum Reply {
    /// The list of the query, complete.
    Connections(Box<Listing>),
    /// The connection, where there is one.
    Connection(Option<Connection>),
}

/// A list of connections in the making.
#[derive(Debug)]
pub struct Listing {
    filter: Filter,
    /// Where to look on; none once all were looked at.
    walk: Option<Walk>,
    /// Those that match, as many as there is room for.
    pub found: Vec<(FlowKey, Connection)>,
    /// How many match.
    pub matching_count: u64,
}

/// Which connections to list: those that fit all that is asked for.
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
    /// One of these targets.
    pub targets: Option<TargetSet>,
}

/// A set of targets in the form that control makes for workers: a test is one load and one
/// comparison, however many targets there are. Cloning it copies no target.
#[derive(Clone, Debug)]
pub struct TargetSet {
    /// By slot, the generation of the target; 0, which no target has, where the set has none.
    generations: Arc<[u32]>,
}

impl TargetSet {
    /// The set of these targets. Of several in one slot, the last.
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

    /// Whether the target is in it.
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

impl Listing {
    /// An empty list, which keeps `limit` connections at most.
    #[must_use]
    pub fn new(filter: Filter, limit: usize) -> Self {
        let (walk, found) = (Some(Walk::default()), Vec::with_capacity(limit));
        Self { filter, walk, found, matching_count: 0 }
    }

    /// Looks at the next [`SLOTS_A_TURN`] slots. Says whether that was all.
    fn go_on(&mut self, connections: &Connections) -> bool {
        let Self { filter, walk, found, matching_count } = self;
        let Some(from) = walk.take() else { return true };
        *walk = connections.scan(from, SLOTS_A_TURN, |key, connection, _| {
            if filter.takes(&key, &connection) {
                *matching_count += 1;
                if found.len() < found.capacity() {
                    found.push((key, connection));
                }
            }
        });
        walk.is_none()
    }
}

/// The worker's end of the mailbox, with the query in progress.
#[derive(Debug)]
pub struct Queries {
    mailbox: Option<Mailbox<Query, Reply>>,
    listing: Option<Box<Listing>>,
}

impl Queries {
    /// Questions that come by `mailbox`, where there is one.
    pub(super) const fn new(mailbox: Option<Mailbox<Query, Reply>>) -> Self {
        Self { mailbox, listing: None }
    }

    /// Continues with the query in progress, or takes the next one: a bounded step.
    #[inline]
    pub(super) fn answer(&mut self, connections: &Connections, now: Instant) {
        let Some(mailbox) = &mut self.mailbox else { return };
        if let Some(mut listing) = self.listing.take() {
            if listing.go_on(connections) {
                mailbox.answer(Reply::Connections(listing));
            } else {
                self.listing = Some(listing);
            }
            return;
        }
        match mailbox.request() {
            Some(Query::Connections(listing)) => self.listing = Some(listing),
            Some(Query::Connection(key)) => {
                mailbox.answer(Reply::Connection(connections.peek(&key, now)));
            }
            None => {}
        }
    }
}
