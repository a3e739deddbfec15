//! Answers equal the frames of the builders or the RFCs' drawings, and a packet that must not be
//! answered never is.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hotloop_packet::{
    Header, Malformed, PacketBuf,
    answer::{self, AnswerError, IcmpError},
    build::{
        PacketBuilder, arp_request, echo_reply, echo_request, parameter_problem, protocol,
        redirect, source_quench, tcp, time_exceeded, too_big, udp, unreachable,
    },
    ethernet::{self, MacAddress},
    icmp::IcmpView,
    icmpv6::Icmpv6View,
    ip::protocol as number,
    ipv4::{self, Ipv4View},
    ipv6::Ipv6View,
    memory::MemPacket,
    udp as udp_header,
};
use proptest::prelude::*;

use crate::{
    frames::{ENDS, frames},
    segmented::Segmented,
};

const TOO_BIG: IcmpError = IcmpError::TooBig { mtu_bytes: 1400 };

/// The sources of answers, one per family.
const FROM: [&str; 2] = ["203.0.113.10", "2001:db8:ffff::10"];

pub fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The expected time-exceeded and too-big errors about a frame.
fn expected_errors(about: &[u8], from: &str) -> [PacketBuilder; 2] {
    [time_exceeded(about), too_big(about, 1400)]
        .map(|error| error.from(from).tos(0xc0).identification(0).dont_fragment())
}

fn errors(packet: &MemPacket, from: &str) -> [Result<MemPacket, AnswerError>; 2] {
    let (mut late, mut long) = (packet.clone(), packet.clone());
    [
        answer::icmp_error(&mut late, address(from), IcmpError::TimeExceeded).map(|()| late),
        answer::icmp_error(&mut long, address(from), TOO_BIG).map(|()| long),
    ]
}

/// The error that both kinds of answer fail with.
fn refusal(frame: &[u8]) -> AnswerError {
    let is_v6 = ethernet::network_layer(frame).is_some_and(|(kind, _)| kind == 0x86dd);
    let [late, long] = errors(&MemPacket::new(frame), FROM[usize::from(is_v6)]);
    let error = late.unwrap_err();
    assert_eq!(error, long.unwrap_err());
    error
}

#[test]
fn errors_equal_built_ones() {
    for ((from, to), router) in ENDS.into_iter().zip(FROM) {
        for payload_bytes in [0, 100, 519, 520, 521, 1191, 1192, 1193, 1900] {
            let about = udp().from(from).to(to).payload(vec![7; payload_bytes]).vlan(5).build();
            for (answer, expected) in errors(&MemPacket::new(&about), router)
                .into_iter()
                .zip(expected_errors(&about, router))
            {
                let expected = expected.vlan(5).build();
                assert_eq!(answer.unwrap().data(), expected, "{payload_bytes} bytes");
            }
        }
        let padded = udp().from(from).to(to).padded().build();
        let about = udp().from(from).to(to).build();
        let [late, _] = errors(&MemPacket::new(&padded), router);
        let [expected, _] = expected_errors(&about, router);
        assert_eq!(late.unwrap().data(), expected.build());
    }
}

#[test]
fn errors_quote_no_more_than_may_be() {
    for ((from, to), (router, bytes_max)) in ENDS.into_iter().zip(FROM.into_iter().zip([576, 1280]))
    {
        let about = tcp().from(from).to(to).payload([7; 1400]).build();
        for answer in errors(&MemPacket::new(&about), router) {
            assert_eq!(answer.unwrap().len_bytes(), 14 + bytes_max);
        }
        // Bytes in other segments are not quoted, even if there is room.
        let mut packet = Segmented::new(&about, 100);
        answer::icmp_error(&mut packet, address(router), IcmpError::TimeExceeded).unwrap();
        let [expected, _] = expected_errors(&about, router);
        assert_eq!(packet.bytes(), expected.quote_bytes(86).build());
    }
}

/// RFC 792, RFC 1812, section 5.2.7.1, and RFC 4443, section 3.1.
#[test]
fn unreachable_destinations_have_the_codes_of_their_family() {
    for (error, codes) in [
        (IcmpError::NoRoute, [0, 0]),
        (IcmpError::HostUnreachable, [1, 3]),
        (IcmpError::PortUnreachable, [3, 4]),
        (IcmpError::Prohibited, [13, 1]),
    ] {
        for (((from, to), router), (kind, code)) in
            ENDS.into_iter().zip(FROM).zip([3, 1].into_iter().zip(codes))
        {
            let about = udp().from(from).to(to).payload([7; 90]).vlan(5).build();
            let mut packet = MemPacket::new(&about);
            answer::icmp_error(&mut packet, address(router), error).unwrap();
            let headers_bytes = if router == FROM[0] { 28 } else { 48 };
            let (headers, quote) = packet.data()[18..].split_at(headers_bytes);
            let message = &headers[headers_bytes - 8..];
            assert_eq!((message[0], message[1], &message[4..]), (kind, code, &[0; 4][..]));
            assert_eq!(quote, &about[18..]);
            assert!(is_right(&packet.data()[18..]));
            if error == IcmpError::PortUnreachable {
                let expected = unreachable(&about).from(router).tos(0xc0).identification(0);
                assert_eq!(packet.data(), expected.dont_fragment().vlan(5).build());
            }
        }
    }
}

