//! Stages: the processing of packets between source and sink.

use crate::{BURST_CAPACITY, Burst, Cx, DropReason, Gauge, NoDrops, Verdict};
use std::marker::PhantomData;

/// One packet in, one verdict out: enough for most network functions. A stage that looks all
/// packets of a burst up at once, while memory is slow, is a [`BurstStage`].
///
/// None of the methods may block, allocate, lock or make a system call in steady state.
///
/// ```
/// use hotloop_stage::{Cx, NoDrops, Stage, Verdict};
///
/// /// Counts what passes.
/// struct Count(u64);
///
/// impl<T> Stage<T> for Count {
///     type Out = T;
///     type Drop = NoDrops;
///
///     fn packet(&mut self, _: &mut Cx<'_, NoDrops>, packet: T) -> Verdict<T> {
///         self.0 += 1;
///         Ok(packet)
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "the stage `{Self}` does not take what comes out of the one before it",
    label = "a stage that takes `{In}` belongs here",
    note = "what a stage emits (`Stage::Out`) is what the next one takes (`Stage<In>`)"
)]
pub trait Stage<In> {
    /// The output for a packet: the input of the next stage.
    type Out;

    /// The reasons to drop packets; [`NoDrops`] if it never does.
    type Drop: DropReason;

    /// Processes one packet. Mark this `#[inline]`.
    fn packet(&mut self, cx: &mut Cx<'_, Self::Drop>, packet: In) -> Verdict<Self::Out>;

    /// Called once per loop, with or without packets: housekeeping in bounded steps.
    #[inline(always)]
    fn tick(&mut self, cx: &mut Cx<'_, Self::Drop>) {
        let _ = cx;
    }

    /// The stage's own counters and gauges, each with its name in reports and metrics. Called once,
    /// after the stage is made; the engine reads them at any time, and sums them over cores.
    ///
    /// The set is fixed from then on, with its labels. Counters of rules or backends that a reload
    /// adds or removes are `CoreCounters` (hotloop-engine) in the value that control publishes; the
    /// program adds them to its own metrics.
    ///
    /// ```
    /// use hotloop_stage::{Counter, Cx, Gauge, NoDrops, Stage, Verdict};
    /// use std::sync::Arc;
    ///
    /// #[derive(Default)]
    /// struct Longest(Arc<Counter>);
    ///
    /// impl Stage<Vec<u8>> for Longest {
    ///     type Out = Vec<u8>;
    ///     type Drop = NoDrops;
    ///
    ///     fn packet(&mut self, _: &mut Cx<'_, NoDrops>, packet: Vec<u8>) -> Verdict<Vec<u8>> {
    ///         self.0.set(self.0.count().max(packet.len() as u64));
    ///         Ok(packet)
    ///     }
    ///
    ///     fn gauges(&self) -> Vec<Gauge> {
    ///         vec![Gauge::new("longest_bytes", &self.0)]
    ///     }
    /// }
    /// ```
    fn gauges(&self) -> Vec<Gauge> {
        Vec::new()
    }
}

/// Bursts in, any number of packets out: for stages that look at a whole burst before they process
/// its packets, hold packets, split or join them, or make packets of their own.
pub trait BurstStage<In> {
    /// The output items.
    type Out;

    /// The reasons to drop packets.
    type Drop: DropReason;

    /// Processes a burst. It must take all packets: those left in `input` count as neither emitted
    /// nor held.
    ///
    /// Packets from another core are fetched into the cache by the first pass over them, if that is
    /// [`Burst::iter_mut`] or [`Output::map`]. A stage that takes them otherwise calls
    /// [`Burst::fetch`] first.
    fn process(
        &mut self,
        cx: &mut Cx<'_, Self::Drop>,
        input: &mut Burst<In>,
        out: &mut Output<'_, Self::Out>,
    );

    /// Called once per loop, with or without packets.
    #[inline(always)]
    fn tick(&mut self, cx: &mut Cx<'_, Self::Drop>, out: &mut Output<'_, Self::Out>) {
        let _ = (cx, out);
    }

    /// Called at the end, when no packet will come any more: emits or drops the held packets.
    fn finish(&mut self, cx: &mut Cx<'_, Self::Drop>, out: &mut Output<'_, Self::Out>) {
        let _ = (cx, out);
    }

    /// Number of packets that it holds between calls.
    fn held(&self) -> usize {
        0
    }

