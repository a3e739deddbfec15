//! The packets' own clock: each runs at the time at which it arrived.

use crate::common::{DEPLOYMENTS, Parcel, World, watched, whole};
use hotloop_engine::{Chain, Clock, Deployment, Engine, Graph, source};
use hotloop_stage::{Cx, Error, Instant, NoDrops, Stage, Verdict};
use std::sync::Mutex;

const COUNT: u64 = 10_000;

/// A whole day between the first packet and the last, with some at the same nanosecond.
const DAY_NS: u64 = 86_400_000_000_000;
const START_NS: u64 = 1_700_000_000_000_000_000;

fn over_a_day(number: u64) -> Option<u64> {
    Some(START_NS + number / 3 * 3 * (DAY_NS / COUNT))
}

/// When a packet ran, and the clock at that time: packet, arrival, now; for each core.
type Times = Mutex<Vec<(usize, u64, u64)>>;

/// Notes the time of each packet, and of each tick, which may not go back.
struct Watch<'a> {
    core: usize,
    last: Instant,
    times: &'a Times,
}

impl Watch<'_> {
    fn see(&mut self, now: Instant) {
        assert!(now >= self.last, "time went back from {} to {now}", self.last);
        self.last = now;
    }
}

impl Stage<Parcel> for Watch<'_> {
    type Out = Parcel;
    type Drop = NoDrops;

    fn packet(&mut self, cx: &mut Cx<'_, NoDrops>, parcel: Parcel) -> Verdict<Parcel> {
        self.see(cx.now());
        let at_ns = parcel.at_ns.unwrap_or_default();
        self.times.lock().unwrap().push((self.core, at_ns, cx.now().as_ns()));
        Ok(parcel)
    }

    fn tick(&mut self, cx: &mut Cx<'_, NoDrops>) {
        self.see(cx.now());
    }
}

fn watch(core: usize, times: &Times) -> Watch<'_> {
    Watch { core, last: Instant::default(), times }
}

fn graph<'a>(world: &'a World, front: &'a Times, back: &'a Times) -> impl Graph + 'a {
    source(|core| {
        let mut rx = world.rx(core, COUNT);
        rx.at_ns = over_a_day;
        Ok::<_, Error>(rx)
    })
    .stage(|core| watch(core.index(), front))
    .stage(|core| watch(core.index(), front))
    .shard_by(|parcel| parcel.key)
    .stage(|core| watch(core.index(), back))
    .stage(|core| watch(core.index(), back))
    .sink(|core| world.tx_ok(core))
}

fn run(graph: impl Graph, deployment: Deployment) {
    let plan = Engine::plan(graph, deployment).unwrap().clock(Clock::Capture);
    whole(watched(|| {
        plan.run(|control| {
            control.wait_until_finished();
        })
    }));
}

#[test]
fn each_packet_runs_when_it_arrived() {
    for deployment in DEPLOYMENTS {
        let (world, front, back) = (World::new(), Times::default(), Times::default());
        run(graph(&world, &front, &back), deployment);
        let (front, back) = (front.into_inner().unwrap(), back.into_inner().unwrap());
        assert_eq!(front.len(), 2 * COUNT as usize * deployment.cores_in(0));
        assert_eq!(back.len(), front.len());
        let on_time = |(_, at_ns, now_ns): &(usize, u64, u64)| at_ns == now_ns;
        assert!(front.iter().all(on_time), "before the boundary in {deployment}");
        if deployment.cores_in(0) == 1 {
            assert!(back.iter().all(on_time), "after the boundary in {deployment}");
        }
        // Several queues are read at their own pace: a late packet runs at the worker's time.
        assert!(back.iter().all(|(_, at_ns, now_ns)| now_ns >= at_ns));
        let last = over_a_day(COUNT - 1).unwrap();
        assert_eq!(back.iter().map(|(_, _, now_ns)| *now_ns).max(), Some(last));
    }
}

#[test]
fn own_packets_run_on_time_with_several_queues_too() {
    for workers in 2..=3 {
        let (world, back) = (World::new(), Times::default());
        let graph = source(|core| {
            let mut rx = world.rx(core, COUNT);
            rx.at_ns = over_a_day;
            Ok::<_, Error>(rx)
        })
        .shard_by(|parcel| hotloop_engine::Shard::Worker(parcel.queue() as usize))
        .stage(|core| watch(core.index(), &back))
        .sink(|core| world.tx_ok(core));
        run(graph, Deployment::run_to_completion(workers));
        let back = back.into_inner().unwrap();
        assert_eq!(back.len(), COUNT as usize * workers);
        assert!(back.iter().all(|(_, at_ns, now_ns)| at_ns == now_ns));
    }
}

#[test]
fn a_capture_that_goes_back_stands_still() {
    let (world, times) = (World::new(), Times::default());
    let graph = source(|core| {
        let mut rx = world.rx(core, COUNT);
        rx.at_ns = |number| Some(START_NS + number * 1000 - number % 7 * 5000);
        Ok::<_, Error>(rx)
    })
    .stage(|core| watch(core.index(), &times))
    .sink(|core| world.tx_ok(core));
    run(graph, Deployment::run_to_completion(1));
    let times = times.into_inner().unwrap();
    let mut latest = 0;
    for (_, at_ns, now_ns) in times {
        latest = latest.max(at_ns);
        assert_eq!(now_ns, latest);
    }
}

#[test]
fn the_wall_clock_takes_no_notice_of_arrivals() {
    for deployment in [Deployment::pipeline([1, 2]), Deployment::run_to_completion(2)] {
        let (world, front, back) = (World::new(), Times::default(), Times::default());
        let plan = Engine::plan(graph(&world, &front, &back), deployment).unwrap();
        let mut assembly = plan.assemble().unwrap();
        // Before every arrival: a packet that waited for its own time would not run.
        let now = Instant::from_ns(5);
        assert_eq!(assembly.step(0, now), 64);
        assert_eq!(assembly.step(0, Instant::from_ns(4)), 64);
        assert_eq!(front.lock().unwrap().len(), 256);
        let report = assembly.finish(now);
        assert!(report.is_whole(), "{report}");
        let mut times =
            front.lock().unwrap().iter().chain(&*back.lock().unwrap()).copied().collect::<Vec<_>>();
        times.retain(|(_, _, now_ns)| *now_ns != 5);
        assert_eq!(times, [], "time is the driver's, and never goes back: {deployment}");
    }
}

/// A core's own packets fill a burst after the boundary while its front still runs.
#[test]
fn own_packets_that_fill_a_burst_have_the_time_of_the_step() {
    let (world, back) = (World::new(), Times::default());
    let graph = source(|core| Ok::<_, Error>(world.rx(core, COUNT)))
        .shard_by(|_| hotloop_engine::Shard::Worker(0))
        .stage(|core| watch(core.index(), &back))
        .sink(|core| world.tx_ok(core));
    let plan = Engine::plan(graph, Deployment::run_to_completion(1)).unwrap();
    let mut assembly = plan.assemble().unwrap();
    assert_eq!(assembly.step(0, Instant::from_ns(5)), 64);
    assert_eq!(assembly.step(0, Instant::from_ns(7)), 64);
    let report = assembly.finish(Instant::from_ns(7));
    assert!(report.is_whole(), "{report}");
    let times: Vec<_> = back.lock().unwrap().iter().map(|(_, _, now_ns)| *now_ns).collect();
    assert_eq!(times, [[5; 64], [7; 64]].concat());
}
