//! A figure and its reliability.

use std::borrow::Borrow;

/// The number of parts of a run, which are compared with each other.
pub const QUARTER_COUNT: usize = 4;

/// The number of kept measurements that settles a figure.
#[derive(Clone, Copy, Debug)]
pub struct KeptMin {
    /// Minimum total.
    pub all: usize,
    /// Minimum in each quarter of the run except one, which may have been disturbed from beginning
    /// to end.
    pub each_quarter: usize,
}

impl KeptMin {
    /// For slices.
    pub const SLICES: Self = Self { all: 40, each_quarter: 5 };

    /// For rounds, which take a hundred times as long.
    pub const ROUNDS: Self = Self { all: 12, each_quarter: 3 };

    /// Whether these counts, by quarter, settle a figure.
    #[must_use]
    pub fn is_reached(&self, counts: [usize; QUARTER_COUNT]) -> bool {
        let full_count = counts.iter().filter(|count| **count >= self.each_quarter).count();
        counts.iter().sum::<usize>() >= self.all && full_count >= QUARTER_COUNT - 1
    }
}

/// One figure of a run, with the figures of its four quarters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// The figure of the whole run.
    pub value: f64,
    /// The figures of its quarters, in order.
    pub quarters: [f64; QUARTER_COUNT],
    /// Number of measurements.
    pub count: usize,
    /// Whether that is enough.
    pub settled: bool,
}

impl Figure {
    /// The median of the quarters of the run. In each quarter, the lower quartile of the kept
    /// slices counts: disturbances make a slice slower, never faster. Each slice comes with its
    /// quarter.
    #[must_use]
    pub fn of_slices(kept: &[(usize, f64)], kept_min: KeptMin) -> Self {
        let all: Vec<_> = kept.iter().map(|slice| slice.1).collect();
        let parts: [Vec<f64>; QUARTER_COUNT] = std::array::from_fn(|quarter| {
            kept.iter().filter(|slice| slice.0 == quarter).map(|slice| slice.1).collect()
        });
        let settled = kept_min.is_reached(parts.each_ref().map(Vec::len));
        let of_all = lower_quartile(&all);
        let quarters =
            parts.map(|part| if part.is_empty() { of_all } else { lower_quartile(&part) });
        Self { value: median(quarters), quarters, count: all.len(), settled }
    }

    /// The median of long rounds, each measured as a whole.
    ///
    /// # Panics
    /// If there are no rounds.
    #[must_use]
    pub fn of_rounds(rounds: impl IntoIterator<Item: Borrow<f64>>) -> Self {
        let rounds = &values(rounds)[..];
        let bounds = |quarter: usize| quarter * rounds.len() / QUARTER_COUNT;
        let quarters = std::array::from_fn(|quarter| {
            let first = bounds(quarter);
            median(&rounds[first..bounds(quarter + 1).max(first + 1)])
        });
        Self {
            value: median(rounds),
            quarters,
            count: rounds.len(),
            settled: rounds.len() >= QUARTER_COUNT,
        }
    }

    /// A figure that does not change.
    #[must_use]
    pub const fn exact(value: f64) -> Self {
        Self { value, quarters: [value; QUARTER_COUNT], count: 1, settled: true }
    }

    /// The figure in another unit.
    #[must_use]
    pub fn map(self, convert: impl Fn(f64) -> f64) -> Self {
        let Self { value, quarters, .. } = self;
        Self { value: convert(value), quarters: quarters.map(convert), ..self }
    }

    /// Combines two figures of the same run quarter by quarter; the value is the median.
    #[must_use]
    pub fn with(&self, other: &Self, combine: impl Fn(f64, f64) -> f64) -> Self {
        let of = |at: usize| combine(self.quarters[at], other.quarters[at]);
        let quarters: [f64; QUARTER_COUNT] = std::array::from_fn(of);
        Self {
            value: median(quarters),
            quarters,
            count: self.count.min(other.count),
            settled: self.settled && other.settled,
        }
    }

    /// The range of the closest three quarters. Their median, which is the figure, lies among them
    /// however far away the fourth is: a process may be badly placed in memory, or have a neighbour
    /// for a while.
    #[must_use]
    pub fn spread(&self) -> f64 {
        let mut sorted = self.quarters;
        sorted.sort_by(f64::total_cmp);
        let [first, second, third, fourth] = sorted;
        (third - first).min(fourth - second)
    }
}

fn values(figures: impl IntoIterator<Item: Borrow<f64>>) -> Vec<f64> {
    figures.into_iter().map(|figure| *figure.borrow()).collect()
}

/// The lower quartile; NaN if there are no figures.
#[must_use]
pub fn lower_quartile(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 4).copied().unwrap_or(f64::NAN)
}

/// The median of these figures; for an even number, the mean of the middle two.
///
/// # Panics
/// If there are no figures.
#[must_use]
pub fn median(figures: impl IntoIterator<Item: Borrow<f64>>) -> f64 {
    let mut sorted = values(figures);
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lower_quartile_of_many_slices_settles() {
        let kept: Vec<_> =
            (0..40).map(|slice| (slice / 10, f64::from(slice as u32 % 10))).collect();
        let figure = Figure::of_slices(&kept, KeptMin::SLICES);
        assert_eq!((figure.value, figure.quarters, figure.count), (2.0, [2.0; 4], 40));
        assert!(figure.settled);
    }

    #[test]
    fn only_one_quarter_may_be_without_slices() {
        let kept: Vec<_> = (0..60).map(|slice| (slice / 20, 1.0)).collect();
        assert!(Figure::of_slices(&kept, KeptMin::SLICES).settled);
        assert!(!Figure::of_slices(&kept[..40], KeptMin::SLICES).settled);
        assert!(!Figure::of_slices(&kept[10..48], KeptMin::SLICES).settled);
        assert!(!Figure::of_slices(&[], KeptMin::ROUNDS).settled);
    }

    #[test]
    fn quarters_are_those_of_the_rounds() {
        let figure = Figure::of_rounds([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        assert_eq!(figure.quarters, [1.5, 3.5, 5.5, 7.5]);
        assert_eq!((figure.value, figure.spread()), (4.5, 4.0));
        assert_eq!(Figure::of_rounds([1.0, 3.0]).quarters, [1.0, 1.0, 3.0, 3.0]);
    }

    #[test]
    fn one_quarter_may_be_far_away() {
        let figure = Figure::of_rounds([2.0, 9.0, 3.0, 2.5]);
        assert_eq!((figure.value, figure.spread()), (2.75, 1.0));
        assert_eq!(Figure::of_rounds([2.0, 0.1, 3.0, 2.5]).spread(), 1.0);
        assert_eq!(Figure::of_rounds([2.0, 9.0, 9.0, 2.5]).spread(), 6.5);
    }
}
