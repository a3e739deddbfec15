//! State shared by the nodes of a cluster: exceptions that come and go as weights change, and those
//! of another node.

use hotloop::packet::flow_key::FlowKey;
use hotloop::prelude::*;
use hotloop_balancer::balance::Exchange;
use hotloop_balancer::exception_mover::{ExceptionMover, Pulled};
use hotloop_balancer::exceptions::{Change, Record};
use hotloop_balancer::services::ServiceTable;
use std::net::SocketAddr;
use std::sync::Arc;

/// Number of turns from one service table to the next.
const TURNS_OF_A_TABLE: u64 = 10;

/// Maximum number of changes that another node sends at once.
const SAID_MAX: usize = 64;

/// Maximum number of turns of a run, more than a minute.
const TURNS_MAX: u64 = 20_000;

/// The control side.
pub struct Shared {
    exceptions: ExceptionMover,
    publisher: Publisher<ServiceTable>,
    /// The current table, and the next one.
    tables: [Arc<ServiceTable>; 2],
    turn_count: u64,
    claim_count: u64,
    walked_count: u64,
    said_count: usize,
}

impl Shared {
    pub fn new(
        asker: Asker<Exchange, Exchange>,
        worker_count: usize,
        publisher: Publisher<ServiceTable>,
        tables: [Arc<ServiceTable>; 2],
    ) -> Self {
        let exceptions = ExceptionMover::new(asker, worker_count);
        Self {
            exceptions,
            publisher,
            tables,
            turn_count: 0,
            claim_count: 0,
            walked_count: 0,
            said_count: 0,
        }
    }

    pub fn turn(&mut self) {
        self.turn_count += 1;
        if self.publisher.collect() && self.turn_count.is_multiple_of(TURNS_OF_A_TABLE) {
            self.tables.swap(0, 1);
            self.publisher.publish(Arc::clone(&self.tables[0]));
        }
        if !self.exceptions.is_walking() {
            self.exceptions.begin_walk();
        }
        let mut said = Vec::new();
        self.exceptions.turn(|pulled| {
            match pulled {
                Pulled::Changes(claims) => {
                    // The peer that claimed it is gone.
                    let inherit = |record: &Record| Change::Inherit(record.key);
                    said.extend(claims.iter().flat_map(|it| [elsewhere(it), inherit(it)]));
                    self.claim_count += claims.len() as u64;
                }
                Pulled::Exceptions(claims) => self.walked_count += claims.len() as u64,
            }
            true
        });
        let said = &said[..said.len().min(SAID_MAX)];
        self.said_count += self.exceptions.import(&self.tables[0], said);
    }

    /// Whether everything has happened at least once, or [`TURNS_MAX`] turns have passed. A fast
    /// machine may send all its packets before a walk finds an exception, as walks wait while
    /// workers hand over changes.
    pub fn is_complete(&self) -> bool {
        self.has_everything() || self.turn_count >= TURNS_MAX
    }

    fn has_everything(&self) -> bool {
        let has_walked = self.walked_count > 0;
        self.claim_count > 10 && has_walked && self.said_count > 10
    }

    /// Checks that everything has happened at least once.
    pub fn check(&self) {
        let counts = (self.claim_count, self.walked_count, self.said_count);
        println!(
            "{} turns: claims, those of walks, changes of others: {counts:?}",
            self.turn_count
        );
        assert!(self.has_everything());
        assert_eq!(self.exceptions.refused_count(), 0);
    }
}

/// A possible change by another node for a connection of the same client.
fn elsewhere(record: &Record) -> Change {
    let client = SocketAddr::new(record.key.source(), record.key.source_port() ^ 0x5555);
    let vip = SocketAddr::new(record.key.destination(), record.key.destination_port());
    let key = FlowKey::new(client, vip, record.key.protocol()).expect("of one IP version");
    Change::Claim(Record { key, ..*record })
}
