//! Two cores with a ring between them: the engine's pipeline, compared with two loops in C and
//! DPDK's ring. Between net_null ports, and as a UDP sink.

use core_affinity::CoreId;
use hotloop::dpdk::{Eal, Mbuf, Port};
use hotloop::engine::{Chain, Deployment, Graph, source};
use hotloop::prelude::*;
use hotloop::stage::{BURST_CAPACITY, Limits};
use hotloop_benches::datagrams::{DATAGRAM_PORT, Frames};
use hotloop_benches::engines::{on_cpus, per_ns};
use hotloop_benches::forwarder::swap_addresses;
use hotloop_benches::peers::forward::{From, To};
use hotloop_benches::peers::rte_ring::{Consumer, Producer, ring};
use hotloop_measure::distance::{Distance, add_rows, kept, rounds};
use hotloop_measure::figure::Figure;
use hotloop_measure::row::Row;
use hotloop_measure::table::Table;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use udp::inspect::Findings;
use udp::sink::delivery::{Counts, Delivery};
use udp::sink::filter::{Datagram, ToPorts};

/// When crossing a ring.
const AIM: f64 = 1.1;

/// Many short rounds: the cores' distance stays the same in more of them, and both sides of one
/// meet the same neighbours. The bench stops once this many are kept, or after `ROUND_COUNT_MAX`.
const KEPT_COUNT: usize = 32;
const ROUND_COUNT_MAX: usize = 200;

/// Durations of the warm-up and of the measurement.
const WARM_UP: Duration = Duration::from_millis(20);
const WINDOW: Duration = Duration::from_millis(40);

/// The capacity of a ring in packets, the same on both sides. The engine's default is larger, and more packets in
/// flight take up more of the cache.
const RING_CAPACITY: u32 = 1_023;

/// Sizes the pool of the loops in C: a full ring and four bursts, which is about what the engine has in flight.
const LIMITS: Limits = Limits {
    in_flight_max: RING_CAPACITY as usize + 4 * BURST_CAPACITY,
    thread_count: 2,
    is_pipeline: true,
};

/// The second core's work.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Work {
    /// Sends.
    Io,
    /// Swaps Ethernet addresses and sends.
    MacSwap,
    /// Counts datagrams and frees.
    Sink,
}

/// The core that frees mbufs that aren't sent, in the loops in C.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Freeing {
    /// The core that has counted them.
    Worker,
    /// The core that has received them, to which they return in bursts.
    Receiver,
}

const IN_C: &str = "loops in C, rte_ring";
const IN_C_RETURNED: &str = "loops in C, mbufs returned";

/// A pair of cores for pipelines, and their input.
struct CorePair<'a> {
    eal: Eal,
    cpus: [CoreId; 2],
    frames: &'a Frames,
}

/// Rows of both distances, for each kind of work.
pub fn bench(eal: Eal, frames: &Frames, table: &mut Table) -> Result<(), String> {
    let cpus = core_affinity::get_core_ids().unwrap_or_default();
    let &[first, second, ..] = &cpus[..] else {
        table.unshown.push("pipelines of two cores: there is one CPU".to_owned());
        return Ok(());
    };
    let pair = CorePair { eal, cpus: [first, second], frames };
    let (by_worker, by_receiver) = ((IN_C, Freeing::Worker), (IN_C_RETURNED, Freeing::Receiver));
    for (name, work, peers) in [
        ("pipeline 1 + 1, io", Work::Io, &[by_worker][..]),
        ("pipeline 1 + 1, macswap", Work::MacSwap, &[by_worker]),
        ("UDP sink 1 + 1", Work::Sink, &[by_worker, by_receiver]),
    ] {
        eprintln!("{name}");
        let rounds = rounds(ROUND_COUNT_MAX, KEPT_COUNT, || pair.round(work, peers))?;
        let row = |distance: Distance| format!("{name}, {} cores", distance.name());
        add_rows(&rounds, table, row, |rounds, row, _| {
            let figure = |side: usize| Figure::of_rounds(rounds.iter().map(|round| round[side]));
            let ours = figure(0);
            let rate = |(side, (peer, _)): (usize, &(&str, _))| {
                Row::rate(row, peer, "Mpps", (&ours, &figure(side)), AIM)
            };
            (1..).zip(peers).map(rate).collect()
        });
        let (count, left_out) = (rounds.len(), rounds.len() - kept(&rounds));
        table.notes.push(format!(
            "{name}: {left_out} of {count} rounds are left out: the CPUs' distance changed in them, they were hardware \
             threads of one core, or something else used a core's other hardware thread"
        ));
    }
    Ok(())
}

