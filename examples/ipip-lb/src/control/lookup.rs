//! The route of a flow's packets, and the reason. Pure functions of a configuration and its service
//! table, for [`questions`](super::questions).

use super::publisher::InForce;
use super::questions::{named, protocol_number, state_name};
use crate::answer::Lookup;
use crate::request::Flow;
use hotloop::packet::flow_key::FlowKey;
use hotloop_balancer::connection::Connection;
use hotloop_balancer::services::{Found, Service, ServiceTable, is_echo};
use hotloop_balancer::spec::{IcmpEcho, Scheduler};
use std::net::{IpAddr, SocketAddr};

/// The route of a flow's packets, given the worker's connection for the flow, if any.
pub(super) fn answer(
    InForce { config, table }: InForce<'_>,
    key: &FlowKey,
    worker: usize,
    connection: Option<Connection>,
) -> Lookup {
    if let Some(why) = echo_fate(table, key) {
        return Lookup { worker, service: None, rule: None, backend: None, why: why.to_owned() };
    }
    let service = table.services_of_flow(key).service;
    let rule = service.and_then(|service| {
        let configured = config.services.iter().find(|spec| *spec.name == *service.name)?;
        let (address, protocol) = (&configured.address, configured.protocol);
        Some(format!("{address} {protocol} {}", configured.ports))
    });
    let (backend, why) = decision(table, service, connection, key);
    Lookup { worker, service: service.map(|service| service.name.to_string()), rule, backend, why }
}

/// The fate of echo requests to a service's address that go to no backend.
fn echo_fate(table: &ServiceTable, key: &FlowKey) -> Option<&'static str> {
    if !is_echo(key.protocol()) || !table.is_vip(key.destination()) {
        return None;
    }
    match table.settings.icmp_echo {
        IcmpEcho::Reply => Some("the balancer answers echo requests itself: icmp_echo"),
        IcmpEcho::Drop => Some("echo requests are dropped: icmp_echo"),
        IcmpEcho::Forward => None,
    }
}

/// The backend, and the reason.
fn decision(
    table: &ServiceTable,
    service: Option<&Service>,
    connection: Option<Connection>,
    key: &FlowKey,
) -> (Option<IpAddr>, String) {
    if let Some(connection) = connection {
        let state = state_name(&connection);
        match table.target(connection.target) {
            Found::Active(_) => {
                return (named(table, connection.target).1, format!("connection, {state}"));
            }
            Found::Flushed => {
                return (None, "its backend was removed with its connections: flushed".to_owned());
            }
            Found::Removed => {}
        }
    }
    let Some(service) = service else {
        let why = match table.is_vip(key.destination()) {
            true => "no service of this address takes this protocol and port: no_service",
            false => "no service has this address: punt",
        };
        return (None, why.to_owned());
    };
    let by_hash = |hash, why: &str| match service.by_hash(hash) {
        Some(target) => match table.other_than_client(service, target, key.source(), hash) {
            Some(target) => (named(table, target).1, why.to_owned()),
            None => (None, "the only backend is the client itself: tunnel_loop".to_owned()),
        },
        None => (None, "the service has no backend for new connections: no_backend".to_owned()),
    };
    let hashes = table.settings.hashes;
    match service.scheduler {
        Scheduler::Maglev => by_hash(hashes.seed().hash(key), "new: by its hash"),
        Scheduler::Source => by_hash(
            hashes.of_client(key.source()),
            "new: by the client's hash, unless the client keeps another",
        ),
        Scheduler::RoundRobin => {
            (None, "new: the backend whose turn it is on the worker".to_owned())
        }
        Scheduler::LeastConnections => {
            (None, "new: the backend with the fewest connections on the worker".to_owned())
        }
    }
}

/// Parses the flow of `ctl lookup`.
pub(super) fn parse_flow(flow: &Flow) -> Result<FlowKey, String> {
    let protocol = protocol_number(&flow.protocol)?;
    let end = |text: &str| {
        let address: Result<SocketAddr, _> = text.parse();
        address.map_err(|_| {
            format!(
                "{text:?} is no address with a port; write 198.51.100.7:4000 or [2001:db8::7]:4000"
            )
        })
    };
    let (client, vip) = (end(&flow.client)?, end(&flow.vip)?);
    FlowKey::new(client, vip, protocol)
        .ok_or_else(|| format!("{client} and {vip} are of two IP versions"))
}
