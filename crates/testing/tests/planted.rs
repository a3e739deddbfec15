//! Planted faults occur once, at their packet, and have no other effect.

use hotloop_stage::{Burst, Core, Device, Sink, Source};
use hotloop_testing::{
    Frame, MemoryPort, MemoryRx, MemoryTx, Plant, PlantedBurstStage, PlantedSink, PlantedSource,
    PlantedStage, PooledPacket, bench, bench_burst,
};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Each plant, the number of packets it leaves of one, and whether the pool stays whole.
const PLANTS: [(Plant<PooledPacket>, i64, bool); 3] = [
    (Plant::Lose, -1, true),
    (Plant::Forget, -1, false),
    (Plant::Double(PooledPacket::doubled), 1, false),
];

/// A port with 200 frames, and its queues.
fn port() -> (MemoryPort, MemoryRx, MemoryTx) {
    let core = Core::new(0, 1);
    let port = MemoryPort::new("p");
    port.feed(0, (0..200_u8).map(|number| Frame::new([number])));
    let (rx, tx) = (port.rx_queue(&core).unwrap(), port.tx_queue(&core).unwrap());
    (port, rx, tx)
}

/// Moves everything; returns the number of packets that the source yielded and the sink took.
fn moved(
    mut rx: impl Source<Item = PooledPacket>,
    mut tx: impl Sink<Item = PooledPacket>,
) -> (i64, i64) {
    let (mut yielded, mut taken) = (0, 0);
    loop {
        let mut burst = Burst::new();
        let count = rx.poll(&mut burst);
        assert_eq!(count, burst.len());
        if count == 0 {
            return (yielded, taken);
        }
        yielded += count as i64;
        let sent = tx.send(&mut burst);
        assert_eq!((sent, burst.len()), (count, 0));
        taken += sent as i64;
    }
}

fn whole(device: &dyn Device) -> bool {
    device.stop().unwrap();
    device.check_pools().is_ok()
}

#[test]
fn a_planted_source_yields_other_than_the_device_counted() {
    for (plant, extra, stays_whole) in PLANTS {
        for packet_index in [0, 63, 64, 199] {
            let (port, rx, tx) = port();
            let (yielded, _) = moved(PlantedSource::new(rx, plant, packet_index), tx);
            assert_eq!(yielded, 200 + extra);
            let counters = port.device().counters();
            assert_eq!((counters.received, counters.sent as i64), (200, 200 + extra));
            assert_eq!(whole(&*port.device()), stays_whole, "{plant:?}");
        }
    }
}

#[test]
fn a_planted_sink_takes_other_than_the_device_counted() {
    for (plant, extra, stays_whole) in PLANTS {
        for packet_index in [0, 63, 64, 199] {
            let (port, rx, tx) = port();
            let (_, taken) = moved(rx, PlantedSink::new(tx, plant, packet_index));
            assert_eq!(taken, 200);
            let sent = port.device().counters().sent as i64;
            assert_eq!(sent, 200 + extra, "{plant:?}");
            assert_eq!(whole(&*port.device()), stays_whole, "{plant:?}");
        }
    }
}

#[test]
fn a_plant_that_never_springs_changes_nothing() {
    let (port, rx, tx) = port();
    let rx = PlantedSource::new(rx, Plant::Lose, 200);
    assert_eq!(moved(rx, PlantedSink::new(tx, Plant::Forget, 200)), (200, 200));
    assert!(whole(&*port.device()));
}

/// A burst of packets, and the pool they came from.
fn packets() -> (MemoryPort, Vec<PooledPacket>) {
    let (port, mut rx, _) = port();
    let mut burst = Burst::new();
    rx.poll(&mut burst);
    (port, std::iter::from_fn(|| burst.pop()).collect())
}

/// The message of a panic.
fn complaint<T>(work: impl FnOnce() -> T) -> String {
    let Err(panic) = catch_unwind(AssertUnwindSafe(work)) else { return "none".to_owned() };
    panic
        .downcast_ref::<String>()
        .cloned()
        .unwrap_or_else(|| panic.downcast_ref::<&str>().copied().unwrap_or_default().to_owned())
}

#[test]
fn planted_stages_break_their_own_arithmetic() {
    for (plant, extra, stays_whole) in PLANTS {
        let expected = if extra < 0 { "unattributed" } else { "uncreated" };

        let (port, burst) = packets();
        let said = complaint(|| bench(PlantedStage::new(plant, 10)).feed_items(burst));
        assert!(said.starts_with(expected), "{plant:?}: {said}");
        assert_eq!(port.pool().check_whole().is_ok(), stays_whole, "{plant:?}");

        let (port, burst) = packets();
        let said = complaint(|| bench_burst(PlantedBurstStage::new(plant, 10)).feed_items(burst));
        assert!(said.starts_with(expected), "{plant:?}: {said}");
        assert_eq!(port.pool().check_whole().is_ok(), stays_whole, "{plant:?}");
    }
}

#[test]
fn planted_stages_let_all_other_packets_pass() {
    let (port, burst) = packets();
    let out = bench(PlantedStage::new(Plant::Lose, 64)).feed_items(burst);
    assert_eq!(out.packets().len(), 64);
    let out = bench_burst(PlantedBurstStage::new(Plant::Lose, 64)).feed_items(out.into_packets());
    assert_eq!(out.packets().len(), 64);
    drop(out);
    assert!(whole(&*port.device()));
}
