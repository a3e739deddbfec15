//! Properties that hold for every frame, whatever its bytes. The fuzzer checks them too.

use std::net::SocketAddr;

use hotloop_packet::{
    PacketBuf,
    answer::{self, IcmpError},
    arp,
    classify::{Depth, Kind, Summary, classify},
    ethernet, fragment, gre, gue, icmp, icmpv6, ip, ipip, ipv4, ipv6,
    memory::MemPacket,
    nat, nd,
    seed::Seed,
    tcp as tcp_header, udp as udp_header, vxlan,
};

pub const SEED: Seed = Seed::new(42);

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
    for parts in [
        gre::GreView::parse(bytes).map(|view| (view.header_bytes(), view.payload())),
        gue::GueView::parse(bytes).map(|view| (view.header_bytes(), view.payload())),
        vxlan::VxlanView::parse(bytes).map(|view| (vxlan::HEADER_BYTES, view.payload())),
    ] {
        let Ok((header_bytes, payload)) = parts else { continue };
        assert_eq!(header_bytes + payload.len(), bytes.len());
        parsed += 1;
    }
    parsed
}

fn check_classification(frame: &[u8], depth: Depth) {
    let layout = classify(frame, depth, &SEED);
    let summary = Summary::of(frame, frame.len(), depth);
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
}

/// Calls every function that takes a frame. A call that fails must leave the frame unchanged.
///
/// # Panics
/// If results disagree, or if a failed call changed the frame.
pub fn check(frame: &[u8]) {
    read_all(frame);
    check_classification(frame, Depth::Outermost);
    check_classification(frame, Depth::Innermost);

    let (source, destination) = (std::net::Ipv6Addr::LOCALHOST, std::net::Ipv6Addr::LOCALHOST);
    let mut packet = MemPacket::new(frame);
    match ipip::encapsulate(&mut packet, source, destination) {
        Ok(()) => assert!(
            Summary::of(packet.data(), packet.len_bytes(), Depth::Innermost).kind != Kind::Other
        ),
        Err(_) => assert_eq!(packet.data(), frame),
    }
    let mut packet = MemPacket::new(frame);
    if ipip::decapsulate(&mut packet).is_err() {
        assert_eq!(packet.data(), frame);
    }
    ethernet::swap_addresses(&mut packet);
    let mut packet = MemPacket::new(frame);
    if !arp::reply(&mut packet, ethernet::MacAddress::BROADCAST) {
        assert_eq!(packet.data(), frame);
    }
    let mut packet = MemPacket::new(frame);
    match nd::advertise(&mut packet, ethernet::MacAddress::BROADCAST) {
        Ok(true) => assert!(nd::NdMessage::of_frame(packet.data()).is_some()),
        Ok(false) | Err(_) => assert_eq!(packet.data(), frame),
    }
    check_answers(frame);
    check_rewritings(frame);
    check_changes(frame);
}

/// Answers about a frame; a packet that is not answered is unchanged.
fn check_answers(frame: &[u8]) {
    type Answer = fn(&mut MemPacket, std::net::IpAddr) -> Result<(), answer::AnswerError>;
    let answers: [Answer; 6] = [
        |packet, from| answer::icmp_error(packet, from, IcmpError::TimeExceeded),
        |packet, from| answer::icmp_error(packet, from, IcmpError::TooBig { mtu_bytes: 1400 }),
        |packet, _| answer::echo_reply(packet),
        |packet, _| answer::udp(packet, 0, |room, _| room.len() + 1),
        |packet, _| answer::udp(packet, 100, |_, request_bytes| request_bytes / 2),
        |packet, _| answer::tcp_reset(packet),
    ];
    for from in ["192.0.2.1", "2001:db8::1"] {
        for answer in answers {
            for headroom_bytes in [128, 47] {
                let mut packet = MemPacket::with_room(frame, headroom_bytes, 0);
                match answer(&mut packet, from.parse().unwrap()) {
                    Ok(()) => assert!(classify(packet.data(), Depth::Innermost, &SEED).is_ip()),
                    Err(_) => assert_eq!(packet.data(), frame),
                }
            }
        }
    }
}