#[test]
fn no_errors_about_errors() {
    let about = udp().build();
    let about_v6 = udp().to("[2001:db8::2]:80").build();
    for error in [unreachable, time_exceeded, parameter_problem] {
        assert_eq!(refusal(&error(&about).build()), AnswerError::AboutError);
        assert_eq!(refusal(&error(&about_v6).build()), AnswerError::AboutError);
        let first = error(&udp().payload([7; 400]).build()).build_fragments(120).remove(0);
        assert_eq!(refusal(&first), AnswerError::AboutError);
    }
    let gateway = Ipv4Addr::new(10, 0, 0, 9);
    for error in [source_quench(&about), redirect(&about, gateway), too_big(&about, 1400)] {
        assert_eq!(refusal(&error.build()), AnswerError::AboutError);
    }
    for kind in [2, 127, 137] {
        let message = protocol(number::ICMPV6).to("2001:db8::2").payload([kind; 40]).build();
        assert_eq!(refusal(&message), AnswerError::AboutError);
        let hidden = protocol(number::ICMPV6).to("2001:db8::2").payload([kind; 40]);
        let hidden = hidden.extension(number::DESTINATION_OPTIONS, &[0; 6]).build();
        assert_eq!(refusal(&hidden), AnswerError::AboutError);
    }
    // Echoes and others are not errors.
    for (message, router) in [
        (echo_request(1, 1).build(), FROM[0]),
        (echo_reply(1, 1).build(), FROM[0]),
        (echo_request(1, 1).to("2001:db8::2").build(), FROM[1]),
        (protocol(number::ICMPV6).to("2001:db8::2").payload([135; 40]).build(), FROM[1]),
    ] {
        assert!(errors(&MemPacket::new(&message), router).iter().all(Result::is_ok));
    }
    let cut = protocol(number::ICMP).payload([8; 7]).build();
    let expected = Malformed::Cut { header: Header::Icmp, wanted_bytes: 8, available_bytes: 7 };
    assert_eq!(refusal(&cut), AnswerError::Malformed(expected));
}

#[test]
fn no_errors_about_later_fragments_and_groups() {
    for (from, to) in ENDS {
        let fragments = udp().from(from).to(to).payload([7; 300]).build_fragments(120);
        let router = FROM[usize::from(from.starts_with('['))];
        assert!(errors(&MemPacket::new(&fragments[0]), router).iter().all(Result::is_ok));
        assert!(fragments[1..].iter().all(|frame| refusal(frame) == AnswerError::Fragment));
    }
    for source in ["0.0.0.0", "127.0.0.1", "224.0.0.5", "255.255.255.255"] {
        let frame = udp().from(source).build();
        assert_eq!(refusal(&frame), AnswerError::Group { address: address(source) });
    }
    for source in ["::", "::1", "ff02::1"] {
        let frame = udp().from(source).to("2001:db8::2").build();
        assert_eq!(refusal(&frame), AnswerError::Group { address: address(source) });
    }
    for destination in ["224.0.0.5", "255.255.255.255"] {
        let frame = udp().to(destination).build();
        assert_eq!(refusal(&frame), AnswerError::Group { address: address(destination) });
    }
    let macs = (MacAddress::new([2, 0, 0, 0, 0, 1]), MacAddress::BROADCAST);
    let frame = udp().from("10.0.0.1").macs(macs.0, macs.1).build();
    assert_eq!(refusal(&frame), AnswerError::Group { address: address("10.0.0.1") });
    // RFC 4443, section 2.4 (e.3): packets to many may be reported as too big, but nothing else.
    let many = udp().to("ff0e::1").macs(macs.0, macs.1).build();
    let [late, long] = errors(&MemPacket::new(&many), FROM[1]);
    let sender = address("2001:db8::1");
    assert_eq!(late.unwrap_err(), AnswerError::Group { address: sender });
    assert!(long.is_ok());
}

