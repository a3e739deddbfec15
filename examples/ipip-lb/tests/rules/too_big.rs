//! Packets that do not fit the path to the backends once they are wrapped.

use super::expected::{Outer, packet, sum, to_client, wrapped};
use super::{PAIRS, Pair, V4_IN_V4, V4_IN_V6, four};
use crate::deployed::{Sent, assert_dropped, in_all, run_with_buffers};
use hotloop::engine::Deployment;
use hotloop::packet::build::{PacketBuilder, tcp, too_big, udp};
use hotloop::testing::PacketPool;

const MTU: usize = 1500;

/// Maximum length of the inner packet.
fn room(pair: Pair) -> usize {
    MTU - if pair.is_in_v4() { 20 } else { 40 }
}

/// A datagram of this many bytes, headers included.
fn of_bytes(pair: Pair, packet_bytes: usize) -> PacketBuilder {
    let headers_bytes = if pair.is_v4() { 28 } else { 48 };
    pair.request(udp()).payload(numbered(packet_bytes - headers_bytes))
}

fn numbered(count: usize) -> Vec<u8> {
    (0..count).map(|it| (it / 8) as u8 ^ (it / 2048) as u8).collect()
}

#[test]
fn what_fits_to_the_byte_passes_whole() {
    let (_, report) = in_all(&four(""), |lb| {
        for pair in PAIRS {
            let longest = of_bytes(pair, room(pair)).dont_fragment();
            let sent = lb.one(longest.clone());
            assert_eq!(sent.packet().len(), MTU);
            let outer = Outer { dont_fragment: true, ..pair.outer() };
            assert_eq!(sent.frame, wrapped(&longest.ttl(63).build(), &outer), "{pair:?}");
            // Padding doesn't count, nor do tags.
            let mut padded = of_bytes(pair, room(pair)).vlan(9).build();
            padded.resize(1600, 0);
            assert_eq!(lb.one(padded).packet().len(), MTU);
        }
    });
    assert_dropped(&report, &[]);
}

#[test]
fn with_df_and_over_ipv6_it_is_answered_by_the_vip_with_what_fits() {
    let (_, report) = in_all(&four(""), |lb| {
        for pair in PAIRS {
            for packet_bytes in [room(pair) + 1, 2000, 8000] {
                let frame = of_bytes(pair, packet_bytes).dont_fragment().build();
                let sent = lb.one(frame.clone());
                let error = too_big(&frame, room(pair) as u16).from(pair.vip).tos(0xC0);
                let error = error.identification(0).dont_fragment().build();
                assert_eq!(sent.frame, to_client(&error), "{pair:?}");
            }
        }
    });
    assert_dropped(&report, &[("too_big", 12)]);
    assert_eq!(report.created, 12);
}

#[test]
fn a_path_that_is_narrower_says_so() {
    for mtu in [1320, 1399] {
        let config = four(&format!("mtu = {mtu}"));
        in_all(&config, |lb| {
            for pair in PAIRS {
                let room = mtu - if pair.is_in_v4() { 20 } else { 40 };
                assert_eq!(lb.one(of_bytes(pair, room).dont_fragment()).packet().len(), mtu);
                let frame = of_bytes(pair, room + 1).dont_fragment().build();
                let error = too_big(&frame, room as u16).from(pair.vip).tos(0xC0);
                let error = error.identification(0).dont_fragment().build();
                assert_eq!(lb.one(frame).frame, to_client(&error), "{pair:?} {mtu}");
            }
        });
    }
}

#[test]
fn errors_about_it_are_not_answered_where_icmp_forbids_it() {
    let (_, report) = in_all(&four(""), |lb| {
        for pair in PAIRS {
            let group = if pair.is_v4() { "224.0.0.9:1" } else { "[ff02::9]:1" };
            lb.none(of_bytes(pair, 1490).dont_fragment().from(group));
        }
    });
    // Group addresses send nothing: a packet with such a source gets no further.
    assert_dropped(&report, &[("martian_source", 4)]);
    assert_eq!(report.created, 0);
}

/// The payload of these fragments of an IPv4 packet (RFC 791, section 3.2). Each fragment must be
/// valid.
fn reassembled(pieces: &[Vec<u8>]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (index, piece) in pieces.iter().enumerate() {
        let header_bytes = usize::from(piece[0] & 15) * 4;
        assert_eq!(usize::from(u16::from_be_bytes([piece[2], piece[3]])), piece.len());
        assert_eq!(sum(&piece[..header_bytes]), 0);
        let fragment = u16::from_be_bytes([piece[6], piece[7]]);
        assert_eq!(usize::from(fragment & 0x1FFF) * 8, payload.len());
        assert_eq!(fragment & 0xE000, if index + 1 < pieces.len() { 0x2000 } else { 0 });
        payload.extend_from_slice(&piece[header_bytes..]);
    }
    payload
}

fn inners(sent: &[Sent]) -> Vec<Vec<u8>> {
    assert!(sent.iter().all(|it| !it.to_client && it.packet().len() <= MTU));
    sent.iter().map(Sent::inner).collect()
}

