//! Tunnels: packets come out as they went in, and headers follow the RFCs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hotloop_packet::{
    Header, Malformed, NoRoom, PacketBuf,
    build::{PacketBuilder, arp_request, tcp, udp},
    ethernet::{self, EthernetView},
    ip::Ecn,
    ipip::{EncapsulateError, Tunnel, decapsulate, encapsulate},
    ipv4::{self, Ipv4Header, Ipv4View},
    ipv6::{Ipv6Header, Ipv6View},
    memory::MemPacket,
};
use proptest::prelude::*;

use crate::{
    frames::{ENDS, TUNNELS, frames},
    segmented::Segmented,
};

fn tunnels() -> [(IpAddr, IpAddr); 2] {
    TUNNELS.map(|(source, destination)| (source.parse().unwrap(), destination.parse().unwrap()))
}

/// The frame after one more hop, without padding, as it leaves a tunnel.
fn one_hop_on(frame: &[u8]) -> Vec<u8> {
    let (_, l3_offset) = ethernet::network_layer(frame).unwrap();
    let mut frame = frame.to_vec();
    let packet = &mut frame[l3_offset..];
    let total = if packet[0] >> 4 == 4 {
        assert!(Ipv4Header::parse_mut(packet).unwrap().decrement_ttl());
        usize::from(Ipv4View::parse(packet).unwrap().total_length())
    } else {
        assert!(Ipv6Header::parse_mut(packet).unwrap().decrement_hop_limit());
        40 + usize::from(Ipv6View::parse(packet).unwrap().payload_length())
    };
    frame.truncate(l3_offset + total);
    frame
}

fn encapsulated(frame: &[u8], tunnel: (IpAddr, IpAddr)) -> MemPacket {
    let mut packet = MemPacket::new(frame);
    encapsulate(&mut packet, tunnel.0, tunnel.1).unwrap();
    packet
}

/// Sets a frame's TOS byte or traffic class, wraps the frame, and returns the outer IPv4 packet.
fn outer_v4(builder: PacketBuilder) -> Vec<u8> {
    let packet = encapsulated(&builder.build(), tunnels()[0]);
    Ipv4View::parse(&packet.data()[14..]).unwrap();
    packet.data()[14..].to_vec()
}

#[test]
fn all_four_combinations_give_back_what_went_in() {
    let mut count = 0;
    for frame in frames().iter().filter(|frame| ethernet::network_layer(frame).unwrap().0 != 0x0806)
    {
        for (source, destination) in tunnels() {
            let mut packet = encapsulated(frame, (source, destination));
            let expected = one_hop_on(frame);
            let grown_bytes = if source.is_ipv4() { 20 } else { 40 };
            assert_eq!(packet.len_bytes(), expected.len() + grown_bytes);
            let view = EthernetView::parse(packet.data()).unwrap();
            let before = EthernetView::parse(frame).unwrap();
            assert_eq!(view.ethertype(), if source.is_ipv4() { 0x0800 } else { 0x86dd });
            assert_eq!(view.vlan_tags(), before.vlan_tags());
            assert_eq!(
                (view.source(), view.destination()),
                (before.source(), before.destination())
            );

            let tunnel = decapsulate(&mut packet).unwrap();
            assert_eq!((tunnel.source, tunnel.destination), (source, destination));
            assert_eq!(packet.data(), expected);
            count += 1;
        }
    }
    assert!(count > 200);
}

#[test]
fn outer_headers_equal_built_ones() {
    for (from, to) in ENDS {
        for (source, destination) in TUNNELS {
            let inner = tcp().from(from).to(to).vlan(5).payload("GET /");
            let packet = encapsulated(
                &inner.clone().ttl(9).build(),
                (source.parse().unwrap(), destination.parse().unwrap()),
            );
            let mut expected = inner.ttl(8).tunnelled(source, destination).build();
            if expected[16] == 0x08 && from.starts_with('[') {
                // Around IPv6, fragments are forbidden, and the identification is 0.
                expected[22..26].copy_from_slice(&[0, 0, 0x40, 0]);
                ipv4::fill_checksum(&mut expected[18..]).unwrap();
            }
            assert_eq!(packet.data(), expected);
        }
    }
}

