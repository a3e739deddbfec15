//! What an operator asks for: rules with their counts, connections, a reload.

use crate::firewall::Row;
use crate::rules::{Rule, Rules};
use hotloop::flow::Cursor;
use hotloop::prelude::*;
use hotloop_ops::{Listing, Metric, Reply, Request, Scrape, Steer};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;

/// The rows that `ctl connections` shows at most.
const ROWS_MAX: usize = 10_000;

const DECIDED: Metric = Metric::counter(
    "firewall_rule_packets_total",
    &["rule"],
    "Packets that a rule decided about, without those of connections that were open.",
);
const FAILED: Metric =
    Metric::gauge("firewall_reload_failed", &[], "1 where the last reload failed.");

/// The control thread's part of the firewall.
pub struct Operator {
    path: PathBuf,
    core_count: usize,
    rules: Arc<Rules>,
    publisher: Publisher<Rules>,
    connections: Listing<(), Cursor, Row>,
    has_failed: bool,
}

/// Reads a file of rules, for this number of cores.
///
/// # Errors
/// It can't be read, or is wrong.
pub fn read(path: &PathBuf, core_count: usize) -> Result<Rules, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
    let rules = text.and_then(|text| Rules::parse(&text, core_count));
    rules.map_err(|error| format!("{}: {error}", path.display()))
}

impl Operator {
    /// For the rules of this file, which the cores have from the start.
    pub const fn new(
        path: PathBuf,
        core_count: usize,
        rules: Arc<Rules>,
        publisher: Publisher<Rules>,
        connections: Listing<(), Cursor, Row>,
    ) -> Self {
        Self { path, core_count, rules, publisher, connections, has_failed: false }
    }

    /// Publishes the rules that the file has now. If it is wrong, the rules stay. Connections stay
    /// in any case.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn reload(&mut self) -> Result<usize, String> {
        let read = read(&self.path, self.core_count);
        self.has_failed = read.is_err();
        let mut rules = read?;
        rules.keep_counts_of(&self.rules);
        self.rules = Arc::new(rules);
        self.publisher.publish(Arc::clone(&self.rules));
        Ok(self.rules.rules.len())
    }

    fn rules_as_json(&self) -> Value {
        let of_one = |rule: &Rule| json!({ "rule": rule.name, "packets": rule.count() });
        self.rules.rules.iter().map(of_one).collect()
    }
}

impl Steer for Operator {
    fn answer(&mut self, _: &Control<'_>, request: &Request) -> Result<Reply, String> {
        match request.command.as_str() {
            "rules" => Ok(self.rules_as_json().into()),
            "reload" => self.reload().map(|count| json!(count).into()),
            "connections" => Ok(self.connections.list((), ROWS_MAX)),
            _ => request.unknown(),
        }
    }

    fn turn(&mut self, _: &Control<'_>) {
        self.publisher.collect();
        self.connections.turn(|core, (key, connection)| {
            json!({
                "core": core,
                "flow": connection.opener.oriented(*key).to_string(),
                "opener": format!("{:?}", connection.opener),
                "state": format!("{:?}", connection.state),
            })
        });
    }

    fn hangup(&mut self) {
        if let Err(error) = self.reload() {
            tracing::error!("the rules stay as they were: {error}");
        }
    }

    fn metrics(&mut self, scrape: &mut Scrape) {
        for rule in self.rules.rules.iter() {
            scrape.add(&DECIDED, &[&rule.name], rule.count());
        }
        scrape.add(&FAILED, &[], self.has_failed.into());
    }
}
