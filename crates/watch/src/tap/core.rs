//! A core's side of captures: it sees the core's packets.

use super::Points;
use super::page::Page;
use hotloop_ring::{Consumer, Producer, ring};
use hotloop_stage::tap::{CAPTURE_COUNT_MAX, Filter, Interest, Seen, Tap, TapEvent, TapPoint};
use hotloop_stage::{Counter, Instant};
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// A message from control to a core: the beginning of a capture, or the end of the capture with
/// this number.
pub(super) enum Change {
    Begin(Box<Probe>),
    End(usize),
}

/// Control's end of a core's captures, for [`Taps::add`](super::Taps::add).
pub struct TapControl {
    pub(super) changes: Producer<Change>,
    /// The probes of captures that have ended, for control to free.
    pub(super) home: Consumer<Box<Probe>>,
    /// Number of probes that the core has, or is about to get.
    pub(super) probe_count: Arc<AtomicUsize>,
}

/// The captures of one core, which an engine [enters](hotloop_stage::tap::enter) for the core's
/// thread. They begin and end between bursts.
pub struct CoreTap {
    state: RefCell<State>,
    probe_count: Arc<AtomicUsize>,
}

/// Dropped in this order: once control sees `home` closed, all pages have been sent.
struct State {
    probes: [Option<Box<Probe>>; CAPTURE_COUNT_MAX],
    changes: Consumer<Change>,
    home: Producer<Box<Probe>>,
    probe_count: Arc<AtomicUsize>,
}

impl CoreTap {
    /// A core's captures, and control's end of them.
    #[must_use]
    pub fn new() -> (Rc<Self>, TapControl) {
        // A capture of a core begins and ends before the next capture with its number begins.
        let (changes_tx, changes) = ring(2 * CAPTURE_COUNT_MAX);
        let (home, home_rx) = ring(CAPTURE_COUNT_MAX);
        let probe_count = Arc::<AtomicUsize>::default();
        let count = || Arc::clone(&probe_count);
        let state = State { probes: Default::default(), changes, home, probe_count: count() };
        let control = TapControl { changes: changes_tx, home: home_rx, probe_count: count() };
        (Rc::new(Self { state: RefCell::new(state), probe_count }), control)
    }

    /// Whether a capture of this core runs or is about to begin: otherwise the core has nothing to
    /// do here.
    #[inline(always)]
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.probe_count.load(Relaxed) != 0
    }

    /// Call this between bursts: begins and ends captures, and sends the pages that a capture waits
    /// for.
    #[inline]
    pub fn maintain(&self) {
        let mut state = self.state.borrow_mut();
        state.take_up();
        state.probes.iter_mut().flatten().for_each(|probe| probe.hand_over_where_awaited());
    }
}

impl fmt::Debug for CoreTap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoreTap").finish_non_exhaustive()
    }
}

impl fmt::Debug for TapControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TapControl").finish_non_exhaustive()
    }
}

impl Tap for CoreTap {
    fn interest(&self, event: &TapEvent<'_>) -> Interest {
        let mut state = self.state.borrow_mut();
        state.take_up();
        let captures = event.counters.captures();
        let number = captures.trailing_zeros() as usize;
        // Several captures rarely have a need in common.
        let only = state.probes.get(number).filter(|_| captures.is_power_of_two());
        let filter = only.and_then(Option::as_ref).and_then(|probe| probe.filter.as_ref());
        Interest { captures, needs: filter.and_then(|filter| filter.needs()) }
    }

    fn see(&self, event: &TapEvent<'_>, interest: Interest, packets: &[Seen<'_>], count: usize) {
        let mut state = self.state.borrow_mut();
        let mut captures = interest.captures;
        while captures != 0 {
            let number = captures.trailing_zeros() as usize;
            captures &= captures - 1;
            if let Some(probe) = &mut state.probes[number] {
                probe.see(event, packets, count);
            }
        }
    }
}

impl State {
    #[inline(always)]
    fn take_up(&mut self) {
        if !self.changes.is_empty() {
            self.change();
        }
    }

