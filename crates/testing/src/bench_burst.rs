//! A bench for a single burst stage, on plain memory.

use crate::bench::{Bench, InBursts, Outcome};
use hotloop_packet::memory::MemPacket;
use hotloop_stage::{Burst, BurstStage, Counters, Cx, DropReason, Output, Tally};

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
pub const fn bench_burst<S>(stage: S) -> Bench<S, InBursts> {
    Bench::new(stage)
}

/// One of the stage's calls.
#[derive(Clone, Copy)]
enum Call {
    Process,
    Tick,
    Finish,
}

/// After every call the stage's arithmetic is checked: in + created + held before = out + dropped +
/// held after.
impl<S> Bench<S, InBursts> {
    /// Feeds packets in plain memory, as the bench for [`Singly`](crate::Singly) does.
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
