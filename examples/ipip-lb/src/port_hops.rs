//! The neighbours that are next hops of ports: their rows of `ctl next-hops`.

use crate::answer;
use crate::config::{self, Config};
use hotloop::packet::ethernet::MacAddress;
use hotloop::stage::Instant;
use hotloop::stage::neighbours::{Neighbours, NextHop, NextHopWatch};
use std::collections::HashMap;
use std::sync::Arc;

/// Watches the next hops of the ports, in the order of the configuration.
#[must_use]
pub fn watch(
    neighbours: Arc<Neighbours>,
    config: &Config,
    next_hops: &[Option<NextHop>],
) -> NextHopWatch {
    let hops = config.ports.iter().zip(next_hops);
    let hops = hops.filter_map(|(port, hop)| Some((port.name.clone(), (*hop)?)));
    NextHopWatch::new(neighbours, hops.collect())
}

/// A row of `ctl next-hops` for each next hop in the configuration.
pub fn rows(
    watch: &NextHopWatch,
    config: &Config,
    now: Instant,
) -> impl Iterator<Item = answer::NextHop> {
    let states: HashMap<_, _> = watch.states(now).collect();
    config.ports.iter().filter_map(move |port| {
        let known = states.get(port.name.as_str()).copied().flatten();
        let age_s = known.map(|known| now.ns_since(known.confirmed) / 1_000_000_000);
        let mut row = answer::NextHop {
            port: Some(port.name.clone()),
            address: None,
            mac: known.map(|known| known.mac.to_string()),
            state: known.map_or_else(|| "unknown".into(), |known| known.state.to_string()),
            age_s: Some(age_s),
            backends: None,
        };
        match port.next_hop {
            config::NextHop::Mac(mac) => {
                row.mac = Some(MacAddress::new(mac).to_string());
                (row.state, row.age_s) = ("configured".into(), None);
            }
            config::NextHop::V4(address, _) => row.address = Some(address.into()),
            config::NextHop::V6(address, _) => row.address = Some(address.into()),
            config::NextHop::Kernel => return None,
        }
        Some(row)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop::packet::PortId;

    /// The ports of a balancer: two with the same next hop, on links of their own.
    fn port_hops() -> (Config, Vec<Option<NextHop>>, NextHopWatch, Arc<Neighbours>) {
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
        let watch = watch(Arc::clone(&neighbours), &config, &hops);
        (config, hops, watch, neighbours)
    }

    #[test]
    fn next_hops_of_ports_are_shown_with_the_address_in_use_its_state_and_age() {
        let (config, hops, watch, neighbours) = port_hops();
        let second = |count: u64| Instant::from_ns(count * 1_000_000_000);
        let mac = MacAddress::new([2, 0, 0, 0, 0, 1]);
        let hop = hops[1].unwrap();
        neighbours.learn(hop.link(), hop.address(), mac, second(3));
        let shown = |now| -> Vec<String> {
            let row = |row: answer::NextHop| {
                let row = serde_json::json!(row);
                ["port", "address", "mac", "state", "age_s"]
                    .map(|key| row[key].to_string())
                    .join(" ")
            };
            rows(&watch, &config, now).map(row).map(|row| row.replace('"', "")).collect()
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
}
