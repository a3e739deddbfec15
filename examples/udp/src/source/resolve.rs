//! Resolution of the datagrams' Ethernet addresses with ARP or neighbour discovery, before the
//! engine starts.

use crate::source::pool::is_on_bus;
use hotloop::dpdk::{Mempool, MempoolConfig, RxQueue, TxQueue};
use hotloop::packet::arp::{self, ArpMessage, Neighbour};
use hotloop::packet::ethernet::MacAddress;
use hotloop::packet::nd::{self, NdMessage};
use hotloop::prelude::*;
use hotloop_ops::Failure;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

/// Interval between questions to a neighbour that doesn't answer.
const INTERVAL: Duration = Duration::from_millis(250);

/// The neighbour that asks.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    /// The IP address.
    pub address: IpAddr,
    /// The Ethernet address.
    pub mac: MacAddress,
}

/// Resolves the Ethernet addresses of `neighbours` on the port's link, repeating the questions
/// until the time is up. If a signal comes before the answers, missing addresses are zeros: nothing
/// is sent then.
///
/// # Errors
/// [`Failure::Run`] with the neighbours that don't answer, or the reason why the port can't start.
pub fn resolve(
    port: &Port,
    eal: Eal,
    own: Own,
    neighbours: &[IpAddr],
    wait: Duration,
) -> Result<Vec<MacAddress>, Failure> {
    // On a thread of its own: EAL has a place for each thread that uses a queue, until the thread
    // ends.
    let ask = || Asking::start(port, eal).and_then(|mut asking| asking.ask(own, neighbours, wait));
    thread::scope(|scope| scope.spawn(ask).join()).expect("it says how it went")
}

/// A port's queues, and packets for questions.
struct Asking {
    rx: RxQueue,
    tx: TxQueue,
    pool: Mempool,
}

impl Asking {
    fn start(port: &Port, eal: Eal) -> Result<Self, Failure> {
        let core = Core::new(0, 1);
        let (mut rx, mut tx) = (port.rx_queue(&core)?, port.tx_queue(&core)?);
        let config = MempoolConfig { contiguous: is_on_bus(port), ..MempoolConfig::default() };
        let pool = Mempool::new(eal, &config)?;
        let limits =
            Limits { in_flight_max: 2 * BURST_CAPACITY, thread_count: 1, is_pipeline: false };
        let failed = |error: hotloop::Error| Failure::Run(error.to_string());
        rx.start(&limits).map_err(failed)?;
        tx.start(&limits).map_err(failed)?;
        Ok(Self { rx, tx, pool })
    }

    fn ask(
        &mut self,
        own: Own,
        neighbours: &[IpAddr],
        wait: Duration,
    ) -> Result<Vec<MacAddress>, Failure> {
        let (started, mut asked) = (Instant::now(), None::<Instant>);
        let mut known = vec![None; neighbours.len()];
        while known.iter().any(Option::is_none) {
            if asked.is_none_or(|asked| asked.elapsed() >= INTERVAL) {
                let unknown = neighbours.iter().zip(&known).filter(|(_, mac)| mac.is_none());
                unknown.for_each(|(neighbour, _)| self.send(own, *neighbour));
                asked = Some(Instant::now());
            }
            for (address, mac) in self.answers() {
                let places = neighbours.iter().zip(&mut known);
                places
                    .filter(|(neighbour, _)| **neighbour == address)
                    .for_each(|(_, known)| *known = Some(mac));
            }
            if started.elapsed() >= wait || Control::signal_came() {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        let silent = neighbours.iter().zip(&known).filter(|(_, mac)| mac.is_none());
        let silent: Vec<_> = silent.map(|(neighbour, _)| neighbour.to_string()).collect();
        if silent.is_empty() || Control::signal_came() {
            let mac = |mac: Option<MacAddress>| mac.unwrap_or(MacAddress::new([0; 6]));
            return Ok(known.into_iter().map(mac).collect());
        }
        Err(Failure::Run(format!(
            "no answer from {} within {} s: is it on this link? name the next hop by --next-hop=ADDRESS, or its \
             Ethernet address by --to-mac",
            silent.join(", "),
            wait.as_secs_f64()
        )))
    }

    /// Sends one question. If that is impossible now, it is repeated later.
    fn send(&mut self, own: Own, neighbour: IpAddr) {
        let Some(mut packet) = self.pool.alloc() else { return };
        let written = match (own.address, neighbour) {
            (IpAddr::V4(address), IpAddr::V4(neighbour)) => {
                arp::request(&mut packet, Neighbour { mac: own.mac, address }, neighbour)
            }
            (IpAddr::V6(address), IpAddr::V6(neighbour)) => {
                nd::solicit(&mut packet, (address, own.mac), neighbour)
            }
            // Such a neighbour can't answer.
            _ => return,
        };
        written.expect("a packet of the default size has room for a question");
        let mut burst = Burst::new();
        burst.push(packet);
        self.tx.send(&mut burst);
    }

    /// Neighbours that have answered.
    fn answers(&mut self) -> Vec<(IpAddr, MacAddress)> {
        let mut burst = Burst::new();
        self.rx.poll(&mut burst);
        burst.as_slice().iter().filter_map(|packet| answer(packet.data())).collect()
    }
}

/// The neighbour that a frame makes known.
fn answer(frame: &[u8]) -> Option<(IpAddr, MacAddress)> {
    if let Some(message) = ArpMessage::of_frame(frame) {
        let Neighbour { address, mac } = message.sender();
        return Some((address.into(), mac));
    }
    let (address, mac) = NdMessage::of_frame(frame)?.neighbour()?;
    Some((address.into(), mac))
}