impl CorePair<'_> {
    /// Millions of packets a second, for the engine and for each peer.
    fn round(&self, work: Work, peers: &[(&str, Freeing)]) -> Result<Vec<f64>, String> {
        let text = |error: hotloop::Error| error.to_string();
        let mut sides = vec![self.of_engine(work).map_err(text)?];
        for (_, freeing) in peers {
            sides.push(self.in_c(work, *freeing).map_err(text)?);
        }
        Ok(sides)
    }

    /// The receiving port.
    fn input(&self, work: Work) -> hotloop::Result<Port> {
        match work {
            Work::Sink => Ok(Port::open(self.eal, &self.frames.device())?),
            _ => self.null(0),
        }
    }

    fn null(&self, index: usize) -> hotloop::Result<Port> {
        Ok(Port::open(self.eal, &format!("net_null{index},size=64,copy=0"))?)
    }

    fn of_engine(&self, work: Work) -> hotloop::Result<f64> {
        let (lan, wan) = (self.input(work)?, self.null(1)?);
        let received = source(|core| lan.rx_queue(core)).handoff();
        let sent = |core: &Core| wan.tx_queue(core);
        match work {
            Work::Io => self.mpps(received.sink(sent)),
            Work::MacSwap => self.mpps(received.stage(|_| each(swap_addresses)).sink(sent)),
            Work::Sink => {
                let ports: udp::sink::ports::Ports = DATAGRAM_PORT.to_string().parse()?;
                // Only the core of the second group delivers.
                let (counts, findings) = (Arc::new(Counts::new(1)), Arc::new(Findings::default()));
                let delivery = |core: &Core| {
                    let delivery: Delivery<Datagram<Mbuf>> =
                        Delivery::new(core, &counts, &findings);
                    Ok::<_, Infallible>(delivery)
                };
                self.mpps(received.stage(|_| ToPorts::new(ports.clone())).sink(delivery))
            }
        }
    }

    /// Millions of packets a second that reach the end of a graph.
    fn mpps(&self, graph: impl Graph) -> hotloop::Result<f64> {
        let cpus = self.cpus.map(|cpu| cpu.id);
        let plan = on_cpus(graph, Deployment::pipeline([1, 1]), &cpus)?;
        let plan = plan.ring_capacity(RING_CAPACITY as usize)?;
        let mut mpps = f64::NAN;
        plan.run(|control| {
            mpps = 1e3 * per_ns(control, WARM_UP, WINDOW, |control| control.snapshot().sent);
        })?;
        Ok(mpps)
    }

    /// The same for the loops in C.
    fn in_c(&self, work: Work, freeing: Freeing) -> hotloop::Result<f64> {
        let (lan, wan) = (self.input(work)?, self.null(1)?);
        // One of its slots stays empty.
        let new_ring =
            || ring::<Mbuf>(self.eal, RING_CAPACITY + 1).map_err(hotloop::Error::message);
        let (mut there, mut here) = new_ring()?;
        let (mut returning, mut returned) = new_ring()?;
        let is_returned = freeing == Freeing::Receiver;
        let [stop_first, stop_second] = [AtomicI32::new(0), AtomicI32::new(0)];
        let mpps = thread::scope(|scope| {
            let dispatcher = scope.spawn(|| {
                core_affinity::set_for_current(self.cpus[0]);
                let back = is_returned.then_some(&mut returned);
                there.dispatch(&mut From::claim_with(&lan, &LIMITS)?, back, &stop_first);
                Ok::<_, hotloop::Error>(())
            });
            let worker = scope.spawn(|| {
                core_affinity::set_for_current(self.cpus[1]);
                let back = is_returned.then_some(&mut returning);
                let mpps = work_in_c(work, &mut here, back, &wan, &stop_second);
                here.free_mbufs();
                mpps
            });
            thread::sleep(WARM_UP + WINDOW);
            // The worker takes the packets that the dispatcher has left.
            stop_first.store(1, Relaxed);
            let dispatched = dispatcher.join().expect("it doesn't panic");
            stop_second.store(1, Relaxed);
            let mpps = worker.join().expect("it doesn't panic");
            dispatched.and(mpps)
        });
        returned.free_mbufs();
        mpps
    }
}

fn work_in_c(
    work: Work,
    here: &mut Consumer<Mbuf>,
    back: Option<&mut Producer<Mbuf>>,
    wan: &Port,
    stop: &AtomicI32,
) -> hotloop::Result<f64> {
    let mut to = To::claim(wan)?;
    let start = Instant::now();
    let done = match work {
        Work::Sink => here.count(back, DATAGRAM_PORT, stop),
        _ => here.work(&mut to, work == Work::MacSwap, stop),
    };
    Ok(done as f64 / start.elapsed().as_secs_f64() / 1e6)
}
