//! Next hops by the kernel's routes and neighbours: packets follow all their changes, and each is
//! accounted for.

#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

mod link;

use crate::namespace::{ANNOUNCE, BALANCER, dns, start};
use hotloop::packet::build::udp;
use hotloop_tests::network::{Network, ip, mac};
use hotloop_tests::{Program, wait_until};
use link::{Link, station};
use serde_json::Value;
use std::cell::Cell;
use std::fmt::Write as _;
use std::fs;
use std::ops::Range;

/// VIPs are 203.0.113.N, each with one backend.
const BACKENDS: [(u8, &str); 7] = [
    (10, "10.0.0.1"),
    (11, "192.0.2.50"),
    (12, "2001:db8:1::1"),
    (13, "2001:db8::50"),
    (14, "192.0.2.60"),
    (15, "172.16.0.1"),
    (16, "10.1.0.1"),
];

/// A configuration with a worker for each port.
fn config(ports: &[&str]) -> String {
    let workers = ports.len();
    let workers_line = format!("workers = {workers}");
    let mut config = BALANCER.replace("workers = 1", &workers_line) + ANNOUNCE;
    for port in ports {
        let number = &port[1..];
        write!(
            config,
            "[[port]]\nname = \"{port}\"\ndevice = \"net_af_packet{number},iface={port},qpairs={workers}\"\n\
             kernel_interface = \"edge{number}\"\n"
        )
        .unwrap();
    }
    for (number, backend) in BACKENDS {
        let (name, vip) = (format!("vip{number}"), format!("203.0.113.{number}"));
        config += &dns(&name, &vip, &[backend]);
    }
    config
}

/// A network whose kernel doesn't use the wires, and a balancer on their ends.
struct Lab {
    program: Program,
    links: Vec<Link>,
    next_port: Cell<u16>,
    _folder: tempfile::TempDir,
    _network: Network,
}

