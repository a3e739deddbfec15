//! A UDP sink on one core: receive, parse Ethernet, IP and UDP, check, count, free.

use crate::frames::{DATAGRAM_PORT, frame};
use hotloop::dpdk::{Eal, Mbuf, Port, PortConfig, TxQueue};
use hotloop::engine::{Assembly, Deployment, Engine};
use hotloop::prelude::*;
use hotloop::stage;
use hotloop_benches::contest::Contest;
use hotloop_benches::instrument::Instrument;
use hotloop_benches::peers::forward::From;
use hotloop_benches::table::Table;
use std::sync::Arc;
use std::time::{Duration, Instant};
use udp::sink::delivery::Counts;
use udp::sink::graph::graph;
use udp::sink::inspect::Findings;

const AIM: f64 = 1.0;

/// Datagrams that wait in the device before they are received: those of fifteen bursts, as its ring has room for 1,023.
const WAITING: u64 = 15 * BURST_CAPACITY as u64;

/// A device that returns what is sent to it: net_ring. Its RX queue is what is measured.
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

    /// To be called once the RX queue is claimed too.
    fn start(&mut self) -> hotloop::Result<()> {
        self.tx.start(&Limits { in_flight_max: BURST_CAPACITY, thread_count: 1 })
    }

    /// Sends so many datagrams, which wait to be received.
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

    /// The time of receiving `count` datagrams, as often as `receive` takes; filling is not counted.
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

/// udp-sink's graph beside the loop in C.
pub fn bench(eal: Eal, instrument: &mut Instrument, table: &mut Table) -> hotloop::Result<()> {
    let open =
        |index: usize| Port::open_with(eal, &format!("net_ring{index}"), PortConfig::default());
    let (ours, theirs) = (open(0)?, open(1)?);
    let (ports, counts) = (DATAGRAM_PORT.to_string().parse()?, Arc::new(Counts::new(1)));
    let findings = Arc::new(Findings::default());
    let nf = graph(|core| ours.rx_queue(core), &ports, &counts, &findings);
    let plan = Engine::plan(nf, Deployment::run_to_completion(1))?;
    // A port starts with the queues that are claimed by then.
    let (mut our_input, mut their_input) =
        (Loopback::new(eal, &ours)?, Loopback::new(eal, &theirs)?);
    let mut assembly: Assembly<'_> = plan.assemble()?;
    let mut from = From::claim(&theirs)?;
    our_input.start()?;
    their_input.start()?;
    let (mut now_ns, mut payload_bytes) = (0, 0);
    let contest = Contest::new("engine/udp-sink")
        .side("hotloop", |count| {
            our_input.timed(count, || {
                now_ns += 1_000;
                assembly.step(0, stage::Instant::from_ns(now_ns)) as u64
            })
        })
        .side("loop in C", |count| {
            their_input.timed(count, || from.sink(DATAGRAM_PORT, &mut payload_bytes))
        });
    if let Some(outcome) = contest.run(instrument) {
        let sides = ("hotloop", "loop in C");
        table.rows.push(outcome.row("UDP sink, one core", "ns a packet", sides, AIM));
    }
    Ok(())
}
