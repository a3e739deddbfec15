//! How far apart two cores are, by the time that a cache line takes from one to the other.

use crate::bare_lines::BareLines;
use crate::cores::Pair;
use serde::{Deserialize, Serialize};

/// One-way trips of a measurement: about a tenth of a millisecond.
const TRIP_COUNT: u64 = 800;

/// A line takes at most so many nanoseconds, one way, between near cores and between far ones.
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
    /// Both.
    pub const ALL: [Self; 2] = [Self::Near, Self::Far];

    /// The distance of two cores between which a line took so long before a slice and after it: none
    /// where it changed in between or the line was held up.
    #[must_use]
    pub fn of(before_ns: f64, after_ns: f64) -> Option<Self> {
        let of = |ns: f64| match ns {
            ..=NEAR_NS_MAX => Some(Self::Near),
            ..=FAR_NS_MAX => Some(Self::Far),
            _ => None,
        };
        of(before_ns).filter(|_| of(before_ns) == of(after_ns))
    }

    /// Its name in a table.
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

    /// Nanoseconds of a one-way trip now.
    #[must_use]
    pub fn trip_ns(&self) -> f64 {
        self.bare.trips(self.pair, TRIP_COUNT).as_secs_f64() * 1e9 / TRIP_COUNT as f64
    }

    /// How often one of the two threads was interrupted while it worked.
    #[must_use]
    pub fn switch_count(&self) -> u64 {
        self.pair.switch_count()
    }
}

/// Nanoseconds of a line's way from the first CPU to the second, where there are two: `NAN`, which is no distance, while
/// they are hardware threads of one core. In a thread of its own: the calling one stays free.
///
/// # Errors
/// Where the kernel refuses to pin a thread.
///
/// # Panics
/// When the measurement does.
pub fn trip_ns() -> Result<Option<f64>, String> {
    let of_pair =
        |pair: Pair| if pair.shares_core() { f64::NAN } else { Lines::new(pair).trip_ns() };
    let measure = || Ok(Pair::pin()?.map(of_pair));
    std::thread::scope(|scope| scope.spawn(measure).join()).expect("the measurement doesn't panic")
}
