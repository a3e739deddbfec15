//! Packets through virtual devices.

use crate::common::{
    LIMITS, bytes, core, frame, open, open_with, packet, read_pcap, receive_all, send_all, start,
    write_pcap,
};
use hotloop_dpdk::{PortConfig, RssConfig, RssFields, lcore};
use hotloop_packet::PacketBuf;
use hotloop_stage::{Burst, Core, Sink, Source};
use std::sync::Arc;

#[test]
fn net_null_forwards_and_both_ports_count() {
    let (left, right) = (open("net_null", ",size=60"), open("net_null", ",size=60"));
    let ((mut rx, _tx), (_rx, mut tx)) = (start(&left), start(&right));
    let mut burst = Burst::new();
    for _ in 0..100 {
        assert_eq!(rx.poll(&mut burst), 64);
        assert!(burst.as_slice().iter().all(|mbuf| mbuf.data().len() == 60));
        assert_eq!(tx.send(&mut burst), 64);
        assert!(burst.is_empty());
    }
    assert_eq!(left.stats().unwrap().received, 6400);
    assert_eq!(right.stats().unwrap().sent, 6400);
    assert!(right.xstats().unwrap().contains(&("tx_good_packets".to_owned(), 6400)));
}

#[test]
fn a_poll_fills_no_more_than_the_room() {
    let port = open("net_null", "");
    let (mut rx, _tx) = start(&port);
    let mut burst = Burst::new();
    burst.set_limit(5);
    assert_eq!(rx.poll(&mut burst), 5);
    assert_eq!((rx.poll(&mut burst), burst.len()), (0, 5));
    burst.pop();
    assert_eq!((rx.poll(&mut burst), burst.len()), (1, 5));
}

#[test]
fn a_capture_comes_out_as_it_went_in_with_its_times() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.pcap"), folder.path().join("out.pcap"));
    let frames = (0..300).map(|n| frame(n, 60 + n * 13)).collect::<Vec<_>>();
    write_pcap(&input, 1_700_000_000_000_001, &frames);
    let arguments = format!(",rx_pcap={},tx_pcap={}", input.display(), output.display());
    let port = open("net_pcap", &arguments);
    let (mut rx, mut tx) = start(&port);
    assert!(rx.lossless() && !rx.finished());

    let packets = receive_all(&mut rx);
    assert_eq!(packets.len(), 300);
    for (index, (mbuf, frame)) in packets.iter().zip(&frames).enumerate() {
        assert_eq!(bytes(mbuf), *frame);
        assert_eq!(mbuf.len_bytes(), frame.len());
        assert_eq!(mbuf.segment_count(), frame.len().div_ceil(2048).max(1));
        assert_eq!(mbuf.timestamp_ns(), Some((1_700_000_000_000_001 + 1000 * index as u64) * 1000));
    }
    send_all(&mut tx, packets);
    drop((rx, tx));
    port.stop().unwrap();
    assert_eq!(read_pcap(&output), frames);
    let stats = port.stats().unwrap();
    assert_eq!((stats.received, stats.sent, stats.rx_nombuf), (300, 300, 0));
    let len_bytes = frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
    assert_eq!((stats.received_bytes, stats.sent_bytes), (len_bytes, len_bytes));
    assert!(port.mempool().unwrap().report().is_whole());
}

#[test]
fn an_empty_capture_ends_at_once_and_an_endless_one_never() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.pcap");
    write_pcap(&path, 0, &[]);
    let port = open("net_pcap", &format!(",rx_pcap={}", path.display()));
    let (mut rx, _tx) = start(&port);
    assert!(receive_all(&mut rx).is_empty());

    write_pcap(&path, 0, &[frame(1, 60), frame(2, 60)]);
    let port = open("net_pcap", &format!(",rx_pcap={},infinite_rx=1", path.display()));
    let mut rx = port.rx_queue(&core()).unwrap();
    rx.start(&LIMITS).unwrap();
    assert!(!rx.lossless());
    let mut burst = Burst::new();
    for _ in 0..10 {
        assert!(rx.poll(&mut burst) > 0);
        burst.clear();
    }
    assert!(!rx.finished());
    drop(rx);
    port.stop().unwrap();
    assert!(port.mempool().unwrap().report().is_whole());
}

