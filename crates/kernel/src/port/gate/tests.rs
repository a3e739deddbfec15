//! Honest senders under floods, in simulated time.

use super::*;
use crate::PuntLimit;
use hotloop_packet::PacketBuf;
use hotloop_packet::arp;
use hotloop_packet::build::{PacketBuilder, echo_request, protocol, tcp, udp};
use hotloop_packet::ethernet::MacAddress;
use hotloop_packet::memory::MemPacket;
use hotloop_packet::prefix::Prefix;
use hotloop_packet::tcp::flags::ACK;

const MS: u64 = 1_000_000;

/// Packets of a flood per second, and its duration in milliseconds.
const FLOOD_PER_SECOND: u64 = 50_000;
const FLOOD_MS: u64 = 3_000;

/// Bytes of the source in an untagged IPv4 frame.
const SOURCE: std::ops::Range<usize> = 26..30;

/// Bytes of the sender in ARP.
const ARP_SENDER: std::ops::Range<usize> = 28..32;

const HOST: &str = "192.0.2.1";
const HONEST: &str = "203.0.113.7";

fn to_host(packet: PacketBuilder, from: &str, [from_port, to_port]: [u16; 2]) -> Vec<u8> {
    packet.from(format!("{from}:{from_port}")).to(format!("{HOST}:{to_port}")).build()
}

fn from(packet: PacketBuilder, from: &str) -> Vec<u8> {
    to_host(packet, from, [0, 0])
}

fn arp(station: [u8; 6]) -> Vec<u8> {
    let own = arp::Neighbour { mac: MacAddress::new(station), address: [198, 51, 100, 1].into() };
    let mut packet = MemPacket::with_room(&[], 0, 200);
    arp::request(&mut packet, own, HOST.parse().unwrap()).unwrap();
    packet.data().to_vec()
}

/// A frame of each kind from an honest sender.
fn honest(reason: PuntReason) -> Vec<u8> {
    let frame = match reason {
        PuntReason::Neighbour => arp([2, 0, 203, 0, 113, 7]),
        PuntReason::Routing => from(protocol(89), HONEST),
        PuntReason::Bgp => to_host(tcp().tcp_flags(ACK), HONEST, [4_000, 179]),
        PuntReason::BgpSyn => to_host(tcp(), HONEST, [4_000, 179]),
        PuntReason::Icmp => from(echo_request(1, 1), HONEST),
        PuntReason::Host => to_host(tcp().tcp_flags(ACK), HONEST, [4_000, 22]),
        PuntReason::HostSyn => to_host(tcp(), HONEST, [4_000, 22]),
        PuntReason::Group => {
            let mut frame = to_host(udp(), HONEST, [67, 68]);
            frame[..6].copy_from_slice(&MacAddress::BROADCAST.bytes());
            frame
        }
    };
    assert_eq!(PuntReason::of(&frame), reason);
    frame
}

/// The source that a flood claims.
#[derive(Clone, Copy, Debug)]
enum Claim {
    /// Another address each time.
    Anywhere,
    /// 256 prefixes in turn, as of a /16.
    Nearby,
    One,
}

/// Writes the claimed source into frame `number` of a flood.
fn forge(frame: &mut [u8], from: Claim, number: u64) {
    let number = number as u32;
    let source = match from {
        Claim::Anywhere => number.wrapping_mul(0x9e37_79b1),
        Claim::Nearby => 0xc633_0000 | (number % 0x1_0000),
        Claim::One => 0xc633_6401,
    };
    let source = source.to_be_bytes();
    match PuntReason::of(frame) {
        PuntReason::Neighbour => frame[8..12].copy_from_slice(&source),
        _ => frame[SOURCE].copy_from_slice(&source),
    }
}

/// Packets that came, and those that passed.
#[derive(Debug, Default)]
struct Outcome {
    honest: (u64, u64),
    flood: u64,
}

/// Plays a flood against a sender with a packet every `honest.1` milliseconds.
fn play(
    gate: &mut Gate,
    start_ms: u64,
    (flood, source): (&[u8], Claim),
    honest: (&[u8], u64),
) -> Outcome {
    let (mut flood, mut outcome) = (flood.to_vec(), Outcome::default());
    let per_ms = FLOOD_PER_SECOND / 1_000;
    let mut passes = |frame: &[u8], now_ns| {
        u64::from(matches!(gate.judge(frame, now_ns).1, Verdict::Passes { .. }))
    };
    for number in 0..FLOOD_MS * per_ms {
        let now_ns = start_ms * MS + number * MS / per_ms;
        forge(&mut flood, source, number);
        outcome.flood += passes(&flood, now_ns);
        // Between two packets of the flood, so that no token is due at exactly that time.
        let is_due = number % (honest.1 * per_ms) == per_ms / 3;
        if is_due {
            outcome.honest.0 += passes(honest.0, now_ns + MS / per_ms / 2);
            outcome.honest.1 += 1;
        }
    }
    outcome
}

/// Plays an honest sender for some seconds, before the flood.
fn acquainted(gate: &mut Gate, frame: &[u8]) -> u64 {
    for at_s in 0..10 {
        assert!(matches!(gate.judge(frame, at_s * 1_000 * MS).1, Verdict::Passes { .. }));
    }
    10_000
}

