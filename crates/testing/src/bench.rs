//! A bench for unit tests of a single stage, on plain memory.

use hotloop_packet::memory::MemPacket;
use hotloop_stage::{BURST_CAPACITY, Burst, Counters, Cx, DropReason, Instant, Stage};
use std::marker::PhantomData;
use std::time::Duration;

/// Puts a stage on the bench, at time zero.
///
/// ```
/// use hotloop_packet::PacketBuf;
/// use hotloop_stage::{Cx, Stage, Verdict, drop_reasons};
/// use hotloop_testing::bench;
///
/// drop_reasons! { pub enum SizeDrop { TooSmall = "too_small" } }
///
/// struct MinimumSize;
///
/// impl<P: PacketBuf> Stage<P> for MinimumSize {
///     type Out = P;
///     type Drop = SizeDrop;
///
///     fn packet(&mut self, cx: &mut Cx<'_, SizeDrop>, packet: P) -> Verdict<P> {
///         if packet.len_bytes() < 60 { cx.drop(packet, SizeDrop::TooSmall) } else { Ok(packet) }
///     }
/// }
///
/// let out = bench(MinimumSize).feed([vec![0; 59], vec![0; 60]]);
/// assert_eq!(out.packets().len(), 1);
/// assert_eq!(out.dropped(SizeDrop::TooSmall), 1);
/// ```
pub const fn bench<S>(stage: S) -> Bench<S> {
    Bench::new(stage)
}

/// A stage on the bench, driven as the engine drives it. `K` is the kind of stage. [`bench()`] and
/// [`bench_burst`](crate::bench_burst) make it.
///
/// Packets come in bursts; `tick` follows each burst.
#[derive(Clone, Debug)]
pub struct Bench<S, K = Singly> {
    pub(crate) stage: S,
    pub(crate) now: Instant,
    pub(crate) burst_len: usize,
    kind: PhantomData<K>,
}

/// The kind of a [`Stage`], which gets packets singly.
#[derive(Clone, Copy, Debug)]
pub struct Singly;

/// The kind of a [`BurstStage`](hotloop_stage::BurstStage).
#[derive(Clone, Copy, Debug)]
pub struct InBursts;

impl<S, K> Bench<S, K> {
    pub(crate) const fn new(stage: S) -> Self {
        Self { stage, now: Instant::from_ns(0), burst_len: BURST_CAPACITY, kind: PhantomData }
    }

    /// Sets the time.
    #[must_use]
    pub const fn at(mut self, now: Instant) -> Self {
        self.now = now;
        self
    }

    /// Feeds in bursts of `burst_len` instead of 64.
    ///
    /// # Panics
    /// If `burst_len` is 0 or more than 64.
    #[must_use]
    pub const fn in_bursts_of(mut self, burst_len: usize) -> Self {
        assert!(burst_len > 0 && burst_len <= BURST_CAPACITY, "a burst is of 1 to 64 packets");
        self.burst_len = burst_len;
        self
    }

    /// Lets time pass. The stage observes it in its next call.
    pub fn advance(&mut self, duration: Duration) -> &mut Self {
        self.now = self.now + duration;
        self
    }

    /// The stage.
    pub const fn stage(&self) -> &S {
        &self.stage
    }

    /// The stage, mutable between calls.
    pub const fn stage_mut(&mut self) -> &mut S {
        &mut self.stage
    }
}

impl<S> Bench<S> {
    /// Feeds packets in plain memory: made from frames, from bytes, or by the builders of
    /// [`build`](crate::build).
    ///
    /// # Panics
    /// As for [`feed_items`](Self::feed_items).
    pub fn feed<F: Into<MemPacket>>(
        &mut self,
        packets: impl IntoIterator<Item = F>,
    ) -> Outcome<S::Out, S::Drop>
    where
        S: Stage<MemPacket>,
    {
        self.feed_items(packets.into_iter().map(Into::into))
    }

