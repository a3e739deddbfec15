//! A packet that a function refuses to write to is unchanged, and none panics.

use hotloop_packet::{
    Header, Malformed, NoRoom, PacketBuf, WriteError,
    build::{self, udp},
    ethernet::{self, ETHERTYPE_VLAN, EthernetHeader, MacAddress, VlanTag},
    gre::{self, GreHeader},
    gue::{self, GueHeader},
    icmp::{self, IcmpHeader},
    icmpv6::{self, Icmpv6Header},
    ip::protocol,
    ipv4::{self, Ipv4Header},
    ipv6::{self, Ipv6Header},
    memory::MemPacket,
    tcp::{self, TcpHeader},
    udp::UdpHeader,
    vxlan::{self, VxlanHeader},
};
use proptest::prelude::*;

use crate::reference::{Kind, fields, reference};

#[test]
fn options_are_refused_and_the_packet_stays_as_it_is() {
    let refused = |frame: &[u8], headroom_bytes: usize, options: &[u8]| {
        let mut packet = MemPacket::with_room(frame, headroom_bytes, 0);
        let error = tcp::set_options(&mut packet, options).unwrap_err();
        assert_eq!((packet.data(), packet.headroom_bytes()), (frame, headroom_bytes));
        error
    };
    let segment = build::tcp().tcp_options(&[1; 4]).build();
    let error = refused(&segment, 99, &[1; 41]);
    assert_eq!(error, WriteError::Options { option_bytes: 41 });
    assert!(matches!(refused(&segment, 3, &[1; 5]), WriteError::NoRoom(_)));
    for other in [
        udp().build(),
        build::arp_request([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
        build::tcp().payload([7; 90]).build_fragments(60)[0].clone(),
        build::tcp().to("::2").payload([7; 90]).build_fragments(96)[0].clone(),
    ] {
        assert_eq!(refused(&other, 99, &[]), WriteError::NotTcp);
    }
    for len_bytes in 0..58 {
        let error = refused(&segment[..len_bytes], 99, &[]);
        assert!(matches!(error, WriteError::Malformed(_)), "{len_bytes}: {error}");
    }
    // The total length ends within the options, and one that can't count more.
    let mut wrong = segment.clone();
    wrong[17] = 43;
    assert!(matches!(refused(&wrong, 99, &[]), WriteError::Malformed(_)));
    wrong[16..18].fill(0xff);
    let error = refused(&wrong, 99, &[1; 8]);
    assert_eq!(error, WriteError::TooLong { header: Header::Ipv4, len_bytes: 65_539 });
}

/// Calls each function that writes a header on a packet of these bytes and this headroom. A packet
/// that a function refuses is unchanged.
fn check_refusals(bytes: &[u8], headroom_bytes: usize, number: u8, options: &[u8]) {
    type Write<'a> = &'a dyn Fn(&mut MemPacket) -> Result<(), WriteError>;
    let v4 = Ipv4Header::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), number);
    let v6 = Ipv6Header::new(1.into(), 2.into(), number);
    let tag = VlanTag::new(ETHERTYPE_VLAN, 7);
    let link = EthernetHeader::new(MacAddress::BROADCAST, MacAddress::BROADCAST, 0x0800);
    let (offset, count) = (usize::from(number), options.len());
    let no_room = |result: Result<(), NoRoom>| result.map_err(WriteError::from);
    let writes: [Write; 14] = [
        &|packet| ipv4::push(packet, v4),
        &|packet| ipv6::push(packet, v6),
        &|packet| hotloop_packet::udp::push(packet, UdpHeader::new(1, 2)),
        &|packet| tcp::push(packet, TcpHeader::new(1, 2, 2), options),
        &|packet| tcp::set_options(packet, options),
        &|packet| no_room(icmp::push(packet, IcmpHeader::new(8, 0, 7))),
        &|packet| no_room(icmpv6::push(packet, Icmpv6Header::new(8, 0, 7))),
        &|packet| no_room(ethernet::push(packet, link)),
        &|packet| no_room(ethernet::insert_tag(packet, tag)),
        &|packet| no_room(vxlan::push(packet, VxlanHeader::new(7))),
        &|packet| no_room(gue::push(packet, GueHeader::new(4))),
        &|packet| no_room(gre::push(packet, GreHeader::new(0x0800).with_key(7))),
        &|packet| no_room(packet.insert(offset, count).map(drop)),
        &|packet| no_room(packet.remove(offset, count)),
    ];
    for write in writes {
        let mut packet = MemPacket::with_room(bytes, headroom_bytes, 0);
        if write(&mut packet).is_err() {
            assert_eq!((packet.data(), packet.headroom_bytes()), (bytes, headroom_bytes));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn random_bytes_and_room(
        bytes in prop::collection::vec(any::<u8>(), 0..80),
        headroom_bytes in 0usize..64,
        number in prop::sample::select(vec![6u8, 17, 58, 0, 44, 43, 51, 4, 80]),
        options in prop::collection::vec(any::<u8>(), 0..45),
    ) {
        check_refusals(&bytes, headroom_bytes, number, &options);
    }

    #[test]
    fn segments_with_changed_bytes(
        fields in fields(),
        at: prop::sample::Index,
        byte: u8,
        headroom_bytes in 0usize..64,
        options in prop::collection::vec(any::<u8>(), 0..45),
    ) {
        let mut fields = fields;
        fields.kind = Kind::Tcp;
        let mut frame = reference(&fields);
        let index = at.index(frame.len());
        frame[index] = byte;
        check_refusals(&frame, headroom_bytes, 6, &options);
    }
}

#[test]
fn packets_that_no_length_field_can_count_are_refused() {
    let bytes = vec![0; 65_536];
    let too_long = |header, len_bytes| Err(WriteError::TooLong { header, len_bytes });
    let push = |len_bytes: usize, push: &dyn Fn(&mut MemPacket) -> Result<(), WriteError>| {
        let mut packet = MemPacket::new(&bytes[..len_bytes]);
        let result = push(&mut packet);
        assert!(result.is_ok() || packet.len_bytes() == len_bytes);
        result
    };
    let v4 = Ipv4Header::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), protocol::TCP);
    let v6 = Ipv6Header::new(1.into(), 2.into(), protocol::TCP);
    let datagram = UdpHeader::new(1, 2);
    assert_eq!(push(65_515, &|packet| ipv4::push(packet, v4)), Ok(()));
    assert_eq!(push(65_516, &|packet| ipv4::push(packet, v4)), too_long(Header::Ipv4, 65_536));
    assert_eq!(push(65_535, &|packet| ipv6::push(packet, v6)), Ok(()));
    assert_eq!(push(65_536, &|packet| ipv6::push(packet, v6)), too_long(Header::Ipv6, 65_536));
    let udp_push = &|packet: &mut MemPacket| hotloop_packet::udp::push(packet, datagram);
    assert_eq!(push(65_527, udp_push), Ok(()));
    assert_eq!(push(65_528, udp_push), too_long(Header::Udp, 65_536));
    // The protocol's header must be there.
    let cut = Malformed::Cut { header: Header::Tcp, wanted_bytes: 20, available_bytes: 19 };
    assert_eq!(push(19, &|packet| ipv4::push(packet, v4)), Err(cut.into()));
    assert_eq!(push(19, &|packet| ipv6::push(packet, v6)), Err(cut.into()));
}