impl Lab {
    /// A lab with this many ports: `a0` at one end of a wire, the link at its other, `edge0` beside
    /// it.
    fn new(port_count: usize) -> Result<Self, String> {
        let network = Network::with_ipv6()?;
        let ports = &["a0", "a1"][..port_count];
        let ends = &["b0", "b1"][..port_count];
        for (port, end) in ports.iter().zip(ends) {
            network.pair(port, end)?;
            for interface in [port, end] {
                ip(&["link", "set", "dev", interface, "arp", "off"])?;
                fs::write(format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6"), "1")
                    .map_err(|error| format!("no IPv6: {error}"))?;
            }
        }
        let links = ends.iter().map(|end| Link::new(end)).collect();
        let folder = tempfile::tempdir().unwrap();
        let program = start(folder.path(), &config(ports));
        Ok(Self { program, links, next_port: Cell::new(1), _folder: folder, _network: network })
    }

    /// The row of `ctl next-hops` for a neighbour.
    fn hop(&self, address: &str) -> Option<Value> {
        let hops = self.program.ask("next-hops")?;
        hops.as_array().unwrap().iter().find(|hop| hop["address"] == address).cloned()
    }

    /// Waits until a neighbour has the address of this station, or none.
    fn wait_for(&self, address: &str, number: Option<u8>) {
        let mac = number.map(|number| station(number).to_string());
        wait_until(&format!("{address} is {mac:?}"), || {
            self.hop(address).is_some_and(|hop| hop["mac"].as_str() == mac.as_deref())
        });
    }

    /// Sends datagrams to a VIP by the first port, and returns their source ports.
    fn send(&self, vip: u8, count: u16) -> Range<u16> {
        let to = hotloop::packet::ethernet::MacAddress::new(bytes(&mac("a0")));
        let first = self.next_port.replace(self.next_port.get() + count);
        for port in first..first + count {
            let (from, vip) = (format!("198.51.100.7:{port}"), format!("203.0.113.{vip}:53"));
            self.links[0].send(udp().macs(station(1), to).from(from).to(vip).build());
        }
        first..first + count
    }

    /// Sends datagrams until one comes to this station of a link: workers use new routes a moment
    /// after `ctl` shows them.
    fn arrive_by_other_route(&self, vip: u8, link: usize, number: u8) {
        wait_until(&format!("the route of .{vip} is taken up"), || {
            let ports = self.send(vip, 1);
            let seen = || self.links.iter().flat_map(|link| link.seen(ports.clone())).count();
            wait_until("it has come", || seen() == 1);
            self.links[link].seen(ports).iter().any(|seen| seen.to == station(number))
        });
        self.arrive(vip, link, number);
    }

    /// Sends datagrams to a VIP, and waits until all of them have come to this station of a link.
    fn arrive(&self, vip: u8, link: usize, number: u8) {
        let ports = self.send(vip, 20);
        self.wait_for_all(vip, link, number, &ports);
    }

    fn wait_for_all(&self, vip: u8, link: usize, number: u8, ports: &Range<u16>) {
        let link = &self.links[link];
        wait_until(&format!("all to .{vip} have come"), || {
            link.seen(ports.clone()).len() == ports.len()
        });
        let backend = BACKENDS.iter().find(|(of, _)| *of == vip).unwrap().1;
        for seen in link.seen(ports.clone()) {
            assert_eq!((seen.to, seen.backend.to_string()), (station(number), backend.to_owned()));
        }
    }

    /// The sum of all stages' counts: `dropped` or `gauges`, by name.
    fn counted(&self, kind: &str, name: &str) -> u64 {
        let stages = self.program.ask("counters").unwrap();
        let stages = stages["places"].as_array().unwrap().iter();
        stages.filter_map(|stage| stage[kind][name].as_u64()).sum()
    }

    /// The balancer's drops for a reason, so far.
    fn dropped(&self, reason: &str) -> u64 {
        self.counted("dropped", reason)
    }

    /// The VIPs that are announced, by their last numbers.
    fn announced(&self) -> Vec<String> {
        let status = self.program.ask("status").unwrap();
        let vips = status["announced"].as_array().unwrap().iter();
        vips.map(|vip| vip.as_str().unwrap().replace("203.0.113.", "")).collect()
    }

    /// Ends the balancer, and checks that every packet is accounted for.
    fn end(self) -> Value {
        let (report, errors) = self.program.end();
        println!("{report:#}\n{errors}");
        assert_eq!((&report["balanced"], &report["pools_whole"]), (&true.into(), &true.into()));
        report
    }
}

fn bytes(mac: &str) -> [u8; 6] {
    let bytes: Vec<_> = mac.split(':').map(|it| u8::from_str_radix(it, 16).unwrap()).collect();
    bytes.try_into().unwrap()
}

/// Runs `ip` with these arguments.
fn run_ip(arguments: &str) {
    ip(&arguments.split(' ').collect::<Vec<_>>()).unwrap();
}

#[test]
fn packets_follow_the_kernels_routes_and_neighbours() {
    let lab = match Lab::new(1) {
        Ok(lab) => lab,
        Err(why) => return println!("skipped: {why}"),
    };
    let link = &lab.links[0];
    // Nothing is known: nothing is announced.
    assert!(lab.announced().is_empty());
    for (address, number) in
        [("192.0.2.254", 254), ("192.0.2.50", 50), ("fe80::fe", 6), ("2001:db8::50", 65)]
    {
        link.answer(address, Some(number));
    }
    for arguments in [
        "address add 192.0.2.1/24 dev edge0",
        "address add 2001:db8::1/64 dev edge0",
        "route add 10.0.0.0/8 via 192.0.2.254",
        "-6 route add 2001:db8:1::/48 via fe80::fe dev edge0",
    ] {
        run_ip(arguments);
    }
    let all = [("192.0.2.254", 254), ("192.0.2.50", 50), ("fe80::fe", 6), ("2001:db8::50", 65)];
    all.iter().for_each(|(address, number)| lab.wait_for(address, Some(*number)));
    // Through gateways and on the link, with both versions.
    for (vip, number) in [(10, 254), (11, 50), (12, 6), (13, 65)] {
        lab.arrive(vip, 0, number);
    }
    wait_until("those with a next hop are announced", || {
        lab.announced() == ["10", "11", "12", "13", "16"]
    });

    // No route.
    let lost = lab.send(15, 7);
    wait_until("they are dropped", || lab.dropped("no_route") == 7);
    let hops = lab.program.ask("next-hops").unwrap();
    let no_route = hops.as_array().unwrap().iter().find(|hop| hop["state"] == "no route");
    assert_eq!(no_route.unwrap()["backends"], 1, "{hops}");
    assert!(link.seen(lost).is_empty());

    // The gateway has another Ethernet address: first by an administrator's change, then by its
    // own.
    run_ip("neighbour replace 192.0.2.254 lladdr 02:00:00:00:09:99 dev edge0");
    lab.wait_for("192.0.2.254", Some(0x99));
    lab.arrive(10, 0, 0x99);
    link.answer("192.0.2.254", Some(200));
    run_ip("neighbour del 192.0.2.254 dev edge0");
    lab.wait_for("192.0.2.254", Some(200));
    lab.arrive(10, 0, 200);

    // The route moves to another gateway.
    link.answer("192.0.2.253", Some(253));
    run_ip("route replace 10.0.0.0/8 via 192.0.2.253");
    lab.wait_for("192.0.2.253", Some(253));
    lab.arrive_by_other_route(10, 0, 253);
    run_ip("route add 10.0.0.1/32 dev edge0 via inet6 fe80::fe");
    wait_until("two backends are by fe80::fe", || {
        lab.hop("fe80::fe").is_some_and(|hop| hop["backends"] == 2)
    });
    lab.arrive_by_other_route(10, 0, 6);
    run_ip("route del 10.0.0.1/32");

    // A neighbour is deleted while packets come.
    for _ in 0..5 {
        run_ip("neighbour del 192.0.2.50 dev edge0");
        lab.arrive(11, 0, 50);
    }
    let report = lab.end();
    assert_eq!(report["dropped"]["no_route"], 7);
    assert_eq!(report["dropped"].get("unresolved"), None);
}

#[test]
fn packets_wait_for_a_neighbour_and_a_dead_one_is_in_nobodys_way() {
    let lab = match Lab::new(1) {
        Ok(lab) => lab,
        Err(why) => return println!("skipped: {why}"),
    };
    let link = &lab.links[0];
    run_ip("address add 192.0.2.1/24 dev edge0");
    run_ip("route add 10.0.0.0/8 via 192.0.2.254");
    link.answer("192.0.2.50", Some(50));
    lab.wait_for("192.0.2.50", Some(50));
    let failed = |address: &str| {
        wait_until("the kernel has given it up", || {
            lab.hop(address).is_some_and(|hop| hop["state"] == "failed")
        });
    };

    // A neighbour that answers in time. It has three seconds: on a machine that stalls, it gets
    // several attempts.
    let mut lost = 0;
    let mut is_in_time = false;
    for _ in 0..10 {
        link.answer("192.0.2.60", None);
        let _ = ip(&["neighbour", "del", "192.0.2.60", "dev", "edge0"]);
        failed("192.0.2.60");
        let ports = lab.send(14, 100);
        wait_until("they wait", || {
            lab.counted("gauges", "waiting") + lab.dropped("unresolved") - lost == 100
        });
        assert!(link.seen(ports.clone()).is_empty());
        link.answer("192.0.2.60", Some(60));
        wait_until("each has gone or was dropped", || {
            let dropped = lab.dropped("unresolved") - lost;
            link.seen(ports.clone()).len() as u64 + dropped == 100
        });
        is_in_time = lab.dropped("unresolved") == lost;
        lost = lab.dropped("unresolved");
        if is_in_time {
            lab.wait_for_all(14, 0, 60, &ports);
            break;
        }
    }
    assert!(is_in_time, "{lost} were lost");

    // A dead gateway: half of the waiting places are its own, and packets to others continue.
    failed("192.0.2.254");
    assert!(!lab.announced().contains(&"10".to_owned()));
    let ports = lab.send(10, 200);
    lab.arrive(11, 0, 50);
    wait_until("they are dropped", || {
        lab.dropped("unresolved") + lab.dropped("neighbour_queue_full") == lost + 200
    });
    assert!(lab.dropped("neighbour_queue_full") > 0);
    assert!(link.seen(ports).is_empty());
    // It comes to life.
    link.answer("192.0.2.254", Some(254));
    lab.wait_for("192.0.2.254", Some(254));
    lab.arrive(10, 0, 254);
    let is_announced = || lab.announced().contains(&"10".to_owned());
    wait_until("it is announced", is_announced);
    // It dies, which the kernel detects after its next request.
    link.answer("192.0.2.254", None);
    run_ip("neighbour del 192.0.2.254 dev edge0");
    wait_until("it is withdrawn", || !is_announced());
    failed("192.0.2.254");
    let (unresolved, full) = (lab.dropped("unresolved"), lab.dropped("neighbour_queue_full"));
    let report = lab.end();
    assert_eq!(report["dropped"]["unresolved"], unresolved);
    assert_eq!(report["dropped"]["neighbour_queue_full"], full);
}

#[test]
fn the_route_of_a_backend_decides_the_port() {
    let lab = match Lab::new(2) {
        Ok(lab) => lab,
        Err(why) => return println!("skipped: {why}"),
    };
    lab.links[0].answer("192.0.2.254", Some(254));
    lab.links[1].answer("198.18.0.254", Some(18));
    // Two neighbours with the same link-local address.
    lab.links[0].answer("fe80::fe", Some(6));
    lab.links[1].answer("fe80::fe", Some(7));
    for arguments in [
        "address add 192.0.2.1/24 dev edge0",
        "address add 198.18.0.1/24 dev edge1",
        "address add 2001:db8::1/64 dev edge1",
        "address add 2001:db8:2::1/64 dev edge0",
        "route add 10.0.0.0/16 via 192.0.2.254",
        "route add 10.1.0.0/16 via 198.18.0.254",
        "-6 route add 2001:db8:1::/48 via fe80::fe dev edge1",
        "-6 route add 2001:db8:3::/48 via fe80::fe dev edge0",
    ] {
        run_ip(arguments);
    }
    lab.wait_for("192.0.2.254", Some(254));
    lab.wait_for("198.18.0.254", Some(18));
    lab.arrive(10, 0, 254);
    lab.arrive(16, 1, 18);
    lab.arrive(12, 1, 7);
    run_ip("-6 route replace 2001:db8:1::/48 via fe80::fe dev edge0");
    run_ip("route replace 10.0.0.0/16 via 198.18.0.254");
    wait_until("both of IPv4 are by one", || {
        lab.hop("198.18.0.254").is_some_and(|hop| hop["backends"] == 2)
    });
    lab.arrive_by_other_route(10, 1, 18);
    lab.arrive_by_other_route(12, 0, 6);
    let report = lab.end();
    assert_eq!(report["dropped"].get("no_route"), None);
}
