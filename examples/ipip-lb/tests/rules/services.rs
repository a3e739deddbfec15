//! The service that takes a packet: each service here has a backend of its own, which identifies
//! it.

use crate::deployed::{Running, assert_dropped, in_all, preamble, service};
use hotloop::packet::build::{echo_request, protocol, tcp, udp};

const CLIENT: &str = "198.51.100.7:4000";

/// The backend of a TCP segment to this address and port; `None` if it goes nowhere.
fn tcp_to(lb: &mut Running<'_>, vip: &str) -> Option<String> {
    let client = if vip.starts_with('[') { "[2001:db8:c::7]:4000" } else { CLIENT };
    lb.feed(&[tcp().from(client).to(vip).build()]).first().map(|it| it.backend())
}

fn udp_to(lb: &mut Running<'_>, vip: &str) -> Option<String> {
    lb.feed(&[udp().from(CLIENT).to(vip).build()]).first().map(|it| it.backend())
}

fn is(backend: &str) -> Option<String> {
    Some(backend.to_owned())
}

#[test]
fn the_longest_prefix_wins() {
    let config = [
        preamble(""),
        service("all", "0.0.0.0/0 tcp 80", "", &["10.0.0.1"]),
        service("net", "203.0.113.0/24 tcp 80", "", &["10.0.0.2"]),
        service("half", "203.0.113.128/25 tcp 80", "", &["10.0.0.3"]),
        service("host", "203.0.113.200 tcp 80", "", &["10.0.0.4"]),
        service("net6", "2001:db8:f::/48 tcp 80", "", &["10.0.0.5"]),
        service("host6", "2001:db8:f::1 tcp 80", "", &["10.0.0.6"]),
    ];
    let (_, report) = in_all(&config.concat(), |lb| {
        for (vip, backend) in [
            ("9.9.9.9:80", "10.0.0.1"),
            ("203.0.112.255:80", "10.0.0.1"),
            ("203.0.113.0:80", "10.0.0.2"),
            ("203.0.113.127:80", "10.0.0.2"),
            ("203.0.113.128:80", "10.0.0.3"),
            ("203.0.113.200:80", "10.0.0.4"),
            ("203.0.113.201:80", "10.0.0.3"),
            ("[2001:db8:f::]:80", "10.0.0.5"),
            ("[2001:db8:f::1]:80", "10.0.0.6"),
        ] {
            assert_eq!(tcp_to(lb, vip), is(backend), "{vip}");
        }
        assert_eq!(tcp_to(lb, "[2001:db8:e::1]:80"), None);
    });
    assert_dropped(&report, &[("punt", 1)]);
}

#[test]
fn within_a_prefix_one_protocol_comes_before_any_and_the_narrower_range_before_the_wider() {
    let config = [
        preamble(""),
        service("every", "203.0.113.10 any any", "", &["10.0.0.1"]),
        service("any-http", "203.0.113.10 any 80", "", &["10.0.0.2"]),
        service("all-tcp", "203.0.113.10 tcp any", "", &["10.0.0.3"]),
        service("low-tcp", "203.0.113.10 tcp 1-1023", "", &["10.0.0.4"]),
        service("https", "203.0.113.10 tcp 443", "", &["10.0.0.5"]),
        service("wide-udp", "203.0.113.10 udp 1000-1999", "", &["10.0.0.6"]),
        service("narrow-udp", "203.0.113.10 udp 1500-1600", "", &["10.0.0.7"]),
        // Of two equally wide ones, the first in the file.
        service("first", "203.0.113.10 udp 3000-3010", "", &["10.0.0.8"]),
        service("second", "203.0.113.10 udp 3005-3015", "", &["10.0.0.9"]),
    ];
    let (_, report) = in_all(&config.concat(), |lb| {
        for (port, backend) in
            [(443, 5), (444, 4), (1, 4), (1023, 4), (1024, 3), (65535, 3), (80, 4)]
        {
            let backend = format!("10.0.0.{backend}");
            assert_eq!(tcp_to(lb, &format!("203.0.113.10:{port}")), Some(backend), "{port}");
        }
        for (port, backend) in [
            (80, 2),
            (81, 1),
            (999, 1),
            (1000, 6),
            (1499, 6),
            (1500, 7),
            (1600, 7),
            (1601, 6),
            (3004, 8),
            (3005, 8),
            (3010, 8),
            (3011, 9),
            (3016, 1),
        ] {
            let backend = format!("10.0.0.{backend}");
            assert_eq!(udp_to(lb, &format!("203.0.113.10:{port}")), Some(backend), "{port}");
        }
        let others = protocol(47).from("198.51.100.7").to("203.0.113.10").payload([0; 20]);
        assert_eq!(lb.backend(others), "10.0.0.1");
    });
    assert_dropped(&report, &[]);
}