    /// Feeds items of the stage's own input type, which the stage before it emits.
    ///
    /// # Panics
    /// If the stage's own arithmetic is wrong, as the ledger would find: a packet was returned as
    /// dropped but not counted, or counted as dropped and emitted, or the stage drops in `tick`.
    pub fn feed_items<In>(
        &mut self,
        items: impl IntoIterator<Item = In>,
    ) -> Outcome<S::Out, S::Drop>
    where
        S: Stage<In>,
    {
        let mut outcome = Outcome::new();
        let mut items = items.into_iter().peekable();
        while items.peek().is_some() {
            let mut burst = Burst::new();
            burst.extend(items.by_ref().take(self.burst_len));
            self.run(burst, &mut outcome);
            self.tick::<In>();
        }
        outcome
    }

    /// Calls the stage's `tick` once, as the engine's loop does without packets.
    ///
    /// # Panics
    /// If the stage drops packets in `tick`.
    pub fn tick<In>(&mut self)
    where
        S: Stage<In>,
    {
        let counters = Counters::new(S::Drop::NAMES);
        self.stage.tick(&mut Cx::new(&counters, self.now));
        assert_eq!(counters.dropped_sum(), 0, "uncreated: `tick` has no packet to drop");
    }

    fn run<In>(&mut self, mut burst: Burst<In>, outcome: &mut Outcome<S::Out, S::Drop>)
    where
        S: Stage<In>,
    {
        let counters = Counters::new(S::Drop::NAMES);
        while let Some(item) = burst.pop() {
            let mut cx = Cx::new(&counters, self.now);
            let verdict = self.stage.packet(&mut cx, item);
            match (verdict, cx.dropped_count()) {
                (Ok(packet), 0) => outcome.packets.push(packet),
                (Err(_), 1) => {}
                (Err(_), 0) => panic!("unattributed: a packet was dropped without being counted"),
                (_, count) => panic!("uncreated: {count} drops counted for one packet"),
            }
            outcome.received_count += 1;
        }
        outcome.count_drops(&counters);
    }
}

/// The result of feeding a stage.
#[derive(Clone, Debug)]
pub struct Outcome<T, D> {
    pub(crate) packets: Vec<T>,
    pub(crate) received_count: u64,
    pub(crate) created_count: u64,
    dropped_counts: Vec<u64>,
    reasons: PhantomData<D>,
}

impl<T, D: DropReason> Outcome<T, D> {
    pub(crate) fn new() -> Self {
        let dropped_counts = vec![0; D::NAMES.len()];
        let packets = Vec::new();
        let (received_count, created_count) = (0, 0);
        Self { packets, received_count, created_count, dropped_counts, reasons: PhantomData }
    }

    pub(crate) fn count_drops(&mut self, counters: &Counters) {
        // Most calls drop nothing.
        if counters.dropped_sum() == 0 {
            return;
        }
        for (sum, (_, count)) in self.dropped_counts.iter_mut().zip(counters.dropped()) {
            *sum += count;
        }
    }

    /// The packets that came out, in order.
    #[must_use]
    pub fn packets(&self) -> &[T] {
        &self.packets
    }

    /// The packets that came out, to be fed to the next stage.
    #[must_use]
    pub fn into_packets(self) -> Vec<T> {
        self.packets
    }

    /// Number of packets dropped for this reason.
    #[must_use]
    pub fn dropped(&self, reason: D) -> u64 {
        self.dropped_counts[reason.index()]
    }

    /// Number of packets dropped for all reasons.
    #[must_use]
    pub fn dropped_sum(&self) -> u64 {
        self.dropped_counts.iter().sum()
    }

    /// Number of packets fed.
    #[must_use]
    pub const fn received(&self) -> u64 {
        self.received_count
    }

    /// Number of packets that the stage created.
    #[must_use]
    pub const fn created(&self) -> u64 {
        self.created_count
    }
}
