//! What nodes of a cluster share: exceptions that come and go as weights change, and those of another node.

use hotloop::packet::flow_key::FlowKey;
use hotloop::prelude::*;
use ipip_lb::balance::Exchange;
use ipip_lb::config::Config;
use ipip_lb::control::{Exceptions, Pulled};
use ipip_lb::services::{Builder, ServiceTable, Standing, TargetName};
use ipip_lb::sync::{Change, Record};
use std::net::SocketAddr;
use std::sync::Arc;

/// Turns from one service table to the next, and from one walk to the next.
const TURNS_OF_A_TABLE: u64 = 40;
const TURNS_OF_A_WALK: u64 = 60;

/// The most that another node says at once.
const SAID_MAX: usize = 64;

/// Control's side.
pub struct Shared {
    exceptions: Exceptions,
    publisher: Publisher<ServiceTable>,
    table: Arc<ServiceTable>,
    config: Config,
    builder: Builder,
    standing: Standing,
    turn_count: u64,
    claim_count: u64,
    end_count: u64,
    walked_count: u64,
    said_count: usize,
}

impl Shared {
    pub fn new(
        asker: Asker<Exchange, Exchange>,
        worker_count: usize,
        (publisher, table): (Publisher<ServiceTable>, Arc<ServiceTable>),
        (config, builder, standing): (Config, Builder, Standing),
    ) -> Self {
        let exceptions = Exceptions::new(asker, worker_count);
        Self {
            exceptions,
            publisher,
            table,
            config,
            builder,
            standing,
            turn_count: 0,
            claim_count: 0,
            end_count: 0,
            walked_count: 0,
            said_count: 0,
        }
    }

    pub fn turn(&mut self) {
        self.turn_count += 1;
        if self.publisher.collect() && self.turn_count.is_multiple_of(TURNS_OF_A_TABLE) {
            let name = TargetName { service: "web".to_owned(), address: [10, 0, 0, 2].into() };
            let weight = if self.standing.weights.remove(&name) == Some(3) { 1 } else { 3 };
            self.standing.weights.insert(name, weight);
            self.table = Arc::new(self.builder.build(&self.config, &self.standing).unwrap());
            self.publisher.publish(Arc::clone(&self.table));
        }
        if self.turn_count.is_multiple_of(TURNS_OF_A_WALK) {
            self.exceptions.begin_walk();
        }
        let mut said = Vec::new();
        self.exceptions.turn(|pulled| {
            match pulled {
                Pulled::Changes(changes) => {
                    let claims = changes.iter().filter_map(|it| match it {
                        Change::Claim(record) => Some(record),
                        Change::End(_) => None,
                    });
                    let before = said.len();
                    said.extend(claims.map(elsewhere));
                    let count = said.len() - before;
                    self.claim_count += count as u64;
                    self.end_count += (changes.len() - count) as u64;
                }
                Pulled::Exceptions(records) => self.walked_count += records.len() as u64,
            }
            true
        });
        let said = &said[..said.len().min(SAID_MAX)];
        self.said_count += self.exceptions.import(&self.table, said);
    }

    /// That there was some of everything.
    pub fn check(&self) {
        let counts = (self.claim_count, self.end_count, self.walked_count, self.said_count);
        println!("claims, ends, exceptions of walks, claims of others: {counts:?}");
        let is_enough = self.claim_count > 100 && self.end_count > 10;
        assert!(is_enough && self.walked_count > 100 && self.said_count > 100, "{counts:?}");
        assert_eq!(self.exceptions.refused_count(), 0);
    }
}

/// What another node may say of a connection of the same client's.
fn elsewhere(record: &Record) -> Change {
    let client = SocketAddr::new(record.key.source(), record.key.source_port() ^ 0x5555);
    let vip = SocketAddr::new(record.key.destination(), record.key.destination_port());
    let key = FlowKey::new(client, vip, record.key.protocol()).expect("of one IP version");
    Change::Claim(Record { key, ..*record })
}
