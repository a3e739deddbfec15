//! Sides that do the same work in different ways, in short slices that alternate.
//!
//! The speed of a shared machine changes from one moment to the next: a neighbour on the same
//! physical core, another program on the same CPU, a CPU that the host takes away. So no two
//! measurements of milliseconds can be compared. Here the sides take turns in random order. A turn
//! begins with an uncounted warm-up, since the other sides have just used the cache. *Slices* of
//! 0.4 ms follow, each between two calibrations ([`watch`](crate::watch)). A slice is kept if both
//! calibrations were within 5 % of the contest's *level* and nothing else ran on the CPU. The level
//! is the fastest at which all sides have enough slices in all quarters of the run but one: not the
//! fastest ever seen, since a clock that is raised for a moment would leave nothing. For each
//! quarter of the run, the lower quartile of the kept slices counts; a side's figure is the median
//! of the quarters.
//!
//! No calibration shows how much of a shared cache the neighbours leave, which changes within
//! seconds. So contests take turns, too ([`run_all`]): each is played in short *visits* that are
//! spread over minutes. Nor does a calibration show where the memory of a process happens to lie.
//! So each quarter of a run is a process of its own, or several ([`Instrument`]).

mod side;

use crate::cores::Pair;
use crate::distance::{Distance, Lines};
use crate::figure::{Figure, KeptMin, QUARTER_COUNT, median};
use crate::instrument::{Instrument, Played};
use crate::random::Random;
use crate::row::Row;
use crate::slices::{Slice, figure, level_ns};
use crate::table::Table;
use crate::watch::{Switches, calibration_ns};
use std::cell::RefCell;
use std::time::{Duration, Instant};

pub use side::Side;
use side::TURN_SLICES_MAX;

/// Maximum number of operations of a warm-up that only serves the caches: operations on large
/// tables touch two cache lines each, in total as much as the caches hold. After that many
/// operations, anything that is read repeatedly is in the caches again.
pub const PASS_MAX: u64 = 1 << 19;

/// Duration of a contest's turn.
const VISIT: Duration = Duration::from_millis(250);

/// Number of visits to each contest, if one process plays each quarter of the run.
const VISIT_COUNT: usize = 36;

/// Number of bursts at the beginning of a slice that don't count: their caches are affected by the
/// calibration and a system call.
const COLD_BURSTS: usize = 8;

/// Several sides that do the same work.
pub struct Contest<'a> {
    name: String,
    sides: Vec<Side<'a>>,
    lines: Option<Lines>,
    visits_a_turn: usize,
    /// The order of the sides.
    random: Random,
}

/// The nanoseconds of each burst of a slice.
pub type Bursts = RefCell<Vec<u32>>;

/// The figures of a contest.
#[derive(Debug)]
pub struct Outcome {
    name: String,
    sides: Vec<(String, Vec<Slice>)>,
    level_ns: f64,
    distance: Option<Distance>,
    /// Instructions per operation, by side, if counted.
    pub(crate) instructions: Vec<Option<f64>>,
}

