//! The fast path into the tunnel writes the same bytes as the slow path.

use hotloop_packet::{
    PacketBuf,
    build::{protocol, tcp, udp, unreachable},
    classify::{Depth, Layout, classify_packet},
    flow_key::FlowKey,
    ipip::{Identifications, Tunnel},
    ipv4::Ipv4View,
    memory::MemPacket,
    seed::Seed,
};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const SEED: Seed = Seed::new(42);
const ADDRESSES: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

fn is_fast(frame: &[u8]) -> bool {
    let packet = MemPacket::new(frame);
    let layout = classify_packet(&packet, Depth::Innermost, &SEED);
    assert_eq!(layout.fast_key_v4(frame).is_some(), layout.is_fast_v4());
    layout.is_fast_v4()
}

fn tunnel(prefix_bits: u8) -> Tunnel {
    let source: IpAddr = Ipv4Addr::new(192, 0, 2, 1).into();
    Tunnel::spread((source, prefix_bits), Ipv4Addr::new(10, 0, 0, 7)).unwrap()
}

#[test]
fn fast_packets_are_whole_tcp_and_udp_packets_without_anything_else() {
    assert!(is_fast(&tcp().build()) && is_fast(&udp().payload([1; 40]).padded().build()));
    let fragments = udp().payload([0; 2000]).build_fragments(1000);
    for other in [
        tcp().vlan(7).build(),
        tcp().ipv4_options(&[1; 4]).build(),
        tcp().to("[2001:db8::1]:80").build(),
        tcp().tunnelled("10.0.0.1", "10.0.0.2").build(),
        unreachable(&tcp().build()).build(),
        protocol(47).payload([0; 40]).build(),
        tcp().build()[..40].to_vec(),
        fragments[0].clone(),
        fragments[1].clone(),
        Vec::new(),
    ] {
        assert!(!is_fast(&other), "{other:02x?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn both_ways_write_the_same(
        ttl in 2u8..,
        tos: u8,
        inner_identification: u16,
        dont_fragment: bool,
        padded: bool,
        payload in prop::collection::vec(any::<u8>(), 0..100),
        prefix_bits in 0u8..=32,
        flow_hash: u32,
        identification: u16,
    ) {
        let mut builder =
            udp().ttl(ttl).tos(tos).identification(inner_identification).payload(payload);
        if dont_fragment {
            builder = builder.dont_fragment();
        }
        if padded {
            builder = builder.padded();
        }
        let frame = builder.build();
        prop_assert!(is_fast(&frame));
        let tunnel = tunnel(prefix_bits);

        // A VLAN tag forces the same packet through the slow path.
        let tagged = [&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat();
        let (mut short, mut long) = (MemPacket::new(&frame), MemPacket::new(&tagged));
        for packet in [&mut short, &mut long] {
            let mut identifications = Identifications::new(identification, 3);
            tunnel.wrap_flow(packet, &ADDRESSES, flow_hash, &mut identifications).unwrap();
            let next = identification.wrapping_add(if dont_fragment { 0 } else { 3 });
            prop_assert_eq!(identifications, Identifications::new(next, 3));
            prop_assert_eq!(&packet.data()[..12], &ADDRESSES);
        }
        prop_assert_eq!(&short.data()[12..], &long.data()[16..]);

        // Headers that were checked before are not checked again.
        let layout = classify_packet(&MemPacket::new(&frame), Depth::Innermost, &SEED);
        let wrap = |packet: &mut MemPacket, mtu_bytes: usize| {
            let mut identifications = Identifications::new(identification, 3);
            let header = tunnel.flow_header(flow_hash).unwrap();
            let mtu_bytes = mtu_bytes as u16;
            header.wrap_fast(packet, layout, mtu_bytes, &ADDRESSES, &mut identifications)
        };
        let total_bytes = short.len_bytes() - 14;
        let mut unchecked = MemPacket::new(&frame);
        prop_assert!(!wrap(&mut unchecked, total_bytes - 1));
        prop_assert_eq!(unchecked.data(), &frame);
        prop_assert!(wrap(&mut unchecked, total_bytes));
        prop_assert_eq!(unchecked.data(), short.data());
        let outer = Ipv4View::parse(&short.data()[14..]).unwrap();
        prop_assert!(outer.is_checksum_right());
        prop_assert!(Ipv4View::parse(&short.data()[34..]).unwrap().is_checksum_right());
        prop_assert_eq!(IpAddr::from(outer.source()), tunnel.source(flow_hash));
    }

    #[test]
    fn both_ways_write_the_same_in_ipv6(
        hop_limit in 2u8..,
        tos: u8,
        padded: bool,
        payload in prop::collection::vec(any::<u8>(), 0..100),
        prefix_bits in 0u8..=128,
        flow_hash: u32,
    ) {
        let builder = udp().to("[2001:db8::1]:80").ttl(hop_limit).tos(tos).payload(payload);
        let frame = if padded { builder.padded() } else { builder }.build();
        let layout = classify_packet(&MemPacket::new(&frame), Depth::Innermost, &SEED);
        prop_assert!(layout.is_fast_v6() && !layout.is_fast_v4());
        prop_assert_eq!(layout.fast_key_v6(&frame).map(FlowKey::V6), layout.key(&frame));
        let source: IpAddr = "2001:db8:7::".parse().unwrap();
        let tunnel = Tunnel::spread((source, prefix_bits), Ipv6Addr::LOCALHOST).unwrap();
        prop_assert_eq!(tunnel.is_spread(), prefix_bits < 128);

        let mut identifications = Identifications::new(2, 1);
        let (mut long, mut short) = (MemPacket::new(&frame), MemPacket::new(&frame));
        tunnel.wrap_flow(&mut long, &ADDRESSES, flow_hash, &mut identifications).unwrap();
        let total_bytes = (long.len_bytes() - 14) as u16;
        let wrap = |packet: &mut MemPacket, mtu_bytes| {
            tunnel.wrap_fast_v6(packet, layout, mtu_bytes, &ADDRESSES, flow_hash)
        };
        prop_assert!(!wrap(&mut short, total_bytes - 1));
        prop_assert_eq!(short.data(), &frame);
        prop_assert!(wrap(&mut short, total_bytes));
        prop_assert_eq!(short.data(), long.data());
        prop_assert_eq!(identifications, Identifications::new(2, 1));
    }

    /// Checks that a packet that is not wrapped is unchanged.
    #[test]
    fn no_bytes_make_it_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..100),
        fast in prop::option::of(prop::sample::select(vec!["192.0.2.1:80", "[2001:db8::1]:80"])),
        mut layout: [u8; 8],
        headroom in 0usize..40,
    ) {
        if let Some(to) = fast {
            layout = classify_packet(&MemPacket::from(tcp().to(to)), Depth::Innermost, &SEED).to_metadata();
        }
        let layout = Layout::from_metadata(layout);
        let _ = (layout.key(&bytes), layout.l4_offset(&bytes));
        let _ = (layout.fast_key_v4(&bytes), layout.fast_key_v6(&bytes));
        let mut packet = MemPacket::with_room(&bytes, headroom, 0);
        let mut identifications = Identifications::new(2, 1);
        if tunnel(24).wrap_flow(&mut packet, &ADDRESSES, 1, &mut identifications).is_err() {
            prop_assert_eq!(identifications, Identifications::new(2, 1));
            prop_assert_eq!(packet.data(), &bytes[..]);
        }
        let ends = [Ipv6Addr::LOCALHOST; 2];
        let tunnel_v6 = Tunnel::new(ends[0], ends[1]).unwrap();
        for tunnel in [tunnel(24), tunnel_v6] {
            let mut packet = MemPacket::with_room(&bytes, headroom, 0);
            let mut wrap = |is_v6| {
                let packet = &mut packet;
                if is_v6 {
                    return tunnel.wrap_fast_v6(packet, layout, 1500, &ADDRESSES, 1);
                }
                tunnel.flow_header(1).is_some_and(|header| {
                    header.wrap_fast(packet, layout, 1500, &ADDRESSES, &mut identifications)
                })
            };
            if !wrap(true) && !wrap(false) {
                prop_assert_eq!(packet.data(), &bytes[..]);
            }
        }
    }
}
