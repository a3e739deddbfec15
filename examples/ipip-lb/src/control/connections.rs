//! Listing connections: the filter, and the rows. Pure functions of a service table, for
//! [`questions`](super::questions).

use hotloop::packet::flow_key::FlowKey;
use hotloop::packet::ip::protocol;
use hotloop_balancer::balance::{Filter, Listing, TargetSet};
use hotloop_balancer::connection::Connection;
use hotloop_balancer::services::{Found, ServiceTable, TargetId};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

/// Number of connections to list by default.
pub(super) const LIMIT_DEFAULT: u64 = 100;

/// The connections found so far, as text. As JSON values, the largest listing would take many times
/// the memory, and converting it would block the control thread for too long.
#[derive(Debug)]
pub(super) struct Rows {
    text: String,
    count: usize,
    limit: usize,
    matching_count: u64,
}

impl Rows {
    /// An empty listing for up to `limit` connections.
    pub fn new(limit: usize) -> Self {
        Self { text: String::new(), count: 0, limit, matching_count: 0 }
    }

    /// Number of connections that may still be added.
    pub const fn wanted(&self) -> usize {
        self.limit - self.count
    }

    /// Adds a worker's findings, up to the limit.
    pub fn add(&mut self, worker: usize, page: &Listing, table: &ServiceTable) {
        self.matching_count += page.matching_count;
        for (key, connection) in page.found.iter().take(self.wanted()) {
            let comma = if self.count > 0 { "," } else { "" };
            self.text += comma;
            self.text += &row(table, worker, key, connection).to_string();
            self.count += 1;
        }
    }

    /// The answer, as text of JSON.
    pub fn answer(&self) -> String {
        format!(r#"{{"matching":{},"connections":[{}]}}"#, self.matching_count, self.text)
    }
}

fn row(table: &ServiceTable, worker: usize, key: &FlowKey, connection: &Connection) -> Value {
    let (service, backend) = named(table, connection.target);
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

/// The service and the backend of a target; `None` for each if the target is gone.
pub(super) fn named(table: &ServiceTable, id: TargetId) -> (Option<&str>, Option<String>) {
    match table.target(id) {
        Found::Active(target) => {
            let service = target.service.map(|index| &table.all()[index as usize]);
            (service.map(|service| &*service.name), Some(target.address().to_string()))
        }
        Found::Removed | Found::Flushed => (None, None),
    }
}

/// The word for a connection's state.
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

/// Parses a filter such as `client=198.51.100.0/24,port=80`.
pub(super) fn parse_filter(text: &str, table: &ServiceTable) -> Result<Filter, String> {
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
