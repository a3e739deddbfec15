//! Decides which backends are down if several nodes probe them: those that enough of the nodes find
//! down.
//!
//! One node's broken path must not make the nodes choose differently, so the verdict is the same on
//! all of them, as far as they know each other's findings. This module has neither time nor
//! connections.

use crate::config::{Config, Health, Probe, Via};
use hotloop_cluster::store::Finding;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

/// Backends that probes find down, each with its kind of probe.
pub type Down = HashSet<(IpAddr, Health)>;

/// How many of `node_count` nodes must find a backend down: as many as `quorum` says, or as there are; by
/// default one of up to two, and otherwise more than half.
#[must_use]
pub const fn needed_count(quorum: Option<u32>, node_count: usize) -> usize {
    let needed = match quorum {
        Some(quorum) => quorum as usize,
        None if node_count <= 2 => 1,
        None => node_count / 2 + 1,
    };
    if needed < node_count { needed } else { node_count }
}

/// The common name of a probe of a backend: the same on all nodes with the same services, such as
/// `10.0.0.1 http 80 200 /healthz via 203.0.113.10`. It has no part that depends on the node, such
/// as the source of its probes or their interval.
#[must_use]
pub fn name(address: IpAddr, health: &Health) -> String {
    let port = health.port;
    let via = match health.via {
        Via::Direct => String::new(),
        Via::Tunnel(path) | Via::Both(path) => format!(" via {}", path.vip),
    };
    match &health.probe {
        Probe::Tcp => format!("{address} tcp {port}{via}"),
        Probe::Http(it) => format!("{address} http {port} {} {}{via}", it.expect_status, it.path),
        Probe::Https(it, _) => {
            format!("{address} https {port} {} {}{via}", it.expect_status, it.path)
        }
        Probe::Icmp => format!("{address} icmp{via}"),
        Probe::Udp => format!("{address} udp {port}{via}"),
    }
}

/// The [`name`]s of probes that find a backend down.
#[must_use]
pub fn names(down: &Down) -> HashSet<String> {
    down.iter().map(|(address, health)| name(*address, health)).collect()
}

/// The backends of `config` that are down: this node's probes find `own`, those of the others what they say.
#[must_use]
pub fn verdict(own: &Down, others: &[Finding], config: &Config) -> Down {
    let needed = needed_count(config.quorum, others.len() + 1);
    let mut votes: HashMap<&str, usize> = HashMap::new();
    for name in others.iter().flat_map(|it| it.down.iter()) {
        *votes.entry(name).or_default() += 1;
    }
    let votes_of = |address, health: &Health| {
        if votes.is_empty() {
            return 0;
        }
        votes.get(name(address, health).as_str()).copied().unwrap_or(0)
    };
    let agreed = own.iter().filter(|(address, health)| 1 + votes_of(*address, health) >= needed);
    let mut down: Down = agreed.cloned().collect();
    // Backends that this node does not find down: only these few must be looked up by name.
    let found = votes.iter().filter(|(_, votes)| **votes >= needed);
    let found: HashSet<IpAddr> = found.filter_map(|(name, _)| address_of(name)).collect();
    if found.is_empty() {
        return down;
    }
    for service in &config.services {
        let Some(health) = config.health.get(&service.name) else { continue };
        for backend in service.backends.iter().filter(|it| found.contains(&it.address)) {
            let ways = health.ways().filter(|way| votes_of(backend.address, way) >= needed);
            down.extend(ways.map(|way| (backend.address, way)));
        }
    }
    down
}

