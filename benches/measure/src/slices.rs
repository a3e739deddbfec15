//! Slices of a contest: selection of the kept ones, and their figures.

use crate::distance::Distance;
use crate::figure::{Figure, KeptMin, QUARTER_COUNT};
use serde::{Deserialize, Serialize};

/// Limit for a calibration next to a kept slice, relative to the level.
const CALIBRATION_MAX: f64 = 1.05;

/// Number of levels that are tried, each 1 % slower than the one before: up to 25 % slower than the
/// fastest calibration. A busy hyperthread costs more.
const LEVEL_COUNT: i32 = 23;

/// A side has enough if its kept slices are this many times the number that settles its figure.
const ENOUGH: usize = 5;

/// A side's time of one slice, and the observations around it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Slice {
    /// The quarter of the run in which it was played.
    pub quarter: usize,
    pub op_ns: f64,
    /// The slower one of the two.
    pub calibration_ns: f64,
    pub was_switched: bool,
    /// The distance of the two cores, if there are two.
    pub distance: Option<Distance>,
    /// The nanoseconds of each burst, if measured.
    pub bursts_ns: Vec<u32>,
}

impl Slice {
    pub fn is_kept(&self, level_ns: f64) -> bool {
        let is_at = (level_ns..=level_ns * CALIBRATION_MAX).contains(&self.calibration_ns);
        !self.was_switched && is_at
    }
}

/// The level of a contest's sides in nanoseconds: the fastest calibration at which each side has
/// enough kept slices, or the maximum possible number.
pub(crate) fn level_ns(sides: &[&[Slice]], kept_min: KeptMin) -> f64 {
    let best = [enough(kept_min), kept_min, KeptMin { each_quarter: 0, ..kept_min }];
    let level = best.into_iter().find_map(|kept_min| fastest_level_ns(sides, kept_min));
    level.unwrap_or_else(|| fastest_ns(sides))
}

/// The figure of kept slices.
pub(crate) fn figure<'s>(kept: impl Iterator<Item = &'s Slice>, kept_min: KeptMin) -> Figure {
    let kept: Vec<_> = kept.map(|slice| (slice.quarter, slice.op_ns)).collect();
    Figure::of_slices(&kept, kept_min)
}

const fn enough(kept_min: KeptMin) -> KeptMin {
    KeptMin { all: ENOUGH * kept_min.all, ..kept_min }
}

fn fastest_level_ns(sides: &[&[Slice]], kept_min: KeptMin) -> Option<f64> {
    let fastest_ns = fastest_ns(sides);
    let mut levels = (0..LEVEL_COUNT).map(|step| fastest_ns * 1.01_f64.powi(step));
    levels.find(|level_ns| {
        sides.iter().all(|side| {
            let mut counts = [0; QUARTER_COUNT];
            let kept = side.iter().filter(|slice| slice.is_kept(*level_ns));
            kept.for_each(|slice| counts[slice.quarter] += 1);
            kept_min.is_reached(counts)
        })
    })
}

fn fastest_ns(sides: &[&[Slice]]) -> f64 {
    let all = sides.iter().copied().flatten();
    all.map(|slice| slice.calibration_ns).fold(f64::MAX, f64::min)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const KEPT_MIN: usize = KeptMin::SLICES.all;

    pub const QUIET: Slice = Slice {
        quarter: 0,
        op_ns: 2.0,
        calibration_ns: 100.0,
        was_switched: false,
        distance: None,
        bursts_ns: Vec::new(),
    };

    const fn anywhere(all: usize) -> KeptMin {
        KeptMin { all, each_quarter: 0 }
    }

    /// The minimum number of slices, in all quarters alike.
    fn in_each_quarter(slice: &Slice) -> Vec<Slice> {
        let quarters = (0..KEPT_MIN).map(|index| index * QUARTER_COUNT / KEPT_MIN);
        quarters.map(|quarter| Slice { quarter, ..slice.clone() }).collect()
    }

    #[test]
    fn a_moment_of_a_faster_clock_is_not_the_level() {
        let fast = Slice { calibration_ns: 90.0, ..QUIET };
        let slow = Slice { calibration_ns: 130.0, ..QUIET };
        let [quiet, slow] = [QUIET, slow].map(|slice| in_each_quarter(&slice));
        let slices = [vec![fast; 3], quiet, slow].concat();
        let level_ns = level_ns(&[&slices], KeptMin::SLICES);
        let kept_count = slices.iter().filter(|slice| slice.is_kept(level_ns)).count();
        assert_eq!(kept_count, KEPT_MIN);
        // The others are too slow to be the level.
        assert_eq!(fastest_level_ns(&[&slices], anywhere(KEPT_MIN + 4)), None);
    }

    #[test]
    fn the_level_has_slices_in_every_quarter() {
        let fast = vec![QUIET; KEPT_MIN];
        let slow = in_each_quarter(&Slice { calibration_ns: 110.0, ..QUIET });
        let slices = [fast, slow].concat();
        assert!((105.0..110.1).contains(&level_ns(&[&slices], KeptMin::SLICES)));
        assert_eq!(fastest_level_ns(&[&slices], anywhere(KEPT_MIN)), Some(100.0));
    }
}
