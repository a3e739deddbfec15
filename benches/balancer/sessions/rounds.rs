//! Rounds: bursts with and without a walk, snapshots, and a walk of a worker without packets.

use super::node::{Control, Heard, NONE};
use super::side::{Side, WAIT_MAX, waited};
use super::{SIDE_COUNT, short};
use hotloop_measure::figure::{Figure, median};
use hotloop_measure::interrupts::Interrupts;
use hotloop_measure::row::Row;
use std::time::{Duration, Instant};

/// Limit relative to the time without a walk.
pub const RATIO_MAX: f64 = 1.1;

/// How long a side plays in a turn.
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

/// The longest time of nearly all of some bursts.
pub type MostNs = fn(&Bursts) -> f64;

/// The kinds of bursts, and their times.
pub const KINDS: [(&str, MostNs); 2] =
    [("all", |it| it.most_ns), ("without an interrupt", |it| it.uninterrupted_ns)];

/// The measurements of one size.
pub struct Measured {
    pub flow_count: u32,
    pub walks: Vec<Walks>,
    pub snapshots: Vec<Snapshot>,
    /// The time of a walk in a worker without packets.
    pub idle_s: Vec<f64>,
    /// The changes that the peers received during the walks.
    pub of_changes: [Heard; SIDE_COUNT],
}

/// A round with walks.
pub struct Walks {
    pub quiet: Bursts,
    pub walking: Bursts,
    /// The mean time of a walk until all exceptions were found and taken.
    pub took_s: f64,
    /// The time after that until the peer had entered them.
    pub handover_s: f64,
    /// CPU time of control's thread and of the one for the connection to the peer meanwhile.
    pub cpu_ms: [f64; 2],
}

/// The times of bursts.
#[derive(Clone, Copy)]
pub struct Bursts {
    pub median_ns: f64,
    /// The longest time of nearly all bursts.
    pub most_ns: f64,
    /// The same without the longest bursts, one for each interrupt.
    pub uninterrupted_ns: f64,
    /// Number of interrupts a second.
    pub interrupts_per_s: f64,
    /// The share of bursts in slices that count.
    pub kept_share: f64,
}

/// The arrival of a peer.
pub struct Snapshot {
    pub heard: Heard,
    /// From the start of the peer until it had acknowledged everything.
    pub took_s: f64,
    pub cpu_ms: [f64; 2],
    /// The bursts of the other side, and of the one that the peer connected to.
    pub quiet: Bursts,
    pub walking: Bursts,
}

/// The nanoseconds of bursts, in memory that is touched beforehand: page faults at every thousandth
/// burst would distort the measurement.
pub struct Notes {
    all_ns: Vec<u32>,
    interrupt_count: u64,
}

impl Notes {
    /// With room for half a minute of bursts, at some microseconds each; more are left out.
    pub fn new() -> Self {
        let mut all_ns = vec![1; 1 << 23];
        all_ns.clear();
        Self { all_ns, interrupt_count: 0 }
    }

    #[inline]
    fn note(&mut self, took: Duration) {
        if self.all_ns.len() < self.all_ns.capacity() {
            self.all_ns.push(took.as_nanos() as u32);
        }
    }

    /// Takes the recorded times.
    fn take(&mut self) -> Bursts {
        let bursts = Bursts::of(&self.all_ns, self.interrupt_count as f64);
        self.all_ns.clear();
        self.interrupt_count = 0;
        bursts
    }
}

impl Bursts {
    /// The times of consecutive bursts. Slices that took much longer than similar ones were not on
    /// the CPU, which is the machine's doing.
    fn of(bursts_ns: &[u32], interrupt_count: f64) -> Self {
        let slices = slices(bursts_ns);
        let mean =
            |slice: &[u32]| slice.iter().map(|ns| f64::from(*ns)).sum::<f64>() / slice.len() as f64;
        let means: Vec<_> = slices.iter().map(|slice| mean(slice)).collect();
        let mean_max = DISTURBED * if means.is_empty() { 0.0 } else { median(&means) };
        let kept = slices.iter().zip(&means).filter(|(_, mean)| **mean <= mean_max);
        let mut kept_ns: Vec<_> = kept.flat_map(|(slice, _)| slice.iter().copied()).collect();
        kept_ns.sort_unstable();
        let kept_share = kept_ns.len() as f64 / bursts_ns.len() as f64;
        let interrupted = ((interrupt_count * kept_share) as usize).min(kept_ns.len());
        let at = |count: usize, share: f64| {
            let place = (count as f64 * share) as usize;
            kept_ns.get(place).map_or(f64::NAN, |ns| f64::from(*ns))
        };
        Self {
            median_ns: at(kept_ns.len(), 0.5),
            most_ns: at(kept_ns.len(), SHARE),
            uninterrupted_ns: at(kept_ns.len() - interrupted, SHARE),
            interrupts_per_s: interrupt_count * 1e9 / sum_ns(bursts_ns) as f64,
            kept_share,
        }
    }
}