impl<'a> Contest<'a> {
    /// A contest without sides. On the command line and in callgrind's counts, a side is `NAME/SIDE`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let random = Random::seeded(5);
        Self { name: name.to_owned(), sides: Vec::new(), lines: None, visits_a_turn: 1, random }
    }

    /// Adds a side with a negligible working set.
    #[must_use]
    pub fn side(self, name: &str, play: impl FnMut(u64) -> Duration + 'a) -> Self {
        self.with(Side::new(name, play))
    }

    /// Adds a side.
    #[must_use]
    pub fn with(mut self, side: Side<'a>) -> Self {
        self.sides.push(side);
        self
    }

    /// Keeps near and far cores apart: the sides play on both cores of `pair`.
    #[must_use]
    pub fn between(mut self, pair: Pair) -> Self {
        self.lines = Some(Lines::new(pair));
        self
    }

    /// Sets how many visits the contest gets in each turn; the default is 1. More visits help if
    /// one side needs more of the shared cache than another, as their ratio then varies with the
    /// neighbours' load, and if slices take long.
    #[must_use]
    pub const fn visits_a_turn(mut self, count: usize) -> Self {
        self.visits_a_turn = count;
        self
    }

    /// Plays only this contest: see [`run_all`].
    pub fn run(self, instrument: &mut Instrument) -> Option<Outcome> {
        run_all(vec![self], instrument).pop().flatten()
    }

    /// Counts the instructions of each side.
    fn count(&mut self, instrument: &Instrument) {
        for side in &mut self.sides {
            side.clear();
            instrument.count(&self.name, &side.name, &mut *side.play);
        }
    }

    /// Plays rounds for this long, at least one.
    fn visit(&mut self, time: Duration, quarter: usize) {
        let switches = Switches::of_this_thread();
        if self.sides.iter().all(|side| side.slice_ops == 0) {
            self.sides.iter_mut().for_each(Side::calibrate);
        }
        let start = Instant::now();
        while {
            for index in self.random.shuffled(self.sides.len() as u32) {
                self.play_turn(index as usize, &switches, quarter);
            }
            start.elapsed() < time
        } {}
    }

    /// The slices played of each side.
    fn into_played(self) -> Vec<Played> {
        let contest = &self.name;
        let sides = self.sides.into_iter();
        let played = sides.map(|side| Played {
            contest: contest.clone(),
            side: side.name,
            slices: side.slices,
        });
        played.collect()
    }

    /// The outcome, with the slices that other processes have played.
    fn end(mut self, instrument: &mut Instrument) -> Outcome {
        let (name, is_single_core) = (self.name.clone(), self.lines.is_none());
        let names: Vec<_> = self.sides.iter().map(|side| side.name.clone()).collect();
        let has_pass = |side: &&Side<'_>| side.turn_slices > 1;
        let pass = self.sides.iter().filter(has_pass).map(|side| side.pass).max();
        instrument.passes.extend(pass.map(|pass| {
            format!("{name}: {pass} operations before up to {TURN_SLICES_MAX} slices")
        }));
        for side in &mut self.sides {
            side.slices.extend(instrument.earlier(&name, &side.name));
        }
        let mut outcome = self.outcome();
        if is_single_core {
            let of_side = |side: &String| instrument.instructions(&name, side);
            outcome.instructions = names.iter().map(of_side).collect();
        }
        outcome
    }

    fn play_turn(&mut self, index: usize, switches: &Switches, quarter: usize) {
        let Self { sides, lines, .. } = self;
        let side = &mut sides[index];
        side.clear();
        side.warm_up();
        let mut line_before_ns = lines.as_ref().map(Lines::trip_ns);
        for _ in 0..side.turn_slices {
            // A pair counts its own switches: this thread sleeps between its runs.
            let switch_count =
                || lines.as_ref().map_or_else(|| switches.count(), Lines::switch_count);
            let count = switch_count();
            let before_ns = calibration_ns();
            side.bursts.inspect(|bursts| bursts.borrow_mut().clear());
            let taken = (side.play)(side.slice_ops);
            let calibration_ns = calibration_ns().max(before_ns);
            let was_switched = !side.sleeps && switch_count() != count;
            let line_ns = lines.as_ref().map(Lines::trip_ns);
            let distance = line_before_ns.zip(line_ns).and_then(|(a, b)| Distance::of(a, b));
            line_before_ns = line_ns;
            let op_ns = taken.as_secs_f64() * 1e9 / side.slice_ops as f64;
            let warm =
                |bursts: &Bursts| bursts.borrow().iter().copied().skip(COLD_BURSTS).collect();
            let bursts_ns = side.bursts.map_or_else(Vec::new, warm);
            let slice = Slice { quarter, op_ns, calibration_ns, was_switched, distance, bursts_ns };
            side.slices.push(slice);
        }
    }

    fn outcome(self) -> Outcome {
        let sides: Vec<_> = self.sides.into_iter().map(|side| (side.name, side.slices)).collect();
        let slices: Vec<_> = sides.iter().map(|side| &side.1[..]).collect();
        Outcome {
            level_ns: level_ns(&slices, KeptMin::SLICES),
            instructions: vec![None; sides.len()],
            name: self.name,
            sides,
            distance: None,
        }
    }
}

