//! Setters write the same bytes as the builders, checksums included.

use std::net::{IpAddr, SocketAddr};

use hotloop_packet::{
    build::{self, PacketBuilder, echo_reply, echo_request, tcp, udp},
    checksum::Change,
    icmp::IcmpHeader,
    icmpv6::Icmpv6Header,
    ip::Ecn,
    ipv4::Ipv4Header,
    ipv6::Ipv6Header,
    tcp::TcpHeader,
    udp::UdpHeader,
};
use proptest::prelude::*;

use crate::frames::ENDS;

/// Offset of the transport header in a plain frame to this address.
fn l4_offset(to: SocketAddr) -> usize {
    if to.is_ipv6() { 54 } else { 34 }
}

/// Writes both addresses of a plain frame, and returns the change.
fn set_addresses(frame: &mut [u8], from: IpAddr, to: IpAddr) -> Change {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let header = Ipv4Header::parse_mut(&mut frame[14..]).unwrap();
            header.set_source(from) + header.set_destination(to)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let header = Ipv6Header::parse_mut(&mut frame[14..]).unwrap();
            header.set_source(from) + header.set_destination(to)
        }
        _ => unreachable!("both of one family"),
    }
}

/// Two ends of one family.
fn ends() -> impl Strategy<Value = (SocketAddr, SocketAddr)> {
    let v4 = any::<([u8; 4], u16, [u8; 4], u16)>();
    let v6 = any::<([u8; 16], u16, [u8; 16], u16)>();
    prop_oneof![
        v4.prop_map(|(a, p, b, q)| ((a, p).into(), (b, q).into())),
        v6.prop_map(|(a, p, b, q)| ((a, p).into(), (b, q).into())),
    ]
}

fn built(builder: PacketBuilder, from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    builder.from(from).to(to).build()
}

/// The two ends in [`ENDS`] of the same family as this address.
fn ends_like(address: SocketAddr) -> (SocketAddr, SocketAddr) {
    let (from, to) = ENDS[usize::from(address.is_ipv6())];
    (from.parse().unwrap(), to.parse().unwrap())
}

proptest! {
    #[test]
    fn ports_and_addresses(
        (from, to) in ends(),
        payload in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let (old_from, old_to) = ends_like(to);
        let mut frame = built(tcp().payload(&payload), old_from, old_to);
        let change = set_addresses(&mut frame, from.ip(), to.ip());
        let header = TcpHeader::parse_mut(&mut frame[l4_offset(to)..]).unwrap();
        header.update_checksum(change);
        header.set_source_port(from.port());
        header.set_destination_port(to.port());
        prop_assert_eq!(&frame, &built(tcp().payload(&payload), from, to));

        let mut frame = built(udp().payload(&payload), old_from, old_to);
        let change = set_addresses(&mut frame, from.ip(), to.ip());
        let header = UdpHeader::parse_mut(&mut frame[l4_offset(to)..]).unwrap();
        header.update_checksum(change);
        header.set_source_port(from.port());
        header.set_destination_port(to.port());
        prop_assert_eq!(&frame, &built(udp().payload(&payload), from, to));
    }

    #[test]
    fn echo_identifiers(
        (from, to) in ends(),
        old: u16,
        new: u16,
        is_reply: bool,
        payload in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let echo = if is_reply { echo_reply } else { echo_request };
        let (old_from, old_to) = ends_like(to);
        let mut frame = built(echo(old, 7).payload(&payload), old_from, old_to);
        let change = set_addresses(&mut frame, from.ip(), to.ip());
        let message = &mut frame[l4_offset(to)..];
        if to.is_ipv6() {
            let header = Icmpv6Header::parse_mut(message).unwrap();
            header.update_checksum(change);
            prop_assert!(header.set_echo_identifier(new));
        } else {
            prop_assert!(IcmpHeader::parse_mut(message).unwrap().set_echo_identifier(new));
        }
        prop_assert_eq!(&frame, &built(echo(new, 7).payload(&payload), from, to));
    }

    #[test]
    fn the_ip_header(ttl: u8, tos: u8, old_ttl: u8, old_tos: u8) {
        let ecn = [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce][usize::from(tos & 3)];
        for (_, to) in ENDS {
            let mut frame = udp().to(to).ttl(old_ttl).tos(old_tos).build();
            if let Ok(header) = Ipv4Header::parse_mut(&mut frame[14..]) {
                header.set_ttl(ttl);
                header.set_dscp(tos >> 2);
                header.set_ecn(ecn);
            } else {
                let header = Ipv6Header::parse_mut(&mut frame[14..]).unwrap();
                header.set_hop_limit(ttl);
                header.set_dscp(tos >> 2);
                header.set_ecn(ecn);
            }
            prop_assert_eq!(frame, udp().to(to).ttl(ttl).tos(tos).build());
        }
    }
}

