//! Following: the tables equal the kernel's, whatever happens to those.

use super::said::{by_ip, by_tables, got};
use super::{WITHIN, network, run};
use hotloop_kernel::{KernelFollower, KernelRoutes, Lookup, RouteTarget};
use hotloop_tests::tool;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Addresses, routes of every kind and neighbours, as arguments of `ip`.
const SETUP: [&str; 26] = [
    "link add c0 type veth peer name d0",
    "link set c0 up",
    "link set d0 up",
    "address add 192.0.2.1/24 dev a0",
    "address add 198.51.100.1/24 dev c0",
    "address add 10.9.9.1 peer 10.9.9.2/32 dev a0",
    "address add 2001:db8:a::1/64 dev a0",
    "address add 2001:db8:c::1/64 dev c0",
    "route add default via 192.0.2.254",
    "route add default via 198.51.100.254 metric 100",
    "route add 10.0.0.0/8 via 192.0.2.253",
    "route add 10.1.0.0/16 dev c0 scope link",
    "route add 10.2.0.0/16 nexthop via 192.0.2.2 weight 2 nexthop via 198.51.100.2",
    "route add blackhole 10.3.0.0/16",
    "route add unreachable 10.4.0.0/16",
    "route add prohibit 10.5.0.0/16",
    "route add throw 10.6.0.0/16",
    "route add 10.7.0.0/16 via inet6 fe80::7 dev a0",
    "route add 10.8.0.0/16 via 192.0.2.8 table 77",
    "-6 route add default via fe80::1 dev a0 metric 300",
    "-6 route add 2001:db8:1::/48 via 2001:db8:c::2",
    "-6 route add 2001:db8:2::/48 nexthop via 2001:db8:a::2 nexthop via 2001:db8:c::2",
    "-6 route add blackhole 2001:db8:3::/48",
    "-6 route add unreachable 2001:db8:4::/48",
    "neigh add 192.0.2.254 lladdr 02:00:00:00:00:fe dev a0",
    "-6 neigh add fe80::1 lladdr 02:00:00:00:00:01 dev a0",
];

/// Changes, applied one after the other.
const CHANGES: [&str; 30] = [
    "route replace 10.0.0.0/8 via 192.0.2.252",
    "route append 10.0.0.0/8 via 192.0.2.251",
    "route prepend 10.0.0.0/8 via 192.0.2.250",
    "route del 10.0.0.0/8 via 192.0.2.252",
    "route del default via 192.0.2.254",
    "route add 10.0.0.0/8 via 192.0.2.249 metric 9",
    "-6 route append 2001:db8:1::/48 via 2001:db8:a::3",
    "-6 route del 2001:db8:2::/48 via 2001:db8:a::2",
    "-6 route replace 2001:db8:3::/48 via 2001:db8:a::9",
    "neigh replace 192.0.2.254 lladdr 02:00:00:00:00:fd dev a0",
    "neigh add 192.0.2.77 lladdr 02:00:00:00:00:77 dev a0 nud stale",
    "neigh del 192.0.2.254 dev a0",
    "address add 203.0.113.1/24 dev a0",
    "route add 172.16.0.0/16 via 203.0.113.2 src 203.0.113.1",
    "address del 203.0.113.1/24 dev a0",
    "nexthop add id 5 via 192.0.2.5 dev a0",
    "route add 172.17.0.0/16 nhid 5",
    "nexthop replace id 5 via 198.51.100.5 dev c0",
    "nexthop del id 5",
    "link set d0 down",
    "link set d0 up",
    "link set c0 down",
    "link set c0 up",
    "link set a0 mtu 1400",
    "link set a0 down",
    "link set a0 name uplink",
    "link set uplink up",
    "route flush table main",
    "link del c0",
    "address flush dev uplink",
];

/// Waits until the tables equal `ip`'s output, and returns how long that took.
fn settle(kernel: &KernelFollower, what: &str) -> Duration {
    let begun = Instant::now();
    loop {
        let seen = kernel.change_counts();
        let (ours, theirs) = (kernel.read(by_tables), by_ip());
        if ours == theirs {
            return begun.elapsed();
        }
        if begun.elapsed() > WITHIN {
            let lacks = theirs.iter().filter(|line| !ours.contains(line));
            let lacks: Vec<_> = lacks.collect();
            let beyond: Vec<_> = ours.iter().filter(|line| !theirs.contains(line)).collect();
            panic!("{what}: the kernel has {lacks:#?}, the tables have {beyond:#?}");
        }
        let _ = kernel.wait(seen, Duration::from_millis(20));
    }
}

