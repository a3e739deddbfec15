//! Packets with lengths that do not agree: packets from drivers that may get them wrong are
//! checked.

use crate::common::{bytes, frame, open, open_with, receive_all, start, write_pcap};
use hotloop_dpdk::{Mempool, MempoolConfig, Port, PortConfig, PortStats, RxQueue};
use hotloop_packet::PacketBuf;
use hotloop_stage::{Device, Source};
use std::sync::Arc;

/// A port that reads frames of these lengths from a file, its queue, and the file's folder.
fn reading(lengths: &[usize], config: PortConfig) -> (Port, RxQueue, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.pcap");
    let frames: Vec<_> = (0..).zip(lengths).map(|(seed, len)| frame(seed, *len)).collect();
    write_pcap(&path, 0, &frames);
    let port = open_with("net_pcap", &format!(",rx_pcap={}", path.display()), config);
    let (rx, _) = start(&port);
    (port, rx, folder)
}

/// Lengths of records for which net_pcap's head claims more than its chain holds, in DPDK 22.11,
/// and similar lengths for which it makes whole chains. Later versions need not agree.
const LONG: [usize; 8] = [67_584, 68_536, 131_071, 131_072, 200_000, 65_536, 65_600, 67_583];

/// Receives everything, and checks that each record was received whole or counted.
fn check(lengths: &[usize]) -> PortStats {
    let (port, mut rx, _folder) = reading(lengths, PortConfig::default());
    let device: Arc<dyn Device> = rx.devices().remove(0);
    let packets = receive_all(&mut rx);
    let mut frames = (0..).zip(lengths).map(|(seed, len)| frame(seed, *len));
    for packet in &packets {
        let bytes = bytes(packet);
        assert_eq!(
            (packet.len_bytes(), packet.segments().count()),
            (bytes.len(), packet.segment_count())
        );
        assert!(frames.any(|frame| frame == bytes), "{} bytes of no record", bytes.len());
    }
    let received = packets.len() as u64;
    drop(packets);
    let (stats, counters) = (port.stats().unwrap(), device.counters());
    assert_eq!(stats.received, received);
    assert_eq!(
        stats.received + stats.rx_malformed + stats.ierrors,
        lengths.len() as u64,
        "{stats:?}"
    );
    assert_eq!((counters.received, counters.rx_malformed), (received, stats.rx_malformed));
    drop(rx);
    port.stop().unwrap();
    assert_eq!(port.stats().unwrap(), stats);
    device.check_pools().unwrap();
    stats
}

#[test]
fn a_record_is_received_whole_or_dropped_and_counted() {
    for len in LONG {
        let stats = check(&[len, 60, 65_535, len]);
        println!("{len} bytes: {} of 4 received, {} malformed", stats.received, stats.rx_malformed);
        assert!(stats.received >= 2);
    }
}

#[test]
fn bursts_of_nothing_else_do_not_end_a_capture() {
    let lengths: Vec<_> = LONG[..5].iter().copied().cycle().take(200).chain([60; 100]).collect();
    assert!(check(&lengths).received >= 100);
}

#[test]
fn lengths_of_all_kinds_pass_in_buffers_of_all_kinds() {
    // Also lengths that exceed a buffer when their bits are combined.
    let lengths = [1, 60, 64, 511, 512, 1000, 1023, 1024, 1025, 1500, 2047, 2048, 2049, 9000];
    for data_room_bytes in [200, 1128, 1151, 1152, 2176, 16_000] {
        let config = PortConfig { data_room_bytes, ..PortConfig::default() };
        let (port, mut rx, _folder) = reading(&lengths, config);
        let packets = receive_all(&mut rx);
        for (seed, (packet, len)) in (0..).zip(packets.iter().zip(lengths)) {
            assert!(bytes(packet) == frame(seed, len), "{len} bytes in rooms of {data_room_bytes}");
        }
        let stats = port.stats().unwrap();
        assert_eq!((packets.len(), stats.rx_malformed), (lengths.len(), 0));
    }
}

#[test]
fn a_copy_of_more_segments_than_can_be_counted_is_refused() {
    // Copies have one byte in each buffer, after the headroom; the packet fills a headroom, too.
    let pool =
        MempoolConfig { mbuf_count: (1 << 18) - 1, data_room_bytes: 129, ..Default::default() };
    let pool = Mempool::new(crate::common::eal(), &pool).unwrap();
    let config = PortConfig { mempool: Some(pool.clone()), ..PortConfig::default() };
    let (port, mut rx, _folder) = reading(&[65_535], config);
    let mut packet = receive_all(&mut rx).remove(0);
    assert_eq!(packet.copied(0, 65_535).unwrap().segment_count(), 65_535);

    packet.prepend(128).unwrap();
    assert!(packet.copied(0, 65_536).is_none());
    let mut shared = packet.into_shared();
    let other = shared.clone();
    assert!(shared.to_mut().is_err());
    assert_eq!(shared.len_bytes(), 65_535 + 128);
    drop((shared, other, rx));
    port.stop().unwrap();
    assert!(pool.report().is_whole(), "{}", pool.report());
}

#[test]
fn mbufs_handed_on_by_net_ring_are_valid_as_they_were() {
    let port = open("net_ring", "");
    let (mut rx, mut tx) = start(&port);
    let pool = port.mempool().unwrap();
    crate::common::send_all(
        &mut tx,
        [crate::common::packet(&pool, &frame(1, 2048)), pool.alloc().unwrap()],
    );
    let mut burst = hotloop_stage::Burst::new();
    assert_eq!(rx.poll(&mut burst), 2);
    assert_eq!(port.stats().unwrap().rx_malformed, 0);
}
