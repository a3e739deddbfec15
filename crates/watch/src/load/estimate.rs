//! Estimates a core's distance from its limit from its counts and times.

use super::counts::{LoadCounts, PlaceLoad, TimedTurns, Waiting};
use serde::Serialize;

/// Weight of the earlier timings relative to those since the last reading: bursts of several sizes
/// show the cost of a packet and of a turn.
const KEPT_SHARE: f64 = 0.5;

/// Minimum number of timed turns for an estimate of the cost of another packet.
const FIT_COUNT_MIN: f64 = 8.0;

/// Maximum standard error of that estimate, relative to the maximum cost of a packet.
const FIT_ERROR_MAX: f64 = 0.1;

/// Computes figures from a run's counts, each for the time since the previous reading.
///
/// # The load
///
/// A turn that finds *n* packets takes *a* + *b* · *n*. Bursts grow with the load, up to *B* packets,
/// so a core can take at most *B* / (*a* + *b* · *B*) packets in a nanosecond. Its load is the rate of
/// packets that came, over that rate:
///
/// > load = packets · (*a* / *B* + *b*) / time
///
/// An idle core has load 0; a core with full bursts back to back has load 1, whatever *a* and *b*.
/// The packets are counted. *a* and *b* are the least-squares line through the timed turns that
/// found packets. If these are all of one size, or too few, the line goes through their mean and
/// the last known *a*. Before *a* was known, it is the time of a turn without packets, which is no
/// more than the true *a*: the load is then too high rather than too low.
///
/// Time is only the time in which the core's thread could run: other threads' time on its CPU is
/// left out, since a core with half of a CPU is at its limit with half of the packets.
///
/// ```
/// use hotloop_watch::{LoadCounts, LoadMeter, TimedTurns};
///
/// // Of 64,000 turns in a millisecond, half found 2 packets; an empty one takes 10 ns, one with
/// // packets 15 + 3 for each.
/// let timed = TimedTurns {
///     empty_count: 500, empty_ns: 5_000,
///     busy_count: 500, packets: 1_000, packets_squared: 2_000, ns: 10_500, packets_ns: 21_000,
///     ..TimedTurns::default()
/// };
/// let counts = LoadCounts {
///     turns: 64_000, empty_turns: 32_000, packets: 64_000, packets_per_turn_max: 64, timed,
///     ..LoadCounts::default()
/// };
/// let load = &LoadMeter::default().read(&[counts], 1_000_000, |_| 1.0)[0];
/// // By (10 / 64 + 5.5) ns a packet. By (15 / 64 + 3) it would be 21 %: bursts of one size don't show it.
/// assert_eq!(load.load_percent.map(f64::round), Some(36.0));
/// ```
#[derive(Clone, Debug, Default)]
pub struct LoadMeter {
    before: Vec<LoadCounts>,
    costs: Vec<Costs>,
}

/// The load of a core since the previous reading.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CoreLoad {
    /// The name of the core.
    pub core: String,
    /// The CPU that the core is pinned to.
    pub cpu: Option<usize>,
    /// The load: 0 without packets, 100 at the limit. `None` if packets came, but their turns
    /// were not timed yet.
    pub load_percent: Option<f64>,
    /// Turns in a second.
    pub turns_per_second: f64,
    /// The share of turns without packets; `None` if there was no turn.
    pub empty_percent: Option<f64>,
    /// Packets in a second.
    pub packets_per_second: f64,
    /// The mean fill of the bursts that had packets.
    pub burst_percent: Option<f64>,
    /// Nanoseconds per packet, in turns with packets; `None` if no such turn was timed.
    pub ns_per_packet: Option<f64>,
    /// The part of that which the ticks of all stages took, with or without packets: from turns
    /// that were timed place by place.
    pub tick_ns_per_packet: Option<f64>,
    /// The times of the places, in the order of a packet.
    pub places: Vec<PlaceTime>,
}

/// A place's share of the core's time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PlaceTime {
    /// The kind of place, as in [`PlaceSnapshot`](crate::PlaceSnapshot).
    pub place: String,
    /// The name of the stage, or the engine's name for the place.
    pub name: String,
    /// Nanoseconds per packet of the core, including packets that did not come to this place. `None`
    /// if no turn was timed.
    pub ns_per_packet: Option<f64>,
    /// The packets that wait there for the core.
    pub waiting: Option<Waiting>,
}

impl LoadMeter {
    /// The figures of each core since the last reading, or since the beginning at the first.
    /// `passed_ns` is the time since then, and `available` the part of it in which the thread of a
    /// core could run, up to 1.
    pub fn read(
        &mut self,
        counts: &[LoadCounts],
        passed_ns: u64,
        available: impl Fn(&LoadCounts) -> f64,
    ) -> Vec<CoreLoad> {
        self.before.resize_with(counts.len(), LoadCounts::default);
        self.costs.resize_with(counts.len(), Costs::default);
        let each = counts.iter().zip(&self.before).zip(&mut self.costs);
        let loads = each.map(|((now, before), costs)| {
            costs.add(now.timed.since(&before.timed));
            let available_ns = float(passed_ns) * available(now).clamp(0.0, 1.0);
            CoreLoad::of(now, before, costs, float(passed_ns), available_ns)
        });
        let loads = loads.collect();
        self.before = counts.to_vec();
        loads
    }
}