#[test]
fn the_tables_are_what_ip_says_after_every_change() {
    let _network = match network() {
        Ok(network) => network,
        Err(why) => return println!("skipped: {why}"),
    };
    let followed = KernelFollower::start().unwrap();
    for change in SETUP.iter().chain(&CHANGES) {
        run(change);
        let waited = settle(&followed, change);
        println!("{change}: after {waited:?}, {} reads", followed.read_count());
        // A new reader sees the same.
        settle(&KernelFollower::start().unwrap(), change);
    }
    assert_eq!(followed.overrun_count(), 0);
}

#[test]
fn lookups_find_what_the_kernel_finds() {
    let _network = match network() {
        Ok(network) => network,
        Err(why) => return println!("skipped: {why}"),
    };
    SETUP.iter().for_each(|line| run(line));
    let kernel = KernelFollower::start().unwrap();
    let destinations = [
        "1.1.1.1 10.0.0.1 10.1.2.3 10.3.0.1 10.4.0.1 10.5.0.1 10.6.0.1 10.7.0.1 10.8.0.1 10.9.9.1 \
         10.9.9.2 127.0.0.1 192.0.2.0 192.0.2.1 192.0.2.9 192.0.2.255 198.51.100.77 224.0.0.5",
        "2001:db8:a::1 2001:db8:a::9 2001:db8:c::9 2001:db8:1::1 2001:db8:3::1 2001:db8:4::1 2600::1 \
         ::1 ff02::1",
    ];
    let mut seen_count = 0;
    for destination in destinations.iter().flat_map(|line| line.split_whitespace()) {
        let destination: IpAddr = destination.parse().unwrap();
        let ours = kernel.read(|tables| match tables.lookup(destination) {
            Lookup::Via(hop) => {
                let link = tables.link(hop.interface_index).unwrap();
                format!("{} {}", link.name, hop.address)
            }
            // The kernel reports nothing else about them in answers.
            Lookup::Blackhole => "RTNETLINK answers: Invalid argument".to_owned(),
            Lookup::Unreachable => "RTNETLINK answers: No route to host".to_owned(),
            Lookup::Prohibited => "RTNETLINK answers: Permission denied".to_owned(),
            Lookup::NoRoute => "RTNETLINK answers: Network is unreachable".to_owned(),
            other => format!("{other:?}").to_lowercase(),
        });
        let theirs = got(destination);
        println!("{destination}: {theirs}");
        // A group leaves by the default route in IPv4, and IPv6's `ip` does not report it.
        if !destination.is_multicast() {
            assert_eq!(ours, theirs, "{destination}");
        }
        seen_count += 1;
    }
    assert_eq!(seen_count, 27);
    // The first of several paths is taken.
    for (destination, gateway) in [("10.2.0.1", "192.0.2.2"), ("2001:db8:2::1", "2001:db8:a::2")] {
        let found = kernel.read(|tables| tables.lookup(destination.parse().unwrap()));
        let Lookup::Via(hop) = found else { panic!("{found:?}") };
        assert_eq!(hop.address.to_string(), gateway);
    }
    assert!(check_routes(&kernel, "a0") > 10 && check_routes(&kernel, "c0") > 5);
    kernel.read(|tables| {
        let Lookup::Via(hop) = tables.lookup([1, 1, 1, 1].into()) else { panic!() };
        let known = tables.neighbour(hop.interface_index, hop.address).unwrap();
        assert_eq!(known.mac.unwrap().to_string(), "02:00:00:00:00:fe");
        assert!(tables.is_local([192, 0, 2, 1].into()) && !tables.is_local([192, 0, 2, 2].into()));
    });
}

/// Checks that the packet path's routes through an interface equal those of the tables, at both
/// ends of every prefix and beside them. Returns the number that lead to neighbours.
fn check_routes(kernel: &KernelFollower, interface: &str) -> usize {
    kernel.read(|tables| {
        let index = tables.link_named(interface).unwrap().index;
        // The second: its index marks its neighbours on the link.
        let routes = KernelRoutes::new(tables, &[u32::MAX, index]);
        let mut count = 0;
        for address in
            tables.routes().flat_map(|route| ends(route.prefix.network(), route.prefix.len()))
        {
            let expected = match tables.lookup(address) {
                Lookup::Via(hop) if hop.interface_index == index => {
                    count += 1;
                    let neighbour = match hop.address {
                        IpAddr::V6(it) if it.is_unicast_link_local() => {
                            Ipv6Addr::from_bits(it.to_bits() | 2 << 96).into()
                        }
                        address => address,
                    };
                    RouteTarget::Via { interface: 1, neighbour }
                }
                Lookup::Local => RouteTarget::Local,
                _ => RouteTarget::Nowhere,
            };
            assert_eq!(routes.lookup(address), expected, "{address}");
        }
        count
    })
}

