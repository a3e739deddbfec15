use super::*;
use proptest::prelude::*;
use std::net::Ipv4Addr;

fn service(address: &str, protocol: Protocol, ports: Ports) -> ServiceSpec {
    ServiceSpec { ports, ..ServiceSpec::new("", address.parse().unwrap(), protocol, Vec::new()) }
}

const fn range(first: u16, last: u16) -> Ports {
    Ports::Range { first, last }
}

#[test]
fn the_most_specific_service_wins() {
    let rules = Rules::new(&[
        service("0.0.0.0/0", Protocol::Any, Ports::Any),
        service("203.0.113.0/24", Protocol::Tcp, Ports::Any),
        service("203.0.113.10", Protocol::Any, Ports::Any),
        service("203.0.113.10", Protocol::Any, range(80, 80)),
        service("203.0.113.10", Protocol::Tcp, range(1, 1000)),
        service("203.0.113.10", Protocol::Tcp, range(440, 450)),
        service("203.0.113.10", Protocol::Tcp, range(445, 455)),
        service("203.0.113.11", Protocol::Udp, range(53, 53)),
        service("2001:db8::/64", Protocol::Udp, Ports::Any),
    ]);
    for (address, protocol, port, expected) in [
        ("203.0.113.10", TCP, Some(80), Some(4)),
        ("203.0.113.10", UDP, Some(80), Some(3)),
        ("203.0.113.10", TCP, Some(443), Some(5)),
        ("203.0.113.10", TCP, Some(447), Some(5)), // as narrow as the next: the first wins
        ("203.0.113.10", TCP, Some(455), Some(6)),
        ("203.0.113.10", TCP, Some(2000), Some(2)),
        ("203.0.113.10", TCP, None, Some(2)),
        ("203.0.113.10", 1, None, Some(2)),
        ("203.0.113.11", UDP, Some(53), Some(7)),
        ("203.0.113.11", TCP, Some(53), Some(1)), // the host has no service, its prefix has
        ("203.0.113.11", UDP, Some(54), Some(0)),
        ("198.51.100.1", 47, None, Some(0)),
        ("2001:db8::9", UDP, Some(9), Some(8)),
        ("2001:db8::9", TCP, Some(9), None),
        ("2001:db8:0:1::9", UDP, Some(9), None),
        ("::cb00:710a", TCP, Some(80), None), // the bits of 203.0.113.10
    ] {
        let found = rules.find(address.parse().unwrap(), protocol, port);
        assert_eq!(found, expected, "{address} {protocol} {port:?}");
    }
    for (address, expected) in [
        ("203.0.113.10", Some(5)),
        ("203.0.113.11", Some(7)),
        ("203.0.113.12", Some(1)),
        ("192.0.2.1", Some(0)),
        ("2001:db8::1", Some(8)),
        ("2001:db9::1", None),
    ] {
        assert_eq!(rules.any_of(address.parse().unwrap()), expected, "{address}");
    }
}

#[test]
fn ports_keep_out_what_has_none() {
    let rules = Rules::new(&[service("203.0.113.10", Protocol::Any, range(1, 65_535))]);
    let vip = "203.0.113.10".parse().unwrap();
    assert_eq!(rules.find(vip, TCP, Some(1)), Some(0));
    assert_eq!(rules.find(vip, TCP, Some(65_535)), Some(0));
    assert_eq!(rules.find(vip, TCP, Some(0)), None);
    assert_eq!(rules.find(vip, TCP, None), None);
    assert_eq!(rules.find(vip, 1, None), None);
    assert_eq!(rules.find(vip, 132, Some(80)), None); // SCTP
    assert!(Rules::new(&[]).find(vip, TCP, Some(80)).is_none());
    assert!(!Rules::new(&[]).is_vip(vip));
}

#[test]
fn services_that_no_packet_reaches_are_reported() {
    let rules = [
        service("203.0.113.10", Protocol::Tcp, range(80, 80)),
        service("203.0.113.10", Protocol::Udp, range(80, 80)),
        service("203.0.113.10", Protocol::Any, range(80, 80)), // by those
        service("203.0.113.10", Protocol::Any, range(80, 81)),
        service("203.0.113.11", Protocol::Tcp, range(1, 100)),
        service("203.0.113.11", Protocol::Tcp, range(1, 50)),
        service("203.0.113.11", Protocol::Tcp, range(51, 100)), // hides the first
        service("203.0.113.11", Protocol::Any, Ports::Any),
    ];
    assert_eq!(Rules::new(&rules).hidden(rules.len()), [2, 4]);
    let many: Vec<_> = (0..40_u16)
        .flat_map(|at| {
            [(2 * at + 1, 2 * at + 2), (2 * at + 1, 2 * at + 1), (2 * at + 2, 2 * at + 2)]
        })
        .map(|(first, last)| service("203.0.113.10", Protocol::Tcp, range(first, last)))
        .collect();
    let hidden: Vec<_> = (0..many.len()).step_by(3).collect();
    assert_eq!(Rules::new(&many).hidden(many.len()), hidden);
}