/// New addresses and ports. A refused packet must be unchanged, and a rewritten one belongs to the
/// flow with the new fields.
fn check_rewritings(frame: &[u8]) {
    type Rewrite = fn(&mut MemPacket, SocketAddr) -> Result<(), nat::NatError>;
    let rewritings: [(Rewrite, bool); 2] = [
        (|packet, to| nat::rewrite_source(packet, to), true),
        (|packet, to| nat::rewrite_destination(packet, to), false),
    ];
    let layout = classify(frame, Depth::Innermost, &SEED);
    for to in ["203.0.113.1:4096", "[2001:db8::77]:4096"].map(|to| to.parse().unwrap()) {
        for (rewrite, is_source) in rewritings {
            let mut packet = MemPacket::new(frame);
            if rewrite(&mut packet, to).is_err() {
                assert_eq!(packet.data(), frame);
                continue;
            }
            let after = classify(packet.data(), Depth::Innermost, &SEED);
            assert_eq!((after.kind(), after.l3_offset()), (layout.kind(), layout.l3_offset()));
            // The rewritten part of a malformed frame belongs to no flow.
            let Some(key) = after.key(packet.data()) else { continue };
            let is_key_source = is_source != after.is_icmp_error();
            let (address, port) = match is_key_source {
                true => (key.source(), key.source_port()),
                false => (key.destination(), key.destination_port()),
            };
            assert!(address == to.ip() && (port == to.port() || port == 0), "{key} {to}");
        }
    }
}

/// Tunnels by flow, fragments, segment sizes, options and padding; a call that fails must leave the frame unchanged.
fn check_changes(frame: &[u8]) {
    let source = "2001:db8::".parse().unwrap();
    let tunnel = ipip::Tunnel::spread((source, 64), std::net::Ipv6Addr::LOCALHOST).unwrap();
    let mut packet = MemPacket::new(frame);
    let mut identifications = ipip::Identifications::new(7, 1);
    let hash = frame.len() as u32;
    if tunnel.wrap_flow(&mut packet, &[2; 12], hash, &mut identifications).is_err() {
        assert_eq!(packet.data(), frame);
    }
    if let Some(view) = fragment::FragmentView::of_frame(frame) {
        assert!(view.check().is_err() || view.len_bytes() > 0, "{view:?}");
    }
    for mtu_bytes in [0, 27, 28, 68, 100] {
        let mut piece_count = 0;
        match fragment::split(MemPacket::new(frame), mtu_bytes, |_| piece_count += 1) {
            Ok(()) => assert!(piece_count > 0),
            Err((packet, _)) => assert_eq!((packet.data(), piece_count), (frame, 0)),
        }
        let _ = fragment::split(MemPacket::new(frame).without_copies(), mtu_bytes, drop);
    }
    let key = classify(frame, Depth::Innermost, &SEED).key(frame);
    for options in [&[][..], &[2, 4, 5, 0xb4], &[1; 40]] {
        let mut packet = MemPacket::new(frame);
        match tcp_header::set_options(&mut packet, options) {
            Ok(()) => {
                assert_eq!(classify(packet.data(), Depth::Innermost, &SEED).key(packet.data()), key)
            }
            Err(_) => assert_eq!(packet.data(), frame),
        }
    }
    let mut packet = MemPacket::new(frame);
    ip::cut_padding(&mut packet);
    assert_eq!(classify(packet.data(), Depth::Innermost, &SEED).key(packet.data()), key);
    for offset in [0, 14, 34, 54] {
        let mut segment = frame.get(offset..).unwrap_or_default().to_vec();
        let before = segment.clone();
        if !tcp_header::clamp_mss(&mut segment, 536) {
            assert_eq!(segment, before);
        }
    }
}