#[test]
fn what_cannot_be_answered_stays_as_it_was() {
    let arp = arp_request(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST);
    assert_eq!(refusal(&arp), AnswerError::NotIp { ethertype: 0x0806 });
    let mut wrong = udp().build();
    wrong[24] ^= 1;
    assert_eq!(refusal(&wrong), AnswerError::Checksum);
    let mut packet = MemPacket::new(&wrong);
    assert_eq!(answer::echo_reply(&mut packet), Err(AnswerError::Checksum));

    let frame = udp().build();
    let mut packet = MemPacket::new(&frame);
    let (from, to) = (address(FROM[1]), address("10.0.0.1"));
    let mixed = AnswerError::MixedFamilies { from, to };
    assert_eq!(answer::icmp_error(&mut packet, from, IcmpError::TimeExceeded), Err(mixed));

    for (to, router, wanted_bytes) in
        [("192.0.2.1:9", FROM[0], 28), ("[2001:db8::2]:9", FROM[1], 48)]
    {
        let frame = udp().to(to).build();
        let mut packet = MemPacket::with_room(&frame, wanted_bytes - 1, 100);
        let error = answer::icmp_error(&mut packet, address(router), TOO_BIG).unwrap_err();
        let AnswerError::NoRoom(no_room) = error else { panic!("{error}") };
        assert_eq!((no_room.wanted_bytes, packet.data()), (wanted_bytes, &frame[..]));
    }
}

#[test]
fn echoes_are_turned_round() {
    for (from, to) in [("10.0.0.1", "203.0.113.10"), ("2001:db8::1", "2001:db8:ffff::10")] {
        let request = echo_request(7, 9).from(from).to(to).payload([5; 77]).vlan(3).ttl(9);
        let reply = echo_reply(7, 9).from(to).to(from).payload([5; 77]).vlan(3);
        let rich = request
            .clone()
            .tos(0xbb)
            .dont_fragment()
            .identification(99)
            .ipv4_options(&[7, 7, 4, 0, 0, 0, 0, 0])
            .extension(number::HOP_BY_HOP, &[1, 4, 0, 0, 0, 0])
            .extension(number::DESTINATION_OPTIONS, &[0; 14]);
        let rich_reply = reply.clone().tos(0xb8).dont_fragment().identification(99);
        for (request, reply) in [(request, reply), (rich, rich_reply)] {
            let reply = reply.build();
            let mut frame = request.build();
            let mut segmented = Segmented::new(&frame, frame.len() - 50);
            answer::echo_reply(&mut segmented).unwrap();
            assert_eq!(segmented.bytes(), reply);
            frame.extend([0; 6]);
            let mut packet = MemPacket::with_room(&frame, 0, 0);
            answer::echo_reply(&mut packet).unwrap();
            assert_eq!(packet.data(), reply);
        }
    }
}

/// RFC 1624, section 3: the sum of a message of all zeroes is 0, so its checksum is 0xffff.
#[test]
fn the_reply_of_all_zeroes_has_the_checksum_0xffff() {
    for payload_bytes in [0, 1, 56] {
        let request = echo_request(0, 0).payload(vec![0; payload_bytes]).build();
        assert_eq!(request[36..38], [0xf7, 0xff]);
        let mut packet = MemPacket::new(&request);
        answer::echo_reply(&mut packet).unwrap();
        assert_eq!(packet.data()[34..38], [0, 0, 0xff, 0xff]);
        assert!(is_right(&packet.data()[14..]));
    }
    // For any other message, 0 is the only representation.
    let mut packet = MemPacket::new(&echo_request(0xffff, 0).build());
    answer::echo_reply(&mut packet).unwrap();
    assert_eq!(packet.data()[34..38], [0, 0, 0, 0]);
}

#[test]
fn only_whole_echo_requests_of_one_host_to_one_are_answered() {
    let refused = |builder: PacketBuilder| {
        let frame = builder.build();
        let mut packet = MemPacket::new(&frame);
        let error = answer::echo_reply(&mut packet).unwrap_err();
        assert_eq!(packet.data(), frame);
        error
    };
    for to in ["203.0.113.10", "2001:db8:ffff::10"] {
        for other in [udp(), echo_reply(7, 1), protocol(99).payload([8; 40])] {
            assert_eq!(refused(other.to(to)), AnswerError::NotEchoRequest);
        }
        let fragments = echo_request(1, 1).to(to).payload([1; 300]).build_fragments(120);
        for frame in fragments {
            let result = answer::echo_reply(&mut MemPacket::new(&frame));
            assert_eq!(result, Err(AnswerError::Fragment));
        }
    }
    let group = |text: &str| AnswerError::Group { address: address(text) };
    assert_eq!(refused(echo_request(1, 1).to("224.0.0.1")), group("224.0.0.1"));
    assert_eq!(refused(echo_request(1, 1).from("0.0.0.0")), group("0.0.0.0"));
    assert_eq!(refused(echo_request(1, 1).to("ff02::1")), group("ff02::1"));
}

