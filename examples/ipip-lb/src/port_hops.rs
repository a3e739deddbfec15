//! The neighbours that are next hops of ports: their states for `ctl next-hops`, messages on
//! changes, and the addresses that a successor begins with.

use crate::config::{self, Config};
use crate::dropped::{is_due, since};
use crate::next_hops::row;
use hotloop::packet::ethernet::MacAddress;
use hotloop::stage::Instant;
use hotloop::stage::neighbours::{Neighbour, Neighbours, NextHop};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// How long a neighbour is used after it stopped answering.
const NEIGHBOUR_NS: u64 = 60_000_000_000;

/// The next hops of ports in the configuration, and their Ethernet addresses as far as known.
#[derive(Debug, Default)]
pub struct PortHops {
    neighbours: Option<Arc<Neighbours>>,
    /// The next hops with IP addresses, with the names of their ports.
    hops: Vec<(String, NextHop)>,
    /// The last state of each, in the same order.
    found: Vec<Found>,
}

/// The last state of a next hop.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    known: Option<Neighbour>,
    /// Number of reported claims, modulo 65,536.
    claim_count: u16,
    /// The time of the last report of claims.
    claims_at: Option<Instant>,
}

impl Found {
    /// Logs changes: other stations that claim the address at most once in
    /// [`MESSAGE_INTERVAL_NS`](crate::dropped::MESSAGE_INTERVAL_NS), unless it `is_end` of the run.
    fn follow(&mut self, port: &str, neighbour: Neighbour, now: Instant, is_end: bool) {
        let Neighbour { address, mac, is_router, .. } = neighbour;
        match self.known.replace(neighbour) {
            Some(before) if before.mac != mac => tracing::warn!(
                port,
                "neighbour {address}: {} no longer answers, and {mac} does",
                before.mac
            ),
            Some(before) if before.is_router && !is_router => {
                tracing::warn!(port, "neighbour {address} says that it is no router any more");
            }
            _ => {}
        }
        let Some((other, count)) = neighbour.claimed_by else {
            self.claim_count = 0;
            return;
        };
        let new_count = count.wrapping_sub(self.claim_count);
        if new_count > 0 && (is_end || is_due(self.claims_at, now)) {
            self.claim_count = count;
            let since = since(self.claims_at.replace(now));
            let claims = if new_count == 1 { "claim" } else { "claims" };
            tracing::info!(
                port,
                "neighbour {address}: {other} claims it, so its own station is asked; {new_count} {claims} since {since}"
            );
        }
    }
}

impl PortHops {
    /// The next hops of the ports, in the order of the configuration.
    #[must_use]
    pub fn new(
        neighbours: Arc<Neighbours>,
        config: &Config,
        next_hops: &[Option<NextHop>],
    ) -> Self {
        let hops = config.ports.iter().zip(next_hops);
        let hops = hops.filter_map(|(port, hop)| Some((port.name.clone(), (*hop)?)));
        let hops: Vec<_> = hops.collect();
        Self { neighbours: Some(neighbours), found: vec![Found::default(); hops.len()], hops }
    }

    /// The known state of each next hop.
    fn states(&self, now: Instant) -> impl Iterator<Item = (&String, Option<Neighbour>)> {
        self.hops.iter().map(move |(port, hop)| {
            let neighbours = self.neighbours.as_ref();
            (port, neighbours.and_then(|known| known.get(hop.link(), hop.address(), now)))
        })
    }

    /// Logs changes of the next hops; with `is_end`, everything that was not logged yet.
    pub fn report(&mut self, now: Instant, is_end: bool) {
        let Some(neighbours) = &self.neighbours else { return };
        for ((port, hop), found) in self.hops.iter().zip(&mut self.found) {
            if let Some(neighbour) = neighbours.get(hop.link(), hop.address(), now) {
                found.follow(port, neighbour, now, is_end);
            }
        }
    }

    /// A row of `ctl next-hops` for each next hop in the configuration.
    pub fn rows(&self, config: &Config, now: Instant) -> impl Iterator<Item = Value> {
        let states: HashMap<_, _> = self.states(now).collect();
        config.ports.iter().filter_map(move |port| {
            let address = match port.next_hop {
                config::NextHop::Mac(mac) => {
                    let mac = Some(MacAddress::new(mac).to_string());
                    return Some(row(Some(&port.name), None, mac, "configured", None));
                }
                config::NextHop::V4(address, _) => address.to_string(),
                config::NextHop::V6(address, _) => address.to_string(),
                config::NextHop::Kernel => return None,
            };
            let known = states.get(&port.name).copied().flatten();
            let mac = known.map(|neighbour| neighbour.mac.to_string());
            let state =
                known.map_or_else(|| "unknown".into(), |neighbour| neighbour.state.to_string());
            let mut row = row(Some(&port.name), Some(address), mac, &state, None);
            row["age_s"] =
                json!(known.map(|neighbour| now.ns_since(neighbour.confirmed) / 1_000_000_000));
            Some(row)
        })
    }

    /// The neighbours in recent use, with the names of their ports, except those that stopped
    /// answering long before the others.
    #[must_use]
    pub fn known(&self) -> Vec<(String, IpAddr, MacAddress)> {
        let states = self.states(Instant::from_ns(0));
        let known: Vec<_> = states.filter_map(|(port, known)| Some((port, known?))).collect();
        let latest = known.iter().map(|(_, neighbour)| neighbour.confirmed).max();
        let lately = known.into_iter().filter(|(_, neighbour)| {
            latest.is_some_and(|latest| latest.ns_since(neighbour.confirmed) < NEIGHBOUR_NS)
        });
        lately.map(|(port, neighbour)| (port.clone(), neighbour.address, neighbour.mac)).collect()
    }

