//! Slices of a contest: which of them are kept, and when there are enough.

use crate::distance::Distance;
use crate::figure::{Figure, KeptMin, QUARTER_COUNT};

/// How much slower than the level a calibration next to a kept slice may be.
const CALIBRATION_MAX: f64 = 1.05;

/// Levels that are tried, each 1 % slower than the one before: up to 25 % slower than the fastest
/// calibration. A busy hyperthread costs more.
const LEVEL_COUNT: i32 = 23;

/// With so many times as many kept slices as settle its figure, a side has enough.
const ENOUGH: usize = 5;

/// A ratio that differs by no more between the quarters of the run is steady.
const SPREAD_ENOUGH: f64 = 0.05;

/// A side's time of one slice, and what was seen around it.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    /// The visit in which it was played.
    pub visit: usize,
    pub op_ns: f64,
    /// The slower one of the two.
    pub calibration_ns: f64,
    pub was_switched: bool,
    /// How far apart the two cores were, where there are two.
    pub distance: Option<Distance>,
    /// The nanoseconds of each burst, where they are measured.
    pub bursts_ns: Vec<u32>,
}

impl Slice {
    pub fn is_kept(&self, level_ns: f64) -> bool {
        let is_at = (level_ns..=level_ns * CALIBRATION_MAX).contains(&self.calibration_ns);
        !self.was_switched && is_at
    }

    /// The quarter of the run in which it was played.
    pub fn quarter(&self, visit_count: usize) -> usize {
        self.visit * QUARTER_COUNT / visit_count
    }
}

/// The level of a contest's sides in nanoseconds: the fastest calibration at which each side has enough kept
/// slices, or as many as there can be.
pub(crate) fn level_ns(sides: &[&[Slice]], visit_count: usize, kept_min: KeptMin) -> f64 {
    let best = [enough(kept_min), kept_min, KeptMin { each_quarter: 0, ..kept_min }];
    let level = best.into_iter().find_map(|it| fastest_level_ns(sides, visit_count, it));
    level.unwrap_or_else(|| fastest_ns(sides))
}

/// Whether each side has enough kept slices, and, where that `may_be_steady`, the ratio of any two is much the
/// same in all quarters of the run.
pub(crate) fn are_enough(sides: &[&[Slice]], visit_count: usize, may_be_steady: bool) -> bool {
    let level_ns = fastest_level_ns(sides, visit_count, enough(KeptMin::SLICES));
    level_ns.is_some_and(|it| !may_be_steady || is_steady(sides, visit_count, it))
}

/// What kept slices say.
pub(crate) fn figure<'s>(
    kept: impl Iterator<Item = &'s Slice>,
    visit_count: usize,
    kept_min: KeptMin,
) -> Figure {
    let kept: Vec<_> = kept.map(|it| (it.quarter(visit_count), it.op_ns)).collect();
    Figure::of_slices(&kept, kept_min)
}

const fn enough(kept_min: KeptMin) -> KeptMin {
    KeptMin { all: ENOUGH * kept_min.all, ..kept_min }
}

fn fastest_level_ns(sides: &[&[Slice]], visit_count: usize, kept_min: KeptMin) -> Option<f64> {
    let KeptMin { all, each_quarter } = kept_min;
    let fastest_ns = fastest_ns(sides);
    let mut levels = (0..LEVEL_COUNT).map(|step| fastest_ns * 1.01_f64.powi(step));
    levels.find(|level_ns| {
        sides.iter().all(|side| {
            let mut counts = [0; QUARTER_COUNT];
            let kept = side.iter().filter(|slice| slice.is_kept(*level_ns));
            kept.for_each(|slice| counts[slice.quarter(visit_count)] += 1);
            counts.iter().sum::<usize>() >= all && counts.iter().all(|it| *it >= each_quarter)
        })
    })
}

fn fastest_ns(sides: &[&[Slice]]) -> f64 {
    let all = sides.iter().copied().flatten();
    all.map(|slice| slice.calibration_ns).fold(f64::MAX, f64::min)
}

fn is_steady(sides: &[&[Slice]], visit_count: usize, level_ns: f64) -> bool {
    let kept = |side: &'_ [Slice]| {
        figure(side.iter().filter(|slice| slice.is_kept(level_ns)), visit_count, KeptMin::SLICES)
    };
    let figures: Vec<_> = sides.iter().copied().map(kept).collect();
    let mut ratios = figures.iter().flat_map(|a| figures.iter().map(|b| a.with(b, |a, b| a / b)));
    ratios.all(|ratio| ratio.range() <= SPREAD_ENOUGH * ratio.value)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const KEPT_MIN: usize = KeptMin::SLICES.all;

    pub const QUIET: Slice = Slice {
        visit: 0,
        op_ns: 2.0,
        calibration_ns: 100.0,
        was_switched: false,
        distance: None,
        bursts_ns: Vec::new(),
    };

    /// As many slices as are needed at least, one in each visit, but for their time the same.
    fn in_each_visit(slice: &Slice, op_ns: impl Fn(usize) -> f64) -> Vec<Slice> {
        let slices =
            (0..KEPT_MIN).map(|visit| Slice { visit, op_ns: op_ns(visit), ..slice.clone() });
        slices.collect()
    }

    const fn anywhere(all: usize) -> KeptMin {
        KeptMin { all, each_quarter: 0 }
    }

    #[test]
    fn a_moment_of_a_faster_clock_is_not_the_level() {
        let fast = Slice { calibration_ns: 90.0, ..QUIET };
        let slow = Slice { calibration_ns: 130.0, ..QUIET };
        let [quiet, slow] = [QUIET, slow].map(|it| in_each_visit(&it, |_| 1.0));
        let slices = [vec![fast; 3], quiet, slow].concat();
        let level_ns = level_ns(&[&slices], KEPT_MIN, KeptMin::SLICES);
        let kept_count = slices.iter().filter(|slice| slice.is_kept(level_ns)).count();
        assert_eq!(kept_count, KEPT_MIN);
        // The others are too slow to be the level.
        assert_eq!(fastest_level_ns(&[&slices], KEPT_MIN, anywhere(KEPT_MIN + 4)), None);
    }

    #[test]
    fn the_level_has_slices_in_every_quarter() {
        let fast = (0..KEPT_MIN).map(|visit| Slice { visit: visit / 4, ..QUIET });
        let slow = in_each_visit(&Slice { calibration_ns: 110.0, ..QUIET }, |_| 3.0);
        let slices: Vec<_> = fast.chain(slow).collect();
        assert!((105.0..110.1).contains(&level_ns(&[&slices], KEPT_MIN, KeptMin::SLICES)));
        assert_eq!(fastest_level_ns(&[&slices], KEPT_MIN, anywhere(KEPT_MIN)), Some(100.0));
    }

    #[test]
    fn a_ratio_that_changes_is_not_steady() {
        let [even, growing] = [|_: usize| 1.0, |it: usize| 1.0 + it as f64 / 400.0]
            .map(|op_ns| in_each_visit(&QUIET, op_ns));
        assert!(is_steady(&[&even, &even], KEPT_MIN, 100.0));
        assert!(!is_steady(&[&even, &even, &growing], KEPT_MIN, 100.0));
        let many = vec![even; 8].concat();
        assert!(are_enough(&[&many, &many], KEPT_MIN, true));
        assert!(!are_enough(&[&many, &growing], KEPT_MIN, false));
    }
}
