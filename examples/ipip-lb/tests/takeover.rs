//! A port's interface takes over the addresses and routes of the interface that the device receives
//! by, answers in its place, and gives them back.

#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

use crate::namespace::{BALANCER, dns};
use crate::ping::ping;
use hotloop_tests::network::{Network, ip};
use hotloop_tests::{Host, tool, wait_until};
use serde_json::Value;
use std::fs;
use std::net::IpAddr;

const PORT: &str = r#"
[[port]]
name = "uplink"
device = "net_af_packet0,iface=a0"
kernel_interface = "edge0"
takeover = true
next_hop_mac = "02:00:00:00:00:01"
"#;

/// Number of pings to each address of the host.
const PING_COUNT: u16 = 50;

fn run(arguments: &str) {
    let words: Vec<_> = arguments.split_whitespace().collect();
    ip(&words).unwrap_or_else(|error| panic!("{error}"));
}

/// The addresses of an interface, and the routes by it.
fn settings(interface: &str) -> [String; 3] {
    [
        format!("-j address show dev {interface} scope global"),
        format!("-j -4 route show table all dev {interface}"),
        format!("-j -6 route show dev {interface}"),
    ]
    .map(|arguments| {
        let output = tool("ip").unwrap().args(arguments.split(' ')).output().unwrap();
        let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
        // Without the flags of the interface, which belong to the device.
        let addresses = &shown[0]["addr_info"];
        if addresses.is_null() { shown.to_string() } else { addresses.to_string() }
    })
}

#[test]
fn the_host_is_reached_once_by_its_addresses_and_has_them_again() {
    let wired = Network::with_ipv6().and_then(|network| network.pair("a0", "b0").map(|()| network));
    let _network = match wired {
        Ok(network) => network,
        Err(why) => return println!("skipped: {why}"),
    };
    run("address add 192.0.2.1/24 dev a0");
    run("address add 2001:db8::1/64 dev a0");
    run("route add default via 192.0.2.2");
    let peer = Host::start(&["b0"]);
    peer.does(|| {
        run("link set dev b0 up");
        run("address add 192.0.2.2/24 dev b0");
        run("address add 2001:db8::2/64 dev b0");
    });
    wait_until("the wire is up", || peer.does(|| ping([192, 0, 2, 1].into(), 1)) == 1);
    let before = settings("a0");
    assert!(before[1].contains("default") && before[2].contains("2001:db8::/64"), "{before:?}");
    let folder = tempfile::tempdir().unwrap();
    let config = [BALANCER, PORT].concat() + &dns("dns", "203.0.113.10", &["10.0.0.1"]);
    let start = || crate::namespace::start(folder.path(), &config);

    let program = start();
    check_reached(&peer);
    let (report, errors) = program.end();
    println!("{errors}");
    assert_eq!(report["balanced"], true, "{report}");
    assert!(!errors.contains("the kernel answers"), "{errors}");
    assert_eq!(settings("a0"), before);

    // A killed program leaves them in the wrong place; the next one restores them, and takes them
    // over again.
    drop(start());
    let left = settings("a0");
    assert!(!left[0].contains("192.0.2.1") && !left[1].contains("default"), "{left:?}");
    let program = start();
    check_reached(&peer);
    let (_, errors) = program.end();
    assert!(errors.contains("a0 has its addresses and routes again"), "{errors}");
    assert_eq!(settings("a0"), before);
    assert_eq!(peer.does(|| ping([192, 0, 2, 1].into(), 1)), 1);
}

/// The peer reaches the host by each address, and the host's kernel gets each request once.
fn check_reached(peer: &Host) {
    for host in ["192.0.2.1", "2001:db8::1"] {
        let address: IpAddr = host.parse().unwrap();
        let before = echo_requests(address);
        assert_eq!(peer.does(move || ping(address, PING_COUNT)), usize::from(PING_COUNT), "{host}");
        assert_eq!(echo_requests(address) - before, u64::from(PING_COUNT), "{host}");
    }
}

/// Number of echo requests that the host's kernel has received.
fn echo_requests(address: IpAddr) -> u64 {
    if address.is_ipv6() {
        let table = fs::read_to_string("/proc/thread-self/net/snmp6").unwrap();
        let line = table.lines().find_map(|line| line.strip_prefix("Icmp6InEchos ")).unwrap();
        return line.trim().parse().unwrap();
    }
    let table = fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let mut lines = table.lines().filter_map(|line| line.strip_prefix("Icmp: "));
    let (names, counts) = (lines.next().unwrap(), lines.next().unwrap());
    let mut columns = names.split(' ').zip(counts.split(' '));
    columns.find(|(name, _)| *name == "InEchos").unwrap().1.parse().unwrap()
}
