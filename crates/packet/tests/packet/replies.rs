//! UDP replies and TCP resets equal built frames, and etherparse reads them with right checksums.

use std::net::IpAddr;

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use hotloop_packet::{
    Header, Malformed, NoRoom, PacketBuf, Room,
    answer::{self, AnswerError},
    build::{PacketBuilder, echo_request, protocol, tcp, udp},
    ethernet::MacAddress,
    ip::protocol as number,
    memory::MemPacket,
    tcp::flags::{ACK, FIN, PSH, RST, SYN, URG},
};
use proptest::prelude::*;

use crate::{
    answers::{address, any_frame},
    frames::ENDS,
    segmented::Segmented,
};

const MACS: [MacAddress; 2] =
    [MacAddress::new([2, 0, 0, 0, 0, 1]), MacAddress::new([2, 0, 0, 0, 0, 2])];

/// A message between two ends, and the beginning of the answer to it: plain, and with everything
/// that an answer keeps or leaves out.
fn turned(message: &PacketBuilder, answer: &PacketBuilder) -> Vec<(PacketBuilder, PacketBuilder)> {
    let mut pairs = Vec::new();
    for (from, to) in ENDS {
        let message = message.clone().from(from).to(to).ttl(9).macs(MACS[0], MACS[1]);
        let answer = answer.clone().from(to).to(from).macs(MACS[1], MACS[0]);
        let rich = message
            .clone()
            .qinq(7, 8)
            .tos(0xbb)
            .dont_fragment()
            .identification(99)
            .ipv4_options(&[7, 7, 4, 0, 0, 0, 0, 0])
            .extension(number::HOP_BY_HOP, &[1, 4, 0, 0, 0, 0])
            .extension(number::DESTINATION_OPTIONS, &[0; 14]);
        let rich_answer = answer.clone().qinq(7, 8).tos(0xb8).dont_fragment().identification(99);
        pairs.extend([(message, answer), (rich, rich_answer)]);
    }
    pairs
}

/// Whether etherparse reads the whole frame, and all its checksums are right.
fn is_right(frame: &[u8]) -> bool {
    let packet = SlicedPacket::from_ethernet(frame).unwrap();
    let udp_sum = |sum: u16| if sum == 0 { 0xffff } else { sum };
    match (packet.net.unwrap(), packet.transport.unwrap()) {
        (NetSlice::Ipv4(ip), transport) => {
            let header = ip.header().to_header();
            let is_right = match transport {
                TransportSlice::Udp(udp) => {
                    let sum = udp.to_header().calc_checksum_ipv4(&header, udp.payload()).unwrap();
                    udp.checksum() == udp_sum(sum)
                }
                TransportSlice::Tcp(tcp) => {
                    let (from, to) = (header.source, header.destination);
                    let expected =
                        tcp.to_header().calc_checksum_ipv4_raw(from, to, tcp.payload()).unwrap();
                    tcp.checksum() == expected
                }
                _ => false,
            };
            is_right && header.header_checksum == header.calc_header_checksum()
        }
        (NetSlice::Ipv6(ip), transport) => {
            let header = ip.header().to_header();
            match transport {
                TransportSlice::Udp(udp) => {
                    let sum = udp.to_header().calc_checksum_ipv6(&header, udp.payload()).unwrap();
                    udp.checksum() == udp_sum(sum)
                }
                TransportSlice::Tcp(tcp) => {
                    let (from, to) = (header.source, header.destination);
                    let expected =
                        tcp.to_header().calc_checksum_ipv6_raw(from, to, tcp.payload()).unwrap();
                    tcp.checksum() == expected
                }
                _ => false,
            }
        }
        _ => false,
    }
}

/// The reply with this payload.
fn replied<P: PacketBuf>(packet: &mut P, reply: &[u8]) -> Result<(), AnswerError> {
    answer::udp(packet, reply.len(), |room, _| {
        room[..reply.len()].copy_from_slice(reply);
        reply.len()
    })
}

/// The error that a packet is not answered with. It must be unchanged.
fn refusal(
    frame: &[u8],
    answer: impl FnOnce(&mut MemPacket) -> Result<(), AnswerError>,
) -> AnswerError {
    let mut packet = MemPacket::new(frame);
    let error = answer(&mut packet).unwrap_err();
    assert_eq!(packet.data(), frame);
    error
}

fn udp_refusal(frame: &[u8]) -> AnswerError {
    refusal(frame, |packet| answer::udp(packet, 10, |_, _| unreachable!("{frame:02x?}")))
}

