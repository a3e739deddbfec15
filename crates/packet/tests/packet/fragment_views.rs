//! Fragments of honest senders pass the check and share one id; each kind of bad one is named.

use std::collections::HashSet;

use hotloop_packet::{
    PacketBuf,
    build::{PacketBuilder, arp_request, echo_request, protocol, tcp, udp},
    fragment::{self, BadFragment, FragmentId, FragmentView},
    ip::protocol as number,
    ipv4,
};
use proptest::prelude::*;

use crate::frames::{ENDS, frames};

fn view(frame: &[u8]) -> FragmentView<'_> {
    FragmentView::of_frame(frame).unwrap()
}

/// Checks the fragments of a datagram with a payload of this length.
fn check_fragments(fragments: &[Vec<u8>], payload_bytes: usize) -> FragmentId {
    let mut end = 0;
    for (index, frame) in fragments.iter().enumerate() {
        let view = view(frame);
        assert_eq!((view.id(), view.check()), (self::view(&fragments[0]).id(), Ok(())));
        assert_eq!(view.offset_bytes(), end);
        end += view.len_bytes();
        assert_eq!(view.more_fragments(), index + 1 < fragments.len());
    }
    assert_eq!(end, payload_bytes);
    view(&fragments[0]).id()
}

#[test]
fn fragments_of_a_datagram_share_an_id() {
    let mut ids = HashSet::new();
    let messages = [(udp(), 8), (tcp(), 20), (echo_request(7, 1), 8)];
    for (from, to) in ENDS {
        for (index, (message, header_bytes)) in messages.iter().enumerate() {
            for identification in [7, 8] {
                let message = message
                    .clone()
                    .from(from)
                    .to(to)
                    .payload([1; 300])
                    .identification(identification);
                let id = check_fragments(&message.clone().build_fragments(120), 300 + header_bytes);
                assert_eq!(id.protocol().is_some(), !from.starts_with('['));
                let ends = (id.source().to_string(), id.destination().to_string());
                assert!(from.contains(&ends.0) && to.contains(&ends.1));
                // In IPv6 a datagram's protocol is no part of its id.
                assert_eq!(ids.insert(id), id.protocol().is_some() || index == 0);
                let tagged = message.vlan(9).tos(3).build_fragments(200);
                assert_eq!(check_fragments(&tagged, 300 + header_bytes), id);
            }
        }
    }
    let words: HashSet<_> = ids.iter().map(FragmentId::words).collect();
    assert_eq!(words.len(), ids.len());
}

#[test]
fn pieces_of_a_split_packet_are_fragments() {
    let packet = udp().identification(99).payload([7; 2000]).packet_in_memory();
    let mut pieces = Vec::new();
    fragment::split(packet, 600, |piece| pieces.push(piece.data().to_vec())).unwrap();
    assert_eq!(check_fragments(&pieces, 2008).identification(), 99);
}

