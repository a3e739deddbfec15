//! What a core has counted and timed of its turns.

use serde::Serialize;

/// What a core has counted and timed of its turns since it began.
/// An engine hands it out while the core runs, and [`LoadMeter`](crate::LoadMeter) makes the figures for
/// people of two readings.
///
/// Read while the core runs, the counts are of slightly different moments.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct LoadCounts {
    /// The name of the core.
    pub core: String,
    /// The CPU that it is pinned to.
    pub cpu: Option<usize>,
    /// The kernel's number of its thread; nothing where it has none of its own, as in a simulation.
    pub thread_id: Option<i32>,
    /// Turns that have ended: each polls once.
    pub turns: u64,
    /// Turns in which no packet came, at most `turns`.
    pub empty_turns: u64,
    /// Packets that came, from its source and through rings.
    pub packets: u64,
    /// The most packets that can come in a turn: a burst from each input that may have some.
    pub packets_per_turn_max: u64,
    /// The turns that were timed.
    pub timed: TimedTurns,
    /// Each place, in the order of a packet.
    pub places: Vec<PlaceLoad>,
}

/// Sums over the turns that were timed: one in 64, less a few. A sum that is full starts from 0.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct TimedTurns {
    /// Turns left out, because they took many times longer than others: the thread was off its CPU.
    pub outliers: u64,
    /// Turns in which no packet came.
    pub empty_count: u64,
    /// The nanoseconds that they took.
    pub empty_ns: u64,
    /// Turns in which packets came.
    pub busy_count: u64,
    /// Their packets.
    pub packets: u64,
    /// The squares of the numbers of packets of each.
    pub packets_squared: u64,
    /// The nanoseconds that they took.
    pub ns: u64,
    /// The squares of the nanoseconds of each.
    pub ns_squared: u64,
    /// The products of packets and nanoseconds of each.
    pub packets_ns: u64,
    /// The packets of other turns, those that were timed place by place.
    pub by_place_packets: u64,
    /// The nanoseconds that ticks took of these turns: what stages do with or without packets.
    pub ticks_ns: u64,
}

/// What a core has timed of one place.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct PlaceLoad {
    /// The group of cores that the place belongs to.
    pub group: usize,
    /// The kind of place, as in [`PlaceSnapshot`](crate::PlaceSnapshot).
    pub place: String,
    /// The name of the stage, or what the engine calls the place.
    pub name: String,
    /// The nanoseconds that it took of the turns that were timed place by place.
    pub ns: u64,
    /// The packets that wait there for the core: in its RX queue, where the driver can say, or in the
    /// rings to it.
    pub waiting: Option<Waiting>,
}

/// Packets that wait for a core, looked at once in 64 turns, before it polls.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Waiting {
    /// When looked at last.
    pub now: u64,
    /// The high-water mark: the most there were when looked at. How many did not fit is counted
    /// exactly: as `ring_full` by the core that sends, as `imissed` by the device.
    pub max: u64,
    /// The most that find room; nothing where that is not known.
    pub capacity: Option<u64>,
}
