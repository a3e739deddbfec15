//! Headers that this crate writes are those that etherparse writes.

use hotloop_packet::{
    PacketBuf,
    build::{self, udp},
    ethernet::{self, EthernetHeader, EthernetView, MacAddress},
    icmp::{IcmpHeader, IcmpView},
    icmpv6::{Icmpv6Header, Icmpv6View},
    ip::protocol,
    ipv4::{self, Ipv4Header, Ipv4View},
    ipv6::{self, Ipv6Header, Ipv6View},
    memory::MemPacket,
    tcp::{self, TcpHeader, TcpView},
    udp::{UdpHeader, UdpView},
};
use proptest::prelude::*;

use crate::{
    reference::{Fields, Kind, fields, push, pushed, reference},
    segmented::Segmented,
};

/// Writes all fields of a frame of the same kind, except the payload and options.
fn set_all(frame: &mut [u8], from: &Fields, to: &Fields) {
    let header = EthernetHeader::parse_mut(frame).unwrap();
    header.set_source(MacAddress::new(to.macs[0]));
    header.set_destination(MacAddress::new(to.macs[1]));
    for (tag, (vlan, priority, is_drop_eligible)) in
        ethernet::vlan_tags_mut(frame).iter_mut().zip(&to.tags)
    {
        tag.set_vlan(*vlan);
        tag.set_priority(*priority);
        tag.set_drop_eligible(*is_drop_eligible);
    }
    let ip = &mut frame[from.l3_offset()..];
    let change = if from.is_v6 {
        let ([source, destination], header) = (to.v6_ends(), Ipv6Header::parse_mut(ip).unwrap());
        header.set_hop_limit(to.ttl);
        header.set_dscp(to.tos >> 2);
        header.set_ecn(to.ecn());
        header.set_flow_label(to.flow_label);
        header.set_source(source) + header.set_destination(destination)
    } else {
        let ([source, destination], header) = (to.v4_ends(), Ipv4Header::parse_mut(ip).unwrap());
        header.set_ttl(to.ttl);
        header.set_dscp(to.tos >> 2);
        header.set_ecn(to.ecn());
        header.set_identification(to.identification);
        header.set_dont_fragment(to.dont_fragment);
        header.set_source(source) + header.set_destination(destination)
    };
    let message = &mut frame[from.l4_offset()..];
    let (kind, code, rest) = to.icmp;
    match (from.kind, from.is_v6) {
        (Kind::Udp | Kind::UdpUnsummed, _) => {
            let header = UdpHeader::parse_mut(message).unwrap();
            header.update_checksum(change);
            header.set_source_port(to.ports[0]);
            header.set_destination_port(to.ports[1]);
        }
        (Kind::Tcp, _) => {
            let header = TcpHeader::parse_mut(message).unwrap();
            header.update_checksum(change);
            header.set_source_port(to.ports[0]);
            header.set_destination_port(to.ports[1]);
            header.set_sequence_number(to.sequence);
            header.set_acknowledgment_number(to.acknowledgment);
            header.set_flags(to.flags);
            header.set_window(to.window);
            header.set_urgent_pointer(to.urgent_pointer);
        }
        (Kind::Icmp, false) => {
            let header = IcmpHeader::parse_mut(message).unwrap();
            header.set_kind(kind, code);
            let has_id = header.set_echo_identifier((rest >> 16) as u16);
            assert_eq!(header.set_echo_sequence(rest as u16), has_id);
            assert_eq!(header.set_mtu_bytes(rest as u16), !has_id);
        }
        (Kind::Icmp, true) => {
            let header = Icmpv6Header::parse_mut(message).unwrap();
            header.update_checksum(change);
            header.set_kind(kind, code);
            let has_id = header.set_echo_identifier((rest >> 16) as u16);
            assert_eq!(header.set_echo_sequence(rest as u16), has_id);
            assert_eq!(header.set_mtu_bytes(rest), !has_id);
        }
    }
}

