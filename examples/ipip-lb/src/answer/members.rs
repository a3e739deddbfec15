//! Listings of services, backends, next hops and blocks.

use super::{counted, held_text, listed, table};
use crate::until::Ending;
use hotloop_balancer::counts::TargetSums;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

/// A row of `ctl services`.
#[derive(Debug, Deserialize, Serialize)]
pub struct Service {
    pub name: String,
    pub address: String,
    pub protocol: String,
    pub ports: String,
    pub scheduler: String,
    pub backends: usize,
    pub up: usize,
    pub usable: usize,
    #[serde(flatten)]
    pub sums: TargetSums,
    /// How long the service's VIP is still held.
    pub held_s: Option<u64>,
}

impl Service {
    pub fn text(rows: &Vec<Self>) -> String {
        let mut text = table!(rows, row => name: row.name, address: row.address,
            protocol: row.protocol, ports: row.ports, scheduler: row.scheduler,
            backends: row.backends, up: row.up, usable: row.usable,
            connections: row.sums.connections, packets: row.sums.packets);
        for Self { address, held_s, .. } in rows {
            if let Some(left_s) = held_s {
                text += &format!("\n{}", held_text(address, *left_s));
            }
        }
        text
    }
}

/// A row of `ctl backends`.
#[derive(Debug, Deserialize, Serialize)]
pub struct Backend {
    pub service: String,
    pub address: IpAddr,
    pub weight: u32,
    pub configured_weight: u32,
    pub state: String,
    pub is_probed: bool,
    /// The outcomes of the last probes.
    pub probe: Option<String>,
    #[serde(flatten)]
    pub sums: TargetSums,
    /// Only of a backend that is probed through its tunnel.
    #[serde(flatten)]
    pub probes: Option<Probes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<Difference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draining: Option<Ending>,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct Probes {
    pub probes: Vec<Probe>,
    /// The location of a fault.
    pub verdict: Option<String>,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct Probe {
    pub via: String,
    pub is_up: bool,
    /// The outcome of the last probe.
    pub last: Option<String>,
}

/// Findings of this node that differ from the verdict of all nodes.
#[derive(Debug, Deserialize, Serialize)]
pub struct Difference {
    pub is_up_here: bool,
    /// The nodes that find the backend down.
    pub down_on: Vec<String>,
    pub nodes: usize,
    /// Number of nodes that must find it down.
    pub needed: usize,
}

impl Backend {
    pub fn text(rows: &Vec<Self>) -> String {
        let mut text = table!(rows, row => service: row.service, address: row.address,
            weight: row.weight_text(), state: row.state, connections: row.sums.connections,
            packets: row.sums.packets, probe: row.probe);
        for row in rows {
            let name = format!("{} of {}", row.address, row.service);
            if let Some(verdict) = row.probes.as_ref().and_then(|probes| probes.verdict.as_ref()) {
                text += &format!("\n{name}: {verdict}");
            }
            if let Some(health) = &row.health {
                text += &format!("\n{name}: {health}");
            }
            if let Some(draining) = &row.draining {
                let (left, end) =
                    (counted(row.sums.connections, "connection"), draining.removal_text());
                text += &format!("\n{name}: drained, with {left} left{end}");
            }
        }
        text
    }

    /// The weight, with the configuration's if that is another.
    fn weight_text(&self) -> String {
        let Self { weight, configured_weight, .. } = self;
        match weight == configured_weight {
            true => weight.to_string(),
            false => format!("{weight} (file: {configured_weight})"),
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_up_here, down_on, nodes, needed } = self;
        let (state, here) = if *is_up_here { ("down", "up") } else { ("up", "down") };
        let (nodes, down_on) = (counted(*nodes, "node"), listed(down_on));
        write!(
            f,
            "counts as {state}, and this node finds it {here}: of {nodes}, {needed} must find it down; \
             that do: {down_on}"
        )
    }
}

/// A row of `ctl next-hops`.
#[derive(Debug, Deserialize, Serialize)]
pub struct NextHop {
    pub port: Option<String>,
    pub address: Option<IpAddr>,
    pub mac: Option<String>,
    pub state: String,
    /// The time since its last answer; absent for next hops that aren't asked by the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_s: Option<Option<u64>>,
    /// Number of backends that it reaches, if it is one of the kernel's.
    pub backends: Option<usize>,
}

impl NextHop {
    pub fn text(rows: &Vec<Self>) -> String {
        table!(rows, hop => port: hop.port, address: hop.address, mac: hop.mac, state: hop.state,
            age_s: hop.age_s, backends: hop.backends)
    }
}

/// A row of `ctl blocks`.
#[derive(Debug, Deserialize, Serialize)]
pub struct Block {
    pub prefix: String,
    /// `None` for a block without an end.
    pub left_s: Option<u64>,
}

impl Block {
    pub fn text(rows: &Vec<Self>) -> String {
        table!(rows, block => prefix: block.prefix, left_s: block.left_s)
    }
}
