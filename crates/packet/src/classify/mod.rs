//! One pass over a frame finds its kind, its headers and its flow.
//!
//! A packet belongs to the flow of its *keyed* header, which is
//! - the inner header of an IP-in-IP packet, unwrapped once, if the [`Depth`] is
//!   [`Innermost`](Depth::Innermost);
//! - the quoted header of an ICMP error, at both depths, and in a tunnel if it is looked into;
//! - else the packet's own IP header.
//!
//! So a request, its fragments, its reply, and an error about any of them have the same two
//! addresses in their keys, and the same shard; at the innermost depth, the reply in a tunnel has
//! too. Fragmented tunnel packets and fragmented ICMP errors are not looked into: all fragments must
//! meet, and the later ones don't show their contents. A fragment inside a whole tunnel packet is a
//! fragment like any other.
//!
//! ```
//! use hotloop_packet::{build::{tcp, time_exceeded}, classify::{Depth, Kind, classify}, seed::Seed};
//!
//! let seed = Seed::new(42);
//! let request = tcp().from("10.0.0.1:1000").to("192.0.2.1:80").build();
//! let layout = classify(&request, Depth::Outermost, &seed);
//! assert_eq!((layout.kind(), layout.l3_offset(), layout.l4_offset(&request)), (Kind::Ipv4, 14, Some(34)));
//! let key = layout.key(&request).unwrap();
//! assert_eq!(layout.hash(), seed.hash(&key));
//!
//! let error = time_exceeded(&request).build();
//! let layout = classify(&error, Depth::Outermost, &seed);
//! assert!(layout.is_icmp_error());
//! assert_eq!(layout.key(&error), Some(key));
//! ```

mod fast;
mod headers;
mod key;
mod layout;
mod summary;

pub use fast::PlainDatagram;
pub(crate) use fast::plain_protocol_v4;
pub use layout::Layout;
pub use summary::{Kind, Summary};

use crate::{PacketBuf, seed::Seed};

/// The IP header of an IP-in-IP packet that classification reads the flow from.
///
/// There is no default, because the wrong choice is a hole. Whoever forwards tunnel packets without
/// unwrapping them, as firewalls and NATs do, needs the outermost header: with the innermost one, any
/// sender can wrap a packet of a flow that is allowed, and the outer addresses, which are the ones
/// that routers obey, are never looked at.
///
/// ```
/// use hotloop_packet::{build::udp, classify::Depth, flow_key::FlowKey};
///
/// let frame = udp().from("192.0.2.1:53").to("10.0.0.7:5000").tunnelled("203.0.113.66", "10.0.0.5").build();
/// let key = |depth| FlowKey::of(&frame, frame.len(), depth).unwrap().to_string();
/// assert_eq!(key(Depth::Outermost), "203.0.113.66:0 > 10.0.0.5:0 protocol 4");
/// assert_eq!(key(Depth::Innermost), "192.0.2.1:53 > 10.0.0.7:5000 protocol 17");
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Depth {
    /// The packet's own header. A tunnel packet isn't looked into: its protocol is 4 or 41
    /// ([`crate::ip::protocol`]), and its ports are 0. An ICMP error still belongs to the flow of
    /// the packet that it quotes, and anybody can send one: see
    /// [`Layout::is_icmp_error`](Layout::is_icmp_error) for the checks that this needs.
    Outermost,
    /// The inner header of a tunnel packet, for stages that unwrap tunnels.
    Innermost,
}

/// Classifies a frame that lies in one segment: returns its layout, for later stages.
#[inline(always)]
pub fn classify(frame: &[u8], depth: Depth, seed: &Seed) -> Layout {
    Layout::of(frame, frame.len(), depth, seed)
}