/// Plays contests in turn. Returns `None` for a contest that the command line leaves out, and if
/// this process plays a part of another one's run.
pub fn run_all(contests: Vec<Contest<'_>>, instrument: &mut Instrument) -> Vec<Option<Outcome>> {
    let nothing: Vec<_> = contests.iter().map(|_| None).collect();
    let selected = contests.into_iter().map(|contest| {
        let mut names = contest.sides.iter().map(|side| format!("{}/{}", contest.name, side.name));
        names.any(|name| instrument.selects(&name)).then_some(contest)
    });
    let mut selected: Vec<_> = selected.collect();
    if instrument.is_counting() {
        // Between cores, instruction counts mean nothing.
        let of_one_core = selected.iter_mut().flatten().filter(|contest| contest.lines.is_none());
        of_one_core.for_each(|contest| contest.count(instrument));
        return nothing;
    }
    let visit_count = VISIT_COUNT * instrument.processes_a_quarter();
    let visits_a_turn_max =
        selected.iter().flatten().map(|contest| contest.visits_a_turn).max().unwrap_or(0);
    for visit in instrument.share_of(visit_count) {
        let quarter = visit * QUARTER_COUNT / visit_count;
        for again in 0..visits_a_turn_max {
            let contests = selected.iter_mut().flatten();
            for contest in contests.filter(|contest| again < contest.visits_a_turn) {
                eprintln!("{}, visit {} of {visit_count}", contest.name, visit + 1);
                contest.visit(VISIT, quarter);
            }
        }
    }
    if instrument.is_part() {
        let played = selected.into_iter().flatten().flat_map(Contest::into_played);
        played.for_each(|played| instrument.hand_over(&played));
        return nothing;
    }
    selected.into_iter().map(|contest| contest.map(|contest| contest.end(instrument))).collect()
}

impl Outcome {
    /// The outcome of the slices played while the cores were this far apart; `None` if a side has
    /// no such kept slice.
    #[must_use]
    fn at(&self, distance: Distance) -> Option<Self> {
        let outcome = Self {
            name: self.name.clone(),
            sides: self.sides.clone(),
            instructions: self.instructions.clone(),
            distance: Some(distance),
            ..*self
        };
        let was_seen = outcome.sides.iter().all(|side| outcome.kept(&side.1).next().is_some());
        was_seen.then_some(outcome)
    }

    /// Adds the rows of the outcome at each distance to `table`. `name` names a distance's rows, and
    /// `rows` makes them. A distance at which a side has no kept slice is listed as not shown.
    pub fn add_by_distance(
        &self,
        table: &mut Table,
        name: impl Fn(Distance) -> String,
        rows: impl Fn(&Self, &str, Distance) -> Vec<Row>,
    ) {
        for distance in Distance::ALL {
            let name = name(distance);
            match self.at(distance) {
                Some(outcome) => table.rows.extend(rows(&outcome, &name, distance)),
                None => {
                    let reason = format!("{name}: no slice with cores so far apart was kept");
                    table.unshown.push(reason);
                }
            }
        }
    }

    /// A side's nanoseconds per operation.
    ///
    /// # Panics
    /// If there is no such side.
    #[must_use]
    pub fn figure(&self, side: &str) -> Figure {
        let slices = &self.sides[self.index(side)].1;
        figure(self.kept(slices), KeptMin::SLICES)
    }

    /// A row of the sides `ours` and `theirs`, with a ratio as its target.
    ///
    /// # Panics
    /// Without such sides.
    #[must_use]
    pub fn row(
        &self,
        name: &str,
        unit: &'static str,
        (ours, theirs): (&str, &str),
        aim: f64,
    ) -> Row {
        let counts = [ours, theirs].map(|side| self.instructions(side));
        let (of_ours, of_theirs) = (self.figure(ours), self.figure(theirs));
        Row::time(name, theirs, unit, (&of_ours, &of_theirs), aim).counted(counts)
    }

    /// Instructions per operation, if counted.
    ///
    /// # Panics
    /// Without such a side.
    #[must_use]
    pub fn instructions(&self, side: &str) -> Option<f64> {
        self.instructions[self.index(side)]
    }

    /// The longest time of this share of a side's bursts, in the faster half of the kept slices.
    ///
    /// # Panics
    /// Without such a side.
    #[must_use]
    pub fn burst_time(&self, side: &str, share: f64) -> Figure {
        let slices = &self.sides[self.index(side)].1;
        let of = |quarter: usize| {
            let kept = self.kept(slices).filter(|slice| slice.quarter == quarter);
            let mut kept: Vec<_> = kept.collect();
            kept.sort_by(|a, b| a.op_ns.total_cmp(&b.op_ns));
            let faster = kept[..kept.len().div_ceil(2)].iter();
            let mut bursts_ns: Vec<_> =
                faster.flat_map(|slice| slice.bursts_ns.iter().copied()).collect();
            bursts_ns.sort_unstable();
            let place = (bursts_ns.len() as f64 * share) as usize;
            bursts_ns.get(place).map_or(f64::NAN, |&ns| f64::from(ns))
        };
        let quarters: [f64; QUARTER_COUNT] = std::array::from_fn(of);
        Figure { value: median(quarters), quarters, ..self.figure(side) }
    }

