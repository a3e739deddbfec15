//! What control asks a worker, answered between bursts in bounded steps.

use crate::connection::Connection;
use crate::connections::{Connections, Walk};
use crate::directory::TargetId;
use crate::prefix::Prefix;
use hotloop::engine::Mailbox;
use hotloop::packet::flow_key::FlowKey;
use hotloop::stage::Instant;
use std::sync::Arc;

/// How many slots of its tables a worker looks at in a turn for a [`Question`], whatever the filter:
/// less than 10 µs a turn.
pub const SLOTS_A_TURN: usize = 8;

/// What control asks. What memory the answer takes, control brings along.
#[derive(Debug)]
pub enum Question {
    /// Which connections are there?
    Connections(Box<Listing>),
    /// What is known of this one?
    Connection(FlowKey),
}

/// What a worker answers.
#[derive(Debug)]
pub enum Answer {
    /// Those of the question, complete.
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
        *walk = connections.scan(from, SLOTS_A_TURN, |key, connection| {
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

/// A worker's end: what it was asked, and is still at.
#[derive(Debug)]
pub struct Inquiries {
    mailbox: Option<Mailbox<Question, Answer>>,
    listing: Option<Box<Listing>>,
}

impl Inquiries {
    /// Questions that come by `mailbox`, where there is one.
    pub(super) const fn new(mailbox: Option<Mailbox<Question, Answer>>) -> Self {
        Self { mailbox, listing: None }
    }

    /// Goes on answering, in a bounded step.
    #[inline]
    pub(super) fn answer(&mut self, connections: &Connections, now: Instant) {
        let Some(mailbox) = &mut self.mailbox else { return };
        if let Some(mut listing) = self.listing.take() {
            if listing.go_on(connections) {
                mailbox.answer(Answer::Connections(listing));
            } else {
                self.listing = Some(listing);
            }
            return;
        }
        match mailbox.request() {
            Some(Question::Connections(listing)) => self.listing = Some(listing),
            Some(Question::Connection(key)) => {
                mailbox.answer(Answer::Connection(connections.peek(&key, now)));
            }
            None => {}
        }
    }
}
