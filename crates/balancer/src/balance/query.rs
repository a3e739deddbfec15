//! Control's queries to a worker, which replies between bursts. Reads this worker's connections and
//! fills memory that came with the query; changes no connection. Every step is bounded.

use crate::connection::Connection;
use crate::connections::{Connections, Walk};
use crate::services::TargetId;
use hotloop::engine::Mailbox;
use hotloop::packet::flow_key::FlowKey;
use hotloop::packet::prefix::Prefix;
use hotloop::stage::Instant;
use std::sync::Arc;

/// Number of table slots that a worker examines in a turn for a [`Query`], whatever the filter:
/// less than 10 µs a turn.
pub const SLOTS_A_TURN: usize = 8;

/// Maximum number of turns for a page of a [`Listing`]: control, and other queries, have their turn
/// after it.
pub const TURNS_A_PAGE: usize = 4096;

/// Maximum number of connections on a page.
pub const ROWS_A_PAGE: usize = 256;

/// A query from control. It brings the memory that the reply needs.
#[derive(Debug)]
pub enum Query {
    /// List connections: a page of them.
    Connections(Box<Listing>),
    /// Look up a connection.
    Connection(FlowKey),
}

/// A reply from a worker.
#[derive(Debug)]
pub enum Reply {
    /// The query's listing, with its next page.
    Connections(Box<Listing>),
    /// The connection, if there is one.
    Connection(Option<Connection>),
}

/// A walk through a worker's connections, page by page. It goes to the worker with an empty page,
/// comes back with a full one, and is sent again unless it [is over](Self::is_over). The worker's
/// work in progress and control's memory therefore don't depend on the size of the table.
#[derive(Debug)]
pub struct Listing {
    filter: Filter,
    /// Position to continue from; `None` once all connections were examined.
    walk: Option<Walk>,
    /// The matching connections on this page, up to the requested number.
    pub found: Vec<(FlowKey, Connection)>,
    /// Number of matches among the connections examined for this page.
    pub matching_count: u64,
    wanted: usize,
    turns_left: usize,
}

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

impl Listing {
    /// A walk from the beginning, with a first page of at most `wanted` connections.
    #[must_use]
    pub fn new(filter: Filter, wanted: usize) -> Self {
        let (walk, found) = (Some(Walk::default()), Vec::with_capacity(ROWS_A_PAGE));
        Self { filter, walk, found, matching_count: 0, wanted, turns_left: TURNS_A_PAGE }
    }

    /// Empties the page for the next part of the walk, with at most `wanted` connections; more
    /// matches are only counted.
    pub fn turn_page(&mut self, wanted: usize) {
        self.found.clear();
        (self.matching_count, self.wanted, self.turns_left) = (0, wanted, TURNS_A_PAGE);
    }

    /// Whether all connections were examined.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.walk.is_none()
    }

    /// Examines the next [`SLOTS_A_TURN`] slots. Returns whether the page is complete.
    fn go_on(&mut self, connections: &Connections) -> bool {
        let Self { filter, walk, found, matching_count, wanted, turns_left } = self;
        let Some(from) = walk.take() else { return true };
        *walk = connections.scan(from, SLOTS_A_TURN, |key, connection, _| {
            if filter.takes(&key, &connection) {
                *matching_count += 1;
                if found.len() < *wanted {
                    found.push((key, connection));
                }
            }
        });
        *turns_left -= 1;
        // The next turn may find a connection in each slot that it examines, and no memory is
        // allocated here.
        let is_full = found.len() < *wanted && found.len() + SLOTS_A_TURN > ROWS_A_PAGE;
        walk.is_none() || *turns_left == 0 || is_full
    }
}

/// The worker's end of the mailbox, with the query in progress.
#[derive(Debug)]
pub struct Queries {
    mailbox: Option<Mailbox<Query, Reply>>,
    listing: Option<Box<Listing>>,
}

impl Queries {
    /// Takes queries from `mailbox`, if there is one.
    pub(super) const fn new(mailbox: Option<Mailbox<Query, Reply>>) -> Self {
        Self { mailbox, listing: None }
    }

    /// Whether a page is in progress.
    pub(super) const fn has_work(&self) -> bool {
        self.listing.is_some()
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
