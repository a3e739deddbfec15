//! A stage's counters on one core.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

/// A counter with one writer, which any thread may read at any time.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `count`. Only the one writer may call this: it loads and stores without a locked
    /// instruction, so a second writer's counts would be lost.
    #[inline(always)]
    pub fn add(&self, count: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(count), Relaxed);
    }

    /// Sets the counter, if it shows a state. Only the one writer may call this.
    #[inline(always)]
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// The count now.
    #[inline]
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The counters of one stage on one core: written only by that core, summed once per burst, on
/// their own cache lines (two: x86-64 fetches lines in pairs). The counters that every burst needs
/// are on the first line.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Counters {
    /// Packets taken.
    pub received: Counter,
    /// Packets emitted, including created ones.
    pub emitted: Counter,
    /// Packets that the stage made itself.
    pub created: Counter,
    /// Packets that the stage holds at the end of the last burst.
    pub held: Counter,
    /// The captures that see this place's packets, a bit for each.
    captures: AtomicU8,
    /// The number of this place on its core.
    place: AtomicU32,
    dropped: Box<[Counter]>,
    /// The part of `emitted` that left for another core.
    pub crossed: Counter,
    /// Packets that came in and neither left, nor were dropped, nor are held.
    pub unattributed: Counter,
    /// Packets that left without having come in or having been created.
    pub uncreated: Counter,
    /// Packets lost to a panic.
    pub panicked: Counter,
    reasons: &'static [&'static str],
}

impl Counters {
    /// Counters of a stage that drops for these reasons.
    #[must_use]
    pub fn new(reasons: &'static [&'static str]) -> Self {
        let dropped = reasons.iter().map(|_| Counter::default()).collect();
        Self { dropped, reasons, ..Self::default() }
    }

    /// The captures that see this place's packets, a bit for each; 0 without captures.
    #[inline(always)]
    #[must_use]
    pub fn captures(&self) -> u8 {
        self.captures.load(Relaxed)
    }

    /// Whether a capture sees this place's packets: one relaxed load.
    #[inline(always)]
    #[must_use]
    pub fn is_tapped(&self) -> bool {
        self.captures() != 0
    }

    /// Sets the captures that see this place's packets. For an engine: its control thread is the
    /// one writer.
    pub fn set_captures(&self, captures: u8) {
        self.captures.store(captures, Relaxed);
    }

    /// The number of this place among the places of its core, as set by the engine; 0 before.
    #[must_use]
    pub fn place(&self) -> u32 {
        self.place.load(Relaxed)
    }

    /// Sets the number of this place. For an engine.
    pub fn set_place(&self, place: u32) {
        self.place.store(place, Relaxed);
    }

    /// Counts one drop for the reason at `index`.
    #[inline(always)]
    pub fn count_drop(&self, index: usize) {
        self.count_drops(index, 1);
    }

    /// Counts drops for the reason at `index`.
    #[inline(always)]
    pub fn count_drops(&self, index: usize, count: u64) {
        self.dropped[index].add(count);
    }

    /// Raises the number of drops for the reason at `index` to `count`, which another party counts,
    /// and returns the increase.
    pub fn catch_up_drops(&self, index: usize, count: u64) -> u64 {
        let counter = &self.dropped[index];
        let more = count.saturating_sub(counter.count());
        counter.add(more);
        more
    }

    /// The names of the place's drop reasons.
    #[must_use]
    pub const fn reasons(&self) -> &'static [&'static str] {
        self.reasons
    }

    /// Drops so far, for all reasons.
    #[must_use]
    pub fn dropped_sum(&self) -> u64 {
        self.dropped.iter().map(Counter::count).sum()
    }

    /// Drops so far, each with its reason's name.
    pub fn dropped(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.reasons.iter().copied().zip(self.dropped.iter().map(Counter::count))
    }
}
