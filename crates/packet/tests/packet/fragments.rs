//! Fragments equal those of the builders, and reassemble to the packet.

use std::net::Ipv4Addr;

use hotloop_packet::{
    Header, Malformed, PacketBuf,
    build::{PacketBuilder, arp_request, udp},
    fragment::{self, FragmentError},
    ip::Fragment,
    ipip::Tunnel,
    ipv4::{self, Ipv4View},
    memory::MemPacket,
};
use proptest::prelude::*;

use crate::segmented::Segmented;

/// The fragments of a frame.
fn split(frame: &[u8], mtu_bytes: usize) -> Result<Vec<MemPacket>, FragmentError> {
    let mut pieces = Vec::new();
    match fragment::split(MemPacket::new(frame), mtu_bytes, |piece| pieces.push(piece)) {
        Ok(()) => Ok(pieces),
        Err((packet, error)) => {
            assert_eq!(packet.data(), frame);
            Err(error)
        }
    }
}

/// The datagram that a receiver reassembles from fragments in order: their payloads, one after the
/// other.
fn joined(pieces: &[Vec<u8>], l3_offset: usize) -> Vec<u8> {
    let views: Vec<_> =
        pieces.iter().map(|frame| Ipv4View::parse(&frame[l3_offset..]).unwrap()).collect();
    let begin = views[0].fragment_offset_bytes();
    let mut payload = Vec::new();
    for (index, view) in views.iter().enumerate() {
        assert!(view.is_checksum_right());
        assert_eq!(view.fragment_offset_bytes(), begin + payload.len());
        let is_last = index + 1 == views.len();
        assert!(is_last || view.more_fragments() && view.payload().len().is_multiple_of(8));
        payload.extend_from_slice(view.payload());
    }
    payload
}

#[test]
fn fragments_equal_built_ones() {
    // All of these options are copied, as the builders do with any option.
    let options = [0x88, 4, 0x12, 0x34];
    for room_bytes in [8, 48, 80, 552, 1456, 2000] {
        for (builder, header_bytes) in [
            (udp(), 20),
            (udp().vlan(7), 20),
            (udp().qinq(7, 8).ipv4_options(&options).tos(0xb9), 24),
        ] {
            let (builder, mtu_bytes) =
                (builder.identification(77).payload([9; 1900]), header_bytes + room_bytes);
            let pieces = split(&builder.clone().build(), mtu_bytes).unwrap();
            let expected = builder.build_fragments(mtu_bytes);
            assert_eq!(pieces.len(), expected.len());
            for (piece, expected) in pieces.iter().zip(expected) {
                assert_eq!(piece.data(), expected);
            }
        }
    }
}

#[test]
fn a_packet_that_fits_stays_as_it_is() {
    let frame = udp().payload([7; 72]).dont_fragment().padded().build();
    assert_eq!(split(&frame, 100).unwrap()[0].data(), frame);
    let padded = udp().padded().build();
    assert_eq!(split(&padded, 28).unwrap()[0].data(), padded);
    // Padding is no part of the last fragment.
    let mut long = udp().payload([7; 72]).build();
    long.extend([0; 9]);
    let pieces = split(&long, 60).unwrap();
    let lengths: Vec<_> = pieces.iter().map(PacketBuf::len_bytes).collect();
    assert_eq!(lengths, [14 + 20 + 40; 2]);
}

#[test]
fn options_go_where_they_say() {
    // Nothing, record route (not copied), stream identifier (copied), end.
    let options = [1, 7, 7, 4, 0, 0, 0, 0, 0x88, 4, 0x12, 0x34, 0, 0, 0, 0];
    let frame = udp().ipv4_options(&options).payload([7; 150]).build();
    let pieces = split(&frame, 96).unwrap();
    let views: Vec<_> =
        pieces.iter().map(|piece| Ipv4View::parse(&piece.data()[14..]).unwrap()).collect();
    let seen: Vec<_> = views.iter().map(|view| (view.options(), view.payload().len())).collect();
    let later = &[0x88, 4, 0x12, 0x34][..];
    assert_eq!(seen, [(&options[..], 56), (later, 72), (later, 30)]);

    // A copied option of a length that is no multiple of four is filled up.
    let options = [0x83, 7, 4, 10, 0, 0, 9, 0];
    let frame = udp().ipv4_options(&options).payload([7; 150]).build();
    let pieces = split(&frame, 96).unwrap();
    assert!(pieces.iter().all(|piece| piece.data()[34..42] == options));

    for wrong in [[0x88, 1, 0, 0], [0x88, 5, 0, 0], [1, 1, 1, 0x88]] {
        let frame = udp().ipv4_options(&wrong).payload([7; 150]).build();
        let expected = Malformed::Inconsistent { header: Header::Ipv4, field: "option length" };
        assert_eq!(split(&frame, 96).unwrap_err(), FragmentError::Malformed(expected));
    }
}

#[test]
fn fragments_are_split_again() {
    let frames = udp().identification(5).payload([7; 992]).build_fragments(520);
    let mut pieces = Vec::new();
    for frame in &frames {
        pieces.extend(split(frame, 100).unwrap());
    }
    let pieces: Vec<_> = pieces.iter().map(|piece| piece.data().to_vec()).collect();
    let whole = udp().identification(5).payload([7; 992]).build();
    assert_eq!(joined(&pieces, 14), whole[34..]);
    let views = pieces.iter().map(|frame| Ipv4View::parse(&frame[14..]).unwrap());
    let parts: Vec<_> = views.map(|view| view.fragment()).collect();
    assert_eq!(parts[0], Fragment::First);
    assert!(parts[1..].iter().all(|part| *part == Fragment::Later));
}