#[test]
fn outer_ipv4_copies_what_belongs_to_the_path() {
    let outer = outer_v4(udp().tos(0xba).identification(77).ttl(2));
    let view = Ipv4View::parse(&outer).unwrap();
    assert!(view.is_checksum_right());
    assert_eq!((view.dscp(), view.ecn()), (0xba >> 2, Ecn::Ect0));
    assert_eq!((view.ttl(), view.protocol()), (64, 4));
    assert_eq!((view.dont_fragment(), view.identification()), (false, 77));
    let inner = Ipv4View::parse(view.payload()).unwrap();
    assert_eq!((inner.ttl(), inner.is_checksum_right()), (1, true));

    let outer = outer_v4(udp().identification(77).dont_fragment());
    let view = Ipv4View::parse(&outer).unwrap();
    assert_eq!((view.dont_fragment(), view.identification()), (true, 0));
    assert!(view.is_checksum_right());

    let outer = outer_v4(udp().to("[2001:db8::2]:53").tos(0xba));
    let view = Ipv4View::parse(&outer).unwrap();
    assert_eq!((view.dscp(), view.ecn()), (0xba >> 2, Ecn::Ect0));
    assert_eq!((view.protocol(), view.dont_fragment()), (41, true));
    assert!(view.is_checksum_right());
}

#[test]
fn fragments_of_one_datagram_get_different_identifications() {
    let fragments = udp().identification(0xffff).payload([7; 400]).build_fragments(120);
    let mut identifications = Vec::new();
    for frame in &fragments {
        let packet = encapsulated(frame, tunnels()[0]);
        let view = Ipv4View::parse(&packet.data()[14..]).unwrap();
        assert!(!view.more_fragments() && view.fragment_offset_bytes() == 0);
        identifications.push(view.identification());
    }
    assert_eq!(identifications[0], 0xffff);
    identifications.sort_unstable();
    identifications.dedup();
    assert_eq!(identifications.len(), fragments.len());
}

#[test]
fn outer_ipv6_copies_the_traffic_class() {
    for frame in [udp().tos(0xba).build(), udp().to("[2001:db8::2]:53").tos(0xba).build()] {
        let packet = encapsulated(&frame, tunnels()[1]);
        let view = Ipv6View::parse(&packet.data()[14..]).unwrap();
        assert_eq!((view.dscp(), view.ecn()), (0xba >> 2, Ecn::Ect0));
        assert_eq!((view.hop_limit(), view.flow_label()), (64, 0));
        assert_eq!(usize::from(view.payload_length()), frame.len() - 14);
    }
}

#[test]
fn an_expired_ttl_is_refused() {
    for to in ["192.0.2.1:80", "[2001:db8::2]:80"] {
        for ttl in [0, 1] {
            let frame = udp().to(to).ttl(ttl).padded().build();
            for (source, destination) in tunnels() {
                let mut packet = MemPacket::new(&frame);
                let result = encapsulate(&mut packet, source, destination);
                assert_eq!(result, Err(EncapsulateError::TtlExpired));
                assert_eq!(packet.data(), frame);
            }
        }
    }
}

