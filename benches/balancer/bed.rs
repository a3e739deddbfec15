//! A network function between a source and a sink in memory, stepped by hand on one core.

use crate::configuration::{BACKEND_COUNT, ONE_CORE, configuration, egresses};
use hotloop::arena::Obtained;
use hotloop::engine::{
    Asker, Assembly, Chain, Deployment, Engine, Graph, Plan, Taps, outlets, source,
};
use hotloop::stage::Error;
use hotloop_balancer::balance::{Exchange, Route};
use hotloop_balancer::counts::WorkerCounts;
use hotloop_balancer::services::ServiceTable;
use hotloop_benches::contest::Bursts;
use hotloop_benches::traffic::{ACK, Dial, Loop, Sizes, Writer};
use ipip_lb::config::{CONNECTIONS_MAX, Config};
use ipip_lb::control::JOURNAL_MAX;
use ipip_lb::network_function::{NetworkFunction, Steering};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Buffers that go round on one core: of a burst being filled, one worked on, and one being sent.
const BUFFER_COUNT: usize = 192;

/// For how long connections are remembered that are not established: longer than a tick's step, so
/// that the same jump ahead in time always ends them.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(11);

/// What a balancer is measured with.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// How many services.
    pub service_count: u32,
    /// How many backends each of them has: the same for all.
    pub backend_count: u32,
    /// How many flows have had a packet before anything is measured.
    pub flow_count: u32,
    /// How many connections the table has room for.
    pub connections_max: u32,
    /// How long the frames are.
    pub sizes: Sizes,
}

impl Setup {
    /// So many established connections, and room for a few more.
    pub const fn hits(service_count: u32, flow_count: u32) -> Self {
        let roomy = flow_count + flow_count / 16;
        let connections_max = if roomy < CONNECTIONS_MAX { roomy } else { CONNECTIONS_MAX };
        let backend_count = BACKEND_COUNT;
        Self { service_count, backend_count, flow_count, connections_max, sizes: Sizes::Small }
    }

    /// Of a balancer that one core is.
    pub fn configuration(&self) -> Config {
        configuration((self.service_count, self.backend_count), self.connections_max, ONE_CORE)
    }
}

/// One core's network function, and its traffic.
pub struct Bed {
    assembly: Assembly<'static>,
    dial: Arc<Dial>,
    start: Instant,
    /// How far its time is ahead of the clock.
    ahead: Duration,
    /// When the last turn began, by the clock.
    turned: Duration,
    /// What the balancer counts, and its service table; none of hello-forward.
    counts: Option<Arc<[WorkerCounts]>>,
    services: Option<Arc<ServiceTable>>,
}

/// The memory of a balancer's tables.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// That of connections, of both IP versions.
    pub connections: Obtained,
    /// The service table, and what is counted of its targets.
    pub services_bytes: usize,
    /// How many targets there are.
    pub target_count: usize,
}

impl Bed {
    /// The balancer, with its connections entered, and packets of random ones of them to come.
    pub fn balancer(setup: &Setup) -> Result<Self, String> {
        let made = NetworkFunction::new(&setup.configuration(), egresses());
        let (function, steering) = made.map_err(|error| error.to_string())?;
        Self::of(setup, function, &steering)
    }

    /// A balancer with this configuration that shares its exceptions with other nodes; and control's side of it.
    #[allow(dead_code, reason = "the group `engine` has this file too")]
    pub fn sharing(
        setup: &Setup,
        config: &Config,
    ) -> Result<(Self, Steering, Asker<Exchange, Exchange>), String> {
        let made = NetworkFunction::new(config, egresses());
        let (function, steering) = made.map_err(|error| error.to_string())?;
        let (function, asker) = function.sharing(JOURNAL_MAX);
        Ok((Self::of(setup, function, &steering)?, steering, asker))
    }

    fn of(setup: &Setup, function: NetworkFunction, steering: &Steering) -> Result<Self, String> {
        let Setup { service_count, flow_count, connections_max, sizes, .. } = *setup;
        // A graph borrows it, and lives as long as the process.
        let function = &*Box::leak(Box::new(function));
        let packets = new_loop(sizes, service_count);
        let graph = function.graph(
            |core| packets.source(core),
            |core| Ok::<_, Error>(outlets([(Route(0), packets.sink(core)?)])),
        );
        let mut bed = Self::new(graph, packets)?;
        bed.counts = Some(Arc::clone(&steering.counts));
        bed.services = Some(Arc::clone(&steering.services));
        bed.enter(flow_count, connections_max)?;
        bed.hit(flow_count);
        Ok(bed)
    }

    /// hello-forward's graph, with packets of that many flows to come.
    pub fn hello_forward(flow_count: u32, sizes: Sizes) -> Result<Self, String> {
        let packets = new_loop(sizes, 10);
        let graph = source(|core| packets.source(core)).sink(|core| packets.sink(core));
        let bed = Self::new(graph, packets)?;
        bed.hit(flow_count);
        Ok(bed)
    }

    fn new(graph: impl Graph + 'static, packets: &Loop) -> Result<Self, String> {
        let plan = Engine::plan(graph, Deployment::run_to_completion(1));
        let plan: &Plan<_> = Box::leak(Box::new(plan.map_err(|error| error.to_string())?));
        let assembly = plan.assemble().map_err(|error| error.to_string())?;
        let (start, ahead, turned) = (Instant::now(), Duration::ZERO, Duration::ZERO);
        let dial = packets.dial();
        Ok(Self { assembly, dial, start, ahead, turned, counts: None, services: None })
    }

