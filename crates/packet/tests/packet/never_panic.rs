//! No bytes make anything panic, and no failure changes a packet.

use hotloop_packet::{
    PacketBuf, answer, arp,
    build::{tcp, udp},
    classify::{Kind, Layout, Summary, classify, classify_packet},
    ethernet, fragment, icmp, icmpv6, ipip, ipv4, ipv6,
    memory::MemPacket,
    seed::Seed,
    tcp as tcp_header, udp as udp_header,
};
use proptest::prelude::*;

use crate::frames;

const SEED: Seed = Seed::new(42);

/// Calls every parser and accessor on these bytes, at every offset that a header can have there.
fn read_all(bytes: &[u8]) -> usize {
    let mut parsed = 0;
    parsed += usize::from(
        arp::ArpMessage::parse(bytes).is_ok_and(|m| m.reply(m.sender().mac).target() == m.sender()),
    );
    parsed += usize::from(ethernet::EthernetView::parse(bytes).is_ok_and(|view| {
        ethernet::l3_offset(bytes) == Some(view.l3_offset())
            && view.l3_offset() + view.payload().len() == bytes.len()
    }));
    for view in [ipv4::Ipv4View::parse(bytes), ipv4::Ipv4View::parse_cut(bytes)] {
        let Ok(view) = view else { continue };
        parsed += usize::from(view.options().len() + 20 == view.header_bytes());
        assert!(view.payload().len() + view.header_bytes() <= bytes.len());
        let _ = (view.is_checksum_right(), view.fragment(), view.source());
    }
    for view in [ipv6::Ipv6View::parse(bytes), ipv6::Ipv6View::parse_cut(bytes)] {
        let Ok(view) = view else { continue };
        assert!(view.payload().len() + 40 <= bytes.len());
        parsed += usize::from(view.chain().is_ok_and(|c| c.offset_bytes <= view.payload().len()));
    }
    if let Ok(view) = tcp_header::TcpView::parse(bytes) {
        assert_eq!(view.header_bytes() + view.payload().len(), bytes.len());
        parsed += 1;
    }
    for view in [udp_header::UdpView::parse(bytes), udp_header::UdpView::parse_cut(bytes)] {
        parsed += usize::from(view.is_ok_and(|view| view.payload().len() + 8 <= bytes.len()));
    }
    if let Ok(view) = icmp::IcmpView::parse(bytes) {
        let _ = (view.quoted(), view.mtu_bytes(), view.is_checksum_right(), view.echo_sequence());
    }
    if let Ok(view) = icmpv6::Icmpv6View::parse(bytes) {
        let _ = (view.quoted(), view.mtu_bytes(), view.echo_identifier());
    }
    parsed
}

/// Everything that takes a frame; what fails must leave it alone.
fn check(frame: &[u8]) {
    read_all(frame);
    let layout = classify(frame, &SEED);
    let summary = Summary::of(frame, frame.len());
    assert_eq!(layout.kind(), summary.kind);
    assert_eq!((layout.l3_offset(), layout.fragment()), (summary.l3_offset, summary.fragment));
    assert_eq!(layout.l4_offset(frame).unwrap_or(0), summary.l4_offset);
    let key = layout.key(frame);
    assert_eq!(key, summary.key(frame));
    assert_eq!(key.is_some(), layout.is_ip(), "a keyed header has a key");
    assert_eq!(layout.hash(), key.map_or(0, |key| SEED.hash(&key)));
    assert_eq!(layout.shard(), key.map_or(0, |key| SEED.shard(&key) & 0xffff_0000));
    if let Some(key) = key {
        assert_eq!(key.protocol(), summary.protocol);
    }

    let (source, destination) = (std::net::Ipv6Addr::LOCALHOST, std::net::Ipv6Addr::LOCALHOST);
    let mut packet = MemPacket::new(frame);
    match ipip::encapsulate(&mut packet, source, destination) {
        Ok(()) => assert!(Summary::of(packet.data(), packet.len_bytes()).kind != Kind::Other),
        Err(_) => assert_eq!(packet.data(), frame),
    }
    let mut packet = MemPacket::new(frame);
    if ipip::decapsulate(&mut packet).is_err() {
        assert_eq!(packet.data(), frame);
    }
    ethernet::swap_addresses(&mut packet);
    check_answers(frame);
    check_changes(frame);
}

/// Answers about a frame; what is not answered stays as it was.
fn check_answers(frame: &[u8]) {
    type Answer = fn(&mut MemPacket, std::net::IpAddr) -> Result<(), answer::AnswerError>;
    let answers: [Answer; 3] = [
        |packet, from| answer::time_exceeded(packet, from),
        |packet, from| answer::too_big(packet, from, 1400),
        |packet, _| answer::echo_reply(packet),
    ];
    for from in ["192.0.2.1", "2001:db8::1"] {
        for answer in answers {
            for headroom_bytes in [128, 47] {
                let mut packet = MemPacket::with_room(frame, headroom_bytes, 0);
                match answer(&mut packet, from.parse().unwrap()) {
                    Ok(()) => assert!(classify(packet.data(), &SEED).is_ip()),
                    Err(_) => assert_eq!(packet.data(), frame),
                }
            }
        }
    }
}