/// Whether each checksum of a packet without extension headers is right: of its IP header, and of its
/// message.
fn is_right(packet: &[u8]) -> bool {
    match Ipv4View::parse(packet) {
        Ok(view) => {
            let message = IcmpView::parse(view.payload()).unwrap();
            view.is_checksum_right() && message.is_checksum_right()
        }
        Err(_) => {
            let view = Ipv6View::parse(packet).unwrap();
            let message = Icmpv6View::parse(view.payload()).unwrap();
            message.is_checksum_right(view.source(), view.destination())
        }
    }
}

/// A frame of any kind with some bytes after its IP header changed.
pub fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<prop::sample::Index>(), any::<u8>());
    let frame = prop::sample::select(frames());
    (frame, prop::collection::vec(change, 0..6)).prop_map(|(mut frame, changes)| {
        let (kind, l3_offset) = ethernet::network_layer(&frame).unwrap();
        for (index, byte) in changes {
            let index = l3_offset + index.index(frame.len() - l3_offset);
            frame[index] = byte;
        }
        if kind == 0x0800 {
            let _ = ipv4::fill_checksum(&mut frame[l3_offset..]);
        }
        frame
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn answers_have_right_checksums(frame in any_frame(), mtu_bytes: u16) {
        let (_, l3_offset) = ethernet::network_layer(&frame).unwrap();
        for from in FROM {
            let (mut late, mut long) = (MemPacket::new(&frame), MemPacket::new(&frame));
            let results = [
                answer::icmp_error(&mut late, address(from), IcmpError::TimeExceeded),
                answer::icmp_error(&mut long, address(from), IcmpError::TooBig { mtu_bytes }),
            ];
            for (result, packet) in results.into_iter().zip([late, long]) {
                let answer = &packet.data()[l3_offset..];
                match result {
                    Ok(()) => {
                        prop_assert!(is_right(answer));
                        let headers_bytes = if from == FROM[0] { 28 } else { 48 };
                        prop_assert!(frame[l3_offset..].starts_with(&answer[headers_bytes..]));
                        prop_assert_eq!(&packet.data()[..l3_offset], &frame[..l3_offset]);
                    }
                    Err(_) => prop_assert_eq!(packet.data(), &frame[..]),
                }
            }
        }
    }

    #[test]
    fn echoes_keep_what_they_carry(
        identifier: u16,
        sequence: u16,
        payload in prop::collection::vec(any::<u8>(), 0..80),
        is_v6: bool,
        flaw in prop_oneof![Just(0u8), any::<u8>()],
        // Bytes in a second segment: also an odd number of them, but none of the message's header.
        cut in 0usize..60,
    ) {
        let (from, to) = ENDS[usize::from(is_v6)];
        let cut = cut.min(payload.len());
        let request = echo_request(identifier, sequence).from(from).to(to).payload(&payload);
        let mut frame = request.build();
        let offset = if is_v6 { 54 } else { 34 };
        frame[offset + 2] ^= flaw;
        let mut packet = Segmented::new(&frame, frame.len() - frame.len().min(cut));
        let (mut whole, answered) = (MemPacket::new(&frame), flaw == 0);
        prop_assert_eq!(answer::echo_reply(&mut whole).is_ok(), answered);
        prop_assert_eq!(answer::echo_reply(&mut packet).is_ok(), answered);
        let expected = match answered {
            true => echo_reply(identifier, sequence).from(to).to(from).payload(&payload).build(),
            false => frame,
        };
        prop_assert_eq!(whole.data(), &expected[..]);
        prop_assert_eq!(packet.bytes(), expected);
    }
}

#[test]
fn an_answer_can_be_distinguished_from_its_flow() {
    // The quoted packet's own checksums are not verified: they are quoted unchanged.
    let mut about = udp().payload([1; 9]).build();
    about[41] ^= 1;
    let mut packet = MemPacket::new(&about);
    answer::icmp_error(&mut packet, Ipv4Addr::new(192, 0, 2, 1), IcmpError::TimeExceeded).unwrap();
    let quoted = &packet.data()[14 + 28..];
    assert_eq!(quoted, &about[14..]);
    assert!(udp_header::UdpView::parse(&quoted[20..]).is_ok());
    let mut again = packet.clone();
    let error =
        answer::icmp_error(&mut again, Ipv6Addr::LOCALHOST, IcmpError::TimeExceeded).unwrap_err();
    assert_eq!(error, AnswerError::AboutError);
}