#[test]
fn datagrams_are_turned_round() {
    for reply_bytes in [0, 1, 76, 77, 78, 200] {
        let reply: Vec<u8> = (0..reply_bytes).collect();
        for (request, expected) in turned(&udp().payload([5; 77]), &udp().payload(&reply)) {
            let (frame, expected) = (request.build(), expected.build());
            let mut packet = MemPacket::new(&frame);
            replied(&mut packet, &reply).unwrap();
            assert_eq!(packet.data(), expected);
            assert!(is_right(packet.data()));

            // The same out of two segments. The second is freed.
            let mut segmented = Segmented::new(&frame, frame.len() - 11);
            if reply_bytes < 77 - 11 {
                replied(&mut segmented, &reply).unwrap();
                assert_eq!(segmented.bytes(), expected);
            } else {
                let side = Room::Data;
                let wanted_bytes = reply.len();
                let no_room = NoRoom { wanted_bytes, available_bytes: 77 - 11, side };
                assert_eq!(replied(&mut segmented, &reply), Err(no_room.into()));
                assert_eq!(segmented.bytes(), frame);
            }
        }
    }
}

/// A DNS responder finds the query in place, however short its answer may be.
#[test]
fn the_room_begins_with_the_request_and_holds_nothing_else() {
    for (_, to) in ENDS {
        for room_bytes in [0, 5, 6, 12, 60] {
            let mut frame = udp().to(to).payload(b"query").build();
            frame.extend([0xaa; 6]);
            let mut packet = MemPacket::new(&frame);
            answer::udp(&mut packet, room_bytes, |room, request_bytes| {
                assert_eq!((room.len(), request_bytes), (room_bytes.max(5), 5));
                assert!(room.starts_with(b"query") && room[5..].iter().all(|byte| *byte == 0));
                usize::MAX
            })
            .unwrap();
            let header_bytes = if to.starts_with('[') { 62 } else { 42 };
            assert_eq!(packet.len_bytes(), header_bytes + room_bytes.max(5));
            assert!(is_right(packet.data()));
        }
    }
}

#[test]
fn a_reply_without_room_is_none() {
    for (_, to) in ENDS {
        let frame = udp().to(to).payload([1; 30]).build();
        let mut packet = MemPacket::with_room(&frame, 0, 10);
        replied(&mut packet, &[2; 40]).unwrap();
        let mut packet = MemPacket::with_room(&frame, 0, 10);
        let no_room = NoRoom { wanted_bytes: 11, available_bytes: 10, side: Room::Tailroom };
        assert_eq!(replied(&mut packet, &[2; 41]), Err(no_room.into()));
        assert_eq!(packet.data(), frame);

        let bytes_max = if to.starts_with('[') { 65_527 } else { 65_507 };
        let mut packet = MemPacket::with_room(&frame, 0, 70_000);
        let error = answer::udp(&mut packet, bytes_max + 1, |_, _| unreachable!()).unwrap_err();
        assert!(matches!(error, AnswerError::NoRoom(no) if no.available_bytes == bytes_max));
        assert_eq!(packet.data(), frame);
        answer::udp(&mut packet, bytes_max, |room, _| room.len()).unwrap();
        assert!(is_right(packet.data()));
    }
}

#[test]
fn only_whole_datagrams_of_one_host_to_one_are_answered() {
    for (is_v6, (from, to)) in [false, true].into_iter().zip(ENDS) {
        let plain = udp().from(from).to(to).payload([1; 300]);
        let l4 = if is_v6 { 54 } else { 34 };
        for frame in plain.clone().build_fragments(120) {
            assert_eq!(udp_refusal(&frame), AnswerError::Fragment);
        }
        for (other, protocol) in [
            (tcp(), 6),
            (echo_request(1, 1), if is_v6 { 58 } else { 1 }),
            (protocol(99).payload([8; 40]), 99),
        ] {
            let error = AnswerError::OtherProtocol { protocol };
            assert_eq!(udp_refusal(&other.from(from).to(to).build()), error);
        }
        let no_port = from.replace(":1000", ":0");
        assert_eq!(udp_refusal(&plain.clone().from(no_port).build()), AnswerError::NoPort);

        let mut wrong = plain.clone().build();
        wrong[l4 + 20] ^= 1;
        assert_eq!(udp_refusal(&wrong), AnswerError::Checksum);
        wrong[l4 + 6..l4 + 8].fill(0);
        let result = replied(&mut MemPacket::new(&wrong), b"reply");
        assert_eq!(result, if is_v6 { Err(AnswerError::Checksum) } else { Ok(()) });

        let mut long = plain.build();
        long[l4 + 4..l4 + 6].copy_from_slice(&309u16.to_be_bytes());
        let cut = Malformed::Cut { header: Header::Udp, wanted_bytes: 309, available_bytes: 308 };
        assert_eq!(udp_refusal(&long), AnswerError::Malformed(cut));
    }
}