#[test]
fn every_queue_has_its_own_file() {
    let folder = tempfile::tempdir().unwrap();
    let paths = [0, 1].map(|n| folder.path().join(format!("{n}.pcap")));
    for (n, path) in paths.iter().enumerate() {
        write_pcap(path, 0, &vec![frame(n, 100); 10 + n]);
    }
    let arguments = format!(",rx_pcap={},rx_pcap={}", paths[0].display(), paths[1].display());
    let port = open("net_pcap", &arguments);
    let mut queues = [port.rx_queue(&core()).unwrap(), port.rx_queue(&core()).unwrap()];
    for (n, rx) in queues.iter_mut().enumerate() {
        assert_eq!(usize::from(rx.index()), n);
        rx.start(&LIMITS).unwrap();
    }
    for (n, rx) in queues.iter_mut().enumerate() {
        let packets = receive_all(rx);
        assert_eq!(packets.len(), 10 + n);
        assert!(packets.iter().all(|mbuf| bytes(mbuf) == frame(n, 100)));
    }
}

#[test]
fn net_ring_hands_the_same_memory_on() {
    let port = open("net_ring", "");
    let (mut rx, mut tx) = start(&port);
    let pool = port.mempool().unwrap();
    let mut burst = Burst::new();
    for round in 0..1000 {
        assert!(pool.alloc_burst(&mut burst, 32));
        for mbuf in burst.as_mut_slice() {
            mbuf.append(64).unwrap().fill(round as u8);
            mbuf.set_metadata([round as u8; 8]);
        }
        let sent = burst.as_slice()[0].data().as_ptr();
        assert_eq!(tx.send(&mut burst), 32);
        assert_eq!(rx.poll(&mut burst), 32);
        assert_eq!(burst.as_slice()[0].data().as_ptr(), sent);
        assert!(burst.as_slice().iter().all(|mbuf| mbuf.data() == [round as u8; 64]));
        assert!(burst.as_slice().iter().all(|mbuf| mbuf.metadata() == [round as u8; 8]));
        burst.clear();
    }
    let counters = rx.devices()[0].counters();
    assert_eq!((counters.received, counters.sent), (32_000, 32_000));
}

#[test]
fn a_packet_knows_the_port_that_received_it() {
    let (first, second) = (open("net_null", ""), open("net_null", ""));
    let ring = open("net_ring", "");
    let mut queues = [&first, &second, &ring].map(|port| (start(port), port.id().unwrap()));
    let [id, other, ring_id] = [queues[0].1, queues[1].1, queues[2].1];
    assert!(id != other && other != ring_id && ring_id != id);

    let mut burst = Burst::new();
    burst.set_limit(2);
    for ((rx, _), id) in &mut queues[..2] {
        assert_eq!(rx.poll(&mut burst), 2);
        assert!(burst.as_slice().iter().all(|mbuf| mbuf.ingress() == Some(*id)));
        burst.clear();
    }
    // Packets made here have no ingress, whatever the mbuf was before; a copy has its packet's.
    let pool = first.mempool().unwrap();
    let made = packet(&pool, b"made");
    assert_eq!((made.ingress(), made.copied(0, 4).unwrap().ingress()), (None, None));
    let ((rx, _), _) = &mut queues[0];
    rx.poll(&mut burst);
    let received = burst.pop().unwrap();
    assert_eq!(received.copied(0, 14).unwrap().ingress(), Some(id));

    // A ring passes on the mbufs that another port received.
    let ((rx, tx), _) = &mut queues[2];
    burst.clear();
    burst.push(made);
    burst.push(received);
    assert_eq!(tx.send(&mut burst), 2);
    burst.set_limit(4);
    assert_eq!(rx.poll(&mut burst), 2);
    assert!(burst.as_slice().iter().all(|mbuf| mbuf.ingress() == Some(ring_id)));
}

