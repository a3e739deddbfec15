//! Packets that are not for the balancer go to the kernel and come from it: ARP, neighbour
//! discovery and pings work on each port of the balancer.

#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

use crate::namespace::{BALANCER, dns, start};
use crate::ping::ping;
use hotloop_tests::network::{Network, ip, mac};
use hotloop_tests::{Host, wait_until};
use serde_json::Value;
use std::fs;
use std::net::UdpSocket;

/// Number of pings from each end to the other, in each IP version.
const PING_COUNT: u16 = 100;

/// The addresses of the host, on the interfaces of the balancer.
const HOST: [(&str, &str); 4] = [
    ("192.0.2.1/24", "edge0"),
    ("2001:db8::1/64", "edge0"),
    ("198.51.100.1/24", "edge1"),
    ("2001:db8:1::1/64", "edge1"),
];

/// The addresses of the other ends of the wires.
const PEER: [(&str, &str); 4] = [
    ("192.0.2.2/24", "b0"),
    ("2001:db8::2/64", "b0"),
    ("198.51.100.2/24", "b1"),
    ("2001:db8:1::2/64", "b1"),
];

/// The configuration, with the next hops for clients and for backends.
fn config(next_hop: &str, backends: &str) -> String {
    let port = |(number, name, side, hop)| {
        format!(
            "[[port]]\nname = \"{name}\"\ndevice = \"net_af_packet{number},iface=a{number}\"\n\
             kernel_interface = \"edge{number}\"\nside = \"{side}\"\n{hop}\n"
        )
    };
    let ports = [(0, "uplink", "client", next_hop), (1, "downlink", "backend", backends)];
    let dns = dns("dns", "203.0.113.10", &["10.0.0.1"]);
    BALANCER.to_owned() + &ports.map(port).concat() + &dns
}

fn address(address: &str, interface: &str) {
    ip(&["address", "add", address, "dev", interface]).unwrap();
}

#[test]
fn pings_pass_in_both_directions_beside_what_is_balanced() {
    let wired = Network::with_ipv6().and_then(|network| {
        network.pair("a0", "b0").and_then(|()| network.pair("a1", "b1")).map(|()| network)
    });
    let _network = match wired {
        Ok(network) => network,
        Err(why) => return println!("skipped: {why}"),
    };
    // The kernel must not use the wires: it answers through `edge0` and `edge1`.
    for wire in ["a0", "a1"] {
        ip(&["link", "set", "dev", wire, "arp", "off"]).unwrap();
        fs::write(format!("/proc/sys/net/ipv6/conf/{wire}/disable_ipv6"), "1").unwrap();
    }
    let backends = format!("next_hop_mac = \"{}\"", mac("b1"));
    let by_mac = format!("next_hop_mac = \"{}\"", mac("b0"));
    let by_address = "next_hop = \"192.0.2.2\"\naddress = \"192.0.2.1\"".to_owned();
    let peer = Host::start(&["b0", "b1"]);
    peer.does(|| {
        for (address, interface) in PEER {
            ip(&["link", "set", "dev", interface, "up"]).unwrap();
            self::address(address, interface);
        }
        ip(&["route", "add", "203.0.113.0/24", "via", "192.0.2.1"]).unwrap();
    });
    let pings = |host: &'static str| peer.does(|| ping(host.parse().unwrap(), PING_COUNT));
    for next_hop in [by_mac, by_address] {
        let folder = tempfile::tempdir().unwrap();
        let program = start(folder.path(), &config(&next_hop, &backends));
        for (address, interface) in HOST {
            self::address(address, interface);
        }
        for (host, peer) in [
            ("192.0.2.1", "192.0.2.2"),
            ("2001:db8::1", "2001:db8::2"),
            ("198.51.100.1", "198.51.100.2"),
            ("2001:db8:1::1", "2001:db8:1::2"),
        ] {
            assert_eq!(pings(host), usize::from(PING_COUNT), "{host}");
            assert_eq!(ping(peer.parse().unwrap(), PING_COUNT), usize::from(PING_COUNT), "{peer}");
        }
        peer.does(|| send(50));
        let packets = || program.ask("services").unwrap()[0]["packets"].clone();
        wait_until("datagrams are balanced", || packets() == 50);
        let (report, errors) = program.end();
        println!("{report:#}\n{errors}");
        check(&report, &errors);
        drop(folder);
    }
}

/// Checks that every packet is accounted for, and the log names the kernel as receiver.
fn check(report: &Value, errors: &str) {
    for (port, wire) in [("uplink", "a0"), ("downlink", "a1")] {
        let warning = format!("port.{port}: the kernel answers to what {wire} receives, too");
        assert!(errors.contains(&warning), "{errors}");
    }
    assert_eq!(report["balanced"], true, "{report}");
    // All of the kernel's packets went through its own interfaces.
    for sink in ["sink kernel 0", "sink kernel 1"] {
        let stages = report["stages"].as_array().unwrap();
        let sent = stages.iter().find(|it| it["name"] == sink).map(|it| &it["emitted"]);
        assert!(
            sent.is_some_and(|sent| sent.as_u64() >= Some(4 * u64::from(PING_COUNT))),
            "{report}"
        );
    }
}

/// Sends datagrams to the VIP.
fn send(count: usize) {
    let socket = UdpSocket::bind("192.0.2.2:0").unwrap();
    for _ in 0..count {
        socket.send_to(b"?", "203.0.113.10:53").unwrap();
    }
}
