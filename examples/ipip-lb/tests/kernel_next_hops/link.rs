//! The other end of a port's wire: stations that answer ARP and neighbour discovery, or do not, and
//! see the balancer's packets.

use hotloop::dpdk::{Mempool, MempoolConfig, Port, RxQueue, TxQueue};
use hotloop::packet::ethernet::{self, MacAddress};
use hotloop::packet::{arp, nd};
use hotloop::prelude::*;
use hotloop_tests::{device, eal};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The station with this number.
pub const fn station(number: u8) -> MacAddress {
    MacAddress::new([2, 0, 0, 0, 9, number])
}

/// A packet in a tunnel, as a station sees it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Seen {
    /// The station that it is sent to.
    pub to: MacAddress,
    /// The end of its tunnel.
    pub backend: IpAddr,
}

#[derive(Default)]
struct Shared {
    /// The stations that answer.
    stations: Mutex<BTreeMap<IpAddr, MacAddress>>,
    /// Packets in tunnels, by the source port of the inner packet.
    seen: Mutex<BTreeMap<u16, Seen>>,
    is_over: AtomicBool,
}

/// A wire's end.
pub struct Link {
    shared: Arc<Shared>,
    frames: Sender<Vec<u8>>,
    thread: Option<JoinHandle<()>>,
}

impl Link {
    /// The link at this interface of the thread's network.
    pub fn new(interface: &str) -> Self {
        let arguments = format!(",iface={interface}");
        let port = Port::open(eal(), &device("net_af_packet", &arguments)).unwrap();
        let shared = Arc::<Shared>::default();
        let (frames, to_send) = channel();
        let of_thread = Arc::clone(&shared);
        let thread = thread::spawn(move || run(&port, &of_thread, &to_send));
        Self { shared, frames, thread: Some(thread) }
    }

    /// Makes a station answer for this address, or none.
    pub fn answer(&self, address: &str, number: Option<u8>) {
        let (address, mut stations) =
            (address.parse().unwrap(), self.shared.stations.lock().unwrap());
        match number {
            Some(number) => drop(stations.insert(address, station(number))),
            None => drop(stations.remove(&address)),
        }
    }

    pub fn send(&self, frame: Vec<u8>) {
        self.frames.send(frame).unwrap();
    }

    /// The packets seen with these source ports.
    pub fn seen(&self, ports: std::ops::Range<u16>) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().range(ports).map(|(_, seen)| *seen).collect()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn run(port: &Port, shared: &Shared, to_send: &Receiver<Vec<u8>>) {
    let core = Core::new(0, 1);
    let (mut rx, mut tx) = (port.rx_queue(&core).unwrap(), port.tx_queue(&core).unwrap());
    let limits = Limits { in_flight_max: 1024, thread_count: 1, is_pipeline: false };
    rx.start(&limits).unwrap();
    tx.start(&limits).unwrap();
    let pool = Mempool::new(eal(), &MempoolConfig::default()).unwrap();
    while !shared.is_over.load(Relaxed) {
        turn(&mut rx, &mut tx, &pool, shared, to_send);
        thread::sleep(Duration::from_micros(200));
    }
}

fn turn(
    rx: &mut RxQueue,
    tx: &mut TxQueue,
    pool: &Mempool,
    shared: &Shared,
    to_send: &Receiver<Vec<u8>>,
) {
    let (mut received, mut sending) = (Burst::new(), Burst::new());
    rx.poll(&mut received);
    while let Some(mut packet) = received.pop() {
        if let Some((number, seen)) = seen(packet.data()) {
            shared.seen.lock().unwrap().insert(number, seen);
        } else if answer(&mut packet, &shared.stations.lock().unwrap()) {
            sending.push(packet);
        }
    }
    while sending.room() > 0
        && let Ok(frame) = to_send.try_recv()
    {
        let mut packet = pool.alloc().unwrap();
        packet.append(frame.len()).unwrap().copy_from_slice(&frame);
        sending.push(packet);
    }
    while !sending.is_empty() {
        tx.send(&mut sending);
    }
}

/// Turns a request for a station that answers into the answer.
fn answer(packet: &mut impl PacketBuf, stations: &BTreeMap<IpAddr, MacAddress>) -> bool {
    let target: Option<IpAddr> = arp::ArpMessage::of_frame(packet.data())
        .map(|message| message.target().address.into())
        .or_else(|| {
            let message = nd::NdMessage::of_frame(packet.data())?;
            message.is_solicitation().then(|| message.target().into())
        });
    let Some(mac) = target.and_then(|target| stations.get(&target)) else { return false };
    arp::reply(packet, *mac) || nd::advertise(packet, *mac).unwrap()
}

/// A tunnel packet with a UDP datagram of IPv4 in it, and its source port.
fn seen(frame: &[u8]) -> Option<(u16, Seen)> {
    let at = ethernet::HEADER_BYTES;
    let (backend, inner): (IpAddr, _) = match frame.get(12..14)? {
        [0x08, 0] if frame.get(at + 9) == Some(&4) => {
            (Ipv4Addr::from(*frame.get(at + 16..)?.first_chunk::<4>()?).into(), at + 20)
        }
        [0x86, 0xdd] if frame.get(at + 6) == Some(&4) => {
            (Ipv6Addr::from(*frame.get(at + 24..)?.first_chunk::<16>()?).into(), at + 40)
        }
        _ => return None,
    };
    let port = u16::from_be_bytes(*frame.get(inner + 20..)?.first_chunk()?);
    Some((port, Seen { to: MacAddress::new(*frame.first_chunk()?), backend }))
}
