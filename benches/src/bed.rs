//! A network function between a source and a sink in memory, stepped by hand on one core.

use crate::configuration::{BACKEND_COUNT, ONE_CORE, configuration, egresses};
use crate::engines::assembled;
use crate::traffic::{ACK, Dial, Loop, SYN, Writer};
use hotloop::arena::Obtained;
use hotloop::engine::{Asker, Assembly, Chain, Graph, Taps, outlets, source};
use hotloop::stage::Error;
use hotloop_balancer::balance::{Exchange, Route};
use hotloop_balancer::connections::Connections;
use hotloop_balancer::counts::WorkerCounts;
use hotloop_balancer::services::ServiceTable;
use hotloop_measure::contest::Bursts;
use ipip_lb::config::{CONNECTIONS_MAX, Config};
use ipip_lb::control::JOURNAL_MAX;
use ipip_lb::network_function::{ControlHandles, NetworkFunction};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of buffers in circulation on one core: for a burst being filled, one in progress, and one
/// being sent.
const BUFFER_COUNT: usize = 192;

/// Timeout of connections that are not established: longer than a tick's step, so that the same
/// jump ahead in time always ends them.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(11);

/// Maximum number of connections while instructions of larger sizes are counted: enough for lookups in
/// stages.
const COUNTED_FLOWS: u32 = 100_000;

/// Bytes of a hugepage, and pages that a balancer takes beside its connections, rounding included.
pub const HUGEPAGE_BYTES: usize = 2 << 20;
const HUGEPAGES_MORE: usize = 8;

/// Number of connections to measure, or to enter while instructions are counted.
#[must_use]
pub const fn to_enter(flow_count: u32, is_counting: bool) -> u32 {
    if is_counting && flow_count > COUNTED_FLOWS { COUNTED_FLOWS } else { flow_count }
}

/// Parameters of a measured balancer.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Number of services.
    pub service_count: u32,
    /// Number of backends of each service, the same for all.
    pub backend_count: u32,
    /// Number of flows that have had a packet before the measurement.
    pub flow_count: u32,
    /// Capacity of the connection table.
    pub connections_max: u32,
}

impl Setup {
    /// `flow_count` established connections, and room for a few more.
    pub const fn hits(service_count: u32, flow_count: u32) -> Self {
        let roomy = flow_count + flow_count / 16;
        let connections_max = if roomy < CONNECTIONS_MAX { roomy } else { CONNECTIONS_MAX };
        let backend_count = BACKEND_COUNT;
        Self { service_count, backend_count, flow_count, connections_max }
    }

    /// Bytes of the balancer's connections.
    ///
    /// # Panics
    /// If they can't be addressed.
    #[must_use]
    pub fn connections_bytes(&self) -> usize {
        Connections::bytes(self.connections_max as usize).expect("can be addressed")
    }

    /// Pages of 2 MiB that the balancer takes.
    ///
    /// # Panics
    /// If its connections can't be addressed.
    #[must_use]
    pub fn hugepage_count(&self) -> usize {
        self.connections_bytes() / HUGEPAGE_BYTES + HUGEPAGES_MORE
    }

    /// The configuration of a balancer on one core.
    pub fn configuration(&self) -> Config {
        configuration((self.service_count, self.backend_count), self.connections_max, ONE_CORE)
    }
}

/// One core's network function, and its traffic.
pub struct Bed {
    assembly: Assembly<'static>,
    dial: Arc<Dial>,
    start: Instant,
    /// The bed's time minus the clock's.
    ahead: Duration,
    /// Clock time at the start of the last turn.
    turned: Duration,
    /// The balancer's counts and its service table; `None` for hello-forward.
    counts: Option<Arc<[WorkerCounts]>>,
    services: Option<Arc<ServiceTable>>,
}

/// The memory of a balancer's tables.
#[derive(Clone, Copy, Debug)]
pub struct TableMemory {
    /// Memory of the connection tables, for both IP versions.
    pub connections: Obtained,
    /// Size of the service table and its targets' counts.
    pub services_bytes: usize,
    /// Number of targets.
    pub target_count: usize,
}

impl Bed {
    /// The balancer with its connections entered, followed by packets of random ones.
    ///
    /// # Errors
    /// If it can't be made, or does not enter all connections.
    pub fn balancer(setup: &Setup) -> Result<Self, String> {
        let made = NetworkFunction::new(&setup.configuration(), egresses());
        let (function, handles) = made.map_err(|error| error.to_string())?;
        Self::of(setup, function, &handles)
    }

