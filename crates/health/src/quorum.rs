//! Which backends are down if several nodes probe them: those that enough of the nodes find down.
//!
//! One node's broken path must not make the nodes choose differently, so the verdict is the same on
//! all of them, as far as they know each other's findings. This module has neither time nor
//! connections.

use crate::settings::{Health, Probe};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

/// Backends that probes find down, each with its kind of probe.
pub type Down = HashSet<(IpAddr, Health)>;

/// Number of nodes, out of `node_count`, that must find a backend down: `quorum`, or all if there are
/// fewer; by default one of up to two nodes, and otherwise more than half.
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
    let via = health.via.tunnel().map_or(String::new(), |path| format!(" via {}", path.vip));
    match &health.probe {
        Probe::Tcp => format!("{address} tcp {port}{via}"),
        Probe::Http(http) | Probe::Https(http, _) => {
            format!("{address} {} {port} {} {}{via}", health.probe, http.expect_status, http.path)
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

/// The backends that are down, if at least [`needed_count`] nodes must find so. This node's probes find
/// `own`; `others` are the [`names`] of each other node's findings. `probed` are the backends with
/// probes, each with the [`Health`] of its service.
#[must_use]
pub fn verdict<'a>(
    own: &Down,
    others: &[&HashSet<String>],
    quorum: Option<u32>,
    probed: impl IntoIterator<Item = (IpAddr, &'a Health)>,
) -> Down {
    let needed = needed_count(quorum, others.len() + 1);
    let mut votes: HashMap<&str, usize> = HashMap::new();
    for name in others.iter().copied().flatten() {
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
    for (address, health) in probed.into_iter().filter(|(address, _)| found.contains(address)) {
        let ways = health.ways().filter(|way| votes_of(address, way) >= needed);
        down.extend(ways.map(|way| (address, way)));
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
    use crate::settings::{HttpProbe, TunnelPath, Via};

    /// The backends of two services: `web` has two, probed by HTTP on both paths, and `ssh` has the first of them,
    /// probed by TCP.
    fn probed() -> [(IpAddr, Health); 3] {
        let [first, second] = ["10.0.0.1", "10.0.0.2"].map(|address| address.parse().unwrap());
        let http = HttpProbe { path: "/up".into(), expect_status: 200, user_agent: "test" };
        let both = Via::Both(TunnelPath {
            vip: "203.0.113.10".parse().unwrap(),
            probe_source: "192.0.2.9".parse().unwrap(),
            source_v4: "192.0.2.1".parse().unwrap(),
            source_v6: None,
        });
        let health = |probe, port, interval_ms, via| Health {
            probe,
            port,
            interval_ms,
            timeout_ms: interval_ms,
            rise: 2,
            fall: 3,
            via,
        };
        let web = health(Probe::Http(http), 80, 2000, both);
        [(first, web.clone()), (second, web), (first, health(Probe::Tcp, 22, 500, Via::Direct))]
    }

    #[test]
    fn probes_that_differ_in_their_pace_alone_have_one_name() {
        let probe = |interval_ms| {
            let [.., (address, ssh)] = probed();
            (address, Health { interval_ms, ..ssh })
        };
        assert_eq!(names(&[probe(100), probe(200)].into()), [SSH.to_owned()].into());
    }

    const SSH: &str = "10.0.0.1 tcp 22";
    const DIRECT: &str = "10.0.0.2 http 80 200 /up";
    const TUNNEL: &str = "10.0.0.2 http 80 200 /up via 203.0.113.10";

    /// The verdict, by the names of each node's findings. The first node is this one.
    fn counts(quorum: Option<u32>, nodes: &[&[&str]]) -> Vec<String> {
        let probed = probed();
        let ways =
            probed.iter().flat_map(|(address, health)| health.ways().map(|way| (*address, way)));
        let is_own = |(address, health): &(IpAddr, Health)| {
            nodes[0].contains(&name(*address, health).as_str())
        };
        let own = ways.filter(is_own).collect();
        let finding = |names: &&[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let others: Vec<HashSet<String>> = nodes[1..].iter().map(finding).collect();
        let probed = probed.iter().map(|(address, health)| (*address, health));
        let down = verdict(&own, &others.iter().collect::<Vec<_>>(), quorum, probed);
        let mut names: Vec<_> =
            down.iter().map(|(address, health)| name(*address, health)).collect();
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
