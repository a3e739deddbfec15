//! The packets that keep workers busy.

use hotloop::dpdk::{Mbuf, RxQueue};
use hotloop::packet::PacketBuf;
use hotloop::packet::ethernet;
use hotloop::prelude::*;
use hotloop::stage::{Burst, Device, Error, Limits, Source};
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// An RX queue that is polled only as often as a rate allows.
pub struct Rated {
    queue: RxQueue,
    per_second: Option<u64>,
    begun: Option<Instant>,
    count: u64,
}

impl Rated {
    /// A queue that always has packets, and is limited to `per_second` packets a second.
    pub const fn new(queue: RxQueue, per_second: u64) -> Self {
        Self { queue, per_second: Some(per_second), begun: None, count: 0 }
    }

    /// A queue that is polled at every opportunity.
    pub const fn unlimited(queue: RxQueue) -> Self {
        Self { queue, per_second: None, begun: None, count: 0 }
    }
}

impl Source for Rated {
    type Item = Mbuf;

    fn poll(&mut self, burst: &mut Burst<Mbuf>) -> usize {
        if let Some(per_second) = self.per_second {
            let begun = *self.begun.get_or_insert_with(Instant::now);
            let due = begun.elapsed().as_micros() as u64 * per_second / 1_000_000;
            if due < self.count + burst.room() as u64 {
                return 0;
            }
        }
        let count = self.queue.poll(burst);
        self.count += count as u64;
        count
    }

    fn start(&mut self, limits: &Limits) -> Result<(), Error> {
        self.queue.start(limits)
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.queue.devices()
    }
}

/// The destination of the peer's load, an unused address.
const TO: &str = "203.0.113.10:4000";

/// Whether a frame belongs to the peer's load: an IPv4 packet to that address.
pub fn is_load(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&[8, 0]) && frame.get(30..34) == Some(&[203, 0, 113, 10])
}

/// Turns a datagram into its own answer. No checksum changes.
pub fn turn_round(packet: &mut Packet) {
    ethernet::swap_addresses(packet);
    let frame = packet.data_mut();
    let is_whole = frame.len() >= 38;
    if is_whole {
        let (addresses, ports) = frame[26..38].split_at_mut(8);
        let (source, destination) = addresses.split_at_mut(4);
        source.swap_with_slice(destination);
        let (source, destination) = ports.split_at_mut(2);
        source.swap_with_slice(destination);
    }
}

/// The peer's traffic: datagrams of 22 bytes, in frames of 64.
pub struct Load {
    per_second: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    /// The maximum possible rate.
    pub const FLOOD: u64 = u64::MAX;
    const END: u64 = u64::MAX - 1;

    /// Starts without sending, in the calling thread's network.
    pub fn begin() -> Self {
        let per_second = Arc::new(AtomicU64::new(0));
        let rate = Arc::clone(&per_second);
        let thread = std::thread::spawn(move || send(&rate));
        Self { per_second, thread: Some(thread) }
    }

    /// Sets the number of datagrams per second from now on.
    pub fn set(&self, per_second: u64) {
        self.per_second.store(per_second, Relaxed);
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.set(Self::END);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn send(rate: &AtomicU64) {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect(TO).unwrap();
    // Answers fill the socket's buffer, and are dropped then.
    let send = |count: u64| (0..count).for_each(|_| drop(socket.send(&[0x5a; 22])));
    let (mut last, mut due) = (Instant::now(), 0.0);
    loop {
        match rate.load(Relaxed) {
            Load::END => return,
            Load::FLOOD => send(64),
            per_second => {
                // Datagrams that could not be sent within ten milliseconds are skipped, to avoid a
                // flood.
                let passed = last.elapsed().min(Duration::from_millis(10));
                last = Instant::now();
                due += passed.as_secs_f64() * per_second as f64;
                send(due as u64);
                due = due.fract();
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }
}
