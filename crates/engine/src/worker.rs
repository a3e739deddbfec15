//! The work of one core. Threads, a simulator and tests all drive the same worker.

use crate::deployment::Deployment;
use crate::node_info::NodeInfo;
use crate::panic_origin::Panic;
use crate::turn::TurnContext;
use hotloop_stage::tap::{Tap, enter};
use hotloop_stage::{Core, Device, Error, Instant, Limits};
use hotloop_watch::{CorePlaces, CoreTap, Place, PlaceKind, TapControl, TimeSource, Watch};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

/// One core's share of a network function.
pub trait Worker {
    /// Takes one turn: polls once, runs the packets as far as they go, and calls every stage's
    /// `tick`. Returns the number of packets that came.
    fn turn(&mut self, context: TurnContext<'_>) -> usize;

    /// Ends polling.
    fn stop(&mut self);

    /// Takes one turn of the drain, after [`stop`](Self::stop). Returns whether nothing is left nor
    /// can come from another core.
    fn drain(&mut self, context: TurnContext<'_>) -> bool;

    /// Whether the source has ended; `None` if the worker has no source.
    fn is_exhausted(&self) -> Option<bool>;

    /// Number of packets that the rings to other cores have room for.
    fn room(&mut self) -> usize;

    /// Calls `see` with every part, in the order of a packet.
    fn visit(&mut self, see: &mut dyn FnMut(&mut dyn NodeInfo));
}

/// A turn of `worker` at `now`, counted by `watch`. Returns the number of packets that came.
#[inline(always)]
pub(crate) fn watched_turn(watch: &Watch, worker: &mut dyn Worker, now: Instant) -> usize {
    if watch.begin_turn() {
        return timed_turn(watch, worker, now);
    }
    let count = worker.turn(TurnContext { now, watch });
    watch.count(count);
    count
}

#[inline(never)]
fn timed_turn(watch: &Watch, worker: &mut dyn Worker, now: Instant) -> usize {
    let mut number = 0;
    worker.visit(&mut |part| {
        watch.enter(number);
        part.maintain();
        if let Some((waiting, capacity)) = part.fill() {
            watch.note_fill(number, waiting, capacity);
        }
        number += 1;
    });
    watch.time(|| worker.turn(TurnContext { now, watch }))
}

impl dyn Worker + '_ {
    /// The packets in it, and the most that can be, rings to this core included.
    pub(crate) fn in_flight(&mut self) -> (usize, usize) {
        let (mut now, mut max) = (0, 0);
        self.visit(&mut |part| {
            now += part.in_flight();
            max += part.in_flight_max();
        });
        (now, max)
    }

    pub(crate) fn places(&mut self) -> Vec<Place> {
        let mut places = Vec::new();
        self.visit(&mut |part| places.push(part.place()));
        places
    }

    /// For each place, the names of its devices.
    fn device_names(&mut self) -> Vec<Vec<String>> {
        let mut names = Vec::new();
        self.visit(&mut |part| {
            let devices = part.devices().unwrap_or_default();
            names.push(devices.iter().map(|device| device.name()).collect());
        });
        names
    }

    pub(crate) fn devices(&mut self) -> Devices {
        let mut devices = Devices::default();
        self.visit(&mut |part| {
            let is_sink = part.place().kind == PlaceKind::Sink;
            let all = if is_sink { &mut devices.sinks } else { &mut devices.sources };
            all.extend(part.devices());
        });
        devices
    }

    pub(crate) fn is_lossless(&mut self) -> bool {
        let mut is_lossless = false;
        self.visit(&mut |part| is_lossless |= part.is_lossless());
        is_lossless
    }

    /// Whether a stage has work left that does not depend on packets.
    pub(crate) fn has_work(&mut self) -> bool {
        let mut has_work = false;
        self.visit(&mut |part| has_work |= part.has_work());
        has_work
    }

    /// Starts its devices, in the order of a packet, up to the first that fails.
    pub(crate) fn start(&mut self, limits: &Limits, is_lossless: bool) -> Result<(), Error> {
        if is_lossless && self.room() == 0 {
            return Err(Error::message(
                "a source that can wait would wait for ever: the empty rings have no room for what \
                 the stages ahead of them make of one packet (growth_max); plan with a larger \
                 ring_capacity",
            ));
        }
        let mut started = Ok(());
        self.visit(&mut |part| {
            if started.is_ok() {
                started = part.start(limits, is_lossless);
            }
        });
        started
    }
}

/// The devices of a worker's queues, by source and by sink.
#[derive(Default)]
pub(crate) struct Devices {
    pub(crate) sources: Vec<Vec<Arc<dyn Device>>>,
    pub(crate) sinks: Vec<Vec<Arc<dyn Device>>>,
}

impl std::fmt::Debug for Devices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = self.sources.iter().chain(&self.sinks).flatten();
        f.debug_list().entries(all.map(|device| device.name())).finish()
    }
}

