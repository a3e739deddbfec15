//! A bench for unit tests of a single stage, on plain memory.

use hotloop_packet::memory::MemPacket;
use hotloop_stage::{
    BURST_CAPACITY, Burst, BurstStage, Counters, Cx, DropReason, Instant, Output, Stage, Tally,
};
use std::marker::PhantomData;
use std::ops::Deref;
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
pub const fn bench<S>(stage: S) -> Bench<OneByOne<S>> {
    bench_burst(OneByOne(stage))
}

/// Puts a burst stage on the bench, at time zero.
///
/// ```
/// use hotloop_packet::memory::MemPacket;
/// use hotloop_stage::{Burst, BurstStage, Cx, NoDrops, Output};
/// use hotloop_testing::bench_burst;
///
/// /// Sends each packet twice.
/// struct Mirror;
///
/// impl BurstStage<MemPacket> for Mirror {
///     type Out = MemPacket;
///     type Drop = NoDrops;
///
///     fn process(
///         &mut self,
///         _: &mut Cx<'_, NoDrops>,
///         input: &mut Burst<MemPacket>,
///         out: &mut Output<'_, MemPacket>,
///     ) {
///         while let Some(packet) = input.pop() {
///             out.push_created(packet.clone());
///             out.push(packet);
///         }
///     }
/// }
///
/// let out = bench_burst(Mirror).feed([vec![1], vec![2]]);
/// assert_eq!((out.packets().len(), out.received(), out.created()), (4, 2, 2));
/// ```
pub const fn bench_burst<S>(stage: S) -> Bench<S> {
    Bench { stage, now: Instant::from_ns(0), burst_len: BURST_CAPACITY }
}

/// A [`Stage`] as a burst stage: takes the packets of a burst one by one.
///
/// It panics if the stage's arithmetic is wrong for a packet: one that was returned as dropped but
/// not counted, or counted as dropped and emitted.
#[derive(Clone, Debug)]
pub struct OneByOne<S>(S);

impl<S> Deref for OneByOne<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.0
    }
}

impl<In, S: Stage<In>> BurstStage<In> for OneByOne<S> {
    type Out = S::Out;
    type Drop = S::Drop;

    fn process(
        &mut self,
        cx: &mut Cx<'_, S::Drop>,
        input: &mut Burst<In>,
        out: &mut Output<'_, S::Out>,
    ) {
        while let Some(item) = input.pop() {
            let dropped_before = cx.dropped_count();
            let verdict = self.0.packet(cx, item);
            match (verdict, cx.dropped_count() - dropped_before) {
                (Ok(packet), 0) => out.push(packet),
                (Err(_), 1) => {}
                (Err(_), 0) => panic!("unattributed: a packet was dropped without being counted"),
                (_, count) => panic!("uncreated: {count} drops counted for one packet"),
            }
        }
    }

    fn tick(&mut self, cx: &mut Cx<'_, S::Drop>, _: &mut Output<'_, S::Out>) {
        self.0.tick(cx);
    }
}

/// A stage on the bench, driven as the engine drives it. [`bench()`] and [`bench_burst()`] make it.
///
/// Packets come in bursts; `tick` follows each burst. After every call the stage's arithmetic is
/// checked: in + created + held before = out + dropped + held after.
#[derive(Clone, Debug)]
pub struct Bench<S> {
    stage: S,
    now: Instant,
    burst_len: usize,
}

/// One of the stage's calls.
#[derive(Clone, Copy)]
enum Call {
    Process,
    Tick,
    Finish,
}

impl<S> Bench<S> {
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
        S: BurstStage<MemPacket>,
    {
        self.feed_items(packets.into_iter().map(Into::into))
    }

    /// Feeds items of the stage's own input type. `tick` follows each burst.
    ///
    /// # Panics
    /// If the stage's arithmetic is wrong, as the ledger would find, or if it holds more than its
    /// `held_max`.
    pub fn feed_items<In>(
        &mut self,
        items: impl IntoIterator<Item = In>,
    ) -> Outcome<S::Out, S::Drop>
    where
        S: BurstStage<In>,
    {
        let mut outcome = Outcome::new();
        let mut items = items.into_iter().peekable();
        while items.peek().is_some() {
            let mut burst = Burst::new();
            burst.extend(items.by_ref().take(self.burst_len));
            self.call(Call::Process, burst, &mut outcome);
            self.call::<In>(Call::Tick, Burst::new(), &mut outcome);
        }
        outcome
    }