#[test]
fn a_prefix_none_of_whose_services_fits_yields_to_the_next_shorter() {
    let config = [
        preamble(""),
        service("all", "0.0.0.0/0 tcp 1-100", "", &["10.0.0.1"]),
        service("net", "203.0.113.0/24 any 53", "", &["10.0.0.2"]),
        service("host", "203.0.113.10 udp 80", "", &["10.0.0.3"]),
    ];
    let (_, report) = in_all(&config.concat(), |lb| {
        assert_eq!(udp_to(lb, "203.0.113.10:80"), is("10.0.0.3"));
        assert_eq!(tcp_to(lb, "203.0.113.10:80"), is("10.0.0.1"));
        assert_eq!(tcp_to(lb, "203.0.113.10:53"), is("10.0.0.2"));
        assert_eq!(udp_to(lb, "203.0.113.10:53"), is("10.0.0.2"));
        assert_eq!(udp_to(lb, "203.0.113.10:54"), None);
        assert_eq!(tcp_to(lb, "203.0.113.10:101"), None);
    });
    assert_dropped(&report, &[("no_service", 2)]);
}

#[test]
fn any_protocol_with_any_port_takes_every_protocol_and_else_tcp_and_udp_alone() {
    let config = [
        preamble("icmp_echo = \"forward\""),
        service("everything", "203.0.113.10 any any", "", &["10.0.0.1"]),
        service("ports", "203.0.113.11 any 1-65535", "", &["10.0.0.2"]),
        service("all-tcp", "203.0.113.12 tcp any", "", &["10.0.0.3"]),
    ];
    let (_, report) = in_all(&config.concat(), |lb| {
        let numbers = [0, 2, 33, 47, 50, 51, 89, 132, 253, 255];
        for number in numbers {
            let of = |vip| protocol(number).from("198.51.100.7").to(vip).payload([0; 24]);
            assert_eq!(lb.backend(of("203.0.113.10")), "10.0.0.1", "protocol {number}");
            lb.none(of("203.0.113.11"));
            lb.none(of("203.0.113.12"));
        }
        assert_eq!(udp_to(lb, "203.0.113.10:0"), is("10.0.0.1"));
        assert_eq!(udp_to(lb, "203.0.113.11:9"), is("10.0.0.2"));
        assert_eq!(tcp_to(lb, "203.0.113.11:9"), is("10.0.0.2"));
        assert_eq!(udp_to(lb, "203.0.113.12:9"), None);
        assert_eq!(tcp_to(lb, "203.0.113.12:9"), is("10.0.0.3"));
        // Echo is one of the protocols.
        assert_eq!(
            lb.backend(echo_request(1, 1).from("198.51.100.7").to("203.0.113.10")),
            "10.0.0.1"
        );
    });
    assert_dropped(&report, &[("no_service", 21)]);
}

#[test]
fn what_no_service_of_the_address_takes_is_dropped_as_no_service() {
    let config = preamble("") + &service("web", "203.0.113.10 tcp 80-90", "", &["10.0.0.1"]);
    let (_, report) = in_all(&config, |lb| {
        assert_eq!(tcp_to(lb, "203.0.113.10:79"), None);
        assert_eq!(tcp_to(lb, "203.0.113.10:91"), None);
        assert_eq!(udp_to(lb, "203.0.113.10:80"), None);
        lb.none(protocol(50).from("198.51.100.7").to("203.0.113.10").payload([1; 20]));
        assert_eq!(tcp_to(lb, "203.0.113.10:85"), is("10.0.0.1"));
    });
    assert_dropped(&report, &[("no_service", 4)]);
}

#[test]
fn thousands_of_services_are_distinguished() {
    let many = (0..3000_u16).map(|index| {
        let [high, low] = index.to_be_bytes();
        let address = format!("203.{high}.{low}.10");
        let name = format!("s{index}");
        service(&name, &format!("{address} tcp 80"), "", &[&format!("10.1.{high}.{low}")])
    });
    let config = preamble("") + &many.collect::<String>();
    let (_, report) = in_all(&config, |lb| {
        for index in (0..3000_u16).step_by(7) {
            let [high, low] = index.to_be_bytes();
            let backend = tcp_to(lb, &format!("203.{high}.{low}.10:80"));
            assert_eq!(backend, Some(format!("10.1.{high}.{low}")));
        }
    });
    assert_dropped(&report, &[]);
}