    /// A balancer with this configuration that shares its exceptions with other nodes, and the
    /// control side of it.
    ///
    /// # Errors
    /// As for [`balancer`](Self::balancer).
    pub fn sharing(
        setup: &Setup,
        config: &Config,
    ) -> Result<(Self, ControlHandles, Asker<Exchange, Exchange>), String> {
        let made = NetworkFunction::new(config, egresses());
        let (function, handles) = made.map_err(|error| error.to_string())?;
        let (function, asker) = function.sharing(JOURNAL_MAX);
        Ok((Self::of(setup, function, &handles)?, handles, asker))
    }

    fn of(
        setup: &Setup,
        function: NetworkFunction,
        handles: &ControlHandles,
    ) -> Result<Self, String> {
        let Setup { service_count, flow_count, connections_max, .. } = *setup;
        // A graph borrows the network function, and lives as long as the process.
        let function = &*Box::leak(Box::new(function));
        let packets = new_loop(service_count);
        let graph = function.graph(
            |core| packets.source(core),
            |core| Ok::<_, Error>(outlets([(Route(0), packets.sink(core)?)])),
        );
        let mut bed = Self::new(graph, packets)?;
        bed.counts = Some(Arc::clone(&handles.counts));
        bed.services = Some(Arc::clone(&handles.services));
        bed.enter(flow_count, connections_max)?;
        bed.hit(flow_count);
        Ok(bed)
    }

    /// hello-forward's graph with packets of `flow_count` flows.
    ///
    /// # Errors
    /// If the graph can't be assembled.
    pub fn hello_forward(flow_count: u32) -> Result<Self, String> {
        let packets = new_loop(10);
        let graph = source(|core| packets.source(core)).sink(|core| packets.sink(core));
        let bed = Self::new(graph, packets)?;
        bed.hit(flow_count);
        Ok(bed)
    }

    fn new(graph: impl Graph + 'static, packets: &Loop) -> Result<Self, String> {
        let assembly = assembled(graph).map_err(|error| error.to_string())?;
        let (start, ahead, turned) = (Instant::now(), Duration::ZERO, Duration::ZERO);
        let dial = packets.dial();
        Ok(Self { assembly, dial, start, ahead, turned, counts: None, services: None })
    }

    /// The places where captures begin.
    #[must_use]
    pub fn taps(&self) -> Taps {
        self.assembly.taps()
    }

    /// Sends one mid-connection packet of each flow.
    fn enter(&mut self, flow_count: u32, connections_max: u32) -> Result<(), String> {
        self.dial.one_of_each(0, flow_count, ACK);
        // With time standing still, so that the first flows are no older than the last.
        while self.step() > 0 {
            self.resume();
        }
        let (entered, expected) = (self.connection_count(), flow_count.min(connections_max));
        // About one flow out of ten million finds no room in its groups, and replaces another.
        let missing_max = u64::from(expected).div_ceil(1_000_000);
        if (u64::from(expected) - missing_max..=u64::from(expected)).contains(&entered) {
            return Ok(());
        }
        Err(format!("{entered} connections were entered, and not {expected}"))
    }

    /// The memory of the balancer's tables; `None` for hello-forward.
    pub fn memory(&self) -> Option<TableMemory> {
        let (services, counts) = (self.services.as_ref()?, self.counts.as_ref()?);
        let [worker] = &counts[..] else { return None };
        let [(_, connections), _] = *worker.tables.get()?;
        let services_bytes = services.memory_bytes() + size_of_val(worker.targets());
        Some(TableMemory { connections, services_bytes, target_count: services.targets().len() })
    }

    /// Number of connections in the balancer.
    pub fn connection_count(&self) -> u64 {
        self.counts
            .iter()
            .flat_map(|counts| counts.iter())
            .map(WorkerCounts::connection_count)
            .sum()
    }

    /// Continues the time from the last turn: no connection falls silent while other sides play.
    fn resume(&mut self) {
        self.start += self.start.elapsed() - self.turned;
    }

    /// One turn of the core. Returns the number of packets received.
    #[inline]
    fn step(&mut self) -> usize {
        self.turned = self.start.elapsed();
        let now = self.turned + self.ahead;
        self.assembly.step(0, hotloop::stage::Instant::from_ns(now.as_nanos() as u64))
    }

    /// Switches to packets of random connections.
    pub fn hit(&self, flow_count: u32) {
        self.dial.random(flow_count, ACK);
    }

    /// Switches to packets with these flags, one of each flow from `first` on: `count` plus a
    /// burst.
    pub fn arrive(&self, first: u32, count: u64, flags: u8) {
        self.dial.one_of_each(first, first + count as u32 + 64, flags);
    }

    /// Processes about `count` packets, and returns how long exactly `count` took.
    pub fn play(&mut self, count: u64) -> Duration {
        self.play_noting(count, |_| ())
    }