/// Reads all fields with the views, and compares.
fn check_views(frame: &[u8], fields: &Fields) {
    let link = EthernetView::parse(frame).unwrap();
    assert_eq!([link.source(), link.destination()], fields.macs.map(MacAddress::new));
    let tags = link.vlan_tags().iter();
    let tags: Vec<_> = tags.map(|t| (t.vlan(), t.priority(), t.is_drop_eligible())).collect();
    assert_eq!((tags, link.l3_offset()), (fields.tags.clone(), fields.l3_offset()));
    if fields.is_v6 {
        let view = Ipv6View::parse(link.payload()).unwrap();
        assert_eq!([view.source(), view.destination()], fields.v6_ends());
        assert_eq!((view.dscp(), view.ecn()), (fields.tos >> 2, fields.ecn()));
        assert_eq!((view.hop_limit(), view.flow_label()), (fields.ttl, fields.flow_label));
        assert_eq!(view.next_header(), fields.protocol());
        if fields.kind == Kind::Icmp {
            let message = Icmpv6View::parse(view.payload()).unwrap();
            assert!(message.is_checksum_right(view.source(), view.destination()));
            assert_eq!((message.kind(), message.code()), (fields.icmp.0, fields.icmp.1));
            assert_eq!(message.payload(), fields.payload);
        }
        check_transport(view.payload(), fields);
    } else {
        let view = Ipv4View::parse(link.payload()).unwrap();
        assert!(view.is_checksum_right());
        assert_eq!([view.source(), view.destination()], fields.v4_ends());
        assert_eq!(
            (view.dscp(), view.ecn(), view.ttl()),
            (fields.tos >> 2, fields.ecn(), fields.ttl)
        );
        let flags = (view.identification(), view.dont_fragment());
        assert_eq!(flags, (fields.identification, fields.dont_fragment));
        assert_eq!(view.protocol(), fields.protocol());
        if fields.kind == Kind::Icmp {
            let message = IcmpView::parse(view.payload()).unwrap();
            assert!(message.is_checksum_right());
            assert_eq!((message.kind(), message.code()), (fields.icmp.0, fields.icmp.1));
            assert_eq!(message.payload(), fields.payload);
        }
        check_transport(view.payload(), fields);
    }
}

