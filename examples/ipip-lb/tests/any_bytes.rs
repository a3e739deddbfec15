//! Frames of any bytes through the whole balancer: no panic, every frame accounted for, every drop
//! reason covered.

use crate::bench::{CONFIG, egresses};
use hotloop::engine::{Deployment, Engine, outlets};
use hotloop::packet::PacketBuf;
use hotloop::packet::build::{
    PacketBuilder, arp_request, echo_request, protocol, tcp, udp, unreachable,
};
use hotloop::packet::ethernet;
use hotloop::packet::memory::MemPacket;
use hotloop::packet::prefix::Prefix;
use hotloop::packet::tcp::flags::SYN;
use hotloop::packet::{ipip, ipv4};
use hotloop::stage::{Burst, DropReason, Error, Sink, Source};
use hotloop::testing::Rng;
use hotloop_balancer::balance::{BalanceDrop, Route};
use hotloop_balancer::services::Standing;
use ipip_lb::config::Config;
use ipip_lb::network_function::NetworkFunction;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const FRAME_BYTES_MAX: u64 = 9_000;

/// Reasons that don't occur with frames only: buffers in plain memory never run out, no backend is
/// taken out, the ports have no properties, prefixes of clients have no limit, and there are no
/// probes.
const NOT_HERE: [&str; 7] = [
    "no_mbuf",
    "flushed",
    "not_for_us",
    "tunnel_from_clients",
    "source_limit",
    "probe_reply",
    "probe_reply_lost",
];

/// Reasons that occur only with [`FIRST_AID`].
const OF_FIRST_AID: [&str; 2] = ["blocked", "service_limit"];

/// A service with a limit. The blocked prefix is [`BLOCKED`].
const FIRST_AID: &str = r#"
[[service]]
name = "limited"
address = "203.0.113.60"
protocol = "tcp"
ports = "80"
new_connections_per_second_max = 1
backend = [{ address = "10.0.0.1" }]
"#;

const BLOCKED: &str = "198.51.99.0/24";

/// Valid frames of every kind, the base of each test frame.
struct Templates {
    /// Frames to services, from clients and from tunnels.
    served: Vec<Vec<u8>>,
    /// Frames that must be dropped, each for some reason.
    dropped: Vec<Vec<u8>>,
}

