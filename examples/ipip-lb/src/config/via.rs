//! `[health]`, and the routes of probes.

use super::balancer::host_address;
use super::cluster::NODES_MAX;
use super::document::Section;
use super::words::VIAS;
use super::{Cluster, ConfigError};
use hotloop::packet::prefix::Prefix;
use hotloop_balancer::spec::Balancer;
use hotloop_health::settings::{Probe, TunnelPath, Via};
use std::net::IpAddr;

/// Reads the source addresses of probes through tunnels: at most one of each IP version.
pub fn probe_sources(
    section: &Section<'_>,
    balancer: &Balancer,
) -> Result<Vec<IpAddr>, ConfigError> {
    section.allow_only(&["probe_source", "quorum"])?;
    let Some(value) = section.optional("probe_source") else { return Ok(Vec::new()) };
    let mut sources: Vec<IpAddr> = Vec::new();
    for item in value.items()? {
        let address = host_address(&item)?;
        let is_tunnel_end = balancer.sources().any(|own| own.contains(address))
            || balancer.decapsulate.contains(&address);
        if is_tunnel_end {
            let problem = format!(
                "{address} is an end of tunnels: packets from there are refused as loops; write \
                 another address that is routed to the balancer"
            );
            return Err(item.error(problem));
        }
        if sources.iter().any(|source| source.is_ipv4() == address.is_ipv4()) {
            return Err(item.error("the second one of its IP version; write one of each at most"));
        }
        sources.push(address);
    }
    Ok(sources)
}

/// Reads the number of nodes that must find a backend down: at most all nodes of `cluster`, if they
/// are known.
pub fn quorum(
    section: &Section<'_>,
    cluster: Option<&Cluster>,
) -> Result<Option<u32>, ConfigError> {
    let node_count = cluster.map_or(NODES_MAX, |cluster| cluster.peers.len() + 1);
    section.integer("quorum", 1..=node_count as u32)
}

/// Reads the route of probes to a service with this address.
pub fn via(
    section: &Section<'_>,
    probe: &Probe,
    address: Prefix,
    balancer: &Balancer,
) -> Result<Via, ConfigError> {
    let what = "a way of probing";
    let Some(via) = section.choice_or("via", what, VIAS, None)? else { return Ok(Via::Direct) };
    let value = section.required("via", "\"direct\"")?;
    if !matches!(probe, Probe::Tcp | Probe::Http(_)) {
        return Err(value.error("only tcp and http go through a tunnel; write via = \"direct\""));
    }
    let vip = address.network();
    if !address.is_host() {
        let problem = format!("{address} has more than one address; write via = \"direct\"");
        return Err(value.error(problem));
    }
    let sources = &balancer.probe_sources;
    let Some(&probe_source) = sources.iter().find(|source| source.is_ipv4() == vip.is_ipv4())
    else {
        let example = if vip.is_ipv4() { "192.0.2.9" } else { "2001:db8::9" };
        return Err(value.error(format!(
            "there is no address for replies from {vip}; write [health] with probe_source = \
             [\"{example}\"], one that is routed to the balancer and that no host has"
        )));
    };
    let (source_v4, source_v6) = (balancer.source_v4, balancer.source_v6);
    Ok(via(TunnelPath { vip, probe_source, source_v4, source_v6 }))
}