#[test]
fn pieces_have_the_packets_metadata_and_room_for_a_tunnel() {
    let mut packet = udp().payload([7; 3000]).ttl(9).packet_in_memory().received_at(99);
    packet.set_metadata(*b"metadata");
    let tunnel = Tunnel::new(std::net::Ipv6Addr::LOCALHOST, std::net::Ipv6Addr::LOCALHOST).unwrap();
    let mut count = 0;
    let emit = |mut piece: MemPacket| {
        assert_eq!((&piece.metadata(), piece.timestamp_ns()), (b"metadata", Some(99)));
        assert!(piece.headroom_bytes() >= 128);
        tunnel.wrap(&mut piece).unwrap();
        assert!(piece.len_bytes() <= 14 + 1500);
        count += 1;
    };
    fragment::split(packet, 1460, emit).unwrap();
    assert_eq!(count, 3);
}

#[test]
fn packets_of_several_segments_are_split() {
    let frame = udp().payload((0..250).collect::<Vec<u8>>()).build();
    let expected: Vec<_> =
        split(&frame, 68).unwrap().iter().map(|piece| piece.data().to_vec()).collect();
    for first_bytes in 34..=frame.len() {
        let mut pieces = Vec::new();
        fragment::split(Segmented::new(&frame, first_bytes), 68, |piece| {
            pieces.push(piece.bytes())
        })
        .unwrap();
        assert_eq!(pieces, expected, "{first_bytes} bytes in the first segment");
    }
}

#[test]
fn without_memory_the_packet_comes_back() {
    let frame = udp().payload([7; 250]).build();
    let piece_count = split(&frame, 68).unwrap().len();
    for (first_bytes, wanted_count) in [(frame.len(), piece_count - 1), (40, piece_count)] {
        for copies in 0..=wanted_count {
            let packet = Segmented::new(&frame, first_bytes).with_copies(copies);
            let mut emitted_count = 0;
            match fragment::split(packet, 68, |_| emitted_count += 1) {
                Ok(()) => assert_eq!((copies, emitted_count), (wanted_count, piece_count)),
                Err((packet, error)) => {
                    assert_eq!((error, emitted_count), (FragmentError::NoMemory, copies));
                    assert!(copies < wanted_count);
                    assert_eq!(packet.bytes(), frame);
                }
            }
        }
    }
}

#[test]
fn what_must_not_be_split_is_not() {
    let long = |change: fn(PacketBuilder) -> PacketBuilder| change(udp().payload([7; 100])).build();
    let forbidden = FragmentError::Forbidden { packet_bytes: 128, mtu_bytes: 127 };
    assert_eq!(split(&long(PacketBuilder::dont_fragment), 127).unwrap_err(), forbidden);
    let v6 = FragmentError::NotIpv4 { ethertype: 0x86dd };
    assert_eq!(split(&long(|builder| builder.to("2001:db8::2")), 100).unwrap_err(), v6);
    let arp = arp_request(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST);
    assert_eq!(split(&arp, 1).unwrap_err(), FragmentError::NotIpv4 { ethertype: 0x0806 });

    let frame = long(|builder| builder.ipv4_options(&[1; 8]));
    let small = FragmentError::MtuTooSmall { mtu_bytes: 35, wanted_bytes: 36 };
    assert_eq!(split(&frame, 35).unwrap_err(), small);
    assert_eq!(split(&frame, 36).unwrap().len(), 8);

    let mut wrong = long(|builder| builder);
    wrong[24] ^= 1;
    assert_eq!(split(&wrong, 100).unwrap_err(), FragmentError::Checksum);
    // The last fragment of a datagram of more than 65,535 bytes.
    let mut far = long(|builder| builder);
    far[20..22].copy_from_slice(&0x1fff_u16.to_be_bytes());
    ipv4::fill_checksum(&mut far[14..]).unwrap();
    let expected = Malformed::Inconsistent { header: Header::Ipv4, field: "fragment offset" };
    assert_eq!(split(&far, 100).unwrap_err(), FragmentError::Malformed(expected));
}

proptest! {
    #[test]
    fn fragments_give_back_the_packet(
        payload in prop::collection::vec(any::<u8>(), 0..3000),
        mtu_bytes in 68usize..1600,
        again_bytes in 68usize..1600,
        option_words in 0usize..=10,
        first_bytes in 74usize..3000,
    ) {
        let options = [0x88, 4, 7, 7].repeat(option_words);
        let frame = udp().ipv4_options(&options).payload(&payload).build();
        let mut pieces = Vec::new();
        fragment::split(Segmented::new(&frame, first_bytes), mtu_bytes, |piece| {
            fragment::split(piece, again_bytes, |piece| pieces.push(piece.bytes())).unwrap();
        })
        .unwrap();
        let header_bytes = 20 + options.len();
        prop_assert!(joined(&pieces, 14) == frame[14 + header_bytes..]);
        let mtu_bytes = mtu_bytes.min(again_bytes);
        prop_assert!(pieces.iter().all(|piece| piece.len() <= 14 + mtu_bytes));
        let last = Ipv4View::parse(&pieces.last().unwrap()[14..]).unwrap();
        prop_assert!(!last.more_fragments());
    }
}
