//! Alternating rounds of several sides, which are criterion's samples too.
//!
//! Criterion measures one benchmark after the other; on a machine whose speed changes in between, no
//! two of them can be compared. Here a *round* lets every side do a fixed piece of work, one after
//! the other and each time in another order. Criterion's benchmark of a side gets that side's times
//! of these rounds, and the ratios of a table's row are those of the same rounds.

use crate::row::{Row, median};
use criterion::measurement::WallTime;
use criterion::{Bencher, Criterion, SamplingMode};
use std::cell::RefCell;
use std::time::{Duration, Instant};

/// Rounds of a contest: criterion's samples.
pub const ROUND_COUNT: usize = 25;

/// How long a side's part of a round takes, unless it says otherwise.
const PART: Duration = Duration::from_millis(12);

/// How much the figures of a witness may differ: more, and the machine is another one.
const CHANGE_MAX: f64 = 1.5;

/// Rounds that are played again because the witness changed.
const DISTURBED_MAX: usize = 3 * ROUND_COUNT;

/// So many of them one after the other, and the machine stays as it is now.
const IN_A_ROW_MAX: usize = 4;

/// How long criterion believes a pass through it takes: the rounds are played before.
const PASS: Duration = Duration::from_micros(1);

/// Criterion, as these benches use it, with the arguments of the command line.
#[must_use]
pub fn criterion() -> Criterion {
    criterion_alone().configure_from_args()
}

/// Criterion, as these benches use it, whatever the command line says.
#[must_use]
pub fn criterion_alone() -> Criterion {
    Criterion::default()
        .sample_size(ROUND_COUNT)
        .warm_up_time(PASS / 2)
        .measurement_time(PART * ROUND_COUNT as u32)
        .nresamples(2_000)
}

/// Several sides that do the same work, each in its own way.
pub struct Contest<'a> {
    name: String,
    part: Duration,
    sides: Vec<Side<'a>>,
    witness: Option<Box<dyn FnMut() -> f64 + 'a>>,
}

struct Side<'a> {
    name: String,
    /// Does so many operations and says how long they took.
    play: Box<dyn FnMut(u64) -> Duration + 'a>,
    /// The operations of a round; none before they are calibrated.
    work: Option<u64>,
}

/// What came of a contest.
#[derive(Debug)]
pub struct Outcome {
    sides: Vec<String>,
    /// Nanoseconds an operation, by round and side.
    rounds: Vec<Vec<f64>>,
    /// The least and the most that the witness saw, before, between and after the rounds.
    witnessed: Option<(f64, f64)>,
}

impl<'a> Contest<'a> {
    /// A contest without sides. Criterion's name of a side is `NAME/SIDE`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), part: PART, sides: Vec::new(), witness: None }
    }

    /// How long a side's part of a round is to take: 12 ms otherwise.
    #[must_use]
    pub fn part(mut self, part: Duration) -> Self {
        self.part = part;
        self
    }

    /// Adds a side. `play` does about as many operations as its argument says, and returns how long
    /// exactly that many would have taken. Their number is determined once.
    #[must_use]
    pub fn side(mut self, name: &str, play: impl FnMut(u64) -> Duration + 'a) -> Self {
        self.sides.push(Side { name: name.to_owned(), play: Box::new(play), work: None });
        self
    }

    /// Adds a side that does `work` operations in each round.
    #[must_use]
    pub fn side_of(
        mut self,
        work: u64,
        name: &str,
        play: impl FnMut(u64) -> Duration + 'a,
    ) -> Self {
        self.sides.push(Side { name: name.to_owned(), play: Box::new(play), work: Some(work) });
        self
    }

    /// Measures by `witness`, before and after every round, what all sides depend on: where it changes
    /// much, the machine did, and rounds are played again.
    #[must_use]
    pub fn witnessed_by(mut self, witness: impl FnMut() -> f64 + 'a) -> Self {
        self.witness = Some(Box::new(witness));
        self
    }

    /// Plays the rounds and hands them to criterion; nothing comes of it where criterion's filter
    /// leaves out every side.
    pub fn run(self, criterion: &mut Criterion) -> Option<Outcome> {
        let names: Vec<_> = self.sides.iter().map(|side| side.name.clone()).collect();
        let mut group = criterion.benchmark_group(&self.name);
        group.sampling_mode(SamplingMode::Flat);
        group.measurement_time(self.part * ROUND_COUNT as u32);
        let match_ = RefCell::new(Match::new(self));
        for (index, name) in names.iter().enumerate() {
            let mut samples = Samples { index, taken_count: 0, is_warm: false };
            group.bench_function(name, |bencher| samples.take(&mut match_.borrow_mut(), bencher));
        }
        group.finish();
        match_.into_inner().outcome(names)
    }
}