impl CoreLoad {
    fn of(
        now: &LoadCounts,
        before: &LoadCounts,
        costs: &Costs,
        passed_ns: f64,
        available_ns: f64,
    ) -> Self {
        let since = |of: fn(&LoadCounts) -> u64| float(of(now).saturating_sub(of(before)));
        let (turns, empty) = (since(|counts| counts.turns), since(|counts| counts.empty_turns));
        let (packets, burst_max) =
            (since(|counts| counts.packets), float(now.packets_per_turn_max.max(1)));
        let share = |packet_ns: f64| ratio(packets * packet_ns * 100.0, available_ns);
        let load_percent = if packets == 0.0 {
            Some(0.0)
        } else {
            costs.packet_ns(burst_max).and_then(share).map(|percent| percent.min(100.0))
        };
        let by_place = since(|counts| counts.timed.by_place_packets);
        let earlier = |index: usize| before.places.get(index).map_or(0, |place| place.ns);
        let place = |(index, place): (usize, &PlaceLoad)| PlaceTime {
            place: place.place.clone(),
            name: place.name.clone(),
            ns_per_packet: ratio(float(place.ns.saturating_sub(earlier(index))), by_place),
            waiting: place.waiting,
        };
        Self {
            core: now.core.clone(),
            cpu: now.cpu,
            load_percent,
            turns_per_second: ratio(turns * 1e9, passed_ns).unwrap_or(0.0),
            empty_percent: ratio(empty * 100.0, turns),
            packets_per_second: ratio(packets * 1e9, passed_ns).unwrap_or(0.0),
            burst_percent: ratio(packets * 100.0, (turns - empty).max(0.0) * burst_max),
            ns_per_packet: ratio(
                since(|counts| counts.timed.ns),
                since(|counts| counts.timed.packets),
            ),
            tick_ns_per_packet: ratio(since(|counts| counts.timed.ticks_ns), by_place),
            places: now.places.iter().enumerate().map(place).collect(),
        }
    }
}

/// The costs of turns, the latest turns weighted most.
#[derive(Clone, Debug, Default)]
struct Costs {
    empty_count: f64,
    empty_ns: f64,
    busy_count: f64,
    packets: f64,
    packets_squared: f64,
    ns: f64,
    ns_squared: f64,
    packets_ns: f64,
    /// The cost of a turn without its packets, when bursts of several sizes last showed it.
    turn_ns: Option<f64>,
}

impl Costs {
    /// The known cost stays until there is a newer one.
    fn add(&mut self, timed: TimedTurns) {
        let add = |sum: &mut f64, more: u64| *sum = *sum * KEPT_SHARE + float(more);
        if timed.empty_count > 0 {
            add(&mut self.empty_count, timed.empty_count);
            add(&mut self.empty_ns, timed.empty_ns);
        }
        if timed.busy_count > 0 {
            add(&mut self.busy_count, timed.busy_count);
            add(&mut self.packets, timed.packets);
            add(&mut self.packets_squared, timed.packets_squared);
            add(&mut self.ns, timed.ns);
            add(&mut self.ns_squared, timed.ns_squared);
            add(&mut self.packets_ns, timed.packets_ns);
            self.turn_ns = self.fit().or(self.turn_ns);
        }
    }

    /// The cost of a packet in a burst of `burst_max`; `None` if no turn with packets was timed.
    fn packet_ns(&self, burst_max: f64) -> Option<f64> {
        let mean = ratio(self.packets, self.busy_count)?;
        let mean_ns = self.ns / self.busy_count;
        let turn_ns_min = self.turn_ns_min();
        let turn_ns = self.turn_ns.unwrap_or(0.0).max(turn_ns_min).min(mean_ns);
        Some(turn_ns / burst_max + (mean_ns - turn_ns) / mean)
    }

    /// A lower bound of a turn's cost without its packets: the cost of an empty turn.
    fn turn_ns_min(&self) -> f64 {
        let mean_ns = ratio(self.ns, self.busy_count).unwrap_or(0.0);
        ratio(self.empty_ns, self.empty_count).unwrap_or(0.0).min(mean_ns)
    }

    /// The cost of a turn without its packets, by the least-squares line; `None` if it is not known
    /// well enough.
    fn fit(&self) -> Option<f64> {
        let count = self.busy_count;
        let (mean, mean_ns) = (ratio(self.packets, count)?, self.ns / count);
        let variance = self.packets_squared / count - mean * mean;
        let covariance = self.packets_ns / count - mean * mean_ns;
        let slope = ratio(covariance, variance)?;
        let unexplained = self.ns_squared / count - mean_ns * mean_ns - slope * covariance;
        let error = (unexplained.max(0.0) / (variance * count)).sqrt();
        let slope_max = (mean_ns - self.turn_ns_min()) / mean;
        let is_known = count >= FIT_COUNT_MIN && error <= FIT_ERROR_MAX * slope_max;
        is_known.then(|| mean_ns - slope.clamp(0.0, slope_max) * mean)
    }
}

impl TimedTurns {
    fn since(&self, before: &Self) -> Self {
        let since = |of: fn(&Self) -> u64| of(self).wrapping_sub(of(before));
        Self {
            outliers: since(|turns| turns.outliers),
            empty_count: since(|turns| turns.empty_count),
            empty_ns: since(|turns| turns.empty_ns),
            busy_count: since(|turns| turns.busy_count),
            packets: since(|turns| turns.packets),
            packets_squared: since(|turns| turns.packets_squared),
            ns: since(|turns| turns.ns),
            ns_squared: since(|turns| turns.ns_squared),
            packets_ns: since(|turns| turns.packets_ns),
            by_place_packets: since(|turns| turns.by_place_packets),
            ticks_ns: since(|turns| turns.ticks_ns),
        }
    }
}

/// The quotient; `None` if the divisor is 0.
fn ratio(of: f64, by: f64) -> Option<f64> {
    (by > 0.0).then_some(of / by)
}

#[allow(clippy::cast_precision_loss, reason = "figures that are measured")]
const fn float(count: u64) -> f64 {
    count as f64
}