fn sum_ns(bursts_ns: &[u32]) -> u64 {
    bursts_ns.iter().map(|ns| u64::from(*ns)).sum()
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
    /// The longest time of nearly all bursts during a walk, relative to the same without one: for
    /// all bursts, and for those without an interrupt.
    pub fn rows(&self) -> [Row; 2] {
        KINDS.map(|(kind, most_ns)| {
            let ratios = self.walks.iter().map(|it| most_ns(&it.walking) / most_ns(&it.quiet));
            let ratio = Figure::of_rounds(ratios);
            let count = short(self.flow_count);
            let name = format!("99.9 % of bursts during a walk, {count} connections, {kind}");
            Row::limit(&name, "times without", &ratio, RATIO_MAX)
        })
    }
}

/// The participants of rounds.
pub struct Rounds {
    /// Two identical workers: one walks while the other does not, alternating with each round.
    pub sides: [Side; SIDE_COUNT],
    pub interrupts: Interrupts,
    /// For bursts without a walk, and with one.
    pub notes: [Notes; 2],
}

impl Rounds {
    /// Plays bursts of one side without a walk and of the other with a walk, `count` times. Every
    /// other walk finds the exceptions of a table, and the next one finds that they are gone.
    pub fn walks(&mut self, round: usize, count: usize) -> Result<Walks, String> {
        let walker = round % SIDE_COUNT;
        let (mut took, mut handover, mut cpu_ms) = (Duration::ZERO, Duration::ZERO, [0.0; 2]);
        for walk in 0..count {
            for side in &mut self.sides {
                side.settle()?;
            }
            let cpu_ns = self.sides[walker].control.cpu_ns()?;
            let serial = self.sides[walker].change(walk);
            took += self.alternate("the walk", walker, |control| control.marked() == serial)?;
            let begin = Instant::now();
            self.sides[walker].settle()?;
            handover += begin.elapsed();
            let its_ms = self.sides[walker].cpu_ms_since(cpu_ns)?;
            cpu_ms = [cpu_ms[0] + its_ms[0], cpu_ms[1] + its_ms[1]];
        }
        let [quiet, walking] = self.notes.each_mut().map(Notes::take);
        let [took_s, handover_s] = [took, handover].map(|it| it.as_secs_f64() / count as f64);
        let cpu_ms = cpu_ms.map(|it| it / count as f64);
        Ok(Walks { quiet, walking, took_s, handover_s, cpu_ms })
    }

    /// A peer connects, and enters all exceptions.
    pub fn snapshot(&mut self, round: usize) -> Result<Snapshot, String> {
        let sharing = round % SIDE_COUNT;
        let side = &mut self.sides[sharing];
        side.end_peer()?;
        let serial = side.change(0);
        let is_alone = |control: &Control| control.marked() == serial && control.entered() == NONE;
        side.play_until("the end of the peer", is_alone)?;
        let cpu_ns = side.control.cpu_ns()?;
        side.start_peer()?;
        let took = self.alternate("a snapshot", sharing, |control| control.entered() == serial)?;
        let side = &mut self.sides[sharing];
        let (took_s, cpu_ms) = (took.as_secs_f64(), side.cpu_ms_since(cpu_ns)?);
        let [quiet, walking] = self.notes.each_mut().map(Notes::take);
        Ok(Snapshot { heard: side.end_peer()?, took_s, cpu_ms, quiet, walking })
    }

    /// Plays one side until a condition holds, and the other for the same time, in turns, so that
    /// the machine is equally fast for both. Returns how long the first took of its own time.
    fn alternate(
        &mut self,
        what: &str,
        walker: usize,
        is_so: impl Fn(&Control) -> bool,
    ) -> Result<Duration, String> {
        let (mut took, mut is_done) = (Duration::ZERO, false);
        while !is_done && took < WAIT_MAX {
            self.play(1 - walker, 0, |_| false)?;
            let begin = Instant::now();
            self.play(walker, 1, |control| {
                is_done = is_so(control);
                is_done
            })?;
            took += begin.elapsed();
        }
        if is_done { Ok(took) } else { Err(waited(what)) }
    }

    /// Plays a side's turn or until a condition holds, and records all bursts except the first.
    fn play(
        &mut self,
        side: usize,
        kind: usize,
        mut is_so: impl FnMut(&Control) -> bool,
    ) -> Result<(), String> {
        let Self { sides, interrupts, notes } = self;
        let (Side { bed, control, .. }, notes) = (&mut sides[side], &mut notes[kind]);
        let begin = Instant::now();
        bed.play_while(|_| begin.elapsed() < WARM_UP && !is_so(control), |_| ());
        let before = interrupts.count()?;
        bed.play_while(|_| begin.elapsed() < TURN && !is_so(control), |took| notes.note(took));
        notes.interrupt_count += interrupts.count()? - before;
        Ok(())
    }
}