#[test]
fn what_a_full_queue_does_not_take_stays_in_the_burst() {
    let port = open("net_ring", "");
    let (mut rx, mut tx) = start(&port);
    let pool = port.mempool().unwrap();
    let (mut burst, mut sent) = (Burst::new(), 0);
    loop {
        assert!(pool.alloc_burst(&mut burst, 64));
        for (index, mbuf) in burst.as_mut_slice().iter_mut().enumerate() {
            mbuf.append(1).unwrap()[0] = index as u8;
        }
        let taken = tx.send(&mut burst);
        sent += taken;
        if taken < 64 {
            assert_eq!(burst.len(), 64 - taken);
            assert_eq!(burst.as_slice()[0].data(), [taken as u8]);
            break;
        }
    }
    assert_eq!(sent, 1023); // net_ring's rings have 1,024 slots, one of which stays free
    assert_eq!(rx.rx_queue_count(), None); // net_ring cannot tell
    let mut received = 0;
    burst.clear();
    while rx.poll(&mut burst) > 0 {
        received += burst.len();
        burst.clear();
    }
    assert_eq!(received, 1023);
}

#[test]
fn several_queues_are_polled_by_several_threads() {
    let port = open("net_null", "");
    std::thread::scope(|scope| {
        let (sender, queues) = std::sync::mpsc::channel();
        let workers = (0..2)
            .map(|index| {
                let (port, sender) = (&port, sender.clone());
                let barrier = Arc::new(std::sync::Barrier::new(2));
                let release = Arc::clone(&barrier);
                let worker = scope.spawn(move || {
                    let core = Core::new(index, index + 1);
                    let mut rx = port.rx_queue(&core).unwrap();
                    assert_eq!(core.lcore(), lcore::current());
                    sender.send(rx.index()).unwrap();
                    barrier.wait();
                    rx.start(&LIMITS).unwrap();
                    let mut burst = Burst::new();
                    for _ in 0..1000 {
                        assert_eq!(rx.poll(&mut burst), 64);
                        burst.clear();
                    }
                    core.lcore().unwrap()
                });
                (worker, release)
            })
            .collect::<Vec<_>>();
        let mut indices = [queues.recv().unwrap(), queues.recv().unwrap()];
        indices.sort_unstable();
        assert_eq!(indices, [0, 1]);
        let lcores = workers.into_iter().map(|(worker, release)| {
            release.wait();
            worker.join().unwrap()
        });
        let lcores = lcores.collect::<Vec<_>>();
        assert_eq!(lcores.len(), 2);
    });
    port.stop().unwrap();
    assert_eq!(port.stats().unwrap().received, 128_000);
    assert!(port.mempool().unwrap().report().is_whole());
}

#[test]
fn a_device_says_what_it_is() {
    let port = open("net_null", "");
    assert_eq!(port.capabilities().driver, "net_null");
    assert_eq!(port.capabilities().rx_queue_count_max, 1024);
    assert_eq!(port.mtu().unwrap(), 1500);
    let _queues = start(&port);
    assert!(port.link().unwrap().up);
    assert_ne!(port.mac().to_string(), "00:00:00:00:00:00");

    let config = PortConfig {
        mtu: Some(1400),
        rss: RssConfig { key: Some(vec![7; 40]), fields: RssFields::IP },
        ..PortConfig::default()
    };
    let port = open_with("net_null", "", config);
    let mut queues = [port.rx_queue(&core()).unwrap(), port.rx_queue(&core()).unwrap()];
    queues[0].start(&LIMITS).unwrap();
    assert_eq!(port.mtu().unwrap(), 1400);

    // Frames of this MTU take several buffers, which net_ring supports if configured.
    let port = open_with("net_ring", "", PortConfig { mtu: Some(9000), ..PortConfig::default() });
    let _queues = start(&port);
    assert_eq!(port.mtu().unwrap(), 9000);
}

#[test]
fn a_queue_that_was_not_started_has_nothing_and_takes_nothing() {
    let (port, pool_port) = (open("net_null", ""), open("net_null", ""));
    let _queues = start(&pool_port);
    let (mut rx, mut tx) = (port.rx_queue(&core()).unwrap(), port.tx_queue(&core()).unwrap());
    let mut burst = Burst::new();
    assert_eq!(rx.poll(&mut burst), 0);
    assert_eq!(rx.rx_queue_count(), None);
    burst.push(packet(&pool_port.mempool().unwrap(), b"x"));
    assert_eq!((tx.send(&mut burst), burst.len()), (0, 1));
    // Started by its sibling, but not itself: still nothing.
    rx.start(&LIMITS).unwrap();
    assert_eq!(tx.send(&mut burst), 0);
    tx.start(&LIMITS).unwrap();
    assert_eq!(tx.send(&mut burst), 1);
}