    /// Calls the stage's `tick` once, as the engine's loop does without packets.
    ///
    /// # Panics
    /// As for [`feed_items`](Self::feed_items).
    pub fn tick<In>(&mut self) -> Outcome<S::Out, S::Drop>
    where
        S: BurstStage<In>,
    {
        let mut outcome = Outcome::new();
        self.call::<In>(Call::Tick, Burst::new(), &mut outcome);
        outcome
    }

    /// Calls the stage's `finish`, as a drain does.
    ///
    /// # Panics
    /// As for [`feed_items`](Self::feed_items), and if the stage still holds packets.
    pub fn finish<In>(&mut self) -> Outcome<S::Out, S::Drop>
    where
        S: BurstStage<In>,
    {
        let mut outcome = Outcome::new();
        self.call::<In>(Call::Finish, Burst::new(), &mut outcome);
        assert_eq!(self.stage.held(), 0, "packets held after `finish`");
        outcome
    }

    fn call<In>(&mut self, call: Call, mut input: Burst<In>, all: &mut Outcome<S::Out, S::Drop>)
    where
        S: BurstStage<In>,
    {
        let counters = Counters::new(S::Drop::NAMES);
        let (received, held_before) = (input.len() as u64, self.stage.held() as u64);
        let (mut burst, mut tally) = (Burst::new(), Tally::default());
        let packets = &mut all.packets;
        let mut spill = |burst: &mut Burst<S::Out>| {
            packets.extend(std::iter::from_fn(|| burst.pop()));
        };
        let mut out = Output::new(&mut burst, &mut spill, &mut tally);
        let mut cx = Cx::new(&counters, self.now);
        match call {
            Call::Process => self.stage.process(&mut cx, &mut input, &mut out),
            Call::Tick => self.stage.tick(&mut cx, &mut out),
            Call::Finish => self.stage.finish(&mut cx, &mut out),
        }
        drop(out);
        spill(&mut burst);
        let entered = received + tally.created + held_before;
        let left = tally.emitted + counters.dropped_sum() + self.stage.held() as u64;
        assert!(entered <= left, "unattributed: {} packets", entered - left);
        assert!(entered >= left, "uncreated: {} packets", left - entered);
        assert!(self.stage.held() <= self.stage.held_max(), "more packets held than `held_max`");
        all.received_count += received;
        all.created_count += tally.created;
        all.count_drops(&counters);
    }
}

/// The result of feeding a stage.
#[derive(Clone, Debug)]
pub struct Outcome<T, D> {
    packets: Vec<T>,
    received_count: u64,
    created_count: u64,
    dropped_counts: Vec<u64>,
    reasons: PhantomData<D>,
}

impl<T, D: DropReason> Outcome<T, D> {
    fn new() -> Self {
        let dropped_counts = vec![0; D::NAMES.len()];
        let packets = Vec::new();
        let (received_count, created_count) = (0, 0);
        Self { packets, received_count, created_count, dropped_counts, reasons: PhantomData }
    }

    fn count_drops(&mut self, counters: &Counters) {
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

    /// The reasons for which packets were dropped, by name, with the number of packets of each.
    ///
    /// ```
    /// # use hotloop_packet::{PacketBuf, build::udp};
    /// # use hotloop_stage::{Cx, Stage, Verdict, drop_reasons};
    /// # use hotloop_testing::bench;
    /// drop_reasons! { pub enum SizeDrop { Short = "short", Long = "long" } }
    ///
    /// # struct Never;
    /// # impl<P: PacketBuf> Stage<P> for Never {
    /// #     type Out = P;
    /// #     type Drop = SizeDrop;
    /// #     fn packet(&mut self, cx: &mut Cx<'_, SizeDrop>, packet: P) -> Verdict<P> {
    /// #         cx.drop(packet, SizeDrop::Short)
    /// #     }
    /// # }
    /// let outcome = bench(Never).feed([udp()]);
    /// assert_eq!(outcome.drops(), [("short", 1)]);
    /// ```
    #[must_use]
    pub fn drops(&self) -> Vec<(&'static str, u64)> {
        let counts = D::NAMES.iter().copied().zip(self.dropped_counts.iter().copied());
        counts.filter(|(_, count)| *count > 0).collect()
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