/// A contest while it is played.
struct Match<'a> {
    contest: Contest<'a>,
    rounds: Vec<Vec<f64>>,
    witnessed: Option<(f64, f64)>,
}

impl<'a> Match<'a> {
    fn new(contest: Contest<'a>) -> Self {
        Self { contest, rounds: Vec::new(), witnessed: None }
    }

    /// Plays all rounds. One during which the witness changes does not count; where it stays changed,
    /// all begin again. After so many in vain, they count as they are.
    fn play(&mut self) {
        let part = self.contest.part;
        self.contest.sides.iter_mut().for_each(|side| side.calibrate(part));
        let (mut disturbed_count, mut in_a_row_count) = (0, 0);
        self.ask_witness();
        while self.rounds.len() < ROUND_COUNT {
            let witnessed = self.witnessed;
            self.play_round();
            self.ask_witness();
            let has_changed = self.witnessed.is_some_and(|(least, most)| most > least * CHANGE_MAX);
            if !has_changed || disturbed_count == DISTURBED_MAX {
                in_a_row_count = 0;
                continue;
            }
            disturbed_count += 1;
            in_a_row_count += 1;
            self.rounds.pop();
            self.witnessed = witnessed;
            if in_a_row_count == IN_A_ROW_MAX {
                in_a_row_count = 0;
                self.rounds.clear();
                self.witnessed = None;
                self.ask_witness();
            }
        }
    }

    /// Widens what the witness saw by what it sees now.
    fn ask_witness(&mut self) {
        if let Some(witness) = &mut self.contest.witness {
            let figure = witness();
            let (least, most) = self.witnessed.unwrap_or((figure, figure));
            self.witnessed = Some((least.min(figure), most.max(figure)));
        }
    }

    /// Every side once, a different one first each time.
    fn play_round(&mut self) {
        let side_count = self.contest.sides.len();
        let mut times_ns = vec![0.0; side_count];
        for turn in 0..side_count {
            let index = (self.rounds.len() + turn) % side_count;
            times_ns[index] = self.contest.sides[index].play_ns();
        }
        self.rounds.push(times_ns);
    }

    fn outcome(self, sides: Vec<String>) -> Option<Outcome> {
        let played = !self.rounds.is_empty();
        played.then_some(Outcome { sides, rounds: self.rounds, witnessed: self.witnessed })
    }
}

impl Side<'_> {
    /// Finds how much work fills the side's part of a round; a warm-up at the same time.
    fn calibrate(&mut self, part: Duration) {
        if let Some(work) = self.work {
            (self.play)(work);
            return;
        }
        let mut work = 4_096;
        let taken = loop {
            let taken = (self.play)(work);
            if taken >= part / 4 {
                break taken;
            }
            work *= 2;
        };
        self.work = Some((work as f64 * part.as_secs_f64() / taken.as_secs_f64()) as u64);
    }

    fn play_ns(&mut self) -> f64 {
        let work = self.work.expect("it was calibrated");
        (self.play)(work).as_nanos() as f64 / work as f64
    }
}

/// One side's rounds on their way to criterion.
struct Samples {
    index: usize,
    taken_count: usize,
    is_warm: bool,
}

impl Samples {
    fn take(&mut self, played: &mut Match<'_>, bencher: &mut Bencher<'_, WallTime>) {
        // Outside of what criterion times, so that it doesn't take all rounds for one.
        if played.rounds.is_empty() {
            played.play();
        }
        // More samples may be asked for on the command line.
        if self.taken_count == played.rounds.len() {
            played.play_round();
        }
        let time_ns = played.rounds[self.taken_count][self.index];
        bencher.iter_custom(|count| {
            let start = Instant::now();
            while start.elapsed() < PASS {}
            Duration::from_secs_f64(time_ns * count as f64 / 1e9)
        });
        // Criterion asks once before it counts.
        self.taken_count += usize::from(self.is_warm);
        self.is_warm = true;
    }
}

