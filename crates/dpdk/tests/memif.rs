//! Two ports joined by shared memory (net_memif): packets arrive as sent, and both ports still have
//! their counts after their peer has gone.

use crate::common::{eal, frame, packet, start, unique};
use hotloop_dpdk::{Mempool, MempoolConfig, Port, PortConfig};
use hotloop_stage::{Burst, Device, Sink, Source};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time limit for the two ends to notice each other.
const PATIENCE: Duration = Duration::from_secs(10);

fn wait_until(happened: impl Fn() -> bool, what: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !happened() {
        assert!(Instant::now() < deadline, "not noticed: {what}");
        std::thread::yield_now();
    }
}

fn counted(devices: &[Arc<dyn Device>]) -> (u64, u64) {
    let counters = devices[0].counters();
    (counters.received, counters.sent)
}

#[test]
fn what_passed_is_still_known_when_the_peer_has_gone() {
    let folder = tempfile::tempdir().unwrap();
    let end = |role: &str| {
        let socket = folder.path().join("memif.sock");
        format!(",role={role},id=0,socket={},socket-abstract=no", socket.display())
    };
    let open = |role: &str| {
        let device = format!("{}{}", unique("net_memif"), end(role));
        // SAFETY: 1. This test has both ends. While the client stops, the server's queues are held
        // but not polled. 2. Only the driver writes to the memory.
        unsafe { Port::open_trusting_peer(eal(), &device, PortConfig::default()) }.unwrap()
    };
    let (server, client) = (open("server"), open("client"));
    let ((mut rx, unsent), (unread, mut tx)) = (start(&server), start(&client));
    for port in [&server, &client] {
        wait_until(|| port.link().unwrap().up, "the link is up");
    }

    let pool = Mempool::new(eal(), &MempoolConfig::default()).unwrap();
    let frames: Vec<_> = (0..60).map(|n| frame(n, 60 + n)).collect();
    let mut burst = Burst::new();
    burst.extend(frames.iter().map(|bytes| packet(&pool, bytes)));
    assert_eq!(tx.send(&mut burst), 60);
    while burst.len() < 60 {
        rx.poll(&mut burst);
    }
    let received: Vec<_> = burst.as_slice().iter().map(crate::common::bytes).collect();
    assert_eq!(received, frames);

    let (sender, receiver) = (tx.devices(), rx.devices());
    assert_eq!(counted(&sender), (0, 60));
    drop((unread, tx));
    client.stop().unwrap();
    // The driver's own counters return to 0, on a thread of its own.
    let forgets = ("rx_good_packets".to_owned(), 0);
    wait_until(|| server.xstats().unwrap().contains(&forgets), "the peer has gone");
    assert_eq!(counted(&sender), (0, 60));
    assert_eq!(counted(&receiver), (60, 0));
    burst.clear();
    drop((rx, unsent));
    server.stop().unwrap();
    assert_eq!(counted(&receiver), (60, 0));
    assert!(pool.report().is_whole());
}

#[test]
fn a_peer_is_trusted_only_where_that_is_said() {
    for device in ["net_memif0", "net_memif0,role=client,id=0,socket=/tmp/none.sock"] {
        let message = Port::open(eal(), device).unwrap_err().to_string();
        for part in ["a peer that disconnects", "--trust-memif-peer", "open_trusting_peer"] {
            assert!(message.contains(part), "{part:?} is not in: {message}");
        }
    }
}
