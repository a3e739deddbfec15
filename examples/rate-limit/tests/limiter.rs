//! The stage alone, on plain memory.

use hotloop::packet::build::{PacketBuilder, arp_request};
use hotloop::prelude::*;
use hotloop::stage::TokenRate;
use rate_limit::{LimitDrop, Limiter, Limits};
use std::time::Duration;

const LIMITS: Limits = Limits { rate: TokenRate::per_second(100, 5), sources_max: 50 };

fn limiter() -> Limiter {
    Limiter::new(&Core::new(0, 1), LIMITS).unwrap()
}

fn from(source: &str) -> PacketBuilder {
    udp().from(source).to(if source.starts_with('[') { "[2001:db8::9]:9" } else { "192.0.2.1:9" })
}

#[test]
fn a_burst_passes_and_then_one_packet_for_each_token() {
    let mut bench = bench_burst(limiter());
    let out = bench.feed(vec![from("10.0.0.1:1"); 20]);
    assert_eq!((out.packets().len(), out.dropped(LimitDrop::OverRate)), (5, 15));
    for _ in 0..3 {
        bench.advance(Duration::from_millis(10));
        assert_eq!(bench.feed(vec![from("10.0.0.1:1"); 3]).packets().len(), 1);
    }
    bench.advance(Duration::from_secs(3600));
    assert_eq!(bench.feed(vec![from("10.0.0.1:1"); 20]).packets().len(), 5);
}

#[test]
fn each_source_has_a_bucket_whatever_its_ports_and_an_ipv6_source_is_a_64() {
    let mut bench = bench_burst(limiter());
    let sources = ["10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1", "[2001:db8::1]:1", "[2001:db8::2]:1"];
    let frames = sources.iter().flat_map(|source| vec![from(source); 5]);
    let out = bench.feed(frames.collect::<Vec<_>>());
    assert_eq!((out.packets().len(), out.dropped(LimitDrop::OverRate)), (15, 10));
}

#[test]
fn what_carries_no_ip_passes() {
    let request = arp_request([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let out = bench_burst(limiter()).feed(vec![request; 20]);
    assert_eq!(out.packets().len(), 20);
}

#[test]
fn a_source_without_room_is_dropped_until_another_is_silent() {
    let mut bench = bench_burst(limiter());
    let sources = |range: std::ops::Range<u8>| range.map(|it| from(&format!("10.0.0.{it}:1")));
    let out = bench.feed(sources(0..60).collect::<Vec<_>>());
    assert_eq!((out.packets().len(), out.dropped(LimitDrop::TableFull)), (50, 10));
    bench.advance(Duration::from_secs(1));
    (0..20).for_each(|_| drop(bench.tick::<hotloop::packet::memory::MemPacket>()));
    assert_eq!(bench.feed(sources(50..60).collect::<Vec<_>>()).packets().len(), 10);
}
