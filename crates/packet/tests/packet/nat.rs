//! A rewritten packet equals one built with the new address and port.

use std::net::SocketAddr;

use hotloop_packet::{
    Header, PacketBuf,
    build::{
        self, PacketBuilder, arp_request, echo_reply, echo_request, protocol, tcp, time_exceeded,
        too_big, udp, unreachable,
    },
    ethernet, ip,
    memory::MemPacket,
    nat::{NatError, rewrite_destination, rewrite_source},
};
use proptest::prelude::*;

use crate::segmented::Segmented;

const V4: [&str; 3] = ["10.0.0.1:1000", "203.0.113.1:4096", "192.0.2.1:80"];
const V6: [&str; 3] = ["[fd00::1]:1000", "[2001:db8::1]:4096", "[2001:db8:ffff::1]:80"];

type Rewrite = fn(&mut MemPacket, SocketAddr) -> Result<(), NatError>;
const SOURCE: Rewrite = |packet, to| rewrite_source(packet, to);
const DESTINATION: Rewrite = |packet, to| rewrite_destination(packet, to);

fn rewritten(frame: &[u8], rewrite: Rewrite, to: SocketAddr) -> Vec<u8> {
    let mut packet = MemPacket::new(frame);
    rewrite(&mut packet, to).unwrap_or_else(|error| panic!("{error}: {frame:02x?}"));
    packet.data().to_vec()
}

/// Checks that a packet is refused and unchanged.
fn refusal(frame: &[u8], to: SocketAddr) -> NatError {
    let errors = [SOURCE, DESTINATION].map(|rewrite| {
        let mut packet = MemPacket::new(frame);
        let error = rewrite(&mut packet, to).unwrap_err();
        assert_eq!(packet.data(), frame);
        error
    });
    assert_eq!(errors[0], errors[1]);
    errors[0]
}

/// Messages of every protocol that has ports or identifiers: `port` is an echo's identifier.
fn messages(port: u16) -> [PacketBuilder; 4] {
    [tcp().tcp_options(&[2, 4, 5, 0xb4]), udp(), echo_request(port, 1), echo_reply(port, 9)]
}

/// The message in frames of every shape.
fn shapes(message: &PacketBuilder) -> [PacketBuilder; 4] {
    let extended = message.clone().ipv4_options(&[7, 7, 4, 0, 0, 0, 0, 0]);
    [
        message.clone(),
        message.clone().vlan(7).padded(),
        message.clone().payload([7; 33]),
        extended.extension(ip::protocol::HOP_BY_HOP, &[1, 4, 0, 0, 0, 0]).qinq(1, 2),
    ]
}

/// Every message in every shape from here to there, and the same from or to another end.
fn pairs([inside, outside, peer]: [&str; 3]) -> Vec<[PacketBuilder; 2]> {
    let port = |end: &str| end.parse::<SocketAddr>().unwrap().port();
    let (inside_messages, outside_messages) = (messages(port(inside)), messages(port(outside)));
    let mut pairs = Vec::new();
    for (inside_message, outside_message) in inside_messages.iter().zip(&outside_messages) {
        for (before, after) in shapes(inside_message).into_iter().zip(shapes(outside_message)) {
            pairs.push([before.from(inside).to(peer), after.from(outside).to(peer)]);
        }
    }
    pairs
}

#[test]
fn packets_of_every_protocol() {
    for ends in [V4, V6] {
        let [inside, outside, peer] = ends.map(|end| end.parse::<SocketAddr>().unwrap());
        for [sent, left] in pairs(ends) {
            let (sent_frame, left_frame) = (sent.clone().build(), left.clone().build());
            assert_eq!(rewritten(&sent_frame, SOURCE, outside), left_frame);
            assert_eq!(rewritten(&left_frame, SOURCE, inside), sent_frame);
            // The other way.
            let arrived = left.from(peer).to(outside).build();
            let handed_on = sent.from(peer).to(inside).build();
            assert_eq!(rewritten(&arrived, DESTINATION, inside), handed_on);
            assert_eq!(rewritten(&handed_on, DESTINATION, outside), arrived);
        }
    }
}

#[test]
fn fragments() {
    for ends in [V4, V6] {
        let [_, outside, _] = ends.map(|end| end.parse::<SocketAddr>().unwrap());
        for [sent, left] in pairs(ends) {
            let [sent, left] =
                [sent, left].map(|builder| builder.payload([9; 300]).build_fragments(120));
            assert!(sent.len() > 2);
            for (sent, left) in sent.iter().zip(&left) {
                assert_eq!(&rewritten(sent, SOURCE, outside), left);
            }
        }
    }
}

