//! Clients' questions about single connections, which workers answer: listings with their filter, and
//! [lookups](super::lookup).
//!
//! Uses the configuration and the table in use. Nothing waits for a worker here.

use super::Control;
use super::lookup;
use super::publisher::InForce;
use crate::answer;
use crate::request::Flow;
use hotloop::packet::flow_key::FlowKey;
use hotloop::packet::ip::protocol;
use hotloop_balancer::balance::{Filter, Query, Row, TargetSet};
use hotloop_balancer::classify::worker_of;
use hotloop_balancer::connection::Connection;
use hotloop_balancer::connections::Walk;
use hotloop_balancer::services::{Found, ServiceTable, TargetId};
use hotloop_ops::Reply;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

/// Number of connections to list by default.
const LIMIT_DEFAULT: u64 = 100;

/// The open questions, and the clients that wait for their answers.
pub type Questions = hotloop_ops::Listing<Query, Walk, Row>;

impl Control {
    /// The answer of `ctl connections`.
    pub(super) fn connections(
        &mut self,
        filter: Option<&str>,
        limit: Option<u64>,
    ) -> Result<Reply, String> {
        let filter = parse_filter(filter.unwrap_or_default(), &self.publisher.table)?;
        let limit = limit.unwrap_or(LIMIT_DEFAULT) as usize;
        Ok(self.questions.list(Query::Matching(filter), limit))
    }

    /// The answer of `ctl lookup`.
    pub(super) fn lookup(&mut self, flow: &Flow) -> Result<Reply, String> {
        let key = lookup::parse_flow(flow)?;
        let worker =
            worker_of(&key, &self.publisher.table.settings.hashes, self.publisher.counts.len());
        Ok(self.questions.ask_core(worker, Query::Flow(key)))
    }
}

/// A worker's row as JSON.
pub(super) fn json_of(in_force: InForce<'_>, worker: usize, found: &Row) -> Value {
    match found {
        Row::Matching(key, connection) => json!(row(in_force.table, worker, key, connection)),
        Row::Flow(key, connection) => json!(lookup::answer(in_force, key, worker, *connection)),
    }
}

fn row(
    table: &ServiceTable,
    worker: usize,
    key: &FlowKey,
    connection: &Connection,
) -> answer::Connection {
    let (service, backend) = named(table, connection.target);
    answer::Connection {
        protocol: protocol_name(key.protocol()),
        client: SocketAddr::new(key.source(), key.source_port()),
        vip: SocketAddr::new(key.destination(), key.destination_port()),
        worker,
        state: state_name(connection),
        service: service.map(str::to_owned),
        backend,
    }
}

/// The service and the backend of a target; `None` for each if the target is gone.
pub(super) fn named(table: &ServiceTable, id: TargetId) -> (Option<&str>, Option<IpAddr>) {
    match table.target(id) {
        Found::Active(target) => {
            let service = target.service.map(|index| &table.all()[index as usize]);
            (service.map(|service| &*service.name), Some(target.address()))
        }
        Found::Removed | Found::Flushed => (None, None),
    }
}

/// The word for a connection's state.
pub(super) fn state_name(connection: &Connection) -> String {
    format!("{:?}", connection.state()).to_lowercase()
}

/// A protocol's name, or its number.
fn protocol_name(number: u8) -> String {
    match number {
        protocol::TCP => "tcp".to_owned(),
        protocol::UDP => "udp".to_owned(),
        protocol::ICMP => "icmp".to_owned(),
        protocol::ICMPV6 => "icmpv6".to_owned(),
        number => number.to_string(),
    }
}

/// A protocol's number, by its name or number.
pub(super) fn protocol_number(text: &str) -> Result<u8, String> {
    match text {
        "tcp" => Ok(protocol::TCP),
        "udp" => Ok(protocol::UDP),
        "icmp" => Ok(protocol::ICMP),
        "icmpv6" => Ok(protocol::ICMPV6),
        text => text.parse().map_err(|_| {
            format!("{text:?} is not a protocol; write tcp, udp, icmp, icmpv6 or a number")
        }),
    }
}

/// Parses a filter such as `client=198.51.100.0/24,port=80`.
fn parse_filter(text: &str, table: &ServiceTable) -> Result<Filter, String> {
    let mut filter = Filter::default();
    let mut targets: Option<HashSet<TargetId>> = None;
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let wrong = || {
            format!(
                "{part:?} is no filter; write client=PREFIX, vip=PREFIX, port=N, protocol=NAME, \
                 service=NAME or backend=ADDRESS, with commas between"
            )
        };
        let (key, value) = part.split_once('=').ok_or_else(wrong)?;
        match key {
            "client" => filter.client = Some(value.parse().map_err(|_| wrong())?),
            "vip" => filter.vip = Some(value.parse().map_err(|_| wrong())?),
            "port" => filter.port = Some(value.parse().map_err(|_| wrong())?),
            "protocol" => filter.protocol = Some(protocol_number(value)?),
            "service" | "backend" => {
                let found = targets_of(key, value, table)?;
                targets = Some(match targets {
                    Some(others) => others.intersection(&found).copied().collect(),
                    None => found,
                });
            }
            _ => return Err(wrong()),
        }
    }
    filter.targets = targets.map(TargetSet::new);
    Ok(filter)
}

/// The targets of a service, or of a backend in all services.
fn targets_of(key: &str, value: &str, table: &ServiceTable) -> Result<HashSet<TargetId>, String> {
    let address: Option<IpAddr> = value.parse().ok();
    let fits = |service: u32, of: IpAddr| match key {
        "service" => &*table.all()[service as usize].name == value,
        _ => Some(of) == address,
    };
    let targets = table.used_targets();
    let targets = targets.filter(|(service, _, target)| fits(*service, target.address()));
    let targets: HashSet<_> = targets.map(|(_, id, _)| id).collect();
    if targets.is_empty() {
        return Err(format!("there is no {key} {value:?} with backends; ctl {key}s lists them"));
    }
    Ok(targets)
}