#[test]
fn groups_get_neither_replies_nor_resets() {
    let group = |text: &str| AnswerError::Group { address: address(text) };
    for message in [udp(), tcp()] {
        let refusals = |message: PacketBuilder| {
            let frame = message.build();
            [udp_refusal(&frame), refusal(&frame, answer::tcp_reset)]
        };
        for (from, to, which) in [
            ("10.0.0.1:9", "224.0.0.1:9", "224.0.0.1"),
            ("10.0.0.1:9", "255.255.255.255:9", "255.255.255.255"),
            ("0.0.0.0:9", "192.0.2.1:9", "0.0.0.0"),
            ("127.0.0.1:9", "192.0.2.1:9", "127.0.0.1"),
            ("[2001:db8::1]:9", "[ff02::1]:9", "ff02::1"),
            ("[::]:9", "[2001:db8::1]:9", "::"),
        ] {
            assert!(refusals(message.clone().from(from).to(to)).contains(&group(which)));
        }
        let frame = message.clone().from("10.0.0.1:9").macs(MACS[0], MacAddress::BROADCAST);
        assert!(refusals(frame).contains(&group("10.0.0.1")));
    }
}

/// RFC 9293, section 3.10.7.1.
#[test]
fn segments_are_refused_by_resets() {
    // Flags and length of data; sequence number, acknowledgement and flags of the answer.
    for (flags, data_bytes, answer_numbers, answer_flags) in [
        (ACK, 0, (900, 0), RST),
        (ACK | PSH, 7, (900, 0), RST),
        (SYN | ACK, 0, (900, 0), RST),
        (FIN | ACK | URG, 1, (900, 0), RST),
        (SYN, 0, (0, 1), RST | ACK),
        (SYN, 10, (0, 11), RST | ACK),
        (FIN, 3, (0, 4), RST | ACK),
        (SYN | FIN, 3, (0, 5), RST | ACK),
        (0, 0, (0, 0), RST | ACK),
        (PSH, 90, (0, 90), RST | ACK),
    ] {
        for start in [0, 700, u32::MAX] {
            let segment = tcp()
                .tcp_flags(flags)
                .sequence(start, 900)
                .tcp_options(&[2, 4, 5, 0xb4])
                .payload(vec![6; data_bytes]);
            let (sequence, count) = answer_numbers;
            let acknowledgment = if flags & ACK == 0 { start.wrapping_add(count) } else { 0 };
            let reset = tcp().tcp_flags(answer_flags).sequence(sequence, acknowledgment);
            for (segment, expected) in turned(&segment, &reset) {
                check_reset(&segment.build(), expected.build());
            }
        }
    }
}

/// Checks the reset that a frame is answered with. The builder's segments have a window.
fn check_reset(frame: &[u8], expected: Vec<u8>) {
    let mut whole = MemPacket::with_room(frame, 0, 0);
    answer::tcp_reset(&mut whole).unwrap();
    assert!(is_right(whole.data()));
    let tail = expected.len() - 20;
    let (head, reset) = whole.data().split_at(tail);
    assert_eq!((head, &reset[..14]), (&expected[..tail], &expected[tail..tail + 14]));
    assert_eq!((&reset[14..16], &reset[18..]), (&[0; 2][..], &[0; 2][..]));

    let mut padded = MemPacket::new(&[frame, &[0xaa; 6]].concat());
    answer::tcp_reset(&mut padded).unwrap();
    assert_eq!(padded.data(), whole.data());
    let mut segmented = Segmented::new(frame, frame.len() - 1);
    if answer::tcp_reset(&mut segmented).is_ok() {
        assert_eq!(segmented.bytes(), whole.data());
    }
}

