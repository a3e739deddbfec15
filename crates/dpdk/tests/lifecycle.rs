//! Devices that come and go, many times and from many threads.

use crate::common::{
    LIMITS, core, eal, open, open_with, packet, read_pcap, send_all, start, unique, write_pcap,
};
use hotloop_dpdk::{Error, MempoolConfig, Port, PortConfig};
use hotloop_packet::PacketBuf;
use hotloop_stage::{Burst, Limits, Sink, Source};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::thread;

#[test]
fn devices_are_plugged_in_and_out_by_many_threads_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.pcap");
    write_pcap(&path, 0, &vec![vec![1; 60]; 10]);
    let pcap = format!(",rx_pcap={}", path.display());
    let strings = ["", "", &pcap];
    let barrier = Arc::new(Barrier::new(8));
    thread::scope(|scope| {
        for number in 0..8 {
            let barrier = Arc::clone(&barrier);
            scope.spawn(move || {
                barrier.wait();
                for round in 0..30 {
                    let kind = (number + round) % 3;
                    let port = open(["net_null", "net_ring", "net_pcap"][kind], strings[kind]);
                    let (mut rx, mut tx) = start(&port);
                    let mut burst = Burst::new();
                    rx.poll(&mut burst);
                    if burst.is_empty() {
                        burst.push(packet(&port.mempool().unwrap(), &[2; 60]));
                    }
                    let count = burst.len();
                    assert_eq!(tx.send(&mut burst), count);
                    assert_eq!(port.stats().unwrap().sent, count as u64);
                    assert!(port.link().is_ok() && port.xstats().is_ok());
                }
            });
        }
    });
}

#[test]
fn one_of_many_threads_gets_a_name() {
    let name = unique("net_null");
    for _ in 0..20 {
        let (opened, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let barrier = Barrier::new(4);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    barrier.wait();
                    let port = Port::open(eal(), &name);
                    match &port {
                        Ok(_) => opened.fetch_add(1, Relaxed),
                        Err(Error::DeviceInUse { .. }) => refused.fetch_add(1, Relaxed),
                        Err(error) => panic!("{error}"),
                    };
                    barrier.wait();
                });
            }
        });
        assert_eq!((opened.into_inner(), refused.into_inner()), (1, 3));
    }
}

#[test]
fn a_thousand_stops_and_starts_with_packets_left_in_rings() {
    let ring = open("net_ring", "");
    let null = open("net_null", "");
    let (mut pools, mut refilled) = (std::collections::BTreeSet::new(), 0);
    for round in 0..1000_u64 {
        let (mut rx, mut tx) = start(&ring);
        let mut other = null.tx_queue(&core()).unwrap();
        other.start(&LIMITS).unwrap();
        let pool = ring.mempool().unwrap();
        pools.insert(pool.as_ptr() as usize);
        // 200 into the ring, at most 64 out of it: the rest stays there.
        send_all(&mut tx, (0..200).map(|_| packet(&pool, &[round as u8; 60])));
        let mut burst = Burst::new();
        refilled += rx.poll(&mut burst);
        assert!(!burst.is_empty());
        other.send(&mut burst);
        drop((rx, tx, other, burst));
        ring.stop().unwrap();
        null.stop().unwrap();
        assert_eq!(ring.stats().unwrap().sent, 200);
        assert!(pool.report().is_whole(), "round {round}: {}", pool.report());
    }
    assert!(refilled >= 1000);
    // Other tests of this process park pools and take them, too.
    assert!(pools.len() <= 32, "a stopped port's pool is used again: {}", pools.len());
}

#[test]
fn a_name_is_free_again_once_its_port_is_dropped() {
    for driver in ["net_null", "net_ring"] {
        let name = unique(driver);
        for _ in 0..50 {
            let port = Port::open(eal(), &name).unwrap();
            let _queues = start(&port);
        }
    }
}

#[test]
fn a_late_packet_of_a_closed_port_is_no_packet_of_the_next_one() {
    let port = open("net_null", "");
    let (mut rx, tx) = start(&port);
    let mut burst = Burst::new();
    rx.poll(&mut burst);
    let late = burst.pop().unwrap();
    drop((rx, tx, burst, port));
    // The next port gets the number, and a pool of its own, since one packet of the first is still
    // out.
    let next = open("net_null", "");
    let (_rx, mut tx) = start(&next);
    assert!(late.ingress().is_some());
    let mut burst = Burst::new();
    burst.push(late);
    assert_eq!(tx.send(&mut burst), 1);
    assert!(next.mempool().unwrap().report().is_whole());
}

#[test]
fn what_was_sent_to_a_file_is_complete_once_the_port_has_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.pcap");
    let source = open("net_null", "");
    let (mut rx, _tx) = start(&source);
    let port = open("net_pcap", &format!(",tx_pcap={}", path.display()));
    for rounds in [3, 1] {
        let mut tx = port.tx_queue(&core()).unwrap();
        tx.start(&LIMITS).unwrap();
        let mut burst = Burst::new();
        for _ in 0..rounds {
            rx.poll(&mut burst);
            assert_eq!(tx.send(&mut burst), 64);
        }
        drop(tx);
        port.stop().unwrap();
        // Each start writes the file anew.
        assert_eq!(read_pcap(&path).len(), 64 * rounds);
        assert!(port.mempool().is_none(), "a port that only sends has no pool");
    }
}

#[test]
fn the_caches_of_a_port_s_pool_fit_the_deployment() {
    let cache_count = |is_pipeline, config| {
        let port = open_with("net_null", "", config);
        let mut rx = port.rx_queue(&core()).unwrap();
        rx.start(&Limits { is_pipeline, ..LIMITS }).unwrap();
        port.mempool().unwrap().config().cache_count
    };
    let by_default =
        [false, true].map(|is_pipeline| cache_count(is_pipeline, PortConfig::default()));
    assert_eq!(by_default, [false, true].map(MempoolConfig::cache_count_for));
    assert_eq!(by_default[0], 256);
    let asked = PortConfig { cache_count: Some(32), ..PortConfig::default() };
    assert_eq!(cache_count(true, asked), 32);
}