/// Classifies a packet: returns its layout, for later stages. Headers are read from the first
/// segment; payloads may go on in others.
#[inline(always)]
pub fn classify_packet<P: PacketBuf>(packet: &P, depth: Depth, seed: &Seed) -> Layout {
    Layout::of(packet.data(), packet.len_bytes(), depth, seed)
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, test_runner::TestCaseError};
    use std::net::SocketAddr;

    use super::*;
    use crate::{
        Header,
        build::{echo_request, protocol, tcp, udp, unreachable},
        ethernet::Station,
        flow_key::{FlowKey, FlowKeyV4},
        ip::{Fragment, protocol as number},
        memory::MemPacket,
        udp::UdpView,
    };

    const SEED: Seed = Seed::new(42);

    /// The header that is wrong once this byte of the frame has this value.
    fn wrong(frame: &[u8], at: usize, value: u8) -> Option<Header> {
        let mut frame = frame.to_vec();
        frame[at] = value;
        match classify(&frame, Depth::Innermost, &SEED).kind() {
            Kind::Malformed(header) => Some(header),
            _ => None,
        }
    }

    #[test]
    fn names_the_header_that_is_wrong() {
        let (v4, v6) = ("192.0.2.1:80", "[2001:db8::2]:80");
        for (to, ip, l4_offset) in [(v4, Header::Ipv4, 34), (v6, Header::Ipv6, 54)] {
            let datagram = udp().to(to).payload([7; 16]).build();
            assert_eq!(wrong(&datagram, 14, 0x50), Some(ip));
            assert_eq!(wrong(&datagram, if to == v4 { 16 } else { 18 }, 0xff), Some(ip));
            assert_eq!(wrong(&datagram, l4_offset + 4, 1), Some(Header::Udp));
            assert_eq!(wrong(&datagram, l4_offset + 5, 7), Some(Header::Udp));
            assert_eq!(wrong(&datagram, l4_offset + 5, 8), None);
            assert_eq!(wrong(&datagram, l4_offset + 5, 24), None);
            assert_eq!(wrong(&datagram, l4_offset + 5, 25), Some(Header::Udp));
            let segment = tcp().to(to).build();
            assert_eq!(wrong(&segment, l4_offset + 12, 0x40), Some(Header::Tcp));
            assert_eq!(wrong(&segment, l4_offset + 12, 0x60), Some(Header::Tcp));
            let error = unreachable(&datagram).build();
            assert_eq!(wrong(&error, l4_offset + 8, 0x50), Some(ip));
            for (source, destination) in [("10.9.0.1", "10.9.0.2"), ("::1", "::2")] {
                let tunnelled = udp().to(to).tunnelled(source, destination).build();
                let inner_offset = if source == "::1" { 54 } else { 34 };
                assert_eq!(wrong(&tunnelled, inner_offset, 0x50), Some(ip));
                assert_eq!(wrong(&tunnelled, tunnelled.len() - 3, 9), Some(Header::Udp));
            }
        }
        assert_eq!(wrong(&udp().build(), 14, 0x44), Some(Header::Ipv4));
        assert_eq!(wrong(&udp().build(), 17, 19), Some(Header::Ipv4));
        let options = udp().to(v6).extension(number::HOP_BY_HOP, &[0; 6]).build();
        assert_eq!(wrong(&options, 55, 9), Some(Header::Ipv6Extension));
        let short = protocol(number::ICMP).payload([8; 7]).build();
        assert_eq!(wrong(&short, 0, 2), Some(Header::Icmp));
        let short = protocol(number::ICMPV6).to(v6).payload([128; 7]).build();
        assert_eq!(wrong(&short, 0, 2), Some(Header::Icmpv6));
        assert_eq!(wrong(&udp().build()[..13], 0, 2), Some(Header::Ethernet));
    }

    #[test]
    fn a_header_too_deep_for_the_layout_is_refused() {
        let extended = |body_bytes: usize| {
            let options = vec![0; body_bytes];
            let inner = udp().build();
            let outer =
                protocol(number::IPV4).to("::1").extension(number::DESTINATION_OPTIONS, &options);
            let frame = outer.payload(&inner[14..]).build();
            classify(&frame, Depth::Innermost, &SEED)
        };
        let deepest = extended(198);
        assert_eq!((deepest.l3_offset(), deepest.kind()), (254, Kind::Ipv4));
        assert_eq!(extended(206).kind(), Kind::Malformed(Header::Ipv6Extension));
    }

    #[test]
    fn offsets_after_tags_options_and_extension_headers() {
        let seen = |frame: Vec<u8>| {
            let layout = classify(&frame, Depth::Innermost, &SEED);
            (layout.kind(), layout.l3_offset(), layout.l4_offset(&frame).unwrap())
        };
        assert_eq!(seen(tcp().build()), (Kind::Ipv4, 14, 34));
        assert_eq!(seen(tcp().vlan(7).build()), (Kind::Ipv4, 18, 38));
        assert_eq!(seen(tcp().qinq(7, 8).ipv4_options(&[1; 40]).build()), (Kind::Ipv4, 22, 82));
        assert_eq!(seen(tcp().to("::1").build()), (Kind::Ipv6, 14, 54));
        let extended = tcp().to("::1").extension(number::ROUTING, &[0; 22]);
        assert_eq!(seen(extended.clone().vlan(1).build()), (Kind::Ipv6, 18, 82));
        assert_eq!(seen(extended.tunnelled("10.0.0.1", "10.0.0.2").build()), (Kind::Ipv6, 34, 98));
        assert_eq!(seen(unreachable(&echo_request(7, 1).build()).build()), (Kind::Ipv4, 42, 62));
        let summary =
            Summary::of(&tcp().tunnelled("::1", "::2").vlan(1).build(), 98, Depth::Innermost);
        assert_eq!((summary.outer_l3_offset, summary.l3_offset, summary.l4_offset), (18, 58, 78));
        assert_eq!((summary.is_tunnel, summary.protocol), (true, number::TCP));
    }

    #[test]
    fn another_stations_frames_are_foreign_and_belong_to_no_flow() {
        use crate::ethernet::MacAddress;
        let own = MacAddress::new([2, 0, 0, 0, 0, 7]);
        let seen = |mut frame: Vec<u8>, to: [u8; 6]| {
            frame[..6].copy_from_slice(&to);
            let layout = Layout::at(&frame, frame.len(), Depth::Innermost, &Station::with(own));
            let key = classify(&frame, Depth::Innermost, &SEED).key(&frame);
            assert!(layout.is_foreign() || layout.key(&frame) == key);
            let fast = Layout::fast_at(&frame, frame.len(), &Station::with(own));
            let expected = layout.fast_key_v4(&frame).filter(|_| frame.len() >= 54);
            assert_eq!(fast.map(|(_, key)| key), expected);
            (layout.is_foreign(), layout.kind(), layout.key(&frame).is_some())
        };
        let v6 = || udp().to("[2001:db8::2]:80");
        let padded = udp().payload([7; 12]);
        for packet in [udp(), padded, tcp(), tcp().vlan(7), v6(), unreachable(&v6().build())] {
            let frame = packet.build();
            let (is_foreign, kind, has_key) = seen(frame.clone(), own.bytes());
            assert!(!is_foreign && matches!(kind, Kind::Ipv4 | Kind::Ipv6) && has_key);
            for other in [[2, 0, 0, 0, 0, 8], [0xff; 6]] {
                assert_eq!(seen(frame.clone(), other), (true, Kind::Other, false));
            }
        }
        // For the station itself, this is a fast-path packet however short it is; for a group it
        // never is.
        for length in [0, 12] {
            let group = udp().to("224.0.0.5:9").payload(vec![7; length]).build();
            let is_fast = |to: [u8; 6]| {
                let mut frame = group.clone();
                frame[..6].copy_from_slice(&to);
                Layout::at(&frame, frame.len(), Depth::Innermost, &Station::with(own)).is_fast_v4()
            };
            assert_eq!((is_fast(own.bytes()), is_fast([1, 0, 0x5e, 0, 0, 5])), (true, false));
            assert_eq!(seen(group, [1, 0, 0x5e, 0, 0, 5]), (false, Kind::Ipv4, true));
        }
    }

    #[test]
    fn all_segments_count() {
        let packet = MemPacket::from(udp());
        assert_eq!(
            classify_packet(&packet, Depth::Innermost, &SEED),
            classify(packet.data(), Depth::Innermost, &SEED)
        );
    }

    #[test]
    fn the_outermost_header_of_a_tunnel_is_keyed() {
        let (v4, v6) = (["10.9.0.1", "10.9.0.2"], ["2001:db8::9", "2001:db8::10"]);
        for (to, protocol) in [("192.0.2.1:80", number::IPV4), ("[2001:db8::2]:80", number::IPV6)] {
            for [source, destination] in [v4, v6] {
                let frame = udp().to(to).vlan(7).tunnelled(source, destination).build();
                let layout = classify(&frame, Depth::Outermost, &SEED);
                let [source, destination] = [source, destination].map(|ip| ip.parse().unwrap());
                let ends = [source, destination].map(|ip| SocketAddr::new(ip, 0));
                let key = FlowKey::new(ends[0], ends[1], protocol);
                assert_eq!((layout.key(&frame), layout.is_tunnel()), (key, false));
                assert_eq!(layout.l3_offset(), 18);
                assert_eq!(layout.hash(), SEED.hash(&key.unwrap()));
                // An error about the tunnel packet belongs to the tunnel's flow.
                let error = unreachable(&frame).build();
                let layout = classify(&error, Depth::Outermost, &SEED);
                assert_eq!((layout.key(&error), layout.is_icmp_error()), (key, true));
                // An error in a tunnel is a tunnel packet.
                let inner = unreachable(&udp().to(to).build());
                let error = inner.tunnelled("10.9.0.1", "10.9.0.2").build();
                let layout = classify(&error, Depth::Outermost, &SEED);
                assert!(layout.is_plain() && layout.l3_offset() == 14);
            }
        }
        // The inner packet isn't checked.
        let mut frame = udp().tunnelled("10.9.0.1", "10.9.0.2").build();
        frame[34] = 0x50;
        let kind = |depth| classify(&frame, depth, &SEED).kind();
        assert_eq!(kind(Depth::Outermost), Kind::Ipv4);
        assert_eq!(kind(Depth::Innermost), Kind::Malformed(Header::Ipv4));
    }

    /// Checks that all functions find in a frame what the walk through all headers finds.
    fn check_paths(frame: &[u8], len_bytes: usize, depth: Depth) -> Result<(), TestCaseError> {
        let long = match depth {
            Depth::Outermost => Summary::walk::<false>(frame, len_bytes),
            Depth::Innermost => Summary::walk::<true>(frame, len_bytes),
        };
        prop_assert_eq!(Summary::of(frame, len_bytes, depth), long);
        let is_plain = long.kind == Kind::Ipv4
            && long.protocol == number::UDP
            && long.l4_offset == 34
            && long.fragment == Fragment::None;
        let view = UdpView::parse_cut(frame.get(34..).unwrap_or_default());
        let expected = view.ok().filter(|_| is_plain).map(|view| PlainDatagram {
            destination_port: view.destination_port(),
            payload_offset: 42,
            payload_bytes: view.length() - 8,
        });
        prop_assert_eq!(PlainDatagram::of(frame, len_bytes), expected);
        prop_assert_eq!(FlowKey::of(frame, len_bytes, depth), long.key(frame));
        let layout = Layout::of(frame, len_bytes, depth, &SEED);
        prop_assert_eq!(layout.kind(), long.kind);
        prop_assert_eq!(layout.key(frame), long.key(frame), "{:?}", long);
        prop_assert_eq!(layout.hash(), long.key(frame).map_or(0, |key| SEED.hash(&key)));
        let bare = Layout::at(frame, len_bytes, depth, &Station::ANY);
        prop_assert_eq!((bare.hash(), bare.shard()), (0, 0));
        prop_assert_eq!((bare.kind(), bare.key(frame)), (layout.kind(), layout.key(frame)));
        prop_assert_eq!(bare.l4_offset(frame), layout.l4_offset(frame));
        let fast = Layout::fast_at(frame, len_bytes, &Station::ANY);
        let expected = bare.fast_key_v4(frame).map(|key| (bare.to_metadata(), key));
        let expected = expected.filter(|_| frame.len() >= 54);
        prop_assert_eq!(fast.map(|(layout, key)| (layout.to_metadata(), key)), expected);
        let words = fast.map(|(_, key)| FlowKeyV4::from_words(key.words()));
        prop_assert_eq!(words, expected.map(|(_, key)| key));
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        /// Checks that the fast path and the walk through all headers have the same results.
        #[test]
        fn the_fast_path_equals_the_walk(
            is_tcp: bool,
            is_v6: bool,
            shape in 0..5,
            changes in prop::collection::vec((12usize..116, any::<u8>()), 0..3),
            length in 30usize..140,
            len_bytes in 30usize..160,
        ) {
            let builder = if is_tcp { tcp() } else { udp() };
            let to = if is_v6 { "::1" } else { "192.0.2.1" };
            let builder = builder.to(to).payload([7; 16]);
            let mut frame = match shape {
                0 => builder.vlan(7).build(),
                1 => builder.tunnelled("10.0.0.1", "10.0.0.2").build(),
                2 => unreachable(&builder.build()).build(),
                _ => builder.build(),
            };
            for (at, byte) in changes {
                if let Some(place) = frame.get_mut(at) {
                    *place = byte;
                }
            }
            frame.truncate(length);
            for len_bytes in [frame.len(), frame.len().max(len_bytes)] {
                for depth in [Depth::Outermost, Depth::Innermost] {
                    check_paths(&frame, len_bytes, depth)?;
                }
            }
        }
    }
}