/// The first and last address of a prefix, and those before and after it.
fn ends(first: IpAddr, len: u8) -> [IpAddr; 4] {
    match first {
        IpAddr::V4(first) => {
            let first = first.to_bits();
            let last = first | u32::MAX.checked_shr(len.into()).unwrap_or(0);
            let ends = [first, last, first.wrapping_sub(1), last.wrapping_add(1)];
            ends.map(|bits| Ipv4Addr::from_bits(bits).into())
        }
        IpAddr::V6(first) => {
            let first = first.to_bits();
            let last = first | u128::MAX.checked_shr(len.into()).unwrap_or(0);
            let ends = [first, last, first.wrapping_sub(1), last.wrapping_add(1)];
            ends.map(|bits| Ipv6Addr::from_bits(bits).into())
        }
    }
}

/// Lines for `ip -batch`: `count` routes and neighbours that are added, changed and partly deleted.
fn flood(count: u32) -> String {
    let mut lines = String::new();
    for number in 0..count {
        let [_, _, high, low] = number.to_be_bytes();
        writeln!(lines, "route add 10.20.{high}.{low} via 192.0.2.{}", 2 + number % 100).unwrap();
        let of = format!("to 192.0.{}.{low} lladdr 02:00:00:00:{high:02x}:{low:02x}", 16 + high);
        writeln!(lines, "neigh add {of} dev a0").unwrap();
        writeln!(lines, "route add 2001:db8:f::{number:x} via 2001:db8:a::2").unwrap();
    }
    for number in 0..count {
        let [_, _, high, low] = number.to_be_bytes();
        match number % 3 {
            0 => writeln!(lines, "route del 10.20.{high}.{low}"),
            1 => writeln!(lines, "route replace 10.20.{high}.{low} via 192.0.2.200"),
            _ => writeln!(lines, "route del 2001:db8:f::{number:x}"),
        }
        .unwrap();
    }
    lines
}

fn run_batch(lines: &str) {
    let mut child =
        tool("ip").unwrap().args(["-batch", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), lines.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn after_a_flood_of_changes_the_tables_are_right() {
    let _network = match network() {
        Ok(network) => network,
        Err(why) => return println!("skipped: {why}"),
    };
    run("address add 192.0.2.1/24 dev a0");
    run("address add 2001:db8:a::1/64 dev a0");
    let followed = KernelFollower::start().unwrap();
    let overrun = KernelFollower::with_event_buffer(16_384).unwrap();
    // The thread of this follower can't read anything until the flood has passed.
    overrun.read(|_| run_batch(&flood(1_000)));
    for (kernel, what) in [(&followed, "followed"), (&overrun, "overrun")] {
        let waited = settle(kernel, what);
        println!("{what}: after {waited:?}: {kernel:?}");
        assert!(check_routes(kernel, "a0") > 1_000);
    }
    assert!(overrun.overrun_count() > 0);
    assert!(overrun.read_count() > 1);
    run("route flush table main");
    run("neigh flush dev a0 nud permanent");
    settle(&followed, "flushed");
    settle(&overrun, "flushed after an overrun");
}

#[test]
fn a_change_is_reported_and_waiting_ends_in_time() {
    let _network = match network() {
        Ok(network) => network,
        Err(why) => return println!("skipped: {why}"),
    };
    run("address add 192.0.2.1/24 dev a0");
    let kernel = KernelFollower::start().unwrap();
    settle(&kernel, "start");
    // Recently made interfaces still send and learn.
    let mut seen = kernel.change_counts();
    while kernel.wait(seen, Duration::from_secs(3)) != seen {
        seen = kernel.change_counts();
    }
    let before = kernel.change_counts();
    run("route add 10.0.0.0/8 via 192.0.2.2");
    let after = kernel.wait(before, WITHIN);
    assert_eq!((after.routes, after.links), (before.routes + 1, before.links));
    run("neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev a0");
    let last = kernel.wait(after, WITHIN);
    assert_eq!((last.neighbours, last.routes), (after.neighbours + 1, after.routes));
}