    /// Maximum number of packets that it may hold, for the size of the pools.
    fn held_max(&self) -> usize {
        0
    }

    /// Whether the stage has work left that [`tick`](Self::tick) does in steps: then a core does
    /// not sleep, however few packets come. Called only if a core would sleep otherwise.
    fn has_work(&self) -> bool {
        false
    }

    /// Maximum number of packets that [`process`](Self::process) emits for each packet that it
    /// takes. Before a boundary, a source that can wait is polled for no more than the rings have
    /// room for after this growth. Packets from [`tick`](Self::tick) and [`finish`](Self::finish)
    /// are not covered.
    fn growth_max(&self) -> usize {
        1
    }

    /// Like [`Stage::gauges`].
    fn gauges(&self) -> Vec<Gauge> {
        Vec::new()
    }
}

/// The output of a [`BurstStage`].
pub struct Output<'a, T> {
    burst: &'a mut Burst<T>,
    spill: &'a mut dyn FnMut(&mut Burst<T>),
    tally: &'a mut Tally,
    /// Number of items of the burst that are in the tally, or were there before.
    counted: usize,
}

/// Number of packets that a stage put into its [`Output`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Tally {
    /// All packets.
    pub emitted: u64,
    /// Packets that the stage made itself.
    pub created: u64,
}

impl<'a, T> Output<'a, T> {
    /// For an engine that drives a stage: collects in `burst`, which may hold items before; calls
    /// `spill`, which must empty the burst, when it is full; and counts in `tally`, which therefore
    /// outlives a panic of the stage. The tally is right once this value is dropped.
    pub fn new(
        burst: &'a mut Burst<T>,
        spill: &'a mut dyn FnMut(&mut Burst<T>),
        tally: &'a mut Tally,
    ) -> Self {
        let counted = burst.len();
        Self { burst, spill, tally, counted }
    }

    /// Emits a packet that came in.
    #[inline(always)]
    pub fn push(&mut self, packet: T) {
        if self.burst.is_at_end() {
            self.make_room();
        }
        self.burst.push(packet);
    }

    /// Takes the items of `input` one by one, front first, and emits the results of `change`, if
    /// any. Faster than [`push`](Self::push) for each.
    ///
    /// If `change` panics, the items that it has not seen are left in `input`.
    #[inline(always)]
    pub fn map<In>(&mut self, input: &mut Burst<In>, change: impl FnMut(In) -> Option<T>) {
        if input.len() > BURST_CAPACITY - self.burst.len() {
            self.spill();
        }
        input.map_into(self.burst, change);
    }

    /// Like [`map`](Self::map), with each item's index in the burst: for results of an earlier pass
    /// over all items.
    ///
    /// ```
    /// use hotloop_stage::{BURST_CAPACITY, Burst, BurstStage, Cx, NoDrops, Output};
    ///
    /// /// Puts beside each number how many of its burst are larger.
    /// struct Rank;
    ///
    /// impl BurstStage<u64> for Rank {
    ///     type Out = (u64, usize);
    ///     type Drop = NoDrops;
    ///
    ///     fn process(
    ///         &mut self,
    ///         _: &mut Cx<'_, NoDrops>,
    ///         input: &mut Burst<u64>,
    ///         out: &mut Output<'_, (u64, usize)>,
    ///     ) {
    ///         let mut ranks = [0; BURST_CAPACITY];
    ///         for (rank, number) in ranks.iter_mut().zip(input.as_slice()) {
    ///             *rank = input.as_slice().iter().filter(|other| *other > number).count();
    ///         }
    ///         out.map_indexed(input, |index, number| Some((number, ranks[index])));
    ///     }
    /// }
    /// ```
    #[inline(always)]
    pub fn map_indexed<In>(
        &mut self,
        input: &mut Burst<In>,
        mut change: impl FnMut(usize, In) -> Option<T>,
    ) {
        let mut next_index = 0;
        self.map(input, |item| {
            let index = next_index;
            next_index += 1;
            change(index, item)
        });
    }

    /// Like [`map`](Self::map), up to the first item for which `change` returns an error. Returns
    /// that error. The later items are left.
    #[inline(always)]
    pub fn map_until<In, E>(
        &mut self,
        input: &mut Burst<In>,
        change: impl FnMut(In) -> Result<T, E>,
    ) -> Option<E> {
        if input.len() > BURST_CAPACITY - self.burst.len() {
            self.spill();
        }
        input.map_until(self.burst, change)
    }