    #[cold]
    fn change(&mut self) {
        while let Some(change) = self.changes.pop() {
            match change {
                Change::Begin(probe) => {
                    let number = probe.number;
                    self.probes[number] = Some(probe);
                }
                Change::End(number) => {
                    if let Some(mut probe) = self.probes[number].take() {
                        probe.hand_over();
                        // There is room: a number isn't used again before its probe is home.
                        let _ = self.home.push(probe);
                        self.probe_count.fetch_sub(1, Relaxed);
                    }
                }
            }
        }
    }
}

/// The counts of a capture on one core, in packets.
#[derive(Debug, Default)]
pub(super) struct ProbeCounts {
    /// Packets that the capture saw.
    pub seen: Counter,
    /// The part of `seen` that the filter wants.
    pub wanted: Counter,
    /// The part of `wanted` that the sampling left out.
    pub left_out: Counter,
    /// Of the others, packets without a free page.
    pub lost: Counter,
    /// Whether the capture has taken all records and waits for more.
    pub is_awaited: AtomicBool,
}

/// One capture's end on one core.
pub(super) struct Probe {
    pub number: usize,
    pub points: Arc<Points>,
    pub filter: Option<Arc<dyn Filter>>,
    pub snap_bytes: usize,
    /// One packet in this many is kept.
    pub sample: u32,
    /// Number of packets to leave out before the next one to keep.
    pub until_next: u32,
    /// Whether packets carry their time of reception.
    pub is_paced: bool,
    pub page: Option<Box<Page>>,
    pub empty: Consumer<Box<Page>>,
    pub full: Producer<Box<Page>>,
    pub counts: Arc<ProbeCounts>,
}

impl Probe {
    /// Sees `count` packets. `packets` are all of them that it may want.
    fn see(&mut self, event: &TapEvent<'_>, packets: &[Seen<'_>], count: usize) {
        if !self.points.has(event.point) {
            return;
        }
        self.counts.seen.add(count as u64);
        let all = u64::MAX.checked_shr(64 - packets.len() as u32).unwrap_or(0);
        let select = |filter: &Arc<dyn Filter>| if all == 0 { 0 } else { filter.select(packets) };
        let wanted = self.filter.as_ref().map_or(all, select) & all;
        if wanted != 0 {
            self.keep(event, packets, wanted);
        }
    }

    /// Copies the packets with set bits.
    fn keep(&mut self, event: &TapEvent<'_>, packets: &[Seen<'_>], mut wanted: u64) {
        self.counts.wanted.add(wanted.count_ones().into());
        while wanted != 0 {
            let seen = &packets[wanted.trailing_zeros() as usize];
            wanted &= wanted - 1;
            if self.until_next > 0 {
                self.until_next -= 1;
                self.counts.left_out.add(1);
                continue;
            }
            self.until_next = self.sample - 1;
            let arrival = || seen.packet.arrival().filter(|_| event.point == TapPoint::Receive);
            let at = if self.is_paced { arrival().unwrap_or(event.now) } else { event.now };
            self.copy(event.counters.place(), event.point, at, seen);
        }
    }

    fn copy(&mut self, place: u32, point: TapPoint, at: Instant, seen: &Seen<'_>) {
        if !self.has_copied(place, point, at, seen) {
            self.hand_over();
            self.page = self.empty.pop();
            // Every packet fits into an empty page.
            if !self.has_copied(place, point, at, seen) {
                self.counts.lost.add(1);
            }
        }
    }

    fn has_copied(&mut self, place: u32, point: TapPoint, at: Instant, seen: &Seen<'_>) -> bool {
        self.page.as_mut().is_some_and(|page| page.push(place, point, at, seen, self.snap_bytes))
    }

    fn hand_over_where_awaited(&mut self) {
        let has_some = self.page.as_ref().is_some_and(|page| !page.is_empty());
        if has_some && self.counts.is_awaited.load(Relaxed) {
            self.counts.is_awaited.store(false, Relaxed);
            self.hand_over();
        }
    }

    /// Sends the page. There is room for all pages.
    fn hand_over(&mut self) {
        if let Some(page) = self.page.take() {
            let _ = self.full.push(page);
        }
    }
}

impl Drop for Probe {
    /// If the core has ended, its last copies are still available.
    fn drop(&mut self) {
        self.hand_over();
    }
}