/// The backend of a probe, from its [`name`].
fn address_of(name: &str) -> Option<IpAddr> {
    name.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const CONFIG: &str = "[balancer]\nmtu = 1500\nsource_v4 = \"192.0.2.1\"\ndecapsulate = []\n\
        [[port]]\nname = \"up\"\ndevice = \"net_null0\"\nnext_hop_mac = \"02:00:00:00:00:01\"\n\
        [health]\nprobe_source = [\"192.0.2.9\"]\n\
        [[service]]\nname = \"web\"\naddress = \"203.0.113.10\"\nprotocol = \"tcp\"\nports = \"80\"\n\
        backend = [{ address = \"10.0.0.1\" }, { address = \"10.0.0.2\" }]\n\
        health = { kind = \"http\", path = \"/up\", via = \"both\" }\n\
        [[service]]\nname = \"ssh\"\naddress = \"203.0.113.10\"\nprotocol = \"tcp\"\nports = \"22\"\n\
        backend = [{ address = \"10.0.0.1\" }]\nhealth = { kind = \"tcp\", interval_ms = 500 }\n";

    #[test]
    fn probes_that_differ_in_their_pace_alone_have_one_name() {
        let probe = |interval_ms| {
            let ssh = config(None).health["ssh"].clone();
            ("10.0.0.1".parse().unwrap(), Health { interval_ms, ..ssh })
        };
        assert_eq!(names(&[probe(100), probe(200)].into()), [SSH.to_owned()].into());
    }

    fn config(quorum: Option<u32>) -> Config {
        Config { quorum, ..Config::parse("lb.toml", CONFIG).unwrap() }
    }

    const SSH: &str = "10.0.0.1 tcp 22";
    const DIRECT: &str = "10.0.0.2 http 80 200 /up";
    const TUNNEL: &str = "10.0.0.2 http 80 200 /up via 203.0.113.10";

    /// The verdict, by the names of each node's findings. The first node is this one.
    fn counts(quorum: Option<u32>, nodes: &[&[&str]]) -> Vec<String> {
        let config = config(quorum);
        let probed = crate::control::probed(&config).into_iter();
        let all: Vec<_> = probed.map(|it| (it.address, it.health)).collect();
        let is_own = |(address, health): &&(IpAddr, Health)| {
            nodes[0].contains(&name(*address, health).as_str())
        };
        let own = all.iter().filter(is_own).cloned().collect();
        let finding = |names: &&[&str]| Finding {
            node: "other".to_owned(),
            down: Arc::new(names.iter().map(|it| (*it).to_owned()).collect()),
        };
        let others: Vec<_> = nodes[1..].iter().map(finding).collect();
        let down = verdict(&own, &others, &config);
        let mut names: Vec<_> = down.iter().map(|(address, it)| name(*address, it)).collect();
        names.sort();
        names
    }

    #[test]
    fn more_than_half_must_agree_or_one_of_two() {
        let needed: Vec<_> = (1..=7).map(|count| needed_count(None, count)).collect();
        assert_eq!(needed, [1, 1, 2, 3, 3, 4, 4]);
        // There may be fewer nodes than `quorum`.
        assert_eq!([1, 2, 5].map(|count| needed_count(Some(3), count)), [1, 2, 3]);

        assert_eq!(counts(None, &[&[SSH]]), [SSH]);
        assert_eq!(counts(None, &[&[SSH], &[]]), [SSH]);
        assert_eq!(counts(None, &[&[], &[SSH]]), [SSH]);
        assert_eq!(counts(None, &[&[SSH], &[], &[]]), [""; 0]);
        assert_eq!(counts(None, &[&[], &[SSH], &[]]), [""; 0]);
        assert_eq!(counts(None, &[&[SSH], &[SSH], &[]]), [SSH]);
        assert_eq!(counts(None, &[&[], &[SSH], &[SSH]]), [SSH]);
        assert_eq!(counts(Some(2), &[&[SSH], &[]]), [""; 0]);
        assert_eq!(counts(Some(2), &[&[SSH], &[SSH]]), [SSH]);
        assert_eq!(counts(Some(1), &[&[], &[SSH], &[], &[]]), [SSH]);
        assert_eq!(counts(Some(3), &[&[SSH]]), [SSH]);
    }

    #[test]
    fn each_way_counts_for_itself() {
        assert_eq!(counts(None, &[&[], &[DIRECT, TUNNEL], &[TUNNEL]]), [TUNNEL]);
        assert_eq!(counts(None, &[&[SSH], &[DIRECT], &[TUNNEL]]), [""; 0]);
        assert_eq!(counts(None, &[&[DIRECT], &[DIRECT], &[SSH]]), [DIRECT]);
        // Names that are not in the configuration, or invalid, belong to no backend.
        let foreign = &["10.0.0.9 tcp 22", "10.0.0.1 tcp 23", "", "x y"][..];
        assert_eq!(counts(None, &[&[], foreign, foreign]), [""; 0]);
    }
}