impl Templates {
    fn new(has_first_aid: bool) -> Self {
        let client = "198.51.100.7:4000";
        let ping = || echo_request(1, 2).from("198.51.100.7");
        let web = || tcp().from(client).to("203.0.113.10:80");
        let web6 = || udp().from("[2001:db8:c::7]:4000").to("[2001:db8:f::10]:53");
        let reply = || tcp().from("203.0.113.10:80").to(client);
        let mut served = vec![
            web().vlan(7).build(),
            web().qinq(7, 8).ipv4_options(&[1, 1, 1, 0]).build(),
            web().tunnelled("10.9.9.9", "192.0.2.1").build(),
            web6().tunnelled("10.0.0.1", "192.0.2.1").build(),
            web6().tunnelled("2001:db8:b::1", "2001:db8::1").build(),
            reply().tunnelled("10.0.0.1", "192.0.2.1").build(),
            reply().tunnelled("2001:db8:b::1", "2001:db8::1").vlan(9).build(),
            unreachable(&reply().payload([0; 800]).build()).build(),
            ping().to("203.0.113.30").build(),
            protocol(50).from("198.51.100.7").to("203.0.113.30").payload([9; 64]).build(),
            web6().extension(0, &[0; 14]).extension(60, &[0; 6]).build(),
        ];
        served.extend(
            udp().from(client).to("203.0.113.10:53").payload([1; 3000]).build_fragments(1400),
        );
        // In fragments.
        served.push(web().payload(vec![3; 8_800]).build());
        served.push(web().payload(vec![0; 1_441]).build());
        for bytes in [0, 1, 18, 64, 512, 1440] {
            served.push(web().payload(vec![3; bytes]).build());
            served.push(web6().payload(vec![3; bytes.min(1412)]).build());
        }
        if has_first_aid {
            served.push(tcp().from(client).to("203.0.113.60:80").tcp_flags(SYN).build());
        }
        let mut bad_sum = reply().tunnelled("10.0.0.1", "192.0.2.1").build();
        bad_sum[24] ^= 0x55;
        let mut dropped = vec![
            arp_request([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
            web().build()[..50].to_vec(),
            reply().tunnelled("10.7.7.7", "192.0.2.1").build(),
            bad_sum,
            congested(reply()),
            tcp().from(client).to("203.0.113.10:81").build(),
            tcp().from(client).to("203.0.113.20:80").build(),
            web().ttl(1).build(),
            web().payload(vec![0; 8_800]).dont_fragment().build(),
            web().payload(vec![0; 1_441]).dont_fragment().build(),
            web6().payload(vec![0; 1_413]).build(),
            web().from("192.0.2.1:9").build(),
            web().from("127.0.0.1:9").build(),
            reply().to("255.255.255.255:9").tunnelled("10.0.0.1", "192.0.2.1").build(),
            web6().extension(60, &[4, 1, 0, 1, 1, 0]).build(),
            fragment(protocol(4).from("10.0.0.1").to("192.0.2.1"), 0),
            fragment(udp().from(client).to("203.0.113.10:53").identification(7), 1),
        ];
        if has_first_aid {
            dropped.push(web().from("198.51.99.7:9").build());
        }
        Self { served, dropped }
    }

    fn frame(&self, rng: &mut Rng) -> Vec<u8> {
        match rng.below(100) {
            0..55 => {
                let frame = any_of(rng, &self.served);
                from_another_client(rng, frame)
            }
            55..70 => any_of(rng, &self.dropped),
            70..88 => {
                let frame = any_of(rng, &self.served);
                mutated(rng, frame)
            }
            88..92 => {
                let frame = any_of(rng, &self.dropped);
                mutated(rng, frame)
            }
            _ => {
                let len = rng.below(FRAME_BYTES_MAX + 1);
                let len = if rng.below(4) == 0 { len } else { len % 120 };
                (0..len).map(|_| rng.next_u64() as u8).collect()
            }
        }
    }
}

fn any_of(rng: &mut Rng, frames: &[Vec<u8>]) -> Vec<u8> {
    frames[rng.index(frames.len())].clone()
}

/// One of a packet's fragments, without the others.
fn fragment(packet: PacketBuilder, index: usize) -> Vec<u8> {
    packet.payload([0x45; 2000]).build_fragments(1400).swap_remove(index)
}

/// A tunnel packet that met congestion, with an inner packet that can't show it.
fn congested(inner: PacketBuilder) -> Vec<u8> {
    // The outer ECT(1) becomes CE: one bit, and the header's checksum must follow.
    let mut frame = inner.tunnelled("10.0.0.1", "192.0.2.1").build();
    let sum = u16::from_be_bytes([frame[24], frame[25]]);
    let marked = frame[15] | 3;
    let sum = hotloop::packet::checksum::update(
        sum,
        u16::from_be_bytes([frame[14], frame[15]]),
        u16::from_be_bytes([frame[14], marked]),
    );
    frame[15] = marked;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Changes the bytes where an untagged frame has the end of its IPv4 source and the source port,
/// and the header's checksum.
fn from_another_client(rng: &mut Rng, mut frame: Vec<u8>) -> Vec<u8> {
    if frame.len() > 36 && frame[12..16] == [8, 0, 0x45, 0] && frame[23] != 4 && frame[23] != 41 {
        frame[29] = rng.next_u64() as u8;
        frame[35] = rng.next_u64() as u8;
        ipv4::fill_checksum(&mut frame[14..34]).expect("a header without options");
    }
    frame
}

/// Changes some bytes of the headers, and sometimes the length.
fn mutated(rng: &mut Rng, mut frame: Vec<u8>) -> Vec<u8> {
    for _ in 0..=rng.below(4) {
        let at = rng.index(frame.len().clamp(1, 96));
        if let Some(byte) = frame.get_mut(at) {
            *byte =
                if rng.below(2) == 0 { rng.next_u64() as u8 } else { *byte ^ (1 << rng.below(8)) };
        }
    }
    match rng.below(8) {
        0 => frame.truncate(rng.index(frame.len() + 1)),
        1 => frame.resize(frame.len() + rng.index(64), rng.next_u64() as u8),
        _ => {}
    }
    frame
}

struct AnyBytes {
    templates: Templates,
    rng: Rng,
    left: u64,
}

impl Source for AnyBytes {
    type Item = MemPacket;

    fn poll(&mut self, burst: &mut Burst<MemPacket>) -> usize {
        let count = (burst.room() as u64).min(self.left);
        self.left -= count;
        for _ in 0..count {
            let frame = self.templates.frame(&mut self.rng);
            let headroom = if self.rng.below(50) == 0 { self.rng.index(40) } else { 128 };
            burst.push(MemPacket::with_room(&frame, headroom, 0));
        }
        count as usize
    }

    fn lossless(&self) -> bool {
        true
    }

    fn finished(&self) -> bool {
        self.left == 0
    }
}

/// Counts packets that leave in a tunnel from the balancer, and packets that leave for a client.
#[derive(Default)]
struct Left {
    wrapped: AtomicU64,
    bare: AtomicU64,
}

struct Check<'a>(&'a Left);

impl Sink for Check<'_> {
    type Item = MemPacket;

    fn send(&mut self, burst: &mut Burst<MemPacket>) -> usize {
        let count = burst.len();
        while let Some(mut packet) = burst.pop() {
            assert_eq!(packet.data()[6..12], crate::bench::OWN_MAC);
            if packet.data()[..6] == crate::bench::CLIENT_MAC {
                self.0.bare.fetch_add(1, Relaxed);
                continue;
            }
            assert_eq!(packet.data()[..6], crate::bench::NEXT_HOP_MAC);
            let l3_offset = ethernet::l3_offset(packet.data()).unwrap();
            assert!(packet.len_bytes() - l3_offset <= 1500);
            // Checks the outer header, its checksum, and that the inner packet lies within.
            let tunnel = ipip::decapsulate(&mut packet).unwrap();
            assert!(["192.0.2.1", "2001:db8::1"].contains(&tunnel.source.to_string().as_str()));
            self.0.wrapped.fetch_add(1, Relaxed);
        }
        count
    }
}

fn run(deployment: Deployment, frame_count: u64, ring_capacity: usize, has_first_aid: bool) {
    let more = if has_first_aid { FIRST_AID } else { "" };
    let mut config = Config::parse("lb.toml", &format!("{CONFIG}{more}")).unwrap();
    config.engine.workers = deployment.cores_in(1);
    let (function, mut handles) = NetworkFunction::new(&config, egresses()).unwrap();
    if has_first_aid {
        let blocked = Some(Arc::new([BLOCKED.parse::<Prefix>().unwrap()].into_iter().collect()));
        let standing = Standing { blocked, ..Standing::default() };
        let table = handles.builder.build(&config.spec(), &standing).unwrap();
        handles.publisher.publish(Arc::new(table));
    }
    let receivers = deployment.cores_in(0) as u64;
    let left = Left::default();
    let graph = function.graph(
        |core| {
            let (templates, rng) =
                (Templates::new(has_first_aid), Rng::seeded(2026 + core.index() as u64));
            Ok::<_, Error>(AnyBytes { templates, rng, left: frame_count / receivers })
        },
        |_| Ok::<_, Error>(outlets::<Route, _>([(Route(0), Check(&left))])),
    );
    let plan = Engine::plan(graph, deployment).unwrap().ring_capacity(ring_capacity).unwrap();
    let report = plan.run(|control| _ = control.wait_until_finished()).unwrap();

    assert!(report.is_whole(), "{report}");
    assert!(!report.dropped.contains_key("ring_full"), "{report}");
    assert_eq!(report.received, frame_count, "{report}");
    assert_eq!(report.received + report.created, report.sent + report.dropped_sum(), "{report}");
    let (wrapped, bare) = (left.wrapped.into_inner(), left.bare.into_inner());
    assert_eq!(wrapped + bare, report.sent, "{report}");
    assert!(wrapped * 10 >= frame_count * 3, "{wrapped} of {frame_count} reached a backend");
    let is_here = |reason: &str| {
        !NOT_HERE.contains(&reason) && (has_first_aid || !OF_FIRST_AID.contains(&reason))
    };
    for reason in BalanceDrop::NAMES.iter().filter(|reason| is_here(reason)) {
        let count = report.dropped.get(*reason).copied().unwrap_or(0);
        assert!(count >= frame_count / 1000, "{reason}: {count}\n{report}");
    }
    let summary = function.summary().to_json();
    let count = |key: &str| summary[key].as_u64().unwrap();
    let to_backends = summary["backends"].as_array().unwrap().iter();
    let to_backends: u64 = to_backends.map(|it| it["packets"].as_u64().unwrap()).sum();
    assert_eq!(to_backends, wrapped);
    // Each answered packet was dropped, and its answer created; the other created packets are
    // fragments of longer ones.
    assert_eq!(count("to_clients") + count("answered"), bare);
    let answered = count("answered");
    assert!(report.created > answered && answered > frame_count / 1000, "{answered}: {report}");
}

#[test]
fn any_bytes_run_to_completion() {
    run(Deployment::run_to_completion(2), 1_000_000, 4096, false);
}

/// The sources wait if rings of eight packets are full, so that none is dropped there.
#[test]
fn any_bytes_through_a_pipeline_with_short_rings() {
    run(Deployment::pipeline([2, 2]), 200_000, 8, true);
}