    /// Begins with the predecessor's knowledge of next hops that are also this program's.
    pub fn inherit(&self, known: &[(String, IpAddr, MacAddress)]) {
        let Some(neighbours) = &self.neighbours else { return };
        for (port, address, mac) in known {
            let hops =
                self.hops.iter().filter(|(name, hop)| name == port && hop.address() == *address);
            // A run's time begins at 0.
            hops.for_each(|(_, hop)| {
                neighbours.learn(hop.link(), *address, *mac, Instant::from_ns(0));
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop::packet::PortId;

    /// The ports of a balancer: two with the same next hop, on links of their own.
    fn port_hops() -> (Config, PortHops, Arc<Neighbours>) {
        let port = |name: &str, next_hop: &str| {
            format!("[[port]]\nname = \"{name}\"\ndevice = \"net_null{name}\"\n{next_hop}\n")
        };
        let by_address = "next_hop = \"fe80::1\"\naddress = \"fe80::2\"";
        let ports = [
            port("0", by_address),
            port("1", by_address),
            port("2", "next_hop_mac = \"02:00:00:00:02:01\""),
        ];
        let balancer = "[balancer]\nsource_v4 = \"192.0.2.1\"\nsource_v6 = \"2001:db8::1\"\nmtu = 1500\n\
                        decapsulate = []\n";
        let service = "[[service]]\nname = \"web\"\naddress = \"203.0.113.10\"\nprotocol = \"tcp\"\n\
                       ports = \"any\"\n[[service.backend]]\naddress = \"10.0.0.1\"\n";
        let text = format!("{balancer}{}{service}", ports.concat());
        let config = Config::parse("lb.toml", &text).unwrap();
        let mac = MacAddress::new([2, 0, 0, 0, 9, 9]);
        let numbered = (0..).map(PortId::new).zip(&config.ports);
        let hops: Vec<_> = numbered.map(|(id, port)| port.hop(id, mac)).collect();
        let neighbours = Neighbours::new(8);
        let port_hops = PortHops::new(Arc::clone(&neighbours), &config, &hops);
        (config, port_hops, neighbours)
    }

    #[test]
    fn next_hops_of_ports_are_shown_with_the_address_in_use_its_state_and_age() {
        let (config, port_hops, neighbours) = port_hops();
        let second = |count: u64| Instant::from_ns(count * 1_000_000_000);
        let mac = MacAddress::new([2, 0, 0, 0, 0, 1]);
        let hop = port_hops.hops[1].1;
        neighbours.learn(hop.link(), hop.address(), mac, second(3));
        let shown = |now| -> Vec<String> {
            let row = |row: Value| {
                ["port", "address", "mac", "state", "age_s"]
                    .map(|key| row[key].to_string())
                    .join(" ")
            };
            port_hops.rows(&config, now).map(row).map(|row| row.replace('"', "")).collect()
        };
        let fixed = "2 null 02:00:00:00:02:01 configured null";
        let known = |state| format!("1 fe80::1 02:00:00:00:00:01 {state}");
        let unknown = |port| format!("{port} fe80::1 null unknown null");
        assert_eq!(shown(second(10)), [unknown(0), known("reachable 7"), fixed.into()]);
        assert_eq!(shown(second(40)), [unknown(0), known("stale 37"), fixed.into()]);
        let _ = neighbours.question(&hop, second(41));
        assert_eq!(shown(second(42)), [unknown(0), known("probing 39"), fixed.into()]);
        assert_eq!(shown(second(63)), [unknown(0), unknown(1), fixed.into()]);
    }

    #[test]
    fn a_successor_begins_with_the_neighbours_of_each_port() {
        let (_, before, neighbours) = port_hops();
        let (hop, mac) = (before.hops[1].1, MacAddress::new([2, 0, 0, 0, 0, 1]));
        neighbours.learn(hop.link(), hop.address(), mac, Instant::from_ns(5));
        let known = before.known();
        assert_eq!(known, [("1".to_owned(), hop.address(), mac)]);
        let (_, after, _) = port_hops();
        after.inherit(&known);
        assert_eq!(after.known(), known);
    }

    #[test]
    fn a_claim_is_reported_at_most_once_in_ten_seconds_and_in_the_end() {
        let (_, mut hops, neighbours) = port_hops();
        let (hop, mac) = (hops.hops[1].1, MacAddress::new([2, 0, 0, 0, 0, 1]));
        let second = |count: u64| Instant::from_ns(count * 1_000_000_000);
        neighbours.learn(hop.link(), hop.address(), mac, second(0));
        hops.report(second(0), false);
        let known = hops.found[1].known;
        let mut reported = |at, count, is_end| {
            let claimed_by = Some((MacAddress::new([2, 0, 0, 0, 0, 9]), count));
            let neighbour = Neighbour { claimed_by, ..known.unwrap() };
            hops.found[1].follow("1", neighbour, second(at), is_end);
            hops.found[1].claim_count
        };
        assert_eq!(
            [reported(1, 1, false), reported(2, 5, false), reported(11, 6, false)],
            [1, 1, 6]
        );
        assert_eq!([reported(12, 7, false), reported(12, 7, true)], [6, 7]);
    }
}