/// Tunnels by flow, fragments and segment sizes; what fails must leave the frame alone.
fn check_changes(frame: &[u8]) {
    let source = "2001:db8::".parse().unwrap();
    let tunnel = ipip::Tunnel::spread((source, 64), std::net::Ipv6Addr::LOCALHOST).unwrap();
    let mut packet = MemPacket::new(frame);
    if tunnel.wrap_flow(&mut packet, frame.len() as u32, 7).is_err() {
        assert_eq!(packet.data(), frame);
    }
    for mtu_bytes in [0, 27, 28, 68, 100] {
        let mut piece_count = 0;
        match fragment::split(MemPacket::new(frame), mtu_bytes, |_| piece_count += 1) {
            Ok(()) => assert!(piece_count > 0),
            Err((packet, _)) => assert_eq!((packet.data(), piece_count), (frame, 0)),
        }
        let _ = fragment::split(MemPacket::new(frame).without_copies(), mtu_bytes, drop);
    }
    for offset in [0, 14, 34, 54] {
        let mut segment = frame.get(offset..).unwrap_or_default().to_vec();
        let before = segment.clone();
        if !tcp_header::clamp_mss(&mut segment, 536) {
            assert_eq!(segment, before);
        }
    }
}

#[test]
fn every_frame_cut_at_every_byte() {
    let frames = frames::frames();
    assert!(frames.len() > 100);
    for frame in &frames {
        for length in 0..=frame.len() {
            check(&frame[..length]);
        }
    }
}

#[test]
fn whole_frames_are_well_formed_and_cut_ones_are_not() {
    for frame in frames::frames() {
        let layout = classify(&frame, &SEED);
        assert!(!matches!(layout.kind(), Kind::Malformed(_)), "{layout:?} {frame:02x?}");
        let (_, l3_offset) = ethernet::network_layer(&frame).unwrap();
        let total = match ipv4::Ipv4View::parse(&frame[l3_offset..]) {
            Ok(view) => usize::from(view.total_length()),
            Err(_) if layout.is_ip() => {
                40 + usize::from(
                    ipv6::Ipv6View::parse(&frame[l3_offset..]).unwrap().payload_length(),
                )
            }
            Err(_) => continue,
        };
        for length in 0..l3_offset + total {
            let kind = classify(&frame[..length], &SEED).kind();
            assert!(matches!(kind, Kind::Malformed(_)), "{length} bytes: {kind:?}");
        }
    }
}

#[test]
fn payloads_may_go_on_in_other_segments() {
    let frame = tcp().payload([7; 2000]).build();
    let whole = classify(&frame, &SEED);
    assert_eq!(Layout::of(&frame[..54], frame.len(), &SEED), whole);
    assert_eq!(classify_packet(&MemPacket::new(&frame), &SEED), whole);
    assert!(matches!(classify(&frame[..54], &SEED).kind(), Kind::Malformed(_)));
    assert!(matches!(Layout::of(&frame[..53], frame.len(), &SEED).kind(), Kind::Malformed(_)));

    let frame = udp().to("[2001:db8::2]:53").payload([7; 2000]).build();
    assert_eq!(Layout::of(&frame[..62], frame.len(), &SEED), classify(&frame, &SEED));
}

/// A frame of the builders with some bytes changed, and cut.
fn mutated_frame() -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<prop::sample::Index>(), any::<u8>());
    let frame = prop::sample::select(frames::frames());
    (frame, prop::collection::vec(change, 0..6), prop::option::of(any::<prop::sample::Index>()))
        .prop_map(|(mut frame, changes, length)| {
            for (index, byte) in changes {
                // Mostly headers: they are what is read.
                let index = index.index(frame.len().min(120));
                frame[index] = byte;
            }
            if let Some(length) = length {
                frame.truncate(length.index(frame.len() + 1));
            }
            frame
        })
}

/// Any eight bytes as a layout, or the right one with other bytes around.
fn any_layout() -> impl Strategy<Value = Layout> {
    any::<[u8; 8]>().prop_map(Layout::from_metadata)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn random_bytes(frame in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&frame);
    }

    #[test]
    fn random_bytes_behind_an_ethertype(
        mut frame in prop::collection::vec(any::<u8>(), 16..200),
        ethertype in prop::sample::select(vec![0x0800u16, 0x86dd, 0x8100, 0x88a8, 0x0806]),
        version in prop::sample::select(vec![0x45u8, 0x46, 0x4f, 0x60]),
    ) {
        frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
        frame[14] = version;
        check(&frame);
    }

    #[test]
    fn mutated_frames(frame in mutated_frame()) {
        check(&frame);
    }

    #[test]
    fn any_layout_over_any_bytes(
        layout in any_layout(),
        frame in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let _ = (layout.kind(), layout.fragment(), layout.is_tunnel(), layout.l4_offset(&frame));
        prop_assert_eq!(Layout::from_metadata(layout.to_metadata()), layout);
        if layout.key(&frame).is_some() {
            prop_assert!(layout.is_ip());
        }
    }

    #[test]
    fn any_layout_over_real_frames(layout in any_layout(), frame in mutated_frame()) {
        layout.key(&frame);
        // The layout of another frame.
        let mut stale = layout.to_metadata();
        stale[4..].copy_from_slice(&classify(&frame, &SEED).to_metadata()[4..]);
        Layout::from_metadata(stale).key(&frame[..frame.len() / 2]);
    }
}
