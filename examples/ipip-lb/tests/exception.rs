//! What is not for the balancer goes to the kernel and comes from it: ARP, neighbour discovery and pings
//! work on each port that the balancer has.

#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

#[path = "../../../tests/tests/kernel/ping.rs"]
mod ping;

use hotloop_tests::network::{Network, ip, mac};
use hotloop_tests::{Program, wait_until};
use ping::ping;
use serde_json::Value;
use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::channel;

/// How many pings go from each end to the other, in each IP version.
const PING_COUNT: u16 = 100;

/// The addresses of the host, on the interfaces of the balancer.
const HOST: [(&str, &str); 4] = [
    ("192.0.2.1/24", "edge0"),
    ("2001:db8::1/64", "edge0"),
    ("198.51.100.1/24", "edge1"),
    ("2001:db8:1::1/64", "edge1"),
];

/// Those of the other ends of the wires.
const PEER: [(&str, &str); 4] = [
    ("192.0.2.2/24", "b0"),
    ("2001:db8::2/64", "b0"),
    ("198.51.100.2/24", "b1"),
    ("2001:db8:1::2/64", "b1"),
];

/// The configuration, with what says where frames for clients and for backends go.
fn config(next_hop: &str, backends: &str) -> String {
    format!(
        r#"
[engine]
workers = 1
idle = "adaptive"
[balancer]
source_v4 = "192.0.2.1"
source_v6 = "2001:db8::1"
mtu = 1500
decapsulate = []
[[port]]
name = "uplink"
device = "net_af_packet0,iface=a0"
kernel_interface = "edge0"
side = "client"
{next_hop}
[[port]]
name = "downlink"
device = "net_af_packet1,iface=a1"
kernel_interface = "edge1"
side = "backend"
{backends}
[[service]]
name = "dns"
address = "203.0.113.10"
protocol = "udp"
ports = "53"
backend = [{{ address = "10.0.0.1" }}]
"#
    )
}

/// A namespace with IPv6, whose kernel does not look for duplicates of its addresses.
fn namespace() -> Result<Network, String> {
    let network = Network::enter()?;
    for of in ["default", "all"] {
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{of}/disable_ipv6"), "0");
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{of}/accept_dad"), "0");
    }
    let _ = fs::write("/proc/sys/net/ipv4/ping_group_range", "0 2147483647");
    ip(&["link", "set", "dev", "lo", "up"])?;
    Ok(network)
}

fn address(address: &str, interface: &str) {
    ip(&["address", "add", address, "dev", interface]).unwrap();
}

/// What the thread of the other end of the wire is to do.
enum Order {
    Ping(&'static str),
    /// Send so many datagrams to the VIP.
    Send(u64),
}

#[test]
fn pings_pass_in_both_directions_beside_what_is_balanced() {
    let wired = namespace().and_then(|network| {
        network.pair("a0", "b0").and_then(|()| network.pair("a1", "b1")).map(|()| network)
    });
    let _network = match wired {
        Ok(network) => network,
        Err(why) => return println!("skipped: {why}"),
    };
    // The kernel has no business on the wires: what it answers, it answers by `edge0` and `edge1`.
    for wire in ["a0", "a1"] {
        ip(&["link", "set", "dev", wire, "arp", "off"]).unwrap();
        fs::write(format!("/proc/sys/net/ipv6/conf/{wire}/disable_ipv6"), "1").unwrap();
    }
    let backends = format!("next_hop_mac = \"{}\"", mac("b1"));
    let by_mac = format!("next_hop_mac = \"{}\"", mac("b0"));
    let by_address = "next_hop = \"192.0.2.2\"\naddress = \"192.0.2.1\"".to_owned();
    std::thread::scope(|scope| {
        let (ready, is_ready) = channel();
        let (order, orders) = channel();
        let (done, results) = channel();
        scope.spawn(move || {
            let network = namespace().unwrap();
            ready.send(network.process()).unwrap();
            for order in orders {
                done.send(obey(&order)).unwrap();
            }
        });
        let process = is_ready.recv().unwrap().to_string();
        for wire in ["b0", "b1"] {
            ip(&["link", "set", "dev", wire, "netns", &process]).unwrap();
        }
        let by_peer = |given: Order| {
            order.send(given).unwrap();
            results.recv().unwrap()
        };
        by_peer(Order::Send(0));
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
                assert_eq!(by_peer(Order::Ping(host)), usize::from(PING_COUNT), "{host}");
                assert_eq!(
                    ping(peer.parse().unwrap(), PING_COUNT),
                    usize::from(PING_COUNT),
                    "{peer}"
                );
            }
            by_peer(Order::Send(50));
            let packets = || program.ask("services").unwrap()[0]["packets"].clone();
            wait_until("datagrams are balanced", || packets() == 50);
            let (report, errors) = program.end();
            println!("{report:#}\n{errors}");
            check(&report, &errors);
            drop(folder);
        }
        drop(order);
    });
}

fn start(folder: &Path, config: &str) -> Program {
    fs::write(folder.join("lb.toml"), config).unwrap();
    let mut run = Command::new(env!("CARGO_BIN_EXE_ipip-lb"));
    run.current_dir(folder).args(["run", "--config", "lb.toml", "--report", "json"]);
    run.args(["--control", "lb.sock"]);
    Program::start(run, &folder.join("lb.sock"))
}

/// Every packet is accounted for, and it was said that the kernel gets what the wires carry.
fn check(report: &Value, errors: &str) {
    for (port, wire) in [("uplink", "a0"), ("downlink", "a1")] {
        let warning = format!("port.{port}: the kernel answers to what {wire} receives, too");
        assert!(errors.contains(&warning), "{errors}");
    }
    assert_eq!(report["balanced"], true, "{report}");
    // Nothing that the kernel had to do with went by another way than its own.
    for sink in ["sink kernel 0", "sink kernel 1"] {
        let stages = report["stages"].as_array().unwrap();
        let sent = stages.iter().find(|it| it["name"] == sink).map(|it| &it["emitted"]);
        assert!(
            sent.is_some_and(|sent| sent.as_u64() >= Some(4 * u64::from(PING_COUNT))),
            "{report}"
        );
    }
}

/// Does what is ordered, at the other end of the wire.
fn obey(order: &Order) -> usize {
    match order {
        Order::Ping(to) => ping(to.parse::<IpAddr>().unwrap(), PING_COUNT),
        Order::Send(0) => {
            for (address, interface) in PEER {
                ip(&["link", "set", "dev", interface, "up"]).unwrap();
                self::address(address, interface);
            }
            ip(&["route", "add", "203.0.113.0/24", "via", "192.0.2.1"]).unwrap();
            0
        }
        Order::Send(count) => {
            let socket = UdpSocket::bind("192.0.2.2:0").unwrap();
            (0..*count).for_each(|_| {
                socket.send_to(b"?", "203.0.113.10:53").unwrap();
            });
            0
        }
    }
}