/// The payload may be in another segment: checksums are corrected without it.
#[test]
fn packets_of_several_segments() {
    for (ends, header_bytes) in [(V4, 54), (V6, 74)] {
        let [inside, outside, peer] = ends;
        let build = |end: &str| tcp().from(end).to(peer).payload([7; 99]).build();
        let mut packet = Segmented::new(&build(inside), header_bytes);
        rewrite_source(&mut packet, outside.parse::<SocketAddr>().unwrap()).unwrap();
        assert_eq!(packet.bytes(), build(outside));

        let cut = Segmented::new(&build(inside), header_bytes - 1);
        let mut packet = cut.clone();
        let error = rewrite_source(&mut packet, outside.parse::<SocketAddr>().unwrap());
        assert!(matches!(error, Err(NatError::Malformed(_))));
        assert_eq!(packet.bytes(), cut.bytes());
    }
}

#[test]
fn datagrams_without_a_checksum() {
    for (ends, offset) in [(V4, 40), (V6, 60)] {
        let [inside, outside, peer] = ends;
        let without = |end: &str| {
            let mut frame = udp().from(end).to(peer).payload(b"query").build();
            frame[offset..offset + 2].fill(0);
            frame
        };
        let frame = rewritten(&without(inside), SOURCE, outside.parse().unwrap());
        assert_eq!(frame, without(outside));
    }
}

/// Errors from outside about a packet that was rewritten, and from inside about one sent there.
#[test]
fn errors_quote_the_packet_before_it_was_rewritten() {
    let errors: [fn(&[u8]) -> PacketBuilder; 3] =
        [unreachable, time_exceeded, |about| too_big(about, 1400)];
    for ends in [V4, V6] {
        let [inside, outside, peer] = ends.map(|end| end.parse::<SocketAddr>().unwrap());
        for [sent, left] in pairs(ends) {
            let (to_inside, to_outside) =
                (sent.clone().from(peer).to(inside), left.clone().from(peer).to(outside));
            for error in errors {
                let arrived = error(&left.clone().build()).vlan(3).build();
                let expected = error(&sent.clone().build()).vlan(3).build();
                assert_eq!(rewritten(&arrived, DESTINATION, inside), expected);
                assert_eq!(rewritten(&expected, DESTINATION, outside), arrived);

                let from_inside = error(&to_inside.clone().build()).from(inside.ip()).build();
                let expected = error(&to_outside.clone().build()).from(outside.ip()).build();
                assert_eq!(rewritten(&from_inside, SOURCE, outside), expected);
            }
        }
    }
}

#[test]
fn short_quotes_are_rewritten_as_far_as_they_go() {
    for (ends, header_bytes) in [(V4, 20), (V6, 40)] {
        let [inside, outside, peer] = ends.map(|end| end.parse::<SocketAddr>().unwrap());
        let messages = messages(inside.port()).into_iter().zip(messages(outside.port()));
        for (sent, left) in messages {
            let (sent, left) = (sent.from(inside).to(peer), left.from(outside).to(peer));
            for quote_bytes in 0..=header_bytes + 32 {
                let quoting = |about: &PacketBuilder| {
                    unreachable(&about.clone().build()).quote_bytes(quote_bytes).build()
                };
                let arrived = quoting(&left);
                let shown_bytes = match quote_bytes.checked_sub(header_bytes) {
                    None => {
                        let error = refusal(&arrived, inside);
                        assert!(matches!(error, NatError::Malformed(_)), "{error}");
                        continue;
                    }
                    Some(shown_bytes) => shown_bytes,
                };
                let frame = rewritten(&arrived, DESTINATION, inside);
                let expected = quoting(&sent);
                match shown_bytes {
                    // Shorter than an error must quote: only an address is there.
                    0..8 => assert_eq!(
                        frame[frame.len() - shown_bytes..],
                        arrived[arrived.len() - shown_bytes..]
                    ),
                    // The quote includes TCP's checksum, but not the whole header: the checksum
                    // stays.
                    17..20 if frame != expected => {}
                    _ => assert_eq!(frame, expected, "{shown_bytes}"),
                }
                assert_icmp_checksum(&frame);
            }
        }
    }
}

/// Checks that a plain ICMP or ICMPv6 message has a right checksum.
fn assert_icmp_checksum(frame: &[u8]) {
    use hotloop_packet::{icmp::IcmpView, icmpv6::Icmpv6View, ipv4::Ipv4View, ipv6::Ipv6View};
    if let Ok(view) = Ipv4View::parse(&frame[14..]) {
        assert!(view.is_checksum_right());
        assert!(IcmpView::parse(view.payload()).unwrap().is_checksum_right());
    } else {
        let view = Ipv6View::parse(&frame[14..]).unwrap();
        let message = Icmpv6View::parse(view.payload()).unwrap();
        assert!(message.is_checksum_right(view.source(), view.destination()));
    }
}

