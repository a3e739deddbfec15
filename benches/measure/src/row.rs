//! Rows of a benchmark's table.

use crate::figure::{Figure, QUARTER_COUNT};
use serde::Serialize;

/// If the quarters of a run differ by more than this, the row is not settled.
pub const SPREAD_MAX: f64 = 0.05;

/// One comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The subject of the measurement.
    pub name: String,
    /// The peer; `limit` if that is a bound instead of a program.
    pub peer: String,
    /// The unit of `ours` and `theirs`.
    pub unit: &'static str,
    /// Our figure.
    pub ours: f64,
    /// The peer's figure, or the limit.
    pub theirs: f64,
    /// The ratio of the two: above 1 means that hotloop is ahead.
    pub ratio: f64,
    /// The target ratio.
    pub aim: f64,
    /// `met`, `missed` or `unsettled`. An unsettled row is still met if all four quarters meet the
    /// target, and missed if all four miss it.
    pub result: &'static str,
    /// Whether enough measurements were undisturbed, and three quarters of the run agree within 5
    /// %. The figures of an unsettled row support no claim.
    pub settled: bool,
    /// The range of the ratios of the closest three quarters of the run, relative to the ratio; for
    /// a limit, the range of the figures relative to the limit.
    pub spread: f64,
    /// The ratios of the run's quarters, in order.
    pub quarters: [f64; QUARTER_COUNT],
    /// Undisturbed measurements, for the side with fewer.
    pub rounds: usize,
    /// Instructions per operation, ours and the peer's, if counted.
    pub instructions: [Option<f64>; 2],
}

impl Row {
    /// A row of figures for which more is better.
    #[must_use]
    pub fn rate(
        name: &str,
        peer: &str,
        unit: &'static str,
        (ours, theirs): (&Figure, &Figure),
        aim: f64,
    ) -> Self {
        let ratio = ours.with(theirs, |ours, theirs| ours / theirs);
        Self::new(name, peer, unit, (ours.value, theirs.value), &ratio, aim)
    }

    /// A row of figures for which less is better.
    #[must_use]
    pub fn time(
        name: &str,
        peer: &str,
        unit: &'static str,
        (ours, theirs): (&Figure, &Figure),
        aim: f64,
    ) -> Self {
        let ratio = ours.with(theirs, |ours, theirs| theirs / ours);
        Self::new(name, peer, unit, (ours.value, theirs.value), &ratio, aim)
    }

    /// A row of a figure for which less is better, against a limit.
    #[must_use]
    pub fn limit(name: &str, unit: &'static str, ours: &Figure, limit: f64) -> Self {
        // A figure that noise makes zero or negative counts as far below the limit, not as
        // infinitely far.
        let ratio = ours.with(ours, |ours, _| limit / ours.max(limit / 100.0));
        let row = Self::new(name, "limit", unit, (ours.value, limit), &ratio, 1.0);
        row.spreading(ours.settled, ours.spread() / limit)
    }

    /// Adds the instructions per operation, ours and the peer's.
    #[must_use]
    pub fn counted(mut self, instructions: [Option<f64>; 2]) -> Self {
        self.instructions = instructions;
        self
    }

    fn new(
        name: &str,
        peer: &str,
        unit: &'static str,
        (ours, theirs): (f64, f64),
        ratio: &Figure,
        aim: f64,
    ) -> Self {
        let row = Self {
            name: name.to_owned(),
            peer: peer.to_owned(),
            unit,
            ours,
            theirs,
            ratio: ratio.value,
            aim,
            result: "unsettled",
            settled: false,
            spread: 0.0,
            quarters: ratio.quarters,
            rounds: ratio.count,
            instructions: [None; 2],
        };
        row.spreading(ratio.settled, ratio.spread() / ratio.value)
    }

    /// Sets the spread, and derives whether the row is settled and its result. `enough` is whether
    /// there were enough measurements.
    fn spreading(self, enough: bool, spread: f64) -> Self {
        let settled = enough && spread <= SPREAD_MAX;
        let meeting_count = self.quarters.iter().filter(|ratio| **ratio >= self.aim).count();
        let is_decided = settled || enough && matches!(meeting_count, 0 | QUARTER_COUNT);
        let result = match (is_decided, self.ratio >= self.aim) {
            (false, _) => "unsettled",
            (true, true) => "met",
            (true, false) => "missed",
        };
        Self { result, settled, spread, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_that_of_the_figures() {
        let ours = Figure::of_rounds([4.0, 4.0, 4.125, 3.0]);
        let row = Row::rate("io", "peer", "Mpps", (&ours, &Figure::exact(2.0)), 2.0);
        assert_eq!((row.ours, row.theirs, row.ratio, row.result), (4.0, 2.0, 2.0, "met"));
        assert_eq!(row.spread, 0.03125);
    }

    #[test]
    fn less_time_is_ahead() {
        let row = Row::time("push", "peer", "ns", (&Figure::exact(2.0), &Figure::exact(3.0)), 2.0);
        assert_eq!((row.ratio, row.result), (1.5, "missed"));
    }

    #[test]
    fn a_limit_is_met_from_below() {
        let row = Row::limit("stage", "ns", &Figure::of_rounds([0.5, 0.5, 0.8, -0.1]), 1.0);
        assert!(row.ratio > 1.0 && (row.spread - 0.3).abs() < 1e-9);
        assert_eq!(Row::limit("stage", "ns", &Figure::exact(1.2), 1.0).result, "missed");
    }

    #[test]
    fn a_run_whose_quarters_differ_is_no_claim() {
        let ours = Figure::of_rounds([2.0, 2.0, 3.0, 1.0]);
        let row = Row::rate("io", "peer", "Mpps", (&ours, &Figure::exact(1.0)), 2.0);
        assert_eq!((row.spread, row.result), (0.5, "unsettled"));
    }

    #[test]
    fn quarters_that_differ_decide_where_they_are_on_one_side_of_the_aim() {
        let ours = Figure::of_rounds([2.0, 2.0, 3.0, 1.0]);
        for (aim, expected) in
            [(1.0, "met"), (1.1, "unsettled"), (3.0, "unsettled"), (3.1, "missed")]
        {
            let row = Row::rate("io", "peer", "Mpps", (&ours, &Figure::exact(1.0)), aim);
            assert_eq!((row.settled, row.result), (false, expected), "{aim}");
        }
    }

    #[test]
    fn a_figure_of_too_few_rounds_is_no_claim() {
        let ours = Figure::of_rounds([2.0, 2.0, 3.0]);
        for aim in [1.0, 2.0, 4.0] {
            let row = Row::rate("io", "peer", "Mpps", (&ours, &Figure::exact(1.0)), aim);
            assert_eq!(row.result, "unsettled");
        }
    }
}
