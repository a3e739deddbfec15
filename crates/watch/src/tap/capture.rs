//! Control's side of captures.

use super::core::{Change, Probe, ProbeCounts, TapControl};
use super::page::Page;
use super::{CaptureConfig, Drops, PAGE_BYTES, Points, Record, SNAP_BYTES_MAX};
use crate::load::TimeSource;
use crate::place::PlaceKind;
use crate::snapshot::CorePlaces;
use hotloop_ring::{Consumer, Producer, ring};
use hotloop_stage::tap::{CAPTURE_COUNT_MAX, TapPoint};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// The taps of a run, for any thread that begins captures. It may outlive the run, and captures
/// nothing then.
#[derive(Clone)]
pub struct Taps {
    /// The clock of the run, if it has one.
    clock: Option<TimeSource>,
    /// Whether packets' arrivals advance the time.
    is_paced: bool,
    registry: Arc<Mutex<Registry>>,
}

#[derive(Default)]
struct Registry {
    /// The cores, in the order of the deployment.
    cores: Vec<ControlledCore>,
    /// The numbers of captures that are not over, a bit for each.
    used: u8,
}

/// A core from the view of captures.
struct ControlledCore {
    control: TapControl,
    places: CorePlaces,
    /// The captures that have a probe on the core, a bit for each.
    probes: u8,
}

/// The reason that a capture can't begin.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The maximum number of captures is in use.
    #[error(
        "{CAPTURE_COUNT_MAX} captures are running or ending, the most at a time: end one of them first"
    )]
    TooMany,
    /// There is no such core.
    #[error("there is no worker {asked}: there are {count}, numbered from 0")]
    NoCore {
        /// The number that was asked for.
        asked: usize,
        /// The number of cores.
        count: usize,
    },
    /// No packet is dropped for this reason.
    #[error("nothing is dropped as {reason:?}; packets may be dropped as {}", known.join(", "))]
    NoReason {
        /// The reason that was asked for.
        reason: String,
        /// The existing reasons.
        known: Vec<String>,
    },
    /// A number is not within its bounds.
    #[error("{what} has to be {least} to {most}, not {asked}")]
    OutOfBounds {
        /// The name of the number.
        what: &'static str,
        /// The number that was asked for.
        asked: usize,
        /// The number's minimum.
        least: usize,
        /// The number's maximum.
        most: usize,
    },
}

/// Maximum number of pages of a core: 4 GiB.
const PAGE_COUNT_MAX: usize = (4 << 30) / PAGE_BYTES;

impl Taps {
    /// For an engine: no cores yet. Without a `clock`, the time is the packets' time if `is_paced`,
    /// and otherwise a driver's.
    #[must_use]
    pub fn new(clock: Option<TimeSource>, is_paced: bool) -> Self {
        Self { clock, is_paced, registry: Arc::default() }
    }

    /// For an engine: adds the next core, in the order of the deployment.
    pub fn add(&self, control: TapControl, places: CorePlaces) {
        for (place, number) in places.places.iter().zip(0..) {
            place.counters.set_place(number);
        }
        self.lock().cores.push(ControlledCore { control, places, probes: 0 });
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a capture. Makes and touches the pages, so it takes some milliseconds: only for a
    /// thread that may wait. Each core begins the capture with its next burst.
    ///
    /// # Errors
    /// If there are too many captures, or the configuration names a core or reason that doesn't
    /// exist.
    pub fn capture(&self, config: &CaptureConfig) -> Result<Capture, CaptureError> {
        check(config)?;
        let number = self.lock().reserve(config)?;
        // If dropped early, it returns its number.
        let mut capture = Capture {
            taps: self.clone(),
            number,
            cores: Vec::new(),
            interfaces: Vec::new(),
            offset_ns: self.offset_ns(),
            is_stopped: false,
        };
        let points = Arc::new(config.points.clone());
        let count = self.lock().cores.len();
        for core in (0..count).filter(|core| config.core.is_none_or(|only| only == *core)) {
            let probe = capture.add_core(core, config, &points);
            self.lock().begin(core, probe);
        }
        self.lock().tap(number, config);
        Ok(capture)
    }

    /// The difference between the time of day and the engine's time, in nanoseconds.
    fn offset_ns(&self) -> i128 {
        self.clock.as_ref().map_or(0, |clock| {
            let day = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            day.as_nanos().cast_signed() - i128::from(clock())
        })
    }
}

impl fmt::Debug for Taps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taps").finish_non_exhaustive()
    }
}