#[test]
fn only_whole_segments_are_refused_and_never_resets() {
    for (is_v6, (from, to)) in [false, true].into_iter().zip(ENDS) {
        let plain = tcp().from(from).to(to).payload([1; 300]);
        for frame in plain.clone().build_fragments(120) {
            assert_eq!(refusal(&frame, answer::tcp_reset), AnswerError::Fragment);
        }
        for flags in [RST, RST | ACK, RST | SYN | FIN] {
            let frame = plain.clone().tcp_flags(flags).build();
            assert_eq!(refusal(&frame, answer::tcp_reset), AnswerError::AboutReset);
        }
        let other = udp().from(from).to(to).build();
        let error = AnswerError::OtherProtocol { protocol: 17 };
        assert_eq!(refusal(&other, answer::tcp_reset), error);

        let l4 = if is_v6 { 54 } else { 34 };
        let mut wrong = plain.clone().build();
        wrong[l4 + 40] ^= 1;
        assert_eq!(refusal(&wrong, answer::tcp_reset), AnswerError::Checksum);
        // The options begin in the first segment and end in the second.
        let frame = plain.tcp_options(&[1; 8]).build();
        let mut packet = Segmented::new(&frame, l4 + 24);
        let error = answer::tcp_reset(&mut packet).unwrap_err();
        let cut = Malformed::Cut { header: Header::Tcp, wanted_bytes: 28, available_bytes: 24 };
        assert_eq!((error, packet.bytes()), (AnswerError::Malformed(cut), frame));
    }
}

fn host(is_v6: bool) -> impl Strategy<Value = String> {
    (any::<[u8; 8]>(), any::<u16>()).prop_map(move |(octets, port)| {
        let [a, b, c, d, e, f, g, h] = octets.map(u16::from);
        let address: IpAddr = match is_v6 {
            true => [0x2001, a, b, c, d, e, f, 1 + (g << 8 | h) / 2].into(),
            false => [1 + octets[0] % 126, octets[1], octets[2], octets[3]].into(),
        };
        std::net::SocketAddr::new(address, port.max(1)).to_string()
    })
}

fn hosts() -> impl Strategy<Value = (String, String)> {
    prop_oneof![(host(false), host(false)), (host(true), host(true))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn replies_have_right_checksums(
        (from, to) in hosts(),
        request in prop::collection::vec(any::<u8>(), 0..80),
        reply in prop::collection::vec(any::<u8>(), 0..120),
        second_bytes in 0usize..40,
    ) {
        let frame = udp().from(&from).to(&to).payload(&request).build();
        let expected = udp().from(&to).to(&from).payload(&reply).build();
        let mut packet = MemPacket::new(&frame);
        replied(&mut packet, &reply).unwrap();
        prop_assert_eq!(&packet.data()[12..], &expected[12..]);
        prop_assert!(is_right(packet.data()));

        let first_bytes = frame.len() - second_bytes.min(request.len());
        let mut packet = Segmented::new(&frame, first_bytes);
        match replied(&mut packet, &reply) {
            Ok(()) => prop_assert_eq!(&packet.bytes()[12..], &expected[12..]),
            Err(_) => prop_assert_eq!(packet.bytes(), frame),
        }
    }

    #[test]
    fn resets_have_right_checksums(
        (from, to) in hosts(),
        sequence: u32,
        acknowledgment: u32,
        flags in 0u8..64,
        data in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let segment = tcp().from(&from).to(&to).tcp_flags(flags);
        let frame = segment.sequence(sequence, acknowledgment).payload(&data).build();
        let mut packet = MemPacket::new(&frame);
        match answer::tcp_reset(&mut packet) {
            Ok(()) => {
                prop_assert!(is_right(packet.data()));
                // Two hosts must never answer each other's resets.
                prop_assert_eq!(answer::tcp_reset(&mut packet), Err(AnswerError::AboutReset));
            }
            Err(error) => {
                prop_assert_eq!(error, AnswerError::AboutReset);
                prop_assert!(flags & RST != 0);
                prop_assert_eq!(packet.data(), &frame[..]);
            }
        }
    }

    #[test]
    fn any_frame_is_answered_rightly_or_unchanged(frame in any_frame(), room_bytes in 0usize..200) {
        let mut packets = [MemPacket::new(&frame), MemPacket::new(&frame)];
        let results = [
            answer::udp(&mut packets[0], room_bytes, |room, _| room.len()),
            answer::tcp_reset(&mut packets[1]),
        ];
        for (result, packet) in results.into_iter().zip(packets) {
            match result {
                Ok(()) => prop_assert!(is_right(packet.data())),
                Err(_) => prop_assert_eq!(packet.data(), &frame[..]),
            }
        }
    }
}
