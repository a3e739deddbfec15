//! Rounds: bursts with and without a walk, snapshots, and a walk of a worker without packets.

use super::node::{Control, Heard, NONE, Peer};
use super::short;
use crate::bed::{Bed, Setup};
use hotloop_benches::figure::{Figure, median};
use hotloop_benches::row::Row;
use ipip_lb::services::ServiceTable;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Compared with the time without a walk.
pub const RATIO_MAX: f64 = 1.1;

/// For how long bursts are measured without a walk before one, and again after it.
const QUIET: Duration = Duration::from_millis(300);

/// The most that a walk may take, or a snapshot.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The share of bursts of which the slowest counts.
const SHARE: f64 = 0.999;

/// How long a slice takes, at least: a part of a run that counts as a whole, or not at all.
const SLICE_NS: u64 = 400_000;

/// A slice does not count where a burst took so many times as long, in the mean, as in the middle one of a round. No
/// walk does that from one slice to the next.
const DISTURBED: f64 = 1.5;

/// What was measured of a size.
pub struct Measured {
    pub flow_count: u32,
    pub walks: Vec<Walk>,
    pub snapshots: Vec<Snapshot>,
    /// How long a walk takes a worker without packets.
    pub idle_s: Vec<f64>,
    /// What a peer has heard during the walks.
    pub of_changes: Heard,
}

/// A round with a walk.
pub struct Walk {
    pub quiet: Bursts,
    pub walking: Bursts,
    /// How long it took until all was found and taken.
    pub took_s: f64,
    /// And then until the peer had entered it.
    pub handover_s: f64,
    /// Of control's thread and of the one that talks to the peer, meanwhile.
    pub cpu_ms: [f64; 2],
}

/// The times of bursts.
#[derive(Clone, Copy)]
pub struct Bursts {
    pub median_ns: f64,
    /// What nearly all took at most.
    pub most_ns: f64,
    /// The share of bursts in slices that count.
    pub kept_share: f64,
}

/// A peer that came.
pub struct Snapshot {
    pub heard: Heard,
    /// From the start of the peer until it had acknowledged all.
    pub took_s: f64,
    pub cpu_ms: [f64; 2],
    /// Just before, and meanwhile.
    pub quiet: Bursts,
    pub walking: Bursts,
}

/// The nanoseconds of bursts, in memory that is there: a page that the kernel has to give at every thousandth would be
/// what is measured.
pub struct Notes(Vec<u32>);

impl Notes {
    /// With room for those of half a minute, at some microseconds each; more are left out.
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

    /// Takes out what was noted.
    fn take(&mut self) -> Bursts {
        let bursts = Bursts::of(&self.0);
        self.0.clear();
        bursts
    }
}

impl Bursts {
    /// Of those that came one after the other. What took much longer than others alike was not on the CPU, which is the
    /// machine's doing.
    fn of(bursts_ns: &[u32]) -> Self {
        let slices = slices(bursts_ns);
        let mean =
            |slice: &[u32]| slice.iter().map(|ns| f64::from(*ns)).sum::<f64>() / slice.len() as f64;
        let means: Vec<_> = slices.iter().map(|slice| mean(slice)).collect();
        let mean_max = DISTURBED * if means.is_empty() { 0.0 } else { median(&means) };
        let kept = slices.iter().zip(&means).filter(|(_, mean)| **mean <= mean_max);
        let mut kept_ns: Vec<_> = kept.flat_map(|(slice, _)| slice.iter().copied()).collect();
        kept_ns.sort_unstable();
        let at = |share: f64| {
            let place = (kept_ns.len() as f64 * share) as usize;
            kept_ns.get(place).map_or(f64::NAN, |ns| f64::from(*ns))
        };
        let kept_share = kept_ns.len() as f64 / bursts_ns.len() as f64;
        Self { median_ns: at(0.5), most_ns: at(SHARE), kept_share }
    }
}

/// Bursts that follow each other, of [`SLICE_NS`] together or a little more.
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
    /// What nearly all bursts took during a walk, over what they took without one.
    pub fn ratio(&self) -> Figure {
        let ratios = self.walks.iter().map(|walk| walk.walking.most_ns / walk.quiet.most_ns);
        Figure::of_rounds(&ratios.collect::<Vec<_>>())
    }

    pub fn row(&self) -> Row {
        let name =
            format!("99.9 % of bursts during a walk, {} connections", short(self.flow_count));
        Row::limit(&name, "times without", &self.ratio(), RATIO_MAX)
    }
}

