//! The network function as a graph.

use crate::source::generator::Generator;
use crate::source::make::Make;
use crate::source::pace::Pace;
use crate::source::patient::Patient;
use hotloop::engine::Graph;
use hotloop::prelude::*;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Number of times that the engine offers packets again before it drops them.
const TX_RETRIES: u32 = 4;

/// Controls a run's cores from the control thread.
#[derive(Clone, Debug, Default)]
pub struct Steering {
    gate: Arc<AtomicBool>,
    ending: Arc<AtomicBool>,
    wait_max: Option<Duration>,
}

impl Steering {
    /// For cores that count as stuck after `stall_max` without a burst boundary: sinks wait for
    /// less than that. If it is zero, they wait for ever.
    #[must_use]
    pub fn returning_in(stall_max: Duration) -> Self {
        // A burst is offered once and then TX_RETRIES times again.
        let wait_max = (!stall_max.is_zero()).then(|| stall_max / 2 / (1 + TX_RETRIES));
        Self { wait_max, ..Self::default() }
    }

    /// Lets the cores send.
    pub fn open(&self) {
        self.gate.store(true, Relaxed);
    }

    /// Makes no more packets; those in flight are sent if that is soon possible.
    pub fn end(&self) {
        self.gate.store(false, Relaxed);
        self.ending.store(true, Relaxed);
    }

    /// A controlled generator.
    #[must_use]
    pub fn generator<M>(&self, make: M, pace: Pace) -> Generator<M> {
        Generator::new(make, pace, Arc::clone(&self.gate))
    }

    /// A controlled sink.
    #[must_use]
    pub fn patient<S>(&self, sink: S) -> Patient<S> {
        Patient::new(sink, Arc::clone(&self.ending), self.wait_max)
    }
}

