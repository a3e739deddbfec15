//! The control thread's part: rules with their counts, connections, a reload.

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

const MATCHED: Metric = Metric::counter(
    "firewall_rule_packets_total",
    &["rule"],
    "Packets that a rule matched first, without those of connections that were open.",
);
const FAILED: Metric = Metric::gauge("firewall_reload_failed", &[], "1 if the last reload failed.");

/// The control thread's part of the firewall.
pub struct Operator {
    /// The file of rules.
    pub path: PathBuf,
    /// The deployment of the run.
    pub deployment: Deployment,
    /// The rules that the cores have.
    pub rules: Arc<Rules>,
    /// The way to the cores.
    pub publisher: Publisher<Rules>,
    /// The connections of all cores.
    pub connections: Listing<(), Cursor, Row>,
    /// Whether the last reload failed.
    pub has_failed: bool,
}

impl Operator {
    /// Publishes the rules that the file has now, and returns their number. Connections stay.
    ///
    /// # Errors
    /// The file can't be read, or is wrong: the rules stay.
    pub fn reload(&mut self) -> Result<usize, String> {
        let rules = Rules::read(&self.path, self.deployment, &self.rules);
        self.has_failed = rules.is_err();
        self.rules = Arc::new(rules?);
        self.publisher.publish(Arc::clone(&self.rules));
        Ok(self.rules.rules.len())
    }
}

impl Steer for Operator {
    fn answer(&mut self, _: &Control<'_>, request: &Request) -> Result<Reply, String> {
        let row = |Rule { name, from, action, packets, .. }: &Rule| json!({ "rule": name, "from": from, "action": action, "packets": packets.count() });
        match request.command.as_str() {
            "rules" => Ok(self.rules.rules.iter().map(row).collect::<Value>().into()),
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
                "opener": connection.opener,
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
        for rule in &self.rules.rules {
            scrape.add(&MATCHED, &[&rule.name], rule.packets.count());
        }
        scrape.add(&FAILED, &[], self.has_failed.into());
    }
}
