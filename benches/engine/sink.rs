//! A UDP sink on one core: receive, parse Ethernet, IP and UDP, check, count, free.

use hotloop::dpdk::{Eal, Mbuf, Port, PortConfig, TxQueue};
use hotloop::engine::{Assembly, Taps};
use hotloop::prelude::*;
use hotloop::stage;
use hotloop_benches::datagrams::{DATAGRAM_PORT, frame};
use hotloop_benches::engines::assembled;
use hotloop_benches::peers::forward::From;
use hotloop_measure::contest::Contest;
use hotloop_measure::instrument::Instrument;
use hotloop_measure::table::Table;
use std::sync::Arc;
use std::time::{Duration, Instant};
use udp::inspect::Findings;
use udp::sink::delivery::Counts;
use udp::sink::graph::graph;
use udp::sink::ports::Ports;

const AIM: f64 = 1.0;

/// Datagrams waiting in the device before they are received: fifteen bursts, as its ring has room
/// for 1,023.
const WAITING: u64 = 15 * BURST_CAPACITY as u64;

/// A device that returns what is sent to it: net_ring. The measurement is of its RX queue.
struct Loopback {
    tx: TxQueue,
    pool: hotloop::dpdk::Mempool,
    frame: Vec<u8>,
}

impl Loopback {
    fn new(eal: Eal, port: &Port) -> hotloop::Result<Self> {
        let core = Core::new(0, 1);
        let tx = port.tx_queue(&core)?;
        let pool = hotloop::dpdk::Mempool::new(eal, &hotloop::dpdk::MempoolConfig::default())?;
        Ok(Self { tx, pool, frame: frame(0) })
    }

    /// Must be called once the RX queue is claimed, too.
    fn start(&mut self) -> hotloop::Result<()> {
        self.tx.start(&Limits {
            in_flight_max: BURST_CAPACITY,
            thread_count: 1,
            is_pipeline: false,
        })
    }

    /// Sends `count` datagrams, which wait to be received.
    fn fill(&mut self, count: u64) {
        for _ in 0..count / BURST_CAPACITY as u64 {
            let mut burst: Burst<Mbuf> = Burst::new();
            assert!(self.pool.alloc_burst(&mut burst, BURST_CAPACITY), "each is back by now");
            for packet in burst.as_mut_slice() {
                let bytes = packet.append(self.frame.len()).expect("it fits");
                bytes.copy_from_slice(&self.frame);
            }
            assert_eq!(self.tx.send(&mut burst), BURST_CAPACITY, "the ring has room");
        }
    }

    /// The time of receiving `count` datagrams by calling `receive` repeatedly, without the time of
    /// filling.
    fn timed(&mut self, count: u64, mut receive: impl FnMut() -> u64) -> Duration {
        let (mut taken, mut done) = (Duration::ZERO, 0);
        while done < count {
            self.fill(WAITING);
            let start = Instant::now();
            let mut left = WAITING;
            while left > 0 {
                left -= receive();
            }
            taken += start.elapsed();
            done += WAITING;
        }
        taken.mul_f64(count as f64 / done as f64)
    }
}

/// udp-sink's graph on one core, and its datagrams.
pub struct Receiver {
    input: Loopback,
    assembly: Assembly<'static>,
    now_ns: u64,
}

impl Receiver {
    /// With the net_ring device of this number. A graph borrows its parts, which live as long as
    /// the process.
    pub fn new(eal: Eal, index: usize) -> hotloop::Result<Self> {
        let port: &Port = Box::leak(Box::new(open(eal, index)?));
        let (ports, counts) = (DATAGRAM_PORT.to_string().parse()?, Arc::new(Counts::new(1)));
        let of: &(Ports, _, _) = Box::leak(Box::new((ports, counts, Arc::<Findings>::default())));
        // A port starts with the queues claimed so far.
        let mut input = Loopback::new(eal, port)?;
        let assembly = assembled(graph(|core| port.rx_queue(core), &of.0, &of.1, &of.2))?;
        input.start()?;
        Ok(Self { input, assembly, now_ns: 0 })
    }

    /// The time of receiving `count` datagrams.
    pub fn play(&mut self, count: u64) -> Duration {
        let Self { input, assembly, now_ns } = self;
        input.timed(count, || {
            *now_ns += 1_000;
            assembly.step(0, stage::Instant::from_ns(*now_ns)) as u64
        })
    }

    /// The places where captures begin.
    pub fn taps(&self) -> Taps {
        self.assembly.taps()
    }
}

fn open(eal: Eal, index: usize) -> hotloop::Result<Port> {
    Ok(Port::open_with(eal, &format!("net_ring{index}"), PortConfig::default())?)
}

/// The number of devices used: those with numbers below this one.
pub const DEVICE_COUNT: usize = 2;

/// udp-sink's graph compared with the loop in C.
pub fn bench(eal: Eal, instrument: &mut Instrument, table: &mut Table) -> hotloop::Result<()> {
    let (mut ours, theirs) = (Receiver::new(eal, 0)?, open(eal, 1)?);
    let mut their_input = Loopback::new(eal, &theirs)?;
    let mut from = From::claim(&theirs)?;
    their_input.start()?;
    let mut payload_bytes = 0;
    let contest = Contest::new("engine/udp-sink")
        .side("hotloop", |count| ours.play(count))
        .side("loop in C", |count| {
            their_input.timed(count, || from.sink(DATAGRAM_PORT, &mut payload_bytes))
        });
    if let Some(outcome) = contest.run(instrument) {
        let sides = ("hotloop", "loop in C");
        table.rows.push(outcome.row("UDP sink, one core", "ns a packet", sides, AIM));
    }
    Ok(())
}