fn check(config: &CaptureConfig) -> Result<(), CaptureError> {
    let bounds = [
        ("the snap length", config.snap_bytes, 1, SNAP_BYTES_MAX),
        ("the sampling", config.sample as usize, 1, u32::MAX as usize),
        ("the number of pages", config.page_count, 2, PAGE_COUNT_MAX),
    ];
    for (what, asked, least, most) in bounds {
        if !(least..=most).contains(&asked) {
            return Err(CaptureError::OutOfBounds { what, asked, least, most });
        }
    }
    Ok(())
}

impl Registry {
    /// Reserves a number for a capture, after checking its configuration.
    fn reserve(&mut self, config: &CaptureConfig) -> Result<usize, CaptureError> {
        let count = self.cores.len();
        if let Some(asked) = config.core.filter(|core| *core >= count) {
            return Err(CaptureError::NoCore { asked, count });
        }
        if let Drops::For(reasons) = &config.points.drops {
            let known = self.reasons();
            if let Some(reason) = reasons.iter().find(|reason| !known.contains(reason.as_str())) {
                let known = known.into_iter().map(str::to_owned).collect();
                return Err(CaptureError::NoReason { reason: reason.clone(), known });
            }
        }
        self.collect();
        let busy = self.cores.iter().fold(self.used, |busy, core| busy | core.probes);
        let number = busy.trailing_ones() as usize;
        if number >= CAPTURE_COUNT_MAX {
            return Err(CaptureError::TooMany);
        }
        self.used |= 1 << number;
        Ok(number)
    }

    /// The drop reasons of every place that captures can see.
    fn reasons(&self) -> BTreeSet<&'static str> {
        let places = self.cores.iter().flat_map(|core| &core.places.places);
        places.flat_map(|place| place.counters.reasons()).copied().collect()
    }

    fn begin(&mut self, core: usize, probe: Box<Probe>) {
        let core = &mut self.cores[core];
        let bit = 1 << probe.number;
        // There is room: there are never more changes on the way than captures begin and end.
        if !core.control.home.is_closed() && core.control.changes.push(Change::Begin(probe)).is_ok()
        {
            core.probes |= bit;
            core.control.probe_count.fetch_add(1, Relaxed);
        }
    }

    /// Makes the capture's places show their packets to it.
    fn tap(&self, number: usize, config: &CaptureConfig) {
        let is_on = |core: usize| config.core.is_none_or(|only| only == core);
        let cores = self.cores.iter().enumerate().filter(|(index, _)| is_on(*index));
        for (_, core) in cores {
            for place in &core.places.places {
                if sees(&config.points, place.kind, place.counters.reasons()) {
                    let captures = place.counters.captures() | 1 << number;
                    place.counters.set_captures(captures);
                }
            }
        }
    }

    /// Ends a capture: from now on no place shows it packets, and each core returns its probe.
    fn end(&mut self, number: usize) {
        let bit = 1 << number;
        for core in &mut self.cores {
            for place in &core.places.places {
                place.counters.set_captures(place.counters.captures() & !bit);
            }
            if core.probes & bit != 0 {
                // There is room, as in `begin`.
                let _ = core.control.changes.push(Change::End(number));
            }
        }
        self.used &= !bit;
        self.collect();
    }

    /// Frees the returned probes.
    fn collect(&mut self) {
        for core in &mut self.cores {
            while let Some(probe) = core.control.home.pop() {
                core.probes &= !(1 << probe.number);
            }
            if core.control.home.is_closed() {
                core.probes = 0;
            }
        }
    }
}

/// Whether a place of this kind, with these drop reasons, must show its packets.
fn sees(points: &Points, kind: PlaceKind, reasons: &[&'static str]) -> bool {
    (points.receive && kind == PlaceKind::Source)
        || (points.send && kind == PlaceKind::Sink)
        || reasons.iter().any(|reason| points.has(TapPoint::Drop(reason)))
}

/// A capture's source of packets: a place on a core.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Interface {
    /// The name of the core.
    pub core: String,
    /// The name of the place: the stage's, or the engine's name for it.
    pub place: String,
    /// The names of the place's devices, if any.
    pub devices: Vec<String>,
}

/// The counts of a capture up to now, in packets.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Totals {
    /// Packets that the capture saw.
    pub seen: u64,
    /// The part of `seen` that the filter did not want.
    pub filtered: u64,
    /// Of the others, packets that the sampling left out.
    pub left_out: u64,
    /// Of the others, packets lost because no page was free.
    pub lost: u64,
}

/// A capture that runs. It ends when it is dropped.
pub struct Capture {
    taps: Taps,
    number: usize,
    cores: Vec<CoreRecords>,
    interfaces: Vec<Interface>,
    offset_ns: i128,
    is_stopped: bool,
}