#[test]
fn what_cannot_be_wrapped_stays_as_it_was() {
    let (v4, v6) = (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
    let frame = udp().padded().build();
    let mut packet = MemPacket::with_room(&frame, 39, 0);
    let error = encapsulate(&mut packet, v6, v6).unwrap_err();
    let EncapsulateError::NoRoom(NoRoom { wanted_bytes, available_bytes, .. }) = error else {
        panic!("{error}")
    };
    assert_eq!((wanted_bytes, available_bytes, packet.data()), (40, 39, &frame[..]));
    encapsulate(&mut packet, v4, v4).unwrap();

    let mut packet = MemPacket::new(&frame);
    let error = encapsulate(&mut packet, v4, v6).unwrap_err();
    assert!(matches!(error, EncapsulateError::MixedFamilies { .. }));
    assert!(Tunnel::new(v6, v4).is_err());
    assert_eq!(packet.data(), frame);

    let arp = arp_request(v4, v4);
    let error = encapsulate(&mut MemPacket::new(&arp), v4, v4).unwrap_err();
    assert_eq!(error, EncapsulateError::NotIp { ethertype: 0x0806 });

    let cut = &udp().payload([0; 9]).build()[..50];
    let error = encapsulate(&mut MemPacket::new(cut), v4, v4).unwrap_err();
    let expected = Malformed::Cut { header: Header::Ipv4, wanted_bytes: 37, available_bytes: 36 };
    assert_eq!(error, EncapsulateError::Malformed(expected));
}

#[test]
fn packets_too_long_for_a_length_field_are_refused() {
    let (v4, v6) = (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
    for (payload_bytes, fits) in [(65_535 - 48, true), (65_535 - 47, false)] {
        let frame = udp().payload(vec![0; payload_bytes]).build();
        let packet_bytes = frame.len() - 14;
        let result = encapsulate(&mut MemPacket::new(&frame), v4, v4);
        let expected = if fits { Ok(()) } else { Err(EncapsulateError::TooBig { packet_bytes }) };
        assert_eq!(result, expected);
        assert_eq!(encapsulate(&mut MemPacket::new(&frame), v6, v6), Ok(()));
    }
    let frame = udp().to("[::1]:1").payload(vec![0; 65_535 - 47]).build();
    let result = encapsulate(&mut MemPacket::new(&frame), v6, v6);
    assert_eq!(result, Err(EncapsulateError::TooBig { packet_bytes: 65_536 }));
}

#[test]
fn lengths_count_all_segments() {
    for to in ["192.0.2.1:80", "[2001:db8::2]:80"] {
        let mut frame = udp().to(to).payload([7; 3000]).build();
        let expected = one_hop_on(&frame);
        frame.extend([0; 6]);
        for (source, destination) in tunnels() {
            let mut packet = Segmented::new(&frame, 100);
            encapsulate(&mut packet, source, destination).unwrap();
            let outer_bytes = if source.is_ipv4() { 20 } else { 40 };
            assert_eq!(packet.len_bytes(), expected.len() + outer_bytes);
            let alone = encapsulated(&frame, (source, destination));
            assert_eq!(packet.bytes(), alone.data());
            decapsulate(&mut packet).unwrap();
            assert_eq!(packet.bytes(), expected);
        }
    }
}

proptest! {
    /// Any inner header that can be wrapped comes back, under any addresses.
    #[test]
    fn round_trip(
        ttl in 2u8..,
        tos: u8,
        identification: u16,
        dont_fragment: bool,
        payload in prop::collection::vec(any::<u8>(), 0..100),
        ends: ([u8; 16], [u8; 16]),
        is_v6: bool,
        padded: bool,
    ) {
        let mut builder = udp().ttl(ttl).tos(tos).identification(identification).payload(payload);
        if dont_fragment {
            builder = builder.dont_fragment();
        }
        if padded {
            builder = builder.padded();
        }
        let frame = builder.build();
        let end = |bytes: [u8; 16]| -> IpAddr {
            let v6 = Ipv6Addr::from(bytes);
            if is_v6 { v6.into() } else { Ipv4Addr::from_bits(v6.to_bits() as u32).into() }
        };
        let mut packet = encapsulated(&frame, (end(ends.0), end(ends.1)));
        if !is_v6 {
            prop_assert!(Ipv4View::parse(&packet.data()[14..]).unwrap().is_checksum_right());
        }
        decapsulate(&mut packet).unwrap();
        prop_assert_eq!(packet.data(), one_hop_on(&frame));
    }
}
