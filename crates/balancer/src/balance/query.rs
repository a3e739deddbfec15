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

/// How many turns a page of a [`Listing`] takes at most: control, and other queries, have their turn
/// after it.
pub const TURNS_A_PAGE: usize = 4096;

/// How many connections a page has at most.
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
    /// The list of the query, with its next page.
    Connections(Box<Listing>),
    /// The connection, where there is one.
    Connection(Option<Connection>),
}

/// A walk through a worker's connections, page by page: it goes to the worker with an empty page, comes
/// back with a full one, and is sent again unless it [is over](Self::is_over). So what a worker has
/// under way, and what control is to take in at once, does not depend on the size of the table.
#[derive(Debug)]
pub struct Listing {
    filter: Filter,
    /// Where to look on; none once all were looked at.
    walk: Option<Walk>,
    /// The connections of this page that match, as many as are wanted.
    pub found: Vec<(FlowKey, Connection)>,
    /// How many match of those that were looked at for this page.
    pub matching_count: u64,
    wanted: usize,
    turns_left: usize,
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
    /// A walk from the beginning, on whose first page so many connections are wanted at most.
    #[must_use]
    pub fn new(filter: Filter, wanted: usize) -> Self {
        let (walk, found) = (Some(Walk::default()), Vec::with_capacity(ROWS_A_PAGE));
        Self { filter, walk, found, matching_count: 0, wanted, turns_left: TURNS_A_PAGE }
    }

    /// Empties the page for the next part of the walk, of which so many connections are wanted at most;
    /// others are counted.
    pub fn turn_page(&mut self, wanted: usize) {
        self.found.clear();
        (self.matching_count, self.wanted, self.turns_left) = (0, wanted, TURNS_A_PAGE);
    }

    /// Whether all connections were looked at.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.walk.is_none()
    }

    /// Looks at the next [`SLOTS_A_TURN`] slots. Says whether that was all of the page.
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
        // The next turn may find as many as it looks at, for which no memory is taken here.
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
    /// Questions that come by `mailbox`, where there is one.
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