    #[cold]
    #[inline(never)]
    fn make_room(&mut self) {
        if self.burst.is_full() {
            self.spill();
        }
    }

    #[cold]
    fn spill(&mut self) {
        self.count();
        (self.spill)(self.burst);
        self.counted = self.burst.len();
    }

    /// Counts the items put into the burst since the last call.
    fn count(&mut self) {
        self.tally.emitted += self.burst.len().saturating_sub(self.counted) as u64;
        // If `spill` panics, the items that it left are then not counted again.
        self.counted = BURST_CAPACITY;
    }

    /// Emits a packet that the stage made, and counts it as created.
    #[inline]
    pub fn push_created(&mut self, packet: T) {
        self.tally.created += 1;
        self.push(packet);
    }
}

impl<T> Drop for Output<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.count();
    }
}

impl<T> std::fmt::Debug for Output<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Output").field("tally", self.tally).finish_non_exhaustive()
    }
}

/// A stage that is a function of each packet and never drops. [`each`] makes it.
#[derive(Clone, Copy, Debug)]
pub struct Each<F, In>(F, PhantomData<fn(In)>);

/// A stage that applies `function` to each packet.
///
/// ```
/// # use hotloop_stage::each;
/// let double = each(|number: u64| number * 2);
/// ```
pub const fn each<In, Out, F: FnMut(In) -> Out>(function: F) -> Each<F, In> {
    Each(function, PhantomData)
}

impl<In, Out, F: FnMut(In) -> Out> Stage<In> for Each<F, In> {
    type Out = Out;
    type Drop = NoDrops;

    #[inline(always)]
    fn packet(&mut self, _: &mut Cx<'_, NoDrops>, packet: In) -> Verdict<Out> {
        Ok((self.0)(packet))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn what_is_put_after_others_is_counted_over_spills() {
        let (mut burst, mut tally, mut spilled) = (Burst::new(), Tally::default(), Vec::new());
        burst.extend(0..10);
        burst.pop();
        let mut spill = |burst: &mut Burst<u64>| spilled.extend(std::iter::from_fn(|| burst.pop()));
        let mut out = Output::new(&mut burst, &mut spill, &mut tally);
        (10..150).for_each(|number| out.push(number));
        out.push_created(150);
        drop(out);
        assert_eq!(tally, Tally { emitted: 141, created: 1 });
        spilled.extend(std::iter::from_fn(|| burst.pop()));
        assert_eq!(spilled, (1..=150).collect::<Vec<_>>());
    }

    #[test]
    fn a_mapped_burst_is_counted_and_spills_what_is_in_its_way() {
        let (mut burst, mut tally, mut spilled) = (Burst::new(), Tally::default(), Vec::new());
        let mut spill = |burst: &mut Burst<u64>| spilled.extend(std::iter::from_fn(|| burst.pop()));
        let mut out = Output::new(&mut burst, &mut spill, &mut tally);
        let mut input = Burst::new();
        for first in [0, 40] {
            input.extend(first..first + 40);
            out.map(&mut input, |number| (number % 4 != 0).then_some(number));
        }
        input.extend(80..120);
        let until = |number| if number == 100 { Err(number) } else { Ok(number) };
        assert_eq!(out.map_until(&mut input, until), Some(100));
        assert_eq!((out.map_until(&mut input, until), input.len()), (None, 0));
        drop(out);
        assert_eq!(tally.emitted, 99);
        spilled.extend(std::iter::from_fn(|| burst.pop()));
        let expected = (0..80).filter(|number| number % 4 != 0).chain(80..100).chain(101..120);
        assert_eq!(spilled, expected.collect::<Vec<_>>());
    }

    #[test]
    fn a_spill_that_panics_leaves_the_tally_right() {
        for taken_count in [0, 5, 64] {
            let (mut burst, mut tally) = (Burst::new(), Tally::default());
            let mut spill = |burst: &mut Burst<u64>| {
                (0..taken_count).for_each(|_| assert!(burst.pop().is_some()));
                panic!("a planted panic");
            };
            let pushed = catch_unwind(AssertUnwindSafe(|| {
                let mut out = Output::new(&mut burst, &mut spill, &mut tally);
                (0..65).for_each(|number| out.push(number));
            }));
            assert!(pushed.is_err());
            assert_eq!((tally.emitted, burst.len()), (64, 64 - taken_count));
        }
    }
}