#[test]
fn without_df_it_is_sent_in_tunnel_packets_that_fit_to_one_backend() {
    let (_, report) = in_all(&four(""), |lb| {
        for pair in [V4_IN_V4, V4_IN_V6] {
            for (packet_bytes, piece_count) in
                [(room(pair) + 1, 2), (2900, 2), (4000, 3), (8000, 6)]
            {
                let long = of_bytes(pair, packet_bytes).tos(0xB8).identification(4711);
                let sent = lb.feed(&[long.clone().build()]);
                assert_eq!(sent.len(), piece_count, "{pair:?} {packet_bytes}");
                let whole = long.ttl(63).build();
                let pieces = inners(&sent);
                assert_eq!(reassembled(&pieces), packet(&whole)[20..]);
                for (sent, piece) in sent.iter().zip(&pieces) {
                    // In the header only length, offset and checksum change.
                    assert_eq!((&piece[..2], &piece[4..6]), (&[0x45, 0xB8][..], &[0x12, 0x67][..]));
                    assert_eq!(
                        (&piece[8..10], &piece[12..20]),
                        (&[63, 17][..], &packet(&whole)[12..20])
                    );
                    assert_eq!(sent.backend(), pair.backend);
                    assert_eq!(sent.frame[..14], lb_link(pair));
                }
                // All but the last have the maximum length: a multiple of eight bytes.
                let most = (room(pair) - 20) / 8 * 8 + 20;
                assert!(pieces[..piece_count - 1].iter().all(|piece| piece.len() == most));
            }
        }
    });
    assert_dropped(&report, &[]);
    // All fragments but one of each packet.
    assert_eq!(report.created, 2 * (1 + 1 + 2 + 5));
}

/// The link header of frames to the pair's backend.
fn lb_link(pair: Pair) -> Vec<u8> {
    use crate::deployed::{BACKENDS_MAC, OWN_MAC};
    let ethertype = if pair.is_in_v4() { [8, 0] } else { [0x86, 0xDD] };
    [&BACKENDS_MAC[..], &OWN_MAC, &ethertype].concat()
}

#[test]
fn options_are_copied_into_later_pieces_where_they_ask_for_it() {
    in_all(&four(""), |lb| {
        // A router alert (copied), a timestamp (not copied), and the end.
        let options = [0x94, 4, 0, 0, 0x44, 8, 5, 0, 0, 0, 0, 0];
        let long = V4_IN_V4.request(udp()).payload(numbered(1500)).ipv4_options(&options);
        let sent = lb.feed(&[long.clone().build()]);
        let pieces = inners(&sent);
        assert_eq!(reassembled(&pieces), packet(&long.ttl(63).build())[32..]);
        assert_eq!(pieces[0][20..32], options);
        assert_eq!((pieces[1][0], &pieces[1][20..24]), (0x46, &[0x94, 4, 0, 0][..]));
    });
}

#[test]
fn fragments_that_are_too_big_are_fragmented_again() {
    let (_, report) = in_all(&four(""), |lb| {
        let datagram = V4_IN_V6.request(udp()).payload(numbered(4000));
        let frames = datagram.clone().build_fragments(1500);
        assert_eq!(frames.len(), 3);
        let sent = lb.feed_spread(&frames);
        assert_eq!(sent.len(), 5);
        assert_eq!(reassembled(&inners(&sent)), packet(&datagram.build())[20..]);
    });
    assert_dropped(&report, &[]);
    assert_eq!(report.created, 2);
}

#[test]
fn where_buffers_run_out_what_is_not_sent_is_dropped_as_no_mbuf() {
    for deployment in [Deployment::run_to_completion(1), Deployment::pipeline([1, 1])] {
        // One buffer for the packet, and one for the first of its fragments.
        let pool = PacketPool::of(2);
        let (_, report) = run_with_buffers(&four(""), deployment, &pool, |lb| {
            assert_eq!(lb.feed(&[of_bytes(V4_IN_V4, 2900).build()]).len(), 2);
            let sent = lb.feed(&[of_bytes(V4_IN_V4, 4000).build()]);
            assert_eq!(sent.len(), 1);
            assert_eq!(lb.feed(&[of_bytes(V4_IN_V4, 1400).build()]).len(), 1);
        });
        assert_dropped(&report, &[("no_mbuf", 1)]);
        assert_eq!(report.created, 2);
    }
}

#[test]
fn a_ttl_that_is_spent_comes_before_length() {
    let (_, report) = in_all(&four(""), |lb| {
        for pair in PAIRS {
            let sent = lb.one(of_bytes(pair, 2000).dont_fragment().ttl(1));
            let kind = sent.packet()[if pair.is_v4() { 20 } else { 40 }];
            assert_eq!(kind, if pair.is_v4() { 11 } else { 3 });
        }
    });
    assert_dropped(&report, &[("ttl_expired", 4)]);
}

#[test]
fn a_connection_goes_on_while_its_packets_are_too_big() {
    in_all(&four(""), |lb| {
        for pair in PAIRS {
            let segment = |bytes| pair.request(tcp()).tcp_flags(0x10).payload(numbered(bytes));
            assert!(lb.one(segment(1460).dont_fragment()).to_client);
            assert_eq!(lb.backend(segment(1300).dont_fragment()), pair.backend);
        }
        assert_eq!(lb.admitted(), 4);
    });
}