impl Outcome {
    /// The nanoseconds of a side, by round.
    ///
    /// # Panics
    /// Without such a side.
    #[must_use]
    pub fn times_ns(&self, side: &str) -> Vec<f64> {
        let index = self.sides.iter().position(|name| name == side);
        let index = index.unwrap_or_else(|| panic!("no side {side} of {:?}", self.sides));
        self.rounds.iter().map(|round| round[index]).collect()
    }

    /// A row of `ours` beside `theirs`, two sides, with a ratio as its aim.
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
        let (ours, times) = (self.times_ns(ours), self.times_ns(theirs));
        Row::time(name, theirs, unit, &ours.into_iter().zip(times).collect::<Vec<_>>(), aim)
    }

    /// The median of a side, in nanoseconds.
    ///
    /// # Panics
    /// Without such a side.
    #[must_use]
    pub fn median_ns(&self, side: &str) -> f64 {
        median(&self.times_ns(side))
    }

    /// The least and the most that the witness saw, before, between and after the rounds.
    #[must_use]
    pub fn witnessed(&self) -> Option<(f64, f64)> {
        self.witnessed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::iter;

    fn played(contest: Contest<'_>) -> Outcome {
        let names = contest.sides.iter().map(|side| side.name.clone()).collect();
        let mut played = Match::new(contest);
        played.play();
        played.outcome(names).unwrap()
    }

    #[test]
    fn sides_alternate_and_each_begins() {
        let order = RefCell::new(Vec::new());
        let side = |name: char| {
            let order = &order;
            move |work| {
                order.borrow_mut().push(name);
                Duration::from_nanos(work * if name == 'a' { 2 } else { 6 })
            }
        };
        let contest = Contest::new("test").side_of(10, "a", side('a')).side_of(20, "b", side('b'));
        let outcome = played(contest);
        let order: String = order.borrow().iter().collect();
        assert!(order.starts_with("ababbaabba"), "{order}");
        assert_eq!(outcome.rounds, vec![vec![2.0, 6.0]; ROUND_COUNT]);
        let row = outcome.row("test", "ns", ("a", "b"), 2.0);
        assert_eq!((row.ours, row.theirs, row.ratio, row.met), (2.0, 6.0, 3.0, true));
    }

    #[test]
    fn work_is_calibrated() {
        let seen = RefCell::new(Vec::new());
        let play = |work| {
            seen.borrow_mut().push(work);
            Duration::from_nanos(work * 10)
        };
        played(Contest::new("test").side("only", play));
        let work = *seen.borrow().last().unwrap();
        assert_eq!(Duration::from_nanos(work * 10), PART);
    }

    #[test]
    fn a_machine_that_keeps_changing_is_measured_all_the_same() {
        let mut figures = (1..).map(f64::from);
        let contest = Contest::new("test")
            .side_of(1, "only", |_| Duration::from_nanos(1))
            .witnessed_by(|| figures.next().unwrap());
        assert_eq!(played(contest).rounds.len(), ROUND_COUNT);
    }

    #[test]
    fn a_disturbed_round_is_played_again() {
        let figures = [50.0, 60.0, 76.0, 51.0, 55.0];
        let mut figures = figures.into_iter().chain(iter::repeat(52.0));
        let mut played_count = 0;
        let contest = Contest::new("test")
            .side_of(1, "only", |_| {
                played_count += 1;
                Duration::from_nanos(played_count)
            })
            .witnessed_by(|| figures.next().unwrap());
        let outcome = played(contest);
        assert_eq!(outcome.witnessed(), Some((50.0, 60.0)));
        // The first play warms up; the second round's, the third, was disturbed.
        let times_ns: Vec<_> =
            [2].into_iter().chain(4..).take(ROUND_COUNT).map(f64::from).collect();
        assert_eq!(outcome.times_ns("only"), times_ns);
    }

    #[test]
    fn a_changed_machine_begins_again() {
        let mut figures = [50.0, 60.0].into_iter().chain(iter::repeat(100.0));
        let contest = Contest::new("test")
            .side_of(1, "only", |_| Duration::from_nanos(1))
            .witnessed_by(|| figures.next().unwrap());
        let outcome = played(contest);
        assert_eq!(outcome.witnessed(), Some((100.0, 100.0)));
        assert_eq!(outcome.rounds.len(), ROUND_COUNT);
    }
}
