//! Listing connections, and asking workers in general.

use super::Operator;
use crate::balance::{Filter, Listing, Query, Reply, TargetSet};
use crate::connection::Connection;
use crate::services::{Found, ServiceTable, TargetId};
use hotloop::packet::flow_key::FlowKey;
use hotloop::packet::ip::protocol;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// How many connections are listed where nobody says how many.
const LIMIT_DEFAULT: usize = 100;

/// How many connections are listed at most.
pub const LIMIT_MAX: usize = 50_000;

/// How long workers are waited for.
const PATIENCE: Duration = Duration::from_secs(10);

impl Operator {
    /// The connections that fit a filter.
    pub(super) fn connections(&mut self, arguments: &Value) -> Result<Value, String> {
        let filter = arguments["filter"].as_str().unwrap_or_default();
        let filter = parse_filter(filter, self.table())?;
        let limit = match &arguments["limit"] {
            Value::Null => LIMIT_DEFAULT,
            limit => limit
                .as_u64()
                .map(|limit| limit as usize)
                .filter(|limit| (1..=LIMIT_MAX).contains(limit))
                .ok_or(format!("give a limit from 1 to {LIMIT_MAX}"))?,
        };
        let worker_count = self.counts.len();
        for worker in 0..worker_count {
            let listing = Box::new(Listing::new(filter.clone(), limit));
            self.ask(worker, Query::Connections(listing))?;
        }
        let (mut listed, mut matching_count) = (Vec::new(), 0);
        for worker in 0..worker_count {
            let Reply::Connections(listing) = self.await_answer(worker)? else {
                return Err(format!("worker {worker} answered something else: ask again"));
            };
            matching_count += listing.matching_count;
            let room = limit.saturating_sub(listed.len());
            let found = listing.found.iter().take(room);
            listed.extend(
                found.map(|(key, connection)| self.connection_json(worker, key, connection)),
            );
        }
        Ok(json!({ "matching": matching_count, "connections": listed }))
    }

    fn connection_json(&self, worker: usize, key: &FlowKey, connection: &Connection) -> Value {
        let (service, backend) = named(self.table(), connection.target);
        json!({
            "protocol": protocol_name(key.protocol()),
            "client": SocketAddr::new(key.source(), key.source_port()).to_string(),
            "vip": SocketAddr::new(key.destination(), key.destination_port()).to_string(),
            "worker": worker,
            "state": state_name(connection),
            "service": service,
            "backend": backend,
        })
    }

    /// Asks a worker.
    pub(super) fn ask(&mut self, worker: usize, query: Query) -> Result<(), String> {
        // Answers that came too late for their request.
        while self.asker.answer(worker).is_some() {}
        self.asker.ask(worker, query).map_err(|_| {
            format!("worker {worker} is still busy with an earlier query: ask again later")
        })
    }

    /// Waits for a worker's answer.
    pub(super) fn await_answer(&mut self, worker: usize) -> Result<Reply, String> {
        let start = Instant::now();
        loop {
            if let Some(answer) = self.asker.answer(worker) {
                return Ok(answer);
            }
            if start.elapsed() > PATIENCE {
                let seconds = PATIENCE.as_secs();
                return Err(format!("worker {worker} did not answer within {seconds} s"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The service and the backend of a target; none where it is gone.
pub(super) fn named(table: &ServiceTable, id: TargetId) -> (Option<&str>, Option<String>) {
    match table.target(id) {
        Found::Active(target) => {
            let service = target.service.map(|index| &table.all()[index as usize]);
            (service.map(|service| &*service.name), Some(target.address().to_string()))
        }
        Found::Removed | Found::Flushed => (None, None),
    }
}

/// How far a connection has come, in a word.
pub(super) fn state_name(connection: &Connection) -> String {
    format!("{:?}", connection.state()).to_lowercase()
}

/// A protocol's name, or its number.
pub(super) fn protocol_name(number: u8) -> String {
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

/// Reads `client=198.51.100.0/24,port=80` and the like.
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
    let targets = table.targets().iter().enumerate();
    let targets = targets.filter(|(_, it)| it.service.is_some_and(|of| fits(of, it.address())));
    let targets: HashSet<_> = targets.filter_map(|(slot, target)| target.id(slot)).collect();
    if targets.is_empty() {
        return Err(format!("there is no {key} {value:?} with backends; ctl {key}s lists them"));
    }
    Ok(targets)
}