/// Whether a service takes packets of `protocol` to `port`, by its configuration.
fn takes(service: &ServiceSpec, protocol: u8, port: Option<u16>) -> bool {
    let protocol_fits = match service.protocol {
        Protocol::Tcp => protocol == TCP,
        Protocol::Udp => protocol == UDP,
        Protocol::Any => service.ports == Ports::Any || protocol == TCP || protocol == UDP,
    };
    let port_fits = match service.ports {
        Ports::Any => true,
        Ports::Range { first, last } => port.is_some_and(|port| (first..=last).contains(&port)),
    };
    protocol_fits && port_fits
}

/// The most specific of the services that `fits` accepts, found by a linear search.
fn naive(services: &[ServiceSpec], fits: impl Fn(&ServiceSpec) -> bool) -> Option<usize> {
    let fitting = services.iter().enumerate().filter(|(_, service)| fits(service));
    let best = fitting.min_by_key(|(index, service)| {
        (
            Reverse(service.address.len()),
            service.protocol == Protocol::Any,
            service.ports.count(),
            *index,
        )
    });
    best.map(|(index, _)| index)
}

/// Checks that the rules and the linear search agree on `address`, with every lookup function.
fn assert_agree(services: &[ServiceSpec], rules: &Rules, address: IpAddr, ports: &[u16]) {
    let holds = |service: &ServiceSpec| service.address.contains(address);
    assert_eq!(rules.is_vip(address), services.iter().any(holds), "{address}");
    let longest =
        services.iter().filter(|service| holds(service)).map(|service| service.address.len()).max();
    let of_longest =
        |service: &ServiceSpec| holds(service) && Some(service.address.len()) == longest;
    assert_eq!(rules.any_of(address), naive(services, of_longest), "{address}");
    for protocol in [1, TCP, UDP, 132] {
        for port in ports.iter().map(|port| Some(*port)).chain([None]) {
            let expected =
                naive(services, |service| holds(service) && takes(service, protocol, port));
            let found = rules.find(address, protocol, port);
            assert_eq!(found, expected, "{address} {protocol} {port:?}");
            if let (IpAddr::V4(address), TCP | UDP, Some(port)) = (address, protocol, port) {
                let found = find_v4(rules, address, protocol, port);
                assert_eq!(found, expected, "{address} {protocol} {port}, by one probe");
            }
        }
    }
}

/// The lookup for TCP and UDP packets.
fn find_v4(rules: &Rules, address: Ipv4Addr, protocol: u8, port: u16) -> Option<usize> {
    let exact = rules.find_exact(address, protocol, port);
    exact.or_else(|| rules.find_any_v4(address, protocol, port))
}

fn any_protocol() -> impl Strategy<Value = Protocol> {
    prop::sample::select(vec![Protocol::Tcp, Protocol::Udp, Protocol::Any])
}