fn check_transport(message: &[u8], fields: &Fields) {
    match fields.kind {
        Kind::Udp | Kind::UdpUnsummed => {
            let view = UdpView::parse(message).unwrap();
            assert_eq!([view.source_port(), view.destination_port()], fields.ports);
            assert_eq!(view.payload(), fields.payload);
            assert_eq!(view.checksum() == 0, fields.kind == Kind::UdpUnsummed);
        }
        Kind::Tcp => {
            let view = TcpView::parse(message).unwrap();
            assert_eq!([view.source_port(), view.destination_port()], fields.ports);
            let numbers = (view.sequence_number(), view.acknowledgment_number());
            assert_eq!(numbers, (fields.sequence, fields.acknowledgment));
            let others = (view.flags(), view.window(), view.urgent_pointer());
            assert_eq!(others, (fields.flags, fields.window, fields.urgent_pointer));
            assert_eq!(&view.options()[..fields.options.len()], fields.options);
            assert_eq!(view.payload(), fields.payload);
        }
        Kind::Icmp => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn pushed_frames_are_etherparses(fields in fields()) {
        let (packet, expected) = (pushed(&fields), reference(&fields));
        prop_assert_eq!(packet.data(), &expected);
        check_views(&expected, &fields);
    }

    /// The last segment begins at an odd or even offset of the payload.
    #[test]
    fn checksums_go_over_all_segments(fields in fields(), first_bytes in 0usize..60) {
        let mut packet = Segmented::new(&fields.payload, first_bytes);
        push(&mut packet, &fields).unwrap();
        prop_assert_eq!(packet.bytes(), reference(&fields));
    }

    #[test]
    fn setters_write_what_etherparse_writes(from in fields(), to in fields(), which: usize) {
        let (mut from, mut to) = (from, to);
        (to.kind, to.is_v6) = (from.kind, from.is_v6);
        (to.options, to.payload) = (from.options.clone(), from.payload.clone());
        to.tags = from.tags.iter().map(|tag| (!tag.0 & 0xfff, 7 - tag.1, !tag.2)).collect();
        let kinds = if to.is_v6 { [(128, 0), (129, 0), (2, 0)] } else { [(8, 0), (0, 0), (3, 4)] };
        (to.icmp.0, to.icmp.1) = kinds[which % 3];
        // The other half of IPv4's MTU has no setter.
        if kinds[which % 3] == (3, 4) {
            from.icmp.2 &= 0xffff;
            to.icmp.2 &= 0xffff;
        }
        let mut frame = pushed(&from).data().to_vec();
        set_all(&mut frame, &from, &to);
        prop_assert_eq!(frame, reference(&to));
    }

    /// Lengths are covered once in TCP and ICMPv6, twice in UDP, and not at all in ICMP.
    #[test]
    fn lengths_grow_with_the_payload(fields in fields(), grown_bytes in 0usize..40) {
        let mut longer = fields.clone();
        longer.payload.resize(fields.payload.len() + grown_bytes, 0);
        let mut frame = pushed(&fields).data().to_vec();
        frame.resize(frame.len() + grown_bytes, 0);
        let ip_bytes = (frame.len() - fields.l3_offset()) as u16;
        let (ip, message) = frame[fields.l3_offset()..]
            .split_at_mut(fields.l4_offset() - fields.l3_offset());
        let change = if fields.is_v6 {
            Ipv6Header::parse_mut(ip).unwrap().set_payload_length(ip_bytes - 40)
        } else {
            Ipv4Header::parse_mut(ip).unwrap().set_total_length(ip_bytes)
        };
        match (fields.kind, fields.is_v6) {
            (Kind::Udp | Kind::UdpUnsummed, _) => {
                let length = message.len() as u16;
                UdpHeader::parse_mut(message).unwrap().set_length(length);
            }
            (Kind::Tcp, _) => TcpHeader::parse_mut(message).unwrap().update_checksum(change),
            (Kind::Icmp, false) => {}
            (Kind::Icmp, true) => Icmpv6Header::parse_mut(message).unwrap().update_checksum(change),
        }
        prop_assert_eq!(frame, reference(&longer));
    }

    #[test]
    fn a_protocol_changes_the_checksum_of_its_message(fields in fields(), number: u8) {
        let mut fields = fields;
        (fields.kind, fields.is_v6, fields.ttl) = (Kind::Tcp, false, fields.ttl.max(1));
        let mut packet = pushed(&fields);
        let (ip, message) = packet.data_mut()[fields.l3_offset()..].split_at_mut(20);
        let header = Ipv4Header::parse_mut(ip).unwrap();
        let change = header.set_protocol(number);
        let header = TcpHeader::parse_mut(message).unwrap();
        header.update_checksum(change);
        let view = Ipv4View::parse(&packet.data()[fields.l3_offset()..]).unwrap();
        prop_assert!(view.is_checksum_right() && view.protocol() == number);
        let [source, destination] = fields.v4_ends();
        let sum = hotloop_packet::checksum::transport_v4(source, destination, number, view.payload());
        prop_assert_eq!(sum, 0);
    }

    #[test]
    fn options_are_replaced(
        fields in fields(),
        options in prop::collection::vec(any::<u8>(), 0..=40),
        first_bytes in 0usize..60,
    ) {
        let mut fields = fields;
        fields.kind = Kind::Tcp;
        let mut packet = Segmented::new(&fields.payload, first_bytes);
        push(&mut packet, &fields).unwrap();
        tcp::set_options(&mut packet, &options).unwrap();
        fields.options = options;
        prop_assert_eq!(packet.bytes(), reference(&fields));
    }
}

#[test]
fn options_are_replaced_after_other_options_and_extension_headers() {
    let [few, many] = [&[2, 4, 5, 0xb4][..], &[1; 40]];
    let frame = |options: &[u8], to: &str| {
        let frame = build::tcp().to(to).vlan(9).ipv4_options(&[1; 8]).tcp_options(options);
        frame.extension(protocol::HOP_BY_HOP, &[1, 4, 0, 0, 0, 0]).payload(b"data").build()
    };
    for to in ["192.0.2.9:80", "[2001:db8::9]:80"] {
        let mut packet = MemPacket::with_room(&frame(few, to), 36, 0);
        tcp::set_options(&mut packet, many).unwrap();
        assert_eq!(packet.data(), frame(many, to));
        tcp::set_options(&mut packet, few).unwrap();
        assert_eq!(packet.data(), frame(few, to));
        tcp::set_options(&mut packet, &[]).unwrap();
        assert_eq!(packet.data(), frame(&[], to));
    }
}

#[test]
fn a_header_of_another_packet_is_pushed_without_its_options() {
    let frame = build::tcp().ipv4_options(&[1; 4]).tcp_options(&[1; 8]).payload(b"data").build();
    let ip = *Ipv4View::parse(&frame[14..]).unwrap();
    let view = TcpView::parse(&frame[38..]).unwrap();
    let mut packet = MemPacket::new(view.payload());
    tcp::push(&mut packet, *view, &[]).unwrap();
    ipv4::push(&mut packet, ip).unwrap();
    assert_eq!(packet.data(), &build::tcp().payload(b"data").build()[14..]);
}

#[test]
fn fragments_and_other_protocols_are_pushed_as_they_are() {
    for (to, header_bytes) in [("192.0.2.1:80", 20), ("[2001:db8::2]:80", 40)] {
        for frame in udp().to(to).payload([7; 100]).build_fragments(96) {
            let mut packet = MemPacket::new(&frame[14 + header_bytes..]);
            match Ipv4View::parse(&frame[14..]) {
                Ok(view) => ipv4::push(&mut packet, *view).unwrap(),
                _ => ipv6::push(&mut packet, *Ipv6View::parse(&frame[14..]).unwrap()).unwrap(),
            }
            assert_eq!(packet.data(), &frame[14..]);
        }
        // Extension headers are skipped, and the checksum after them is computed again.
        let frame = udp().to(to).extension(protocol::HOP_BY_HOP, &[1, 4, 0, 0, 0, 0]);
        let frame = frame.payload(b"query").build();
        let mut payload = frame[14 + header_bytes..].to_vec();
        let checksum_offset = payload.len() - 7;
        payload[checksum_offset] ^= 0x55;
        let mut packet = MemPacket::new(&payload);
        match Ipv4View::parse(&frame[14..]) {
            Ok(view) => ipv4::push(&mut packet, *view).unwrap(),
            _ => ipv6::push(&mut packet, *Ipv6View::parse(&frame[14..]).unwrap()).unwrap(),
        }
        assert_eq!(packet.data(), &frame[14..]);
    }
}