    /// Where captures of it begin.
    #[allow(dead_code, reason = "for the group `engine`, which has this file too")]
    pub fn taps(&self) -> Taps {
        self.assembly.taps()
    }

    /// Has a packet in the midst of its connection come of each flow.
    fn enter(&mut self, flow_count: u32, connections_max: u32) -> Result<(), String> {
        self.dial.one_of_each(0, flow_count, ACK);
        // In no time, so that the first are no older than the last.
        while self.step() > 0 {
            self.resume();
        }
        let (entered, expected) = (self.connection_count(), flow_count.min(connections_max));
        // One of tens of millions may find both of its groups full, and takes the place of another.
        let missing_max = u64::from(expected) / 10_000_000;
        if (u64::from(expected) - missing_max..=u64::from(expected)).contains(&entered) {
            return Ok(());
        }
        Err(format!("{entered} connections were entered, and not {expected}"))
    }

    /// The memory of the balancer's tables; none of hello-forward.
    pub fn memory(&self) -> Option<Memory> {
        let (services, counts) = (self.services.as_ref()?, self.counts.as_ref()?);
        let [worker] = &counts[..] else { return None };
        let [(_, connections), _] = *worker.tables.get()?;
        let services_bytes = services.memory_bytes() + size_of_val(worker.targets());
        Some(Memory { connections, services_bytes, target_count: services.targets().len() })
    }

    /// How many connections the balancer remembers.
    pub fn connection_count(&self) -> u64 {
        self.counts.iter().flat_map(|counts| counts.iter()).map(|it| it.connections.count()).sum()
    }

    /// Has time go on from the last turn: while others play, no connection falls silent.
    fn resume(&mut self) {
        self.start += self.start.elapsed() - self.turned;
    }

    /// One turn of the core; how many packets came.
    #[inline]
    fn step(&mut self) -> usize {
        self.turned = self.start.elapsed();
        let now = self.turned + self.ahead;
        self.assembly.step(0, hotloop::stage::Instant::from_ns(now.as_nanos() as u64))
    }

    /// From now on packets of random connections come.
    pub fn hit(&self, flow_count: u32) {
        self.dial.random(flow_count, ACK);
    }

    /// From now on packets with these flags come, one of each flow from `first` on, as many as
    /// `count` and a burst.
    pub fn arrive(&self, first: u32, count: u64, flags: u8) {
        self.dial.one_of_each(first, first + count as u32 + 64, flags);
    }

    /// Works on about so many packets, and says how long exactly so many took.
    pub fn play(&mut self, count: u64) -> Duration {
        self.play_noting(count, |_| ())
    }

    /// As [`play`](Self::play); calls `note` with the time of each burst but the last.
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

    /// Takes turns for as long as `goes_on` says, which hears how many packets came. Calls `note` with the time of each turn
    /// but the last.
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

    /// From now on no packets come.
    #[allow(dead_code, reason = "the group `engine` has this file too")]
    pub fn rest(&self) {
        self.dial.pause();
    }

    /// Lets so much time pass that all connections but the established ones are forgotten, which are
    /// so many.
    pub fn forget(&mut self, established_count: u32) {
        self.dial.pause();
        self.resume();
        self.ahead += FORGOTTEN_AFTER;
        while self.connection_count() > u64::from(established_count) {
            self.step();
        }
    }

    /// Ends it, and checks that all packets that came went.
    pub fn finish(self) -> Result<(), String> {
        let now = self.start.elapsed() + self.ahead;
        let report = self.assembly.finish(hotloop::stage::Instant::from_ns(now.as_nanos() as u64));
        if !report.is_whole() || report.sent != report.received {
            return Err(format!("not every packet went:\n{report}"));
        }
        Ok(())
    }
}

/// A bed that is made when it is first used.
pub struct LazyBed<'a> {
    bed: RefCell<Option<Bed>>,
    make: Box<dyn Fn() -> Result<Bed, String> + 'a>,
}

impl<'a> LazyBed<'a> {
    pub fn new(make: impl Fn() -> Result<Bed, String> + 'a) -> Self {
        Self { bed: RefCell::new(None), make: Box::new(make) }
    }

    /// Uses the bed.
    ///
    /// # Panics
    /// When it can't be made.
    pub fn with<T>(&self, use_it: impl FnOnce(&mut Bed) -> T) -> T {
        let mut bed = self.bed.borrow_mut();
        let made = || (self.make)().unwrap_or_else(|error| panic!("{error}"));
        use_it(bed.get_or_insert_with(made))
    }

    /// As [`Bed::play`]; appends the nanoseconds of each burst but the last.
    pub fn play_timed(&self, count: u64, bursts: &Bursts) -> Duration {
        let mut bursts = bursts.borrow_mut();
        self.with(|bed| bed.play_noting(count, |took| bursts.push(took.as_nanos() as u32)))
    }

    /// As [`Bed::finish`], where there is one.
    pub fn finish(self) -> Result<(), String> {
        self.bed.into_inner().map_or(Ok(()), Bed::finish)
    }
}

fn new_loop(sizes: Sizes, service_count: u32) -> &'static Loop {
    Box::leak(Box::new(Loop::new(BUFFER_COUNT, Writer::new(sizes, service_count))))
}