    fn kept<'s>(&self, slices: &'s [Slice]) -> impl Iterator<Item = &'s Slice> + use<'s> {
        let (level_ns, distance) = (self.level_ns, self.distance);
        slices.iter().filter(move |slice| {
            slice.is_kept(level_ns)
                && distance.is_none_or(|distance| slice.distance == Some(distance))
        })
    }

    fn index(&self, side: &str) -> usize {
        let index = self.sides.iter().position(|(name, _)| name == side);
        index.unwrap_or_else(|| panic!("{} has no side {side}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slices::tests::QUIET;
    use std::cell::Cell;

    fn outcome(slices: Vec<Slice>) -> Outcome {
        let side = Side { slices, ..Side::new("only", |_| Duration::ZERO) };
        Contest::new("test").with(side).outcome()
    }

    #[test]
    fn disturbed_slices_do_not_count() {
        let slow = Slice { op_ns: 1.0, calibration_ns: 106.0, ..QUIET };
        let switched = Slice { op_ns: 1.0, was_switched: true, ..QUIET };
        let figure = outcome(vec![slow, QUIET, switched, QUIET]).figure("only");
        assert_eq!((figure.value, figure.count), (2.0, 2));
    }

    #[test]
    fn a_visit_is_a_round_at_least() {
        let mut play_count = 0;
        let play = |count| {
            play_count += 1;
            Duration::from_nanos(count * 100)
        };
        let mut contest = Contest::new("test").side("only", play);
        (0..QUARTER_COUNT).for_each(|quarter| contest.visit(Duration::ZERO, quarter));
        let quarters: Vec<_> = contest.sides[0].slices.iter().map(|slice| slice.quarter).collect();
        assert_eq!(quarters, [0, 1, 2, 3]);
        let outcome = contest.outcome();
        assert!((outcome.sides[0].1[0].op_ns - 100.0).abs() < 1e-6);
        assert!(play_count > QUARTER_COUNT);
    }

    #[test]
    fn bursts_of_kept_slices_are_ranked() {
        let kept = Slice { bursts_ns: (0..1_000).rev().collect(), ..QUIET };
        let kept: [_; QUARTER_COUNT] =
            std::array::from_fn(|quarter| Slice { quarter, ..kept.clone() });
        let switched = Slice { bursts_ns: vec![9_999; 1_000], was_switched: true, ..QUIET };
        let outcome = outcome([kept.to_vec(), vec![switched]].concat());
        let times = [0.5, 0.999].map(|share| outcome.burst_time("only", share).value);
        assert_eq!(times, [500.0, 999.0]);
    }

    #[test]
    fn near_and_far_are_never_mixed() {
        let near = Slice { distance: Some(Distance::Near), op_ns: 1.0, ..QUIET };
        let outcome = outcome(vec![near, QUIET]);
        let figure = outcome.at(Distance::Near).expect("it was seen").figure("only");
        assert_eq!((figure.value, figure.count), (1.0, 1));
        assert!(outcome.at(Distance::Far).is_none());
        assert_eq!(Distance::of(60.0, 70.0), Some(Distance::Near));
        assert_eq!((Distance::of(60.0, 71.0), Distance::of(60.0, 251.0)), (None, None));
    }

    #[test]
    fn a_turn_is_reset_and_warmed_up_before_its_slices() {
        let (reset_count, ops) = (Cell::new(0), Cell::new(0));
        let play = |count| {
            ops.set(ops.get() + count);
            Duration::from_nanos(count * 100)
        };
        let side = Side::new("only", play).pass(9_000).reset(|| {
            reset_count.set(reset_count.get() + 1);
            ops.set(0);
        });
        let mut contest = Contest::new("test").with(side);
        contest.sides[0].calibrate();
        // A slice takes 0.4 ms of 100 ns, and a turn has all the slices that fit into the pass's
        // 0.9 ms.
        assert_eq!((contest.sides[0].slice_ops, contest.sides[0].turn_slices), (4_000, 2));
        contest.play_turn(0, &Switches::of_this_thread(), 0);
        assert_eq!((reset_count.get(), ops.get()), (2, 9_000 + 2 * 4_000));
        let slices = &contest.outcome().sides[0].1;
        assert!(slices.iter().all(|slice| (slice.op_ns - 100.0).abs() < 1e-6), "{slices:?}");
    }
}
