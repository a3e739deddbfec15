//! From a frame to its flow key: ours, compared with hand-written unsafe code and etherparse's
//! slices.
//!
//! Ours is `FlowKey::of`, which handles any frame: tags, tunnels, fragments, extension headers,
//! quoted packets. The peers handle common packets, IPv4 with TCP or UDP, after the same checks,
//! and leave all others to ours. The measurement covers common packets; a test over frames of every
//! kind asserts that all return equal keys.

use crate::Bench;
use etherparse::{
    EtherType, Ethernet2HeaderSlice, IpNumber, Ipv4HeaderSlice, TcpHeaderSlice, UdpHeaderSlice,
};
use hotloop::packet::build::{self, PacketBuilder, echo_request, tcp, udp, unreachable};
use hotloop::packet::classify::Depth;
use hotloop::packet::flow_key::FlowKey;
use hotloop_benches::peers;
use hotloop_measure::contest::Contest;
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// Number of frames that are parsed over and over: in the cache, like those of a prefetched burst.
const FRAME_COUNT: usize = 256;

/// At most 1.15 times the time of the hand-written code, and 0.8 times etherparse's.
const UNSAFE_AIM: f64 = 1.0 / 1.15;
const ETHERPARSE_AIM: f64 = 1.0 / 0.8;

pub fn bench(bench: &mut Bench) {
    let frames: Vec<_> = (0..FRAME_COUNT as u32).map(usual).collect();
    for frame in frames.iter().cloned().chain(unusual()) {
        let ours = hotloop(&frame);
        assert_eq!(by_hand(&frame), ours, "{frame:x?}");
        assert_eq!(etherparse(&frame), ours, "{frame:x?}");
    }
    let contest = Contest::new("parse")
        .side("hotloop", |count| timed(&frames, count, hotloop))
        .side("unsafe by hand", |count| timed(&frames, count, by_hand))
        .side("etherparse", |count| timed(&frames, count, etherparse));
    let Some(outcome) = contest.run(&mut bench.instrument) else { return };
    let (name, unit) = ("header parse to flow key", "ns a packet");
    let mut beside = |peer, aim| {
        bench.table.rows.push(outcome.row(name, unit, ("hotloop", peer), aim));
    };
    beside("unsafe by hand", UNSAFE_AIM);
    beside("etherparse", ETHERPARSE_AIM);
}

#[inline(always)]
fn hotloop(frame: &[u8]) -> Option<FlowKey> {
    FlowKey::of(frame, frame.len(), Depth::Innermost)
}

#[inline(always)]
fn by_hand(frame: &[u8]) -> Option<FlowKey> {
    of_words(peers::parse::key_v4(frame), frame)
}

#[inline(always)]
fn etherparse(frame: &[u8]) -> Option<FlowKey> {
    of_words(etherparse_key(frame), frame)
}

/// Slices of only the headers that are read, with the checks that slices leave to the caller.
#[inline(always)]
fn etherparse_key(frame: &[u8]) -> Option<[u64; 2]> {
    let ethernet = Ethernet2HeaderSlice::from_slice(frame).ok()?;
    if ethernet.ether_type() != EtherType::IPV4 {
        return None;
    }
    let ip = Ipv4HeaderSlice::from_slice(&frame[14..]).ok()?;
    if ip.ihl() != 5 || ip.is_fragmenting_payload() {
        return None;
    }
    let transport = frame[14..].get(20..usize::from(ip.total_len()))?;
    let header = match ip.protocol() {
        IpNumber::TCP => TcpHeaderSlice::from_slice(transport).ok()?.slice(),
        IpNumber::UDP => {
            let udp = UdpHeaderSlice::from_slice(transport).ok()?;
            if !(8..=transport.len()).contains(&usize::from(udp.length())) {
                return None;
            }
            udp.slice()
        }
        _ => return None,
    };
    // Both addresses at once, and both ports: one by one they take longer.
    let addresses = u64::from_ne_bytes(*ip.slice()[12..].first_chunk()?);
    let ports = u32::from_ne_bytes(*header.first_chunk()?);
    Some([addresses, u64::from(ports) | u64::from(ip.protocol().0) << 32])
}

/// The key of a common frame's words, and of any other frame.
#[inline(always)]
fn of_words(words: Option<[u64; 2]>, frame: &[u8]) -> Option<FlowKey> {
    match words {
        Some(words) => Some(FlowKey::V4(zerocopy::transmute!(words))),
        None => rest(frame),
    }
}

/// Uncommon frames.
#[cold]
#[inline(never)]
fn rest(frame: &[u8]) -> Option<FlowKey> {
    FlowKey::of(frame, frame.len(), Depth::Innermost)
}

/// The time of `count` frames. A key counts if its words are in the sum. A function of its own for
/// each `key`, so that they are not inlined into each other.
#[inline(never)]
fn timed(
    frames: &[Vec<u8>],
    count: u64,
    mut key: impl FnMut(&[u8]) -> Option<FlowKey>,
) -> Duration {
    let passes = count.div_ceil(frames.len() as u64);
    let start = Instant::now();
    for _ in 0..passes {
        let mut sum = 0;
        for frame in black_box(frames) {
            if let Some(FlowKey::V4(key)) = key(frame) {
                let [first, second] = key.words();
                sum ^= first ^ second;
            }
        }
        black_box(sum);
    }
    start.elapsed().mul_f64(count as f64 / (passes * frames.len() as u64) as f64)
}

/// TCP and UDP, three to one, between many hosts.
fn usual(number: u32) -> Vec<u8> {
    let random = number.wrapping_mul(0x9e37_79b1) >> 8;
    let builder = if random.is_multiple_of(4) { udp() } else { tcp() };
    let client = Ipv4Addr::from_bits(0x0a00_0000 | random);
    let from = format!("{client}:{}", 1_024 + number);
    builder.from(from).to("192.0.2.1:443").payload(vec![7; number as usize % 16]).build()
}

/// Frames of every kind, and cut off at every length.
fn unusual() -> Vec<Vec<u8>> {
    let builders: Vec<PacketBuilder> = vec![
        tcp().vlan(7),
        udp().qinq(7, 8),
        tcp().ipv4_options(&[1; 8]),
        tcp().tcp_options(&[1; 12]),
        udp().to("[2001:db8::1]:53"),
        tcp().to("[2001:db8::1]:53"),
        udp().tunnelled("192.0.2.1", "192.0.2.2"),
        build::protocol(47),
        echo_request(7, 1),
        unreachable(&tcp().build()),
    ];
    let whole: Vec<_> = builders.into_iter().map(PacketBuilder::build).collect();
    let fragments = udp().payload([7; 3_000]).build_fragments(1_500);
    let plain = [tcp().build(), udp().payload([7; 5]).build()];
    let cut = plain.iter().flat_map(|frame| (0..frame.len()).map(|end| frame[..end].to_vec()));
    let changed = plain.iter().flat_map(|frame| {
        (12..frame.len()).flat_map(|at| {
            [0x00, 0x01, 0x3f, 0x80, 0xff].map(|byte| {
                let mut frame = frame.clone();
                frame[at] ^= byte;
                frame
            })
        })
    });
    whole.iter().cloned().chain(fragments).chain(cut).chain(changed).collect()
}
