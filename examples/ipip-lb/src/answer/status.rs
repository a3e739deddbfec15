//! The answer of `ctl status`.

use super::cluster::Store;
use super::{counted, held_text, listed};
use crate::until::Ending;
use hotloop_balancer::counts::{Sums, TableMemory};
use hotloop_ops::status_text;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::net::IpAddr;

/// `ctl status`.
#[derive(Debug, Deserialize, Serialize)]
pub struct Status {
    /// The answer that every program has.
    pub engine: Value,
    pub balancer: Sums,
    pub config: String,
    pub services: usize,
    pub backends: usize,
    pub down: usize,
    pub health: Option<Health>,
    pub announced: Option<Vec<IpAddr>>,
    pub held: Option<Vec<Held>>,
    pub leaving: Option<Ending>,
    pub store: Option<Store>,
    pub tables: Vec<TableMemory>,
    pub is_loading: bool,
    pub reloads: u64,
    pub reload_failure: Option<String>,
    pub operator_failure: Option<String>,
}

/// The exchange of findings between nodes.
#[derive(Debug, Deserialize, Serialize)]
pub struct Health {
    pub is_shared: bool,
    pub nodes: usize,
    /// Number of nodes that must find a backend down.
    pub needed: usize,
    /// Number of backends that this node finds down.
    pub down_here: usize,
}

/// A VIP that is ready and not announced yet.
#[derive(Debug, Deserialize, Serialize)]
pub struct Held {
    pub vip: IpAddr,
    pub left_s: u64,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { config, down, balancer, reloads, .. } = self;
        let (services, backends) =
            (counted(self.services, "service"), counted(self.backends, "backend"));
        let remembered: u64 = balancer.connections.iter().sum();
        let (admitted, stateless) = (balancer.admitted, balancer.stateless);
        write!(
            f,
            "{}\n\nconfiguration {config}: {services} with {backends}, {down} of them down\n\
             connections: {remembered} remembered, {admitted} new so far, {stateless} of them not remembered\n",
            status_text(&self.engine),
        )?;
        for TableMemory { worker, table, got } in &self.tables {
            writeln!(f, "memory: {table} of worker {worker}: {got}")?;
        }
        if let Some(announced) = &self.announced {
            writeln!(f, "announced: {}", listed(announced))?;
        }
        for Held { vip, left_s } in self.held.iter().flatten() {
            writeln!(f, "{}", held_text(vip, *left_s))?;
        }
        if let Some(leaving) = &self.leaving {
            writeln!(f, "leaving: the program ends {}", leaving.leave_text())?;
        }
        if let Some(health) = &self.health {
            writeln!(f, "health: {health}")?;
        }
        if let Some(store) = &self.store {
            write!(f, "{store}")?;
        }
        if let Some(failure) = &self.operator_failure {
            writeln!(
                f,
                "changes by operators: a restart of the node undoes the latest: {failure}"
            )?;
        }
        write!(f, "reloads: {reloads}")?;
        if self.is_loading {
            f.write_str("; another one is under way")?;
        }
        match &self.reload_failure {
            Some(failure) => write!(f, "; the last one failed: {failure}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_shared, nodes, needed, down_here } = self;
        match is_shared {
            true => write!(f, "{needed} of {} must find a backend down", counted(*nodes, "node"))?,
            false => {
                f.write_str("what this node finds counts, as it can't exchange that with others")?
            }
        }
        write!(f, "; this node finds {down_here} down")
    }
}