/// Sends the packets that `make` makes for each core, `rate` a second in total, through the sink
/// that `send` makes there.
pub fn graph<M, S, E>(
    make: impl Fn(&Core) -> M + Sync,
    rate: Option<u64>,
    steering: &Steering,
    send: impl Fn(&Core) -> Result<S, E> + Sync,
) -> impl Graph
where
    M: Make,
    S: Sink<Item = M::Item>,
    E: Into<hotloop::Error>,
{
    source(move |core| {
        let pace = Pace::new(rate, core.index(), core.count());
        Ok::<_, Infallible>(steering.generator(make(core), pace))
    })
    .sink(move |core| send(core).map(|sink| steering.patient(sink)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::source::datagrams::tests::plan as datagrams;
    use crate::source::datagrams::{Datagrams, Plan};
    use crate::source::make::{Frames, Supply};
    use hotloop::engine::RunError;
    use hotloop::stage::{Device, DeviceCounters};
    use hotloop::testing::{Frame, MemoryPort, PacketPool, PooledPacket, PortConfig};
    use std::collections::BTreeSet;

    /// A pool in plain memory.
    pub(crate) struct Memory(PacketPool);

    impl Memory {
        pub(crate) fn of(count: usize) -> Self {
            Self(PacketPool::of(count))
        }
    }

    impl Device for Memory {
        fn name(&self) -> String {
            "blanks".to_owned()
        }

        fn counters(&self) -> DeviceCounters {
            DeviceCounters::default()
        }

        fn check_pools(&self) -> hotloop::Result<()> {
            Ok(self.0.check_whole()?)
        }
    }

    impl Supply for Memory {
        type Packet = PooledPacket;

        fn start(&self, _: &Limits) -> hotloop::Result<()> {
            Ok(())
        }

        fn take(&self, burst: &mut Burst<PooledPacket>, count: usize) -> bool {
            let empty = Frame::default();
            let blanks: Vec<_> = (0..count).map_while(|_| self.0.take(&empty)).collect();
            let is_enough = blanks.len() == count && burst.room() >= count;
            burst.extend(blanks.into_iter().take(if is_enough { count } else { 0 }));
            is_enough
        }
    }

    fn plan() -> Plan {
        datagrams("10.0.0.1", &["192.0.2.1:4321"], 8)
    }

    fn frames<'a>(
        plan: &'a Plan,
        pool: &'a Arc<Memory>,
    ) -> impl Fn(&Core) -> Frames<Memory> + Sync + 'a {
        |core| Frames::new(Arc::clone(pool), Datagrams::new(plan, core.index(), core.count()))
    }

    #[test]
    fn what_two_cores_create_is_sent_and_the_ledger_adds_up() {
        let (plan, steering) = (plan(), Steering::default());
        let pool = Arc::new(Memory::of(1000));
        let config = PortConfig { tx_kept_count: 32, ..PortConfig::default() };
        let port = MemoryPort::with_config("wire", config);
        let nf = graph(frames(&plan, &pool), None, &steering, |core| port.tx_queue(core));
        let planned = Engine::plan(nf, Deployment::run_to_completion(2)).unwrap();
        let mut sent = [Vec::new(), Vec::new()];
        let report = planned
            .run(|control| {
                assert_eq!(control.snapshot().created, 0, "before the gate opens");
                steering.open();
                // Either core may be the slower one by far, if others use its CPU.
                while control.snapshot().created < 10_000 || sent.iter().any(Vec::is_empty) {
                    std::thread::yield_now();
                    let queues = sent.iter_mut().enumerate();
                    queues.for_each(|(queue, sent)| sent.extend(port.take_sent(queue)));
                }
                steering.end();
            })
            .unwrap();

        assert!(report.created >= 10_000);
        assert_eq!((report.received, report.sent), (0, report.created));
        assert_eq!((report.dropped_sum(), report.in_flight), (0, 0));
        let frames = [sent.concat(), port.take_all_sent()].concat();
        assert_eq!(frames.len() as u64, report.sent);
        let ports =
            frames.iter().map(|frame| u16::from_be_bytes([frame.bytes[34], frame.bytes[35]]));
        assert_eq!(ports.collect::<BTreeSet<_>>(), (1000..1008).collect());
        assert!(frames.iter().all(|frame| frame.bytes.len() == 74));
    }

    /// Sends this number of bursts, and then nothing.
    struct Closing<S>(S, usize);

    impl<S: Sink> Sink for Closing<S> {
        type Item = S::Item;

        fn send(&mut self, burst: &mut Burst<S::Item>) -> usize {
            let Some(left) = self.1.checked_sub(1) else { return 0 };
            self.1 = left;
            self.0.send(burst)
        }

        fn devices(&self) -> Vec<Arc<dyn Device>> {
            self.0.devices()
        }
    }

    /// Runs one core until it has sent 3 bursts and can't send any more.
    fn run_until_closed(pool: &Arc<Memory>) -> Result<Report, RunError> {
        let (plan, steering, port) = (plan(), Steering::default(), MemoryPort::new("wire"));
        let send = |core: &Core| port.tx_queue(core).map(|queue| Closing(queue, 3));
        let nf = graph(frames(&plan, pool), None, &steering, send);
        let planned = Engine::plan(nf, Deployment::run_to_completion(1)).unwrap();
        planned.run(|control| {
            steering.open();
            while control.snapshot().created < 4 * BURST_CAPACITY as u64 {
                std::thread::yield_now();
            }
            steering.end();
        })
    }

    #[test]
    fn what_cannot_be_sent_after_the_end_is_dropped() {
        let report = run_until_closed(&Arc::new(Memory::of(1000))).unwrap();
        let burst = BURST_CAPACITY as u64;
        assert_eq!((report.received, report.created, report.sent), (0, 4 * burst, 3 * burst));
        assert_eq!((report.dropped_sum(), report.in_flight), (burst, 0));
    }

    #[test]
    fn a_blank_that_does_not_come_back_fails_the_run() {
        let pool = Arc::new(Memory::of(1000));
        let missing = pool.0.take(&Frame::default());
        let error = run_until_closed(&pool).unwrap_err();
        assert!(error.report().is_some_and(|report| !report.pools_whole), "{error}");
        assert!(missing.is_some());
    }
}
