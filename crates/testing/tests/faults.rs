//! Faults at the rates asked for, the same for the same seed.

use hotloop_packet::PacketBuf;
use hotloop_stage::{Burst, Core, Device, DeviceCounters, Sink, Source};
use hotloop_testing::{FaultRates, Faults, Frame, MemoryPort, PortConfig};
use std::sync::Arc;

fn core(index: usize) -> Core {
    Core::new(index, index + 1)
}

fn port(lossless: bool) -> MemoryPort {
    let port = MemoryPort::with_config("lan", PortConfig { lossless, ..PortConfig::default() });
    port.feed(0, (0..6400_u16).map(|number| Frame::new(number.to_be_bytes().repeat(10))));
    port.end_input();
    port
}

/// Polls a hundred times and a few more; returns the packets' bytes, the number of polls that
/// yielded nothing, and the device's counters.
fn polled(rates: FaultRates, seed: u64, lossless: bool) -> (Vec<Vec<u8>>, usize, DeviceCounters) {
    let port = port(lossless);
    let mut rx = Faults::seeded(seed, rates).source(port.rx_queue(&core(0)).unwrap());
    let (mut bytes, mut empty_count) = (Vec::new(), 0);
    while !rx.finished() {
        let mut burst = Burst::new();
        let count = rx.poll(&mut burst);
        assert_eq!(count, burst.len());
        empty_count += usize::from(count == 0);
        bytes.extend(burst.as_slice().iter().map(|packet| packet.data().to_vec()));
    }
    assert_eq!(port.pool().check_whole(), Ok(()));
    (bytes, empty_count, rx.devices()[0].counters())
}

#[test]
fn without_rates_nothing_happens() {
    let (bytes, empty_count, counters) = polled(FaultRates::default(), 1, false);
    assert_eq!((bytes.len(), empty_count), (6400, 0));
    assert_eq!(counters, DeviceCounters { received: 6400, ..DeviceCounters::default() });
}

#[test]
fn lost_frames_are_counted_as_missed() {
    let rates = FaultRates { lost_permille: 100, ..FaultRates::default() };
    let (bytes, _, counters) = polled(rates, 1, false);
    let imissed = counters.imissed.expect("the wrapper counts");
    assert!((500..800).contains(&imissed), "{counters:?}");
    assert_eq!(counters.received, bytes.len() as u64);
    assert_eq!(counters.received + imissed, 6400);
    assert_eq!(counters.rx_nombuf, 0);
}

#[test]
fn polls_without_mbufs_yield_nothing_while_the_counter_rises() {
    let rates = FaultRates { nombuf_permille: 300, ..FaultRates::default() };
    let (bytes, empty_count, counters) = polled(rates, 1, false);
    assert!((15..50).contains(&empty_count), "{empty_count}");
    assert_eq!(counters.rx_nombuf, 64 * empty_count as u64);
    assert_eq!(counters.received + counters.rx_nombuf, 6400);
    assert_eq!(counters.received, bytes.len() as u64);
}

#[test]
fn truncated_frames_keep_their_beginning() {
    let rates = FaultRates { truncated_permille: 500, ..FaultRates::default() };
    let (bytes, _, counters) = polled(rates, 1, false);
    assert_eq!(counters.received, 6400);
    for (number, bytes) in bytes.iter().enumerate() {
        assert!((number as u16).to_be_bytes().repeat(10).starts_with(bytes));
    }
    let short_count = bytes.iter().filter(|bytes| bytes.len() < 20).count();
    assert!((2800..3300).contains(&short_count), "{short_count}");
    assert!(bytes.iter().any(Vec::is_empty));
}

#[test]
fn a_lossless_source_loses_nothing() {
    let rates = FaultRates { lost_permille: 200, nombuf_permille: 200, ..FaultRates::default() };
    let (bytes, empty_count, counters) = polled(rates, 1, true);
    assert_eq!(bytes.len(), 6400);
    assert!(empty_count > 5, "{empty_count}");
    assert_eq!(counters, DeviceCounters { received: 6400, ..DeviceCounters::default() });
}

#[test]
fn one_seed_gives_the_same_faults_and_another_gives_others() {
    let rates = FaultRates {
        lost_permille: 50,
        truncated_permille: 50,
        nombuf_permille: 50,
        ..FaultRates::default()
    };
    let first = polled(rates, 7, false);
    assert_eq!(first, polled(rates, 7, false));
    assert_ne!(first, polled(rates, 8, false));
}

/// Sends everything through a faulty sink; returns how many sends took none, some and all.
fn sent(rates: FaultRates) -> [usize; 3] {
    let port = port(false);
    let mut rx = port.rx_queue(&core(0)).unwrap();
    let mut tx = Faults::seeded(3, rates).sink(port.tx_queue(&core(0)).unwrap());
    let mut counts = [0; 3];
    let mut burst = Burst::new();
    while rx.poll(&mut burst) > 0 || !burst.is_empty() {
        let before = burst.len();
        let count = tx.send(&mut burst);
        assert_eq!(count, before - burst.len());
        counts[if count == 0 {
            0
        } else if count < before {
            1
        } else {
            2
        }] += 1;
    }
    let numbers: Vec<u16> =
        port.take_sent(0).iter().map(|f| u16::from_be_bytes([f.bytes[0], f.bytes[1]])).collect();
    assert!(numbers.iter().copied().eq(0..6400), "order or packets lost");
    assert_eq!(tx.devices()[0].counters().sent, 6400);
    counts
}

#[test]
fn a_partial_send_keeps_order() {
    let [none, some, all] = sent(FaultRates { partial_tx_permille: 500, ..FaultRates::default() });
    assert!(some > 30 && all > 30 && none < some, "{none} {some} {all}");
}

#[test]
fn a_full_ring_takes_nothing_for_a_while() {
    let rates = FaultRates { full_tx_permille: 100, full_sends_max: 9, ..FaultRates::default() };
    let [none, some, _] = sent(rates);
    assert!(none > 20 && some == 0, "{none} {some}");
}

#[test]
fn queues_of_one_port_share_its_counters() {
    let port = port(false);
    port.feed(1, (0..64).map(|_| vec![0; 10]));
    let rates = FaultRates { lost_permille: 500, ..FaultRates::default() };
    let faults = Faults::seeded(5, rates);
    let mut first = faults.source(port.rx_queue(&core(0)).unwrap());
    let mut second = faults.source(port.rx_queue(&core(1)).unwrap());
    let tx = faults.sink(port.tx_queue(&core(0)).unwrap());
    let count = first.poll(&mut Burst::new()) + second.poll(&mut Burst::new());
    let counters = |devices: Vec<Arc<dyn Device>>| devices[0].counters();
    assert_eq!(counters(first.devices()).received, count as u64);
    assert_eq!(counters(first.devices()).imissed, Some(128 - count as u64));
    assert_eq!(counters(second.devices()), counters(first.devices()));
    assert_eq!(counters(tx.devices()), counters(first.devices()));
}