/// A worker on its core, and whether it has panicked.
pub(crate) struct RunningCore<'a> {
    pub(crate) core: Core,
    /// The name of the core.
    name: Box<str>,
    pub(crate) worker: Box<dyn Worker + 'a>,
    pub(crate) watch: Arc<Watch>,
    pub(crate) panic: Option<Panic>,
    pub(crate) is_done: bool,
    pub(crate) tap: Rc<CoreTap>,
    /// Control's end of the captures, until control takes it.
    pub(crate) tap_control: Option<TapControl>,
}

impl<'a> RunningCore<'a> {
    /// Puts the worker on its core. If there is a clock, some of the turns are timed.
    pub(crate) fn new(
        deployment: Deployment,
        core: Core,
        mut worker: Box<dyn Worker + 'a>,
        clock: Option<TimeSource>,
    ) -> Self {
        let mut number = 0;
        worker.visit(&mut |part| {
            part.set_number(number);
            number += 1;
        });
        let watch = Arc::new(Watch::new(number as usize, clock));
        let name = deployment.core_name(core.group(), core.index()).into();
        let (tap, tap_control) = CoreTap::new();
        Self {
            core,
            name,
            worker,
            watch,
            panic: None,
            is_done: false,
            tap,
            tap_control: Some(tap_control),
        }
    }

    /// Calls `work` with this core's captures active on this thread.
    pub(crate) fn tapped<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        let tap: Rc<dyn Tap> = self.tap.clone();
        let before = enter(Some(tap));
        let result = work(self);
        enter(before);
        result
    }

    pub(crate) fn places(&mut self) -> CorePlaces {
        CorePlaces {
            name: self.name.to_string(),
            group: self.core.group(),
            index: self.core.index(),
            cpu: self.core.cpu(),
            in_flight_max: self.worker.in_flight().1,
            places: self.worker.places(),
            watch: Arc::clone(&self.watch),
            devices: self.worker.device_names(),
        }
    }

    /// Calls `work`, which may panic. The first panic abandons the packets inside.
    #[inline(always)]
    pub(crate) fn guard<R>(
        &mut self,
        work: impl FnOnce(&mut dyn Worker, &Watch) -> R,
    ) -> Option<R> {
        match catch_unwind(AssertUnwindSafe(|| work(self.worker.as_mut(), &self.watch))) {
            Ok(result) => Some(result),
            Err(panic) => {
                self.panic.get_or_insert(Panic::caught(panic.as_ref()));
                // Dropping packets may panic again, at most once for each packet.
                let abandon = |worker: &mut dyn Worker| worker.visit(&mut |part| part.abandon());
                while catch_unwind(AssertUnwindSafe(|| abandon(self.worker.as_mut()))).is_err() {}
                None
            }
        }
    }

    /// Takes one turn of the drain. After a panic it drops packets that other cores still send
    /// here.
    pub(crate) fn drain(&mut self, now: Instant) {
        let has_panicked = self.panic.is_some();
        let drained = self.guard(|worker, watch| {
            if !has_panicked {
                watch.begin_drain();
                return worker.drain(TurnContext { now, watch });
            }
            let mut is_done = true;
            worker.visit(&mut |part| is_done &= part.discard());
            is_done
        });
        self.is_done = drained.unwrap_or(false);
    }
}
