//! Rounds: bursts with and without a walk, snapshots, and a walk of a worker without packets.

use super::node::{Control, Heard, NONE};
use super::side::{Side, WAIT_MAX, waited};
use super::{SIDE_COUNT, short};
use hotloop_measure::figure::{Figure, median};
use hotloop_measure::row::Row;
use std::time::{Duration, Instant};

/// Limit relative to the time without a walk.
pub const RATIO_MAX: f64 = 1.1;

/// Duration of a side's turn.
const TURN: Duration = Duration::from_millis(100);

/// The beginning of a turn that doesn't count, while the cache still holds the other side's data.
const WARM_UP: Duration = Duration::from_millis(10);

/// The share of bursts whose slowest counts.
const SHARE: f64 = 0.999;

/// Minimum length of a slice: a part of a run that counts as a whole, or not at all.
const SLICE_NS: u64 = 400_000;

/// A slice does not count if its bursts took more than this many times as long, on average, as
/// those of a round's median slice. No walk causes that from one slice to the next.
const DISTURBED: f64 = 1.5;

/// The measurements of one size.
pub struct Measured {
    pub flow_count: u32,
    /// Memory of the worker's connections.
    pub memory_bytes: usize,
    pub walks: Vec<Walks>,
    pub snapshots: Vec<Snapshot>,
}

/// A round with walks.
pub struct Walks {
    pub quiet: BurstTimes,
    pub walking: BurstTimes,
    /// The mean time of a walk until all exceptions were found and taken.
    pub took_s: f64,
}

/// The times of bursts.
#[derive(Clone, Copy)]
pub struct BurstTimes {
    pub median_ns: f64,
    /// The longest time of nearly all bursts.
    pub most_ns: f64,
    /// The share of bursts in slices that count.
    pub kept_share: f64,
}

/// The arrival of a peer.
pub struct Snapshot {
    pub heard: Heard,
    /// From the start of the peer until it had acknowledged everything.
    pub took_s: f64,
}

/// The nanoseconds of bursts, in memory that is touched beforehand: page faults at every thousandth
/// burst would distort the measurement.
pub struct Notes(Vec<u32>);

impl Notes {
    /// With room for half a minute of bursts, at some microseconds each; more are left out.
    pub fn new() -> Self {
        let mut all_ns = vec![1; 1 << 23];
        all_ns.clear();
        Self(all_ns)
    }

    #[inline]
    fn note(&mut self, took: Duration) {
        if self.0.len() < self.0.capacity() {
            self.0.push(took.as_nanos() as u32);
        }
    }

    /// Takes the recorded times.
    fn take(&mut self) -> BurstTimes {
        let bursts = BurstTimes::of(&self.0);
        self.0.clear();
        bursts
    }
}

impl BurstTimes {
    /// The times of consecutive bursts. Slices that took much longer than similar ones were not on
    /// the CPU, which is the machine's doing.
    fn of(bursts_ns: &[u32]) -> Self {
        let slices = slices(bursts_ns);
        let mean =
            |slice: &[u32]| slice.iter().map(|ns| f64::from(*ns)).sum::<f64>() / slice.len() as f64;
        let means: Vec<_> = slices.iter().map(|slice| mean(slice)).collect();
        let mean_max = DISTURBED * if means.is_empty() { 0.0 } else { median(&means) };
        let kept = slices.iter().zip(&means).filter(|(_, mean)| **mean <= mean_max);
        let mut kept_ns: Vec<_> = kept.flat_map(|(slice, _)| slice.iter().copied()).collect();
        kept_ns.sort_unstable();
        let kept_share = kept_ns.len() as f64 / bursts_ns.len() as f64;
        let at = |share: f64| {
            let place = (kept_ns.len() as f64 * share) as usize;
            kept_ns.get(place).map_or(f64::NAN, |ns| f64::from(*ns))
        };
        Self { median_ns: at(0.5), most_ns: at(SHARE), kept_share }
    }
}