fn peers(gtsm: bool) -> PuntLimits {
    let prefix = HONEST.parse::<Prefix>().unwrap();
    PuntLimits::default().with_peers(vec![PuntPeer { prefix, gtsm }])
}

/// Only its source takes from a share, and no flood gets more than the limit.
#[test]
fn who_was_there_before_a_flood_goes_on_in_each_kind() {
    for reason in PuntReason::ALL {
        for source in [Claim::Anywhere, Claim::Nearby] {
            let limits = PuntLimits::default();
            let mut gate = Gate::new(&limits);
            let frame = honest(reason);
            let start_ms = acquainted(&mut gate, &frame);
            let outcome = play(&mut gate, start_ms, (&frame, source), (&frame, 1_000));
            let what = format!("{} {source:?} {outcome:?}", reason.name());
            assert_eq!(outcome.honest, (3, 3), "{what}");
            let limit = limits.of(reason);
            let at_most = u64::from(limit.burst) + u64::from(limit.per_second) * FLOOD_MS / 1_000;
            assert!(outcome.flood + 3 <= at_most, "{what}");
        }
    }
}

#[test]
fn who_comes_during_a_flood_from_one_place_is_not_hindered() {
    for reason in PuntReason::ALL {
        let mut gate = Gate::new(&PuntLimits::default());
        let frame = honest(reason);
        let outcome = play(&mut gate, 0, (&frame, Claim::One), (&frame, 1_000));
        assert_eq!(outcome.honest, (3, 3), "{} {outcome:?}", reason.name());
    }
}

/// SYNs, and any other kind, take nothing from an existing session.
#[test]
fn a_kind_takes_nothing_from_another() {
    let session = honest(PuntReason::Bgp);
    for reason in PuntReason::ALL.into_iter().filter(|reason| *reason != PuntReason::Bgp) {
        let mut gate = Gate::new(&PuntLimits::default());
        let outcome = play(&mut gate, 0, (&honest(reason), Claim::Anywhere), (&session, 10));
        assert_eq!(outcome.honest, (300, 300), "{} {outcome:?}", reason.name());
    }
}

#[test]
fn a_peer_that_comes_during_a_flood_is_not_hindered() {
    for reason in PuntReason::ALL {
        // ARP names the peer's address in its payload.
        let mut frame = honest(reason);
        if reason == PuntReason::Neighbour {
            frame[ARP_SENDER].copy_from_slice(&[203, 0, 113, 7]);
        }
        let mut gate = Gate::new(&peers(false));
        let outcome = play(&mut gate, 0, (&honest(reason), Claim::Anywhere), (&frame, 10));
        assert_eq!(outcome.honest, (300, 300), "{} {outcome:?}", reason.name());
    }
}

/// A flood with a peer's own address, and a TTL as from beyond a router.
#[test]
fn nobody_far_away_takes_from_an_adjacent_peer() {
    let segment = |ttl| to_host(tcp().tcp_flags(ACK).ttl(ttl), HONEST, [4_000, 179]);
    let mut gate = Gate::new(&peers(true));
    for number in 0..100_000 {
        let forged = [segment(64), segment(254), honest(PuntReason::BgpSyn)];
        for frame in forged {
            assert_eq!(gate.judge(&frame, number * MS / 50).1, Verdict::Forwarded);
        }
        let ping = gate.judge(&honest(PuntReason::Icmp), number * MS / 50).1;
        assert_ne!(ping, Verdict::Passes { spare_count: 0 }, "as anybody's");
    }
    let now_ns = 2_000 * MS;
    assert_eq!(gate.judge(&segment(255), now_ns).1, Verdict::Passes { spare_count: 0 });
    let near = from(echo_request(1, 1).ttl(255), HONEST);
    assert_eq!(gate.judge(&near, now_ns).1, Verdict::Passes { spare_count: 0 });
    // Without `gtsm`, packets that claim to be the peer take from its budget, but from no other.
    let mut gate = Gate::new(&peers(false));
    let all = (0..50_000).filter(|_| gate.judge(&segment(64), now_ns).1 != Verdict::Limited);
    assert_eq!(all.count(), 10_000);
    let other = to_host(tcp().tcp_flags(ACK), "198.51.100.1", [4_000, 179]);
    assert!(matches!(gate.judge(&other, now_ns).1, Verdict::Passes { .. }));
}

#[test]
fn of_frames_that_are_left_those_get_more_that_matter_more() {
    let limit = PuntLimit { per_second: 10_000, burst: 512 };
    let mut gate = Gate::new(&PuntLimits::all(limit).with_peers(peers(false).peers().to_vec()));
    let mut spare = |frame: &[u8]| {
        // The first passes by its source's share, the second by the rest.
        [(); 2].map(|()| match gate.judge(frame, 0).1 {
            Verdict::Passes { spare_count } => spare_count,
            verdict => panic!("{verdict:?}"),
        })
    };
    let other = |packet, to_port| to_host(packet, "198.51.100.1", [4_000, to_port]);
    assert_eq!(spare(&honest(PuntReason::Bgp)), [0, 0]);
    assert_eq!(spare(&other(tcp().tcp_flags(ACK), 179)), [32, 64]);
    assert_eq!(spare(&other(tcp().tcp_flags(ACK), 22)), [96, 128]);
}
