//! The distance of two cores, measured as the time that a cache line takes from one to the other.

use crate::bare_lines::BareLines;
use crate::cores::Pair;
use crate::row::Row;
use crate::table::Table;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Number of one-way trips of a measurement, which takes about a tenth of a millisecond.
const TRIP_COUNT: u64 = 800;

/// Maximum nanoseconds of a one-way trip between near cores and between far ones.
const NEAR_NS_MAX: f64 = 70.0;
const FAR_NS_MAX: f64 = 250.0;

/// Two cores, and the lines between them.
#[derive(Debug)]
pub struct Lines {
    bare: BareLines,
    pair: Pair,
}

/// Cores that share a cache, and cores that don't.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Distance {
    /// A line takes at most 70 ns.
    Near,
    /// A line takes at most 250 ns.
    Far,
}

impl Distance {
    /// Both, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::Near, Self::Far];

    /// The distance of two cores, given the trip times before and after a slice: `None` if it
    /// changed in between or the line was held up.
    #[must_use]
    pub fn of(before_ns: f64, after_ns: f64) -> Option<Self> {
        let of = |ns: f64| match ns {
            ..=NEAR_NS_MAX => Some(Self::Near),
            ..=FAR_NS_MAX => Some(Self::Far),
            _ => None,
        };
        of(before_ns).filter(|_| of(before_ns) == of(after_ns))
    }

    /// The distance's name in a table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Far => "far",
        }
    }
}

impl Lines {
    /// Lines between the cores of `pair`.
    #[must_use]
    pub fn new(pair: Pair) -> Self {
        Self { bare: BareLines::default(), pair }
    }

    /// The current nanoseconds of a one-way trip.
    #[must_use]
    pub fn trip_ns(&self) -> f64 {
        self.bare.trips(self.pair, TRIP_COUNT).as_secs_f64() * 1e9 / TRIP_COUNT as f64
    }

    /// Number of times that one of the two threads was interrupted while it worked.
    #[must_use]
    pub fn switch_count(&self) -> u64 {
        self.pair.switch_count()
    }
}

/// A CPU that takes more than its best time, multiplied by this, shares its core with something
/// else.
const QUIET_FACTOR: f64 = 1.02;

/// The minimum time that each of the two CPUs has taken to multiply so far, in nanoseconds.
static LEAST_NS: [AtomicU64; 2] = [const { AtomicU64::new(u64::MAX) }; 2];

/// The state of the first two CPUs before and after a round.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    distance: Option<Distance>,
    multiplying_ns: [u64; 2],
}

impl Seen {
    /// The distance of the CPUs: `None` if it changed, if they were hardware threads of one core,
    /// or if another machine or program used the other hardware thread of a CPU's core. The last is
    /// judged by the best time of all rounds so far, so call this after the last round.
    #[must_use]
    pub fn distance(&self) -> Option<Distance> {
        let is_quiet = |(ns, least): (&u64, &AtomicU64)| {
            *ns as f64 <= least.load(Relaxed) as f64 * QUIET_FACTOR
        };
        self.distance.filter(|_| self.multiplying_ns.iter().zip(&LEAST_NS).all(is_quiet))
    }
}

/// Calls `act`, and measures the first two CPUs before and after.
///
/// # Errors
/// Errors of `act`; and if the kernel refuses to pin a thread.
///
/// # Panics
/// If the measurement panics.
pub fn around<T>(act: impl FnOnce() -> Result<T, String>) -> Result<(Seen, T), String> {
    let before = look()?;
    let done = act()?;
    let (distance, multiplying_ns) = match before.zip(look()?) {
        Some((before, after)) => {
            let [here, there] = [0, 1].map(|cpu| before.1[cpu].max(after.1[cpu]));
            (Distance::of(before.0, after.0), [here, there])
        }
        None => (None, [0; 2]),
    };
    Ok((Seen { distance, multiplying_ns }, done))
}

/// Plays rounds until `kept_count` of them [have a distance](Seen::distance), `count_max` at most.
///
/// # Errors
/// As for [`around`].
///
/// # Panics
/// As for [`around`].
pub fn rounds<T>(
    count_max: usize,
    kept_count: usize,
    mut round: impl FnMut() -> Result<T, String>,
) -> Result<Vec<(Seen, T)>, String> {
    let mut rounds = Vec::new();
    while rounds.len() < count_max && kept(&rounds) < kept_count {
        rounds.push(around(&mut round)?);
    }
    Ok(rounds)
}

/// Adds the rows of the rounds at each distance to `table`. `name` names a distance's rows, and `rows`
/// makes them. A distance without a round is listed as not shown.
pub fn add_rows<T>(
    rounds: &[(Seen, T)],
    table: &mut Table,
    name: impl Fn(Distance) -> String,
    rows: impl Fn(&[&T], &str, Distance) -> Vec<Row>,
) {
    for distance in Distance::ALL {
        let name = name(distance);
        let at_it = rounds.iter().filter(|(seen, _)| seen.distance() == Some(distance));
        let at_it: Vec<_> = at_it.map(|(_, round)| round).collect();
        if at_it.is_empty() {
            table.unshown.push(format!("{name}: the cores were never so far apart"));
        } else {
            table.rows.extend(rows(&at_it, &name, distance));
        }
    }
}

/// Number of rounds that have a distance.
#[must_use]
pub fn kept<T>(rounds: &[(Seen, T)]) -> usize {
    rounds.iter().filter(|(seen, _)| seen.distance().is_some()).count()
}

/// The time of a line's way between the first two CPUs, and how long each multiplies, if there are
/// two. Runs in a thread of its own: the calling one stays unpinned.
fn look() -> Result<Option<(f64, [u64; 2])>, String> {
    let of_pair = |pair: Pair| {
        // NaN is no distance.
        let trip_ns = if pair.shares_core() { f64::NAN } else { Lines::new(pair).trip_ns() };
        let multiplying_ns = pair.multiplying().map(|time| time.as_nanos() as u64);
        for (least, ns) in LEAST_NS.iter().zip(multiplying_ns) {
            least.fetch_min(ns, Relaxed);
        }
        (trip_ns, multiplying_ns)
    };
    let measure = || Ok(Pair::pin()?.map(of_pair));
    std::thread::scope(|scope| scope.spawn(measure).join()).expect("the measurement doesn't panic")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_on_a_cpu_that_was_slower_than_at_its_best_has_no_distance() {
        LEAST_NS.iter().for_each(|least| least.store(60_000, Relaxed));
        let of =
            |multiplying_ns| Seen { distance: Some(Distance::Near), multiplying_ns }.distance();
        assert_eq!(of([60_000, 61_200]), Some(Distance::Near));
        assert_eq!((of([60_000, 61_201]), of([70_000, 60_000])), (None, None));
        assert_eq!(Seen { distance: None, multiplying_ns: [60_000; 2] }.distance(), None);
    }
}