/// What rounds are played with.
pub struct Rounds<'a> {
    pub setup: &'a Setup,
    pub bed: Bed,
    pub control: Control,
    /// By the first connections were made; by the second, one backend is drained.
    pub tables: [Arc<ServiceTable>; 2],
    /// Of bursts without a walk, and with one.
    pub notes: [Notes; 2],
}

impl Rounds<'_> {
    /// Bursts without a walk, and with one that finds the exceptions of a table, or that there are none any more.
    pub fn walk(&mut self, round: usize) -> Result<Walk, String> {
        self.settle()?;
        self.play_quiet();
        let (cpu_ns, begin) = (self.control.cpu_ns()?, Instant::now());
        let serial = self.change(round);
        self.play_until("the walk", true, |control| control.marked() == serial)?;
        let took = begin.elapsed();
        self.settle()?;
        let handover_s = (begin.elapsed() - took).as_secs_f64();
        let cpu_ms = self.cpu_ms_since(cpu_ns)?;
        self.play_quiet();
        let [quiet, walking] = self.notes.each_mut().map(Notes::take);
        Ok(Walk { quiet, walking, took_s: took.as_secs_f64(), handover_s, cpu_ms })
    }

    /// A peer comes, and enters all exceptions.
    pub fn snapshot(
        &mut self,
        start: impl FnOnce() -> Result<Peer, String>,
    ) -> Result<Snapshot, String> {
        let serial = self.change(0);
        let is_alone = |control: &Control| control.marked() == serial && control.entered() == NONE;
        self.play_until("the end of the peer", false, is_alone)?;
        self.play_quiet();
        let (cpu_ns, begin) = (self.control.cpu_ns()?, Instant::now());
        let peer = start()?;
        self.play_until("a snapshot", true, |control| control.entered() == serial)?;
        let (took_s, cpu_ms) = (begin.elapsed().as_secs_f64(), self.cpu_ms_since(cpu_ns)?);
        let [quiet, walking] = self.notes.each_mut().map(Notes::take);
        Ok(Snapshot { heard: peer.finish()?, took_s, cpu_ms, quiet, walking })
    }

    /// How long a walk takes where no packets come.
    pub fn idle_pass(&mut self, round: usize) -> Result<f64, String> {
        self.bed.rest();
        let (serial, begin) = (self.change(round), Instant::now());
        self.play_until("the walk", false, |control| control.marked() == serial)?;
        let took_s = begin.elapsed().as_secs_f64();
        self.bed.hit(self.setup.flow_count);
        Ok(took_s)
    }

    /// Publishes the table with the other one to compare with, in even rounds, and else without. Returns its number.
    fn change(&self, round: usize) -> u64 {
        let [table, drained] = &self.tables;
        let other = round.is_multiple_of(2).then(|| Arc::clone(drained));
        let table = Arc::new(table.with_other(other));
        let serial = table.serial();
        self.control.publish(table);
        serial
    }

    fn play_quiet(&mut self) {
        let Self { bed, notes: [notes, _], .. } = self;
        let begin = Instant::now();
        bed.play_while(|_| begin.elapsed() < QUIET, |took| notes.note(took));
    }

    /// Until the peer has entered all.
    fn settle(&mut self) -> Result<(), String> {
        self.play_until("the peer", false, |control| control.entered() != NONE)
    }

    /// Works on bursts until something is so, and notes them where they count.
    fn play_until(
        &mut self,
        what: &str,
        do_count: bool,
        is_so: impl Fn(&Control) -> bool,
    ) -> Result<(), String> {
        let Self { bed, control, notes: [_, notes], .. } = self;
        let begin = Instant::now();
        let mut is_done = false;
        let goes_on = |_| {
            is_done = is_so(control);
            !is_done && begin.elapsed() < WAIT_MAX
        };
        let note = |took| {
            if do_count {
                notes.note(took);
            }
        };
        bed.play_while(goes_on, note);
        if is_done { Ok(()) } else { Err(format!("{what} took more than {WAIT_MAX:?}")) }
    }

    fn cpu_ms_since(&self, before_ns: [u64; 2]) -> Result<[f64; 2], String> {
        let [control, sync] = self.control.cpu_ns()?;
        Ok([control - before_ns[0], sync - before_ns[1]].map(|ns| ns as f64 / 1e6))
    }
}