proptest! {
    /// Overlapping prefixes of both families, overlapping ranges.
    #[test]
    fn the_compiled_rules_agree_with_a_plain_search(
        services in prop::collection::vec(
            (any::<bool>(), 0_u32..8, 0_u8..=6, any_protocol(), 0_u16..6, 0_u16..4),
            0..20,
        ),
    ) {
        let services: Vec<ServiceSpec> = services.into_iter().map(|(v6, host, up, protocol, first, more)| {
            // The shortest are two bits shorter than the bits that distinguish hosts, and one holds
            // all.
            let host = if up == 6 { 0 } else { host >> up << up };
            let address = match (v6, up) {
                (false, 6) => "0.0.0.0/0".to_owned(),
                (true, 6) => "::/0".to_owned(),
                (false, _) => format!("203.0.113.{host}/{}", 32 - up),
                (true, _) => format!("2001:db8:0:0:{host}::/{}", 80 - up),
            };
            service(&address, protocol, if first == 0 { Ports::Any } else { range(first, first + more) })
        }).collect();
        let rules = Rules::new(&services);
        for host in 0..16 {
            let ports = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 65_535];
            assert_agree(&services, &rules, format!("203.0.113.{host}").parse().unwrap(), &ports);
            assert_agree(&services, &rules, format!("2001:db8:0:0:{host}::9").parse().unwrap(), &ports);
        }
        assert_agree(&services, &rules, "192.0.2.1".parse().unwrap(), &[1, 5]);
    }

    /// One address with enough ranges to need pages: at each of their ends.
    #[test]
    fn many_ranges_agree_with_a_plain_search(
        ranges in prop::collection::vec((any_protocol(), 1_u16.., prop_oneof![Just(0_u16), 0_u16..600, 0_u16..]), 8..60),
    ) {
        let mut services = Vec::new();
        let mut ports = vec![0, 1, 65_535];
        for (protocol, first, more) in ranges {
            let last = first.saturating_add(more);
            services.push(service("203.0.113.10", protocol, range(first, last)));
            ports.extend([first - 1, first, last, last.saturating_add(1)]);
        }
        services.push(service("203.0.113.0/24", Protocol::Any, Ports::Any));
        let rules = Rules::new(&services);
        assert_agree(&services, &rules, "203.0.113.10".parse().unwrap(), &ports);
    }
}

#[test]
fn every_port_may_have_its_service() {
    let services: Vec<_> = (1..=65_535)
        .map(|port| service("203.0.113.10", Protocol::Tcp, range(port, port)))
        .collect();
    let rules = Rules::new(&services);
    let vip = "203.0.113.10".parse().unwrap();
    assert_eq!(rules.find(vip, TCP, Some(0)), None);
    assert!(
        (1..=65_535).all(|port| rules.find(vip, TCP, Some(port)) == Some(usize::from(port) - 1))
    );
    assert_eq!(rules.find(vip, UDP, Some(1)), None);
    assert!(rules.memory_bytes() < 300 << 10, "{}", rules.memory_bytes());
}

/// The cost of a lookup doesn't grow with the number of services: the number of slots read stays
/// below two on average, whatever the pattern of the addresses.
#[test]
fn a_hundred_thousand_services_are_found_as_soon_as_a_handful() {
    for step in [1_u32, 3, 256, 4096] {
        let network = |index: u32| 0x0A00_0000_u32.wrapping_add(index.wrapping_mul(step));
        let services: Vec<_> = (0..100_000)
            .map(|index| {
                let mut service = service("192.0.2.1", Protocol::Tcp, range(80, 80));
                service.address = Prefix::host(Ipv4Addr::from_bits(network(index)).into());
                service
            })
            .collect();
        let rules = Rules::new(&services);
        assert_eq!(rules.v4.len(), 1);
        let mut probe_count = 0;
        for index in 0..100_000 {
            let address = Ipv4Addr::from_bits(network(index));
            assert_eq!(rules.find(IpAddr::V4(address), TCP, Some(80)), Some(index as usize));
            assert_eq!(find_v4(&rules, address, TCP, 80), Some(index as usize));
            probe_count += rules.v4[0].probe_count(network(index));
        }
        assert!(probe_count < 200_000, "{probe_count} slots looked at, in steps of {step}");
        assert_eq!(size_of_val(&rules.v4[0].vip(network(0)).unwrap().tcp), 4);
    }
}

#[test]
fn ipv6_addresses_spread_by_either_half() {
    for shift in [0, 16, 32, 64, 80, 96] {
        let network = |index: u128| (0x2001_0db8_u128 << 96) ^ (index << shift);
        let services: Vec<_> = (0..20_000)
            .map(|index| {
                let mut service = service("::1", Protocol::Any, Ports::Any);
                service.address =
                    Prefix::host(std::net::Ipv6Addr::from_bits(network(index)).into());
                service
            })
            .collect();
        let rules = Rules::new(&services);
        let probe_count: usize =
            (0..20_000).map(|index| rules.v6[0].probe_count(network(index))).sum();
        assert!(probe_count < 40_000, "{probe_count} slots looked at, shifted by {shift}");
    }
}

#[test]
fn slots_lie_in_one_cache_line_or_two() {
    assert_eq!(
        (size_of::<prefix_level::Slot<u32>>(), size_of::<prefix_level::Slot<u128>>()),
        (16, 32)
    );
}