    /// [`play`](Self::play) that calls `note` with the time of each burst except the last.
    fn play_noting(&mut self, count: u64, note: impl FnMut(Duration)) -> Duration {
        let (start, mut done) = (Instant::now(), 0);
        let goes_on = |came| {
            assert!(came > 0, "the source has run dry");
            done += came as u64;
            done < count
        };
        self.play_while(goes_on, note);
        start.elapsed().mul_f64(count as f64 / done as f64)
    }

    /// Processes one packet with these flags of each of these flows.
    pub fn play_each(&mut self, flows: Range<u32>, flags: u8) {
        self.dial.one_of_each(flows.start, flows.end, flags);
        self.play_while(|came| came > 0, |_| ());
    }

    /// Takes turns while `goes_on`, which gets the number of packets received, returns true. Calls
    /// `note` with the time of each turn except the last.
    #[inline]
    pub fn play_while(
        &mut self,
        mut goes_on: impl FnMut(usize) -> bool,
        mut note: impl FnMut(Duration),
    ) {
        self.resume();
        let mut before = None;
        loop {
            let came = self.step();
            if let Some(before) = before.replace(self.turned) {
                note(self.turned - before);
            }
            if !goes_on(came) {
                return;
            }
        }
    }

    /// Lets enough time pass to end all connections except the `established_count` established
    /// ones.
    pub fn forget(&mut self, established_count: u32) {
        self.dial.pause();
        self.resume();
        self.ahead += FORGOTTEN_AFTER;
        while self.connection_count() > u64::from(established_count) {
            self.step();
        }
    }

    /// Ends the bed, and checks that all received packets were sent.
    ///
    /// # Errors
    /// If not.
    pub fn finish(self) -> Result<(), String> {
        let now = self.start.elapsed() + self.ahead;
        let report = self.assembly.finish(hotloop::stage::Instant::from_ns(now.as_nanos() as u64));
        if !report.is_whole() || report.sent != report.received {
            return Err(format!("not every packet went:\n{report}"));
        }
        Ok(())
    }
}

/// A bed that is made on its first use.
pub struct LazyBed {
    bed: RefCell<Option<Bed>>,
    make: Box<dyn Fn() -> Result<Bed, String>>,
}

impl LazyBed {
    /// A bed that `make` makes.
    pub fn new(make: impl Fn() -> Result<Bed, String> + 'static) -> Self {
        Self { bed: RefCell::new(None), make: Box::new(make) }
    }

    /// Uses the bed.
    ///
    /// # Panics
    /// If the bed can't be made.
    pub fn with<T>(&self, use_it: impl FnOnce(&mut Bed) -> T) -> T {
        let mut bed = self.bed.borrow_mut();
        let made = || (self.make)().unwrap_or_else(|error| panic!("{error}"));
        use_it(bed.get_or_insert_with(made))
    }

    /// [`Bed::play`] that appends the nanoseconds of each burst except the last.
    pub fn play_timed(&self, count: u64, bursts: &Bursts) -> Duration {
        let mut bursts = bursts.borrow_mut();
        self.with(|bed| bed.play_noting(count, |took| bursts.push(took.as_nanos() as u32)))
    }

    /// [`Bed::finish`], if the bed was made.
    ///
    /// # Errors
    /// As for [`Bed::finish`].
    pub fn finish(self) -> Result<(), String> {
        self.bed.into_inner().map_or(Ok(()), Bed::finish)
    }
}

/// A balancer that unseen flows visit.
pub struct Visited {
    /// The balancer.
    pub bed: LazyBed,
    /// The next unseen flow.
    next: Cell<u32>,
}

impl Visited {
    /// A balancer that knows the flows below `next`.
    #[must_use]
    pub fn of(bed: LazyBed, next: u32) -> Self {
        Self { bed, next: Cell::new(next) }
    }

    /// A balancer with its flows entered, and then `syn_count` SYNs.
    #[must_use]
    pub fn new(setup: Setup, syn_count: u32) -> Self {
        let bed = LazyBed::new(move || {
            let mut bed = Bed::balancer(&setup)?;
            if syn_count > 0 {
                bed.arrive(setup.flow_count, u64::from(syn_count), SYN);
                bed.play(u64::from(syn_count));
            }
            Ok(bed)
        });
        Self::of(bed, setup.flow_count + syn_count + 64)
    }

    /// Times `count` packets with these flags, each of an unseen flow.
    pub fn arrive(&self, count: u64, flags: u8) -> Duration {
        let first = self.next.replace(self.next.get() + count as u32 + 64);
        self.bed.with(|bed| {
            bed.arrive(first, count, flags);
            bed.play(count)
        })
    }
}

fn new_loop(service_count: u32) -> &'static Loop {
    Box::leak(Box::new(Loop::new(BUFFER_COUNT, Writer::new(service_count))))
}