#[test]
fn later_fragments_in_quotes_show_addresses() {
    for ends in [V4, V6] {
        let [inside, outside, peer] = ends.map(|end| end.parse::<SocketAddr>().unwrap());
        let fragments =
            |end: SocketAddr| udp().from(end).to(peer).payload([9; 300]).build_fragments(120);
        for (sent, left) in fragments(inside).iter().zip(fragments(outside)) {
            let arrived = unreachable(&left).build();
            assert_eq!(rewritten(&arrived, DESTINATION, inside), unreachable(sent).build());
        }
    }
}

#[test]
fn what_has_no_port_is_refused() {
    let v4: SocketAddr = V4[1].parse().unwrap();
    let v6: SocketAddr = V6[1].parse().unwrap();
    for (to, other, icmp) in [(v4, v6, 1), (v6, v4, 58)] {
        let gre = protocol(47).to(to).payload([0; 12]).build();
        assert_eq!(refusal(&gre, to), NatError::NoPort { protocol: 47 });
        let quoting = unreachable(&gre).build();
        assert_eq!(refusal(&quoting, to), NatError::NoPort { protocol: 47 });
        let about_error = unreachable(&unreachable(&udp().to(to).build()).build()).build();
        assert_eq!(refusal(&about_error, to), NatError::NoPort { protocol: icmp });
        // A timestamp request, or a message that ICMPv6 does not have.
        let timestamp = protocol(icmp).to(to).payload([13, 0, 0, 0, 0, 0, 0, 0]).build();
        let foreign = protocol(59 - icmp).to(to).payload([8; 16]).build();
        assert_eq!(refusal(&foreign, to), NatError::NoPort { protocol: 59 - icmp });
        if icmp == 1 {
            assert_eq!(refusal(&timestamp, to), NatError::NoPort { protocol: icmp });
        }
        let tunnel = udp().to(to).tunnelled("10.0.0.1", "10.0.0.2").build();
        let inner = if to.is_ipv4() { 4 } else { 41 };
        assert_eq!(refusal(&tunnel, v4), NatError::NoPort { protocol: inner });
        let frame = udp().to(to).build();
        assert_eq!(refusal(&frame, other), NatError::MixedFamilies { address: other.ip() });
        for length in 0..frame.len() {
            let error = refusal(&frame[..length], to);
            let header = match length {
                0..14 => Header::Ethernet,
                14..34 if to.is_ipv4() => Header::Ipv4,
                14..54 if to.is_ipv6() => Header::Ipv6,
                _ => Header::Udp,
            };
            assert!(matches!(error, NatError::Malformed(error) if error.header() == header));
        }
    }
    let arp = arp_request([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    assert_eq!(refusal(&arp, v4), NatError::NotIp { ethertype: ethernet::ETHERTYPE_ARP });
}

#[test]
fn wrong_checksums_stay_wrong() {
    let to = "203.0.113.1:4096".parse().unwrap();
    let expected = tcp().from(to).build();
    for at in [24, 25, 50, 51] {
        let mut frame = tcp().build();
        frame[at] ^= 0x10;
        assert_ne!(rewritten(&frame, SOURCE, to)[at], expected[at]);
    }
}

/// Three ends of one family.
fn ends() -> impl Strategy<Value = [SocketAddr; 3]> {
    let v4 = any::<[([u8; 4], u16); 3]>().prop_map(|ends| ends.map(SocketAddr::from));
    let v6 = any::<[([u8; 16], u16); 3]>().prop_map(|ends| ends.map(SocketAddr::from));
    prop_oneof![v4, v6]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn equals_what_would_have_been_built(
        [inside, outside, peer] in ends(),
        kind in 0usize..4,
        payload in prop::collection::vec(any::<u8>(), 0..60),
        quote_bytes in 80usize..160,
    ) {
        let message = |end: SocketAddr| {
            let [a, b, c, d] = messages(end.port());
            [a, b, c, d].into_iter().nth(kind).unwrap().payload(&payload)
        };
        let build = |end: SocketAddr| message(end).from(end).to(peer).build();
        prop_assert_eq!(rewritten(&build(inside), SOURCE, outside), build(outside));

        let arrived = message(outside).from(peer).to(outside).build();
        let expected = message(inside).from(peer).to(inside).build();
        prop_assert_eq!(rewritten(&arrived, DESTINATION, inside), expected);

        let error = |end: SocketAddr| build::unreachable(&build(end)).quote_bytes(quote_bytes);
        let arrived = error(outside).build();
        prop_assert_eq!(rewritten(&arrived, DESTINATION, inside), error(inside).build());
    }
}
