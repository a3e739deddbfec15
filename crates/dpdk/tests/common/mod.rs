//! Helpers of this crate's tests: one EAL per process, names, capture files.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use hotloop_dpdk::{Eal, Mbuf, Mempool, Port, PortConfig, RxQueue, TxQueue};
use hotloop_packet::PacketBuf;
use hotloop_stage::{Burst, Core, Limits, Sink, Source};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

pub const LIMITS: Limits = Limits { in_flight_max: 256, thread_count: 2, is_pipeline: false };

/// The EAL of this process, with memory for the pools of all tests that run at the same time.
pub fn eal() -> Eal {
    let started = Eal::with_args(&["--no-pci", "--no-huge", "-m", "4096"]);
    started.or_else(|error| Eal::current().ok_or(error)).expect("EAL starts anywhere")
}

/// A name that no other device of this process has.
pub fn unique(driver: &str) -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("{driver}{}", NEXT.fetch_add(1, Relaxed))
}

pub fn core() -> Core {
    Core::new(0, 1)
}

/// A new port with these driver arguments.
pub fn open(driver: &str, arguments: &str) -> Port {
    open_with(driver, arguments, PortConfig::default())
}

pub fn open_with(driver: &str, arguments: &str, config: PortConfig) -> Port {
    let device = format!("{}{arguments}", unique(driver));
    Port::open_with(eal(), &device, config).unwrap_or_else(|error| panic!("{error}"))
}

/// One queue each way, started.
pub fn start(port: &Port) -> (RxQueue, TxQueue) {
    let mut rx = port.rx_queue(&core()).unwrap();
    let mut tx = port.tx_queue(&core()).unwrap();
    rx.start(&LIMITS).unwrap();
    tx.start(&LIMITS).unwrap();
    (rx, tx)
}

pub fn packet(pool: &Mempool, bytes: &[u8]) -> Mbuf {
    let mut mbuf = pool.alloc().expect("the pool is not empty");
    mbuf.append(bytes.len()).unwrap().copy_from_slice(bytes);
    mbuf
}

/// All bytes of a packet, over its segments.
pub fn bytes(mbuf: &Mbuf) -> Vec<u8> {
    mbuf.segments().flatten().copied().collect()
}

/// Polls until the source has finished.
pub fn receive_all(rx: &mut RxQueue) -> Vec<Mbuf> {
    let (mut packets, mut burst) = (Vec::new(), Burst::new());
    while !rx.finished() {
        rx.poll(&mut burst);
        while let Some(mbuf) = burst.pop() {
            packets.push(mbuf);
        }
    }
    packets
}

/// Sends until nothing is left.
pub fn send_all(tx: &mut TxQueue, packets: impl IntoIterator<Item = Mbuf>) {
    let mut burst = Burst::new();
    for mbuf in packets {
        burst.push(mbuf);
        if burst.is_full() {
            assert!(tx.send(&mut burst) > 0);
        }
    }
    while !burst.is_empty() {
        assert!(tx.send(&mut burst) > 0);
    }
}

/// A capture file of Ethernet frames, the first at `time_us`, each a millisecond after the last.
pub fn write_pcap(path: &Path, time_us: u64, frames: &[Vec<u8>]) {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 262_144, 1] {
        file.extend(word.to_le_bytes());
    }
    for (index, frame) in frames.iter().enumerate() {
        let time_us = time_us + 1000 * index as u64;
        let len = frame.len() as u32;
        for word in [(time_us / 1_000_000) as u32, (time_us % 1_000_000) as u32, len, len] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    fs::write(path, file).unwrap();
}

/// The frames of a capture file.
pub fn read_pcap(path: &Path) -> Vec<Vec<u8>> {
    let file = fs::read(path).unwrap();
    let (mut rest, mut frames) = (&file[24..], Vec::new());
    while let Some((header, data)) = rest.split_first_chunk::<16>() {
        let len = u32::from_le_bytes(header[8..12].try_into().unwrap()) as usize;
        frames.push(data[..len].to_vec());
        rest = &data[len..];
    }
    frames
}

/// A frame of `len` bytes that differs for each seed.
pub fn frame(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|index| (seed.wrapping_mul(31) ^ index ^ (index >> 8)) as u8).collect()
}