#[test]
fn a_datagram_without_checksum_stays_without() {
    for (_, to) in ENDS {
        let mut frame = udp().to(to).build();
        let header = UdpHeader::parse_mut(&mut frame[l4_offset(to.parse().unwrap())..]).unwrap();
        header.update_checksum(Change::of_word(!header.checksum(), 0));
        assert_eq!(header.checksum(), 0xffff, "a checksum that comes to 0");
        header.set_source_port(header.source_port());
        assert_eq!(header.checksum(), 0xffff);

        let offset = l4_offset(to.parse().unwrap());
        frame[offset + 6..offset + 8].fill(0);
        let header = UdpHeader::parse_mut(&mut frame[offset..]).unwrap();
        header.set_source_port(7);
        header.set_destination_port(9);
        header.update_checksum(Change::of_word(1, 2));
        assert_eq!((header.source_port(), header.destination_port()), (7, 9));
        assert_eq!(header.checksum(), 0);
    }
}

/// Only the message of all zeroes has the checksum 0xffff.
#[test]
fn an_echo_reply_of_zeroes_has_a_right_checksum() {
    for payload in [&[][..], &[0; 8], &[0xff; 2], &[1, 2, 3]] {
        let mut frame = echo_reply(0x1234, 0).payload(payload).build();
        let header = IcmpHeader::parse_mut(&mut frame[34..]).unwrap();
        assert!(header.set_echo_identifier(0));
        assert!(hotloop_packet::icmp::IcmpView::parse(&frame[34..]).unwrap().is_checksum_right());
    }
}

#[test]
fn what_is_no_echo_has_no_identifier_to_write() {
    let about = [udp().build(), udp().to("[2001:db8::2]:53").build()];
    for about in about {
        let mut frame = build::unreachable(&about).build();
        let before = frame.clone();
        let is_echo = match Ipv4Header::parse_mut(&mut frame[14..]) {
            Ok(_) => IcmpHeader::parse_mut(&mut frame[34..]).unwrap().set_echo_identifier(7),
            Err(_) => Icmpv6Header::parse_mut(&mut frame[54..]).unwrap().set_echo_identifier(7),
        };
        assert!(!is_echo);
        assert_eq!(frame, before);
    }
}

#[test]
fn cut_and_impossible_headers_are_not_changed() {
    let mut bytes = [0; 20];
    for length in 0..20 {
        assert!(TcpHeader::parse_mut(&mut bytes[..length]).is_err());
    }
    for length in 0..8 {
        assert!(UdpHeader::parse_mut(&mut bytes[..length]).is_err());
        assert!(IcmpHeader::parse_mut(&mut bytes[..length]).is_err());
        assert!(Icmpv6Header::parse_mut(&mut bytes[..length]).is_err());
    }
    // A data offset of 0, and a length of 0.
    assert!(TcpHeader::parse_mut(&mut bytes).is_err());
    assert!(UdpHeader::parse_mut(&mut bytes).is_err());
}