/// The source of one core's records.
struct CoreRecords {
    /// The core's index in the order of the deployment.
    index: usize,
    /// The index of the core's first interface.
    first_interface: usize,
    empty: Producer<Box<Page>>,
    full: Consumer<Box<Page>>,
    counts: Arc<ProbeCounts>,
}

impl Capture {
    /// Makes the core's end of the capture and sends it, and keeps the other end.
    fn add_core(
        &mut self,
        core: usize,
        config: &CaptureConfig,
        points: &Arc<Points>,
    ) -> Box<Probe> {
        let (mut empty, empty_rx) = ring(config.page_count);
        let (full_tx, full) = ring(config.page_count);
        for _ in 0..config.page_count {
            // There is room for all.
            let _ = empty.push(Box::new(Page::new()));
        }
        let counts = Arc::new(ProbeCounts::default());
        let first_interface = self.interfaces.len();
        {
            let registry = self.taps.lock();
            let CorePlaces { name, places, devices, .. } = &registry.cores[core].places;
            let interfaces = places.iter().zip(devices);
            self.interfaces.extend(interfaces.map(|(place, devices)| Interface {
                core: name.clone(),
                place: place.name.clone(),
                devices: devices.clone(),
            }));
        }
        let records =
            CoreRecords { index: core, first_interface, empty, full, counts: Arc::clone(&counts) };
        self.cores.push(records);
        Box::new(Probe {
            number: self.number,
            points: Arc::clone(points),
            filter: config.filter.clone(),
            snap_bytes: config.snap_bytes,
            sample: config.sample,
            until_next: 0,
            is_paced: self.taps.is_paced,
            page: None,
            empty: empty_rx,
            full: full_tx,
            counts,
        })
    }

    /// Every place of the captured cores.
    #[must_use]
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// The difference between the time of day and the engine's time, in nanoseconds since the
    /// epoch: 0 if the engine has no clock of its own, and uses the packets' time.
    #[must_use]
    pub const fn epoch_offset_ns(&self) -> i128 {
        self.offset_ns
    }

    /// Takes the available records, each once, and returns their pages. The records of one core are
    /// in order. If `take` fails, the rest of its page is lost to the caller.
    ///
    /// Returns whether there were any. If not, the next call may wait a millisecond.
    ///
    /// # Errors
    /// The error of `take`.
    pub fn drain<E>(
        &mut self,
        take: &mut dyn FnMut(&Record<'_>) -> Result<(), E>,
    ) -> Result<bool, E> {
        let mut has_come = false;
        for core in &mut self.cores {
            let mut last = Ok(());
            // At most all pages: a core that copies continuously does not keep the other cores
            // waiting.
            for _ in 0..core.full.capacity() {
                let Some(mut page) = core.full.pop() else { break };
                has_come = true;
                last = page.records().try_for_each(|record| {
                    let interface = core.first_interface + record.interface;
                    take(&Record { interface, ..record })
                });
                page.clear();
                // There is room for all. If the core has ended, the page is freed with the ring.
                let _ = core.empty.push(page);
                if last.is_err() {
                    break;
                }
            }
            core.counts.is_awaited.store(true, Relaxed);
            last?;
        }
        Ok(has_come)
    }

    /// Ends the capture: no more packets are seen. The packets copied up to now remain to be
    /// [drained](Self::drain).
    pub fn stop(&mut self) {
        if !std::mem::replace(&mut self.is_stopped, true) {
            self.taps.lock().end(self.number);
        }
    }

    /// Whether nothing more will come: the capture was stopped, or every core has ended, and all
    /// records were drained.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let mut registry = self.taps.lock();
        registry.collect();
        // In this order: a core that has ended sends nothing any more. If it ended before it began
        // the capture, nothing more comes from it.
        let is_over = |core: &CoreRecords| {
            let is_gone = registry.cores[core.index].control.home.is_closed();
            core.full.is_finished() || (is_gone && core.full.is_empty())
        };
        self.cores.iter().all(is_over)
    }

    /// The capture's counts up to now.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for core in &self.cores {
            let counts = &core.counts;
            let wanted = counts.wanted.count();
            totals.seen += counts.seen.count();
            totals.filtered += counts.seen.count().saturating_sub(wanted);
            totals.left_out += counts.left_out.count();
            totals.lost += counts.lost.count();
        }
        totals
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture")
            .field("number", &self.number)
            .field("totals", &self.totals())
            .finish_non_exhaustive()
    }
}