/// Consecutive bursts of [`SLICE_NS`] together or a little more.
fn slices(bursts_ns: &[u32]) -> Vec<&[u32]> {
    let (mut slices, mut first, mut sum_ns) = (Vec::new(), 0, 0);
    for (index, ns) in bursts_ns.iter().enumerate() {
        sum_ns += u64::from(*ns);
        if sum_ns >= SLICE_NS {
            slices.push(&bursts_ns[first..=index]);
            (first, sum_ns) = (index + 1, 0);
        }
    }
    slices
}

impl Measured {
    /// The longest time of nearly all bursts during a walk, relative to the same without one.
    pub fn row(&self) -> Row {
        let ratios = self.walks.iter().map(|pair| pair.walking.most_ns / pair.quiet.most_ns);
        let name =
            format!("99.9 % of bursts during a walk, {} connections", short(self.flow_count));
        Row::limit(&name, "times without", &Figure::of_rounds(ratios), RATIO_MAX)
    }
}

/// The participants of rounds.
pub struct Rounds {
    /// Two identical workers: one walks while the other does not, alternating with each round.
    pub sides: [Side; SIDE_COUNT],
    /// For bursts without a walk, and with one.
    pub notes: [Notes; 2],
}

impl Rounds {
    /// Plays bursts of one side without a walk and of the other with a walk, `count` times. Every
    /// other walk finds the exceptions of a table, and the next one finds that they are gone.
    pub fn walks(&mut self, round: usize, count: usize) -> Result<Walks, String> {
        let walker = round % SIDE_COUNT;
        let mut took = Duration::ZERO;
        for walk in 0..count {
            for side in &mut self.sides {
                side.settle()?;
            }
            let serial = self.sides[walker].change(walk);
            took += self.alternate(walker, |control| control.marked() == serial)?;
        }
        let [quiet, walking] = self.notes.each_mut().map(Notes::take);
        Ok(Walks { quiet, walking, took_s: took.as_secs_f64() / count as f64 })
    }

    /// A peer connects, and enters all exceptions.
    pub fn snapshot(&mut self, round: usize) -> Result<Snapshot, String> {
        let side = &mut self.sides[round % SIDE_COUNT];
        side.end_peer()?;
        let serial = side.change(0);
        let is_alone = |control: &Control| control.marked() == serial && control.entered() == NONE;
        side.play_until("the end of the peer", is_alone)?;
        let begin = Instant::now();
        side.start_peer()?;
        side.play_until("a snapshot", |control| control.entered() == serial)?;
        Ok(Snapshot { took_s: begin.elapsed().as_secs_f64(), heard: side.end_peer()? })
    }

    /// Plays one side until a condition holds, and the other for the same time, in turns, so that
    /// the machine is equally fast for both. Returns how long the first took of its own time.
    fn alternate(
        &mut self,
        walker: usize,
        is_so: impl Fn(&Control) -> bool,
    ) -> Result<Duration, String> {
        let (mut took, mut is_done) = (Duration::ZERO, false);
        while !is_done && took < WAIT_MAX {
            self.play(1 - walker, 0, |_| false);
            let begin = Instant::now();
            self.play(walker, 1, |control| {
                is_done = is_so(control);
                is_done
            });
            took += begin.elapsed();
        }
        if is_done { Ok(took) } else { Err(waited("the walk")) }
    }

    /// Plays a side's turn or until a condition holds, and records all bursts except the first.
    fn play(&mut self, side: usize, kind: usize, mut is_so: impl FnMut(&Control) -> bool) {
        let Self { sides, notes } = self;
        let (Side { bed, control, .. }, notes) = (&mut sides[side], &mut notes[kind]);
        let begin = Instant::now();
        bed.play_while(|_| begin.elapsed() < WARM_UP && !is_so(control), |_| ());
        bed.play_while(|_| begin.elapsed() < TURN && !is_so(control), |took| notes.note(took));
    }
}