#[test]
fn whole_datagrams_are_no_fragments() {
    for (from, to) in ENDS {
        let frame = udp().from(from).to(to).payload([1; 300]).build();
        assert!(FragmentView::of_frame(&frame).is_none());
    }
    // RFC 6946: an atomic fragment.
    let atomic = udp().to("[2001:db8::2]:53").extension(number::FRAGMENT, &[0; 6]).build();
    assert!(FragmentView::of_frame(&atomic).is_none());
    let inside = udp().to("[2001:db8::2]:53").extension(number::FRAGMENT, &[0; 6]);
    let inside = inside.extension(number::FRAGMENT, &[0, 1, 0, 0, 0, 7]).build();
    assert_eq!((view(&inside).id().identification(), view(&inside).check()), (7, Ok(())));
    let arp = arp_request([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    assert!(FragmentView::of_frame(&arp).is_none());
}

/// Every field of the id, also the bits that IPv4 doesn't have, changes the words.
#[test]
fn words_differ_for_any_two_ids() {
    let of = |message: PacketBuilder| view(&message.build_fragments(120)[0]).id();
    let message = |from: &str, to: &str| udp().from(from).to(to).payload([1; 300]);
    let ids = [
        of(message("10.0.0.1:9", "10.0.0.2:9")),
        of(message("10.0.0.2:9", "10.0.0.1:9")),
        of(message("10.0.0.3:9", "10.0.0.2:9")),
        of(message("10.0.0.1:9", "10.0.0.2:9").identification(0x1234)),
        of(tcp().from("10.0.0.1").to("10.0.0.2").payload([1; 300])),
        of(protocol(0).from("10.0.0.1").to("10.0.0.2").payload([1; 300])),
        of(message("[::10.0.0.1]:9", "[::10.0.0.2]:9")),
        of(message("[::ffff:10.0.0.1]:9", "[::ffff:10.0.0.2]:9")),
        of(message("[2001:db8::1]:9", "[::10.0.0.2]:9")),
    ];
    let words: HashSet<_> = ids.iter().map(FragmentId::words).collect();
    assert_eq!(words.len(), ids.len());
    // A later fragment of IPv6 that names another protocol belongs to the same datagram.
    let mut frames = message("[2001:db8::1]:9", "[2001:db8::2]:9").build_fragments(120);
    frames[1][54] = number::TCP;
    assert_eq!(view(&frames[1]).id(), view(&frames[0]).id());
}

/// An IPv4 fragment with this payload.
fn v4(protocol_number: u8, offset_bytes: u16, more: bool, payload: &[u8]) -> Vec<u8> {
    let mut frame = protocol(protocol_number).payload(payload).build();
    frame[20..22].copy_from_slice(&((u16::from(more) << 13) | (offset_bytes / 8)).to_be_bytes());
    ipv4::fill_checksum(&mut frame[14..]).unwrap();
    frame
}

/// An IPv6 fragment with this payload.
fn v6(next_header: u8, offset_bytes: u16, more: bool, payload: &[u8]) -> Vec<u8> {
    let [high, low] = (offset_bytes | u16::from(more)).to_be_bytes();
    protocol(next_header)
        .to("2001:db8::2")
        .extension(number::FRAGMENT, &[high, low, 0, 0, 0, 7])
        .payload(payload)
        .build()
}

type Build = fn(u8, u16, bool, &[u8]) -> Vec<u8>;

const BOTH: [Build; 2] = [v4, v6];

#[test]
fn lengths_that_no_fragment_has_are_bad() {
    for build in BOTH {
        for (offset_bytes, more, len_bytes, expected) in [
            (0, true, 0, Err(BadFragment::Empty)),
            (64, false, 0, Err(BadFragment::Empty)),
            (0, true, 24, Ok(())),
            (0, true, 25, Err(BadFragment::Unaligned { len_bytes: 25 })),
            (64, true, 31, Err(BadFragment::Unaligned { len_bytes: 31 })),
            (64, false, 31, Ok(())),
            (64, false, 1, Ok(())),
        ] {
            let frame = build(99, offset_bytes, more, &vec![1; len_bytes]);
            assert_eq!(view(&frame).check(), expected, "{offset_bytes} {more} {len_bytes}");
        }
    }
}

/// RFC 791: the whole datagram, with its header. RFC 8200: the payload, with the headers before
/// the fragment header.
#[test]
fn datagrams_end_within_their_length_field() {
    let too_long = |datagram_bytes| Err(BadFragment::TooLong { datagram_bytes });
    assert_eq!(view(&v4(17, 65_504, false, &[1; 11])).check(), Ok(()));
    assert_eq!(view(&v4(17, 65_504, false, &[1; 12])).check(), too_long(65_536));
    assert_eq!(view(&v6(17, 65_528, false, &[1; 7])).check(), Ok(()));
    assert_eq!(view(&v6(17, 65_528, false, &[1; 8])).check(), too_long(65_536));
    let options = udp()
        .to("2001:db8::2")
        .extension(number::DESTINATION_OPTIONS, &[0; 6])
        .extension(number::FRAGMENT, &[0xff, 0xf8, 0, 0, 0, 7])
        .build();
    assert_eq!(view(&options).check(), too_long(8 + 65_528 + 8));
}

/// RFC 1858, section 3; RFC 7112.
#[test]
fn a_first_fragment_has_all_headers() {
    let segment = tcp().tcp_options(&[1; 12]).payload([7; 64]).build()[34..].to_vec();
    let bad = Err(BadFragment::HeadersCut);
    for build in BOTH {
        for (protocol, message, expected) in [
            (number::TCP, &segment[..8], bad),
            (number::TCP, &segment[..16], bad),
            (number::TCP, &segment[..24], bad),
            (number::TCP, &segment[..32], Ok(())),
            (number::TCP, &segment[..40], Ok(())),
            (number::UDP, &[0; 8], Ok(())),
            (99, &[0; 8], Ok(())),
        ] {
            let frame = build(protocol, 0, true, message);
            assert_eq!(view(&frame).check(), expected, "{protocol} {}", message.len());
        }
        // Headers must lie in the first segment.
        let frame = build(number::TCP, 0, true, &segment[..40]);
        assert_eq!(view(&frame[..frame.len() - 9]).check(), bad);
        assert_eq!(view(&frame[..frame.len() - 9]).len_bytes(), 40);
    }
    // Options after the fragment header, then UDP.
    let mut chain = vec![number::UDP, 1];
    chain.resize(16, 0);
    chain.extend([0, 9, 0, 9, 0, 8, 0, 0]);
    for (len_bytes, expected) in [(8, bad), (16, bad), (24, Ok(()))] {
        let frame = v6(number::DESTINATION_OPTIONS, 0, true, &chain[..len_bytes]);
        assert_eq!(view(&frame).check(), expected, "{len_bytes}");
    }
    // A later fragment inside a first one: its headers are elsewhere.
    let inner = [number::UDP, 0, 0, 64, 0, 0, 0, 8, 0, 9, 0, 9, 0, 8, 0, 0];
    assert_eq!(view(&v6(number::FRAGMENT, 0, true, &inner)).check(), bad);
}

/// RFC 1858, section 4; RFC 3128.
#[test]
fn later_fragments_leave_the_headers_alone() {
    for offset_bytes in [8, 16] {
        let bad = Err(BadFragment::OverlapsHeaders { offset_bytes: offset_bytes.into() });
        assert_eq!(view(&v4(number::TCP, offset_bytes, true, &[7; 64])).check(), bad);
        assert_eq!(view(&v4(number::TCP, offset_bytes, false, &[7; 64])).check(), bad);
        assert_eq!(view(&v4(number::UDP, offset_bytes, false, &[7; 64])).check(), Ok(()));
        // In IPv6, the protocol in a later fragment does not count.
        for protocol in [number::TCP, number::UDP, number::DESTINATION_OPTIONS] {
            assert_eq!(view(&v6(protocol, offset_bytes, false, &[7; 64])).check(), bad);
        }
    }
    for build in BOTH {
        assert_eq!(view(&build(number::TCP, 24, false, &[7; 64])).check(), Ok(()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn views_agree_with_their_headers(
        frame in prop::sample::select(frames()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        length in any::<prop::sample::Index>(),
    ) {
        let mut frame = frame;
        for (index, byte) in changes {
            let index = 14 + index.index(frame.len() - 14);
            frame[index] = byte;
        }
        frame.truncate(length.index(frame.len() + 1));
        let Some(view) = FragmentView::of_frame(&frame) else { return Ok(()) };
        prop_assert!(view.offset_bytes() > 0 || view.more_fragments());
        prop_assert!(view.offset_bytes().is_multiple_of(8) && view.offset_bytes() < 65_536);
        if let Some(ip) = ipv4::Ipv4View::of_frame(&frame) {
            let expected = (ip.fragment_offset_bytes(), ip.more_fragments());
            prop_assert_eq!((view.offset_bytes(), view.more_fragments()), expected);
        }
        if view.check().is_ok() {
            let end = view.offset_bytes() + view.len_bytes();
            prop_assert!(end < 65_536 && view.len_bytes() > 0);
        }
    }
}
