//! Tunnels with many sources, chosen by flow.

use std::{
    collections::HashSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use hotloop_packet::{
    PacketBuf,
    build::{PacketBuilder, udp},
    flow_key::FlowKey,
    ipip::{Identifications, Tunnel, TunnelError, decapsulate},
    ipv4::Ipv4View,
    memory::MemPacket,
    seed::Seed,
};
use proptest::prelude::*;

const DESTINATIONS: [&str; 2] = ["10.9.0.7", "2001:db8:9::7"];

fn wrapped(builder: PacketBuilder, tunnel: &Tunnel, hash: u32, identification: u16) -> MemPacket {
    let mut packet = builder.packet_in_memory();
    let addresses = *packet.data().first_chunk().unwrap();
    let mut identifications = Identifications::new(identification, 1);
    tunnel.wrap_flow(&mut packet, &addresses, hash, &mut identifications).unwrap();
    packet
}

/// Number of leading bits in which two addresses agree.
fn common_bits(a: IpAddr, b: IpAddr) -> u32 {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => panic!("from {a} to {b}: two families"),
    }
}

#[test]
fn flows_use_all_sources_of_a_prefix() {
    let seed = Seed::new(7);
    let prefix = ("192.0.2.77".parse().unwrap(), 26);
    let tunnel = Tunnel::spread(prefix, Ipv4Addr::new(10, 9, 0, 7)).unwrap();
    let mut counts = [0; 64];
    for client in 0..6400_u32 {
        let client = SocketAddr::new(Ipv4Addr::from_bits(0x0a00_0000 + client * 7).into(), 1000);
        let key = FlowKey::new(client, "203.0.113.10:80".parse().unwrap(), 6).unwrap();
        let IpAddr::V4(source) = tunnel.source(seed.hash(&key)) else { panic!("a v4 prefix") };
        assert_eq!(source.octets()[..3], [192, 0, 2]);
        counts[usize::from(source.octets()[3]) - 64] += 1;
    }
    // 100 each on average, usually within ten.
    assert!(counts.iter().all(|count| (50..150).contains(count)), "{counts:?}");
}

#[test]
fn sources_of_ipv6_differ_in_64_bits() {
    let prefix = ("2001:db8:1:2::".parse().unwrap(), 64);
    let tunnel = Tunnel::spread(prefix, Ipv6Addr::LOCALHOST).unwrap();
    let sources: HashSet<_> = (0..10_000).map(|hash| tunnel.source(hash)).collect();
    assert_eq!(sources.len(), 10_000);
    assert!(sources.iter().all(|source| common_bits(*source, prefix.0) >= 64));
    let IpAddr::V6(last) = tunnel.source(u32::MAX) else { panic!("a v6 prefix") };
    assert_ne!(last.to_bits() as u32, 0);
    assert_ne!((last.to_bits() as u64) >> 32, 0);
}

#[test]
fn a_tunnel_of_one_source_wraps_any_flow_from_it() {
    for destination in DESTINATIONS.map(|text| text.parse::<IpAddr>().unwrap()) {
        let source = destination;
        let prefix_bits = if source.is_ipv4() { 32 } else { 128 };
        let alone = Tunnel::new(source, destination).unwrap();
        let spread = Tunnel::spread((source, prefix_bits), destination).unwrap();
        for builder in [udp(), udp().to("[2001:db8::2]:53"), udp().dont_fragment()] {
            let mut expected = builder.clone().identification(9).packet_in_memory();
            alone.wrap(&mut expected).unwrap();
            // Without a sender's identifications, the inner packet's identification is used.
            let inner = builder.identification(9);
            for tunnel in [alone, spread] {
                assert_eq!(tunnel.source(77), source);
                assert_eq!(wrapped(inner.clone(), &tunnel, 77, 9).data(), expected.data());
            }
        }
    }
}

#[test]
fn identifications_count_where_fragments_are_allowed() {
    let tunnel = Tunnel::new(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST).unwrap();
    for (builder, expected) in [
        (udp().identification(5), (false, 0xabcd)),
        (udp().identification(5).dont_fragment(), (true, 0)),
        (udp().to("[2001:db8::2]:53"), (true, 0)),
    ] {
        let packet = wrapped(builder, &tunnel, 1, 0xabcd);
        let view = Ipv4View::parse(&packet.data()[14..]).unwrap();
        assert_eq!((view.dont_fragment(), view.identification()), expected);
        assert!(view.is_checksum_right());
    }
}

#[test]
fn a_spread_tunnel_without_a_flow_uses_its_first_source() {
    let tunnel = Tunnel::spread(("192.0.2.77".parse().unwrap(), 26), Ipv4Addr::LOCALHOST).unwrap();
    let mut packet = udp().packet_in_memory();
    tunnel.wrap(&mut packet).unwrap();
    let outer = decapsulate(&mut packet).unwrap();
    assert_eq!(outer.source, IpAddr::from(Ipv4Addr::new(192, 0, 2, 64)));
}

#[test]
fn impossible_tunnels_are_refused() {
    let (v4, v6) = (IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST));
    let mixed = TunnelError::MixedFamilies { source_address: v4, destination: v6 };
    assert_eq!(Tunnel::spread((v4, 24), v6).unwrap_err(), mixed);
    for (address, prefix_bits, bits_max) in [(v4, 33, 32), (v6, 129, 128)] {
        let expected = TunnelError::Prefix { address, prefix_bits, bits_max };
        assert_eq!(Tunnel::spread((address, prefix_bits), address).unwrap_err(), expected);
    }
}

proptest! {
    #[test]
    fn checksums_are_right_for_every_prefix(
        ends: ([u8; 4], [u8; 4]),
        prefix_bits in 0u8..=32,
        hash: u32,
        identification: u16,
        dont_fragment: bool,
        tos: u8,
    ) {
        let source = IpAddr::from(ends.0);
        let tunnel = Tunnel::spread((source, prefix_bits), Ipv4Addr::from(ends.1)).unwrap();
        let mut builder = udp().tos(tos);
        if dont_fragment {
            builder = builder.dont_fragment();
        }
        let mut packet = wrapped(builder, &tunnel, hash, identification);
        prop_assert!(Ipv4View::parse(&packet.data()[14..]).unwrap().is_checksum_right());
        let outer = decapsulate(&mut packet).unwrap();
        prop_assert_eq!(outer.source, tunnel.source(hash));
        prop_assert!(common_bits(outer.source, source) >= u32::from(prefix_bits));
        prop_assert_eq!(outer.destination, IpAddr::from(ends.1));
    }

    #[test]
    fn sources_of_ipv6_are_in_every_prefix(ends: ([u8; 16], [u8; 16]), prefix_bits in 0u8..=128, hash: u32) {
        let source = IpAddr::from(ends.0);
        let tunnel = Tunnel::spread((source, prefix_bits), Ipv6Addr::from(ends.1)).unwrap();
        let mut packet = wrapped(udp(), &tunnel, hash, 0);
        let outer = decapsulate(&mut packet).unwrap();
        prop_assert_eq!(outer.source, tunnel.source(hash));
        prop_assert!(common_bits(outer.source, source) >= u32::from(prefix_bits));
        prop_assert_eq!(outer.destination, IpAddr::from(ends.1));
    }
}
