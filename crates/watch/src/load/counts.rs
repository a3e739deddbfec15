//! The counts and times of a core's turns.

use serde::Serialize;

/// The counts and times of a core's turns since it began. An engine provides them while the core
/// runs, and [`LoadMeter`](crate::LoadMeter) computes figures for people from two readings.
///
/// If read while the core runs, the counts belong to slightly different moments.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct LoadCounts {
    /// The name of the core.
    pub core: String,
    /// The CPU that the core is pinned to.
    pub cpu: Option<usize>,
    /// The kernel's number of its thread; `None` if it has no thread of its own, as in a
    /// simulation.
    pub thread_id: Option<i32>,
    /// Turns that have ended: each polls once.
    pub turns: u64,
    /// Turns without packets, at most `turns`.
    pub empty_turns: u64,
    /// Packets that came, from its source and through rings.
    pub packets: u64,
    /// Maximum number of packets in a turn: a burst from each input that may have some.
    pub packets_per_turn_max: u64,
    /// The turns that were timed.
    pub timed: TimedTurns,
    /// The times of the places, in the order of a packet.
    pub places: Vec<PlaceLoad>,
}

/// Sums over the turns that were timed: one in 64, less a few. A sum that overflows starts from 0.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct TimedTurns {
    /// Turns left out because they took many times longer than others: the thread was off its CPU.
    pub outliers: u64,
    /// Turns without packets.
    pub empty_count: u64,
    /// The nanoseconds of these turns.
    pub empty_ns: u64,
    /// Turns with packets.
    pub busy_count: u64,
    /// The packets of these turns.
    pub packets: u64,
    /// Sum of the squares of the turns' packets.
    pub packets_squared: u64,
    /// The nanoseconds of these turns.
    pub ns: u64,
    /// Sum of the squares of the turns' nanoseconds.
    pub ns_squared: u64,
    /// Sum of the products of the turns' packets and nanoseconds.
    pub packets_ns: u64,
    /// The packets of other turns: the turns that were timed place by place.
    pub by_place_packets: u64,
    /// The nanoseconds of ticks in these turns: the work of stages with or without packets.
    pub ticks_ns: u64,
}

/// The time of one place on a core.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct PlaceLoad {
    /// The group of cores that the place belongs to.
    pub group: usize,
    /// The kind of place, as in [`PlaceSnapshot`](crate::PlaceSnapshot).
    pub place: String,
    /// The name of the stage, or the engine's name for the place.
    pub name: String,
    /// The place's nanoseconds in the turns that were timed place by place.
    pub ns: u64,
    /// The packets that wait there for the core: in its RX queue, if the driver reports them, or in
    /// the rings to it.
    pub waiting: Option<Waiting>,
}

/// Packets that wait for a core, read once in 64 turns, before it polls.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Waiting {
    /// The latest reading.
    pub now: u64,
    /// The high-water mark: the highest reading. Packets that did not fit are counted exactly: as
    /// `ring_full` by the core that sends, as `imissed` by the device.
    pub max: u64,
    /// Maximum number that can wait; `None` if unknown.
    pub capacity: Option<u64>,
}
