//! The outcome of a packet: one output, or one counted drop.

use crate::tap::{TapEvent, TapPoint, show_one};
use crate::{Carries, Counters, Instant};
use hotloop_packet::PacketBuf;
use std::marker::PhantomData;

/// A stage's reasons to drop packets. [`drop_reasons!`](crate::drop_reasons) writes the
/// implementation.
pub trait DropReason: Copy + 'static {
    /// The reasons' names in reports and metrics, by [`index`](Self::index). A name is part of a
    /// program's interface.
    const NAMES: &'static [&'static str];

    /// All reasons, in the order of [`NAMES`](Self::NAMES).
    const ALL: &'static [Self];

    /// The reason's index in [`NAMES`](Self::NAMES).
    fn index(self) -> usize;
}

/// The reasons of a stage that never drops.
#[derive(Clone, Copy, Debug)]
pub enum NoDrops {}

impl DropReason for NoDrops {
    const NAMES: &'static [&'static str] = &[];
    const ALL: &'static [Self] = &[];

    fn index(self) -> usize {
        match self {}
    }
}

/// Declares an enum of drop reasons, each with its name in reports.
///
/// ```
/// use hotloop_stage::{DropReason, drop_reasons};
///
/// drop_reasons! {
///     /// Why the router drops.
///     pub enum RouterDrop { NoRoute = "no_route", TtlExpired = "ttl_expired" }
/// }
/// assert_eq!(RouterDrop::NAMES, ["no_route", "ttl_expired"]);
/// assert_eq!(RouterDrop::ALL, [RouterDrop::NoRoute, RouterDrop::TtlExpired]);
/// assert_eq!(RouterDrop::TtlExpired.index(), 1);
/// ```
#[macro_export]
macro_rules! drop_reasons {
    ($(#[$meta:meta])* $vis:vis enum $name:ident {
        $($(#[$reason_meta:meta])* $reason:ident = $text:literal),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        $vis enum $name {
            $(#[doc = concat!("Counted as `", $text, "`.")] $(#[$reason_meta])* $reason),+
        }

        impl $crate::DropReason for $name {
            const NAMES: &'static [&'static str] = &[$($text),+];
            const ALL: &'static [Self] = &[$(Self::$reason),+];

            #[inline]
            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

/// Proof that a packet was dropped and counted. Only [`Cx::drop`] makes it.
#[derive(Debug)]
#[must_use = "return it: it stands for the packet that was dropped"]
pub struct Dropped(());

/// A stage's verdict on a packet: the output, or proof that it was dropped.
pub type Verdict<T> = Result<T, Dropped>;

/// An outgoing packet, with or without its outlet, for stages that know no outlets.
pub trait Outgoing: Carries + Sized {
    /// The packet.
    type Packet: PacketBuf;

    /// The packet, mutable.
    fn packet_mut(&mut self) -> &mut Self::Packet;

    /// The same item with a new packet, from the same memory as this one's, that holds a copy of
    /// its first byte. `None` if that memory has run out.
    fn beside(&self) -> Option<Self>;
}

impl<P: PacketBuf> Outgoing for P {
    type Packet = P;

    fn packet_mut(&mut self) -> &mut P {
        self
    }

    fn beside(&self) -> Option<P> {
        self.copied(0, 1)
    }
}

/// Counts and drops a packet, and shows it to captures first. It is called, not inlined, so that a
/// stage's loop keeps its own values for passing packets in registers.
#[inline(never)]
fn dispose<I: Carries, D: DropReason>(counters: &Counters, reason: D, now: Instant, packet: I) {
    counters.count_drop(reason.index());
    if counters.is_tapped() {
        let point = TapPoint::Drop(D::NAMES[reason.index()]);
        drop(show_one(TapEvent { counters, point, now }, packet));
    }
}

/// The context of a stage's calls: the time, and the only way to drop.
#[derive(Debug)]
pub struct Cx<'a, D> {
    counters: &'a Counters,
    now: Instant,
    dropped_count: u64,
    reasons: PhantomData<D>,
}

impl<'a, D: DropReason> Cx<'a, D> {
    /// For an engine that drives a stage: calls at `now`, with drops counted in `counters`.
    #[inline(always)]
    #[must_use]
    pub const fn new(counters: &'a Counters, now: Instant) -> Self {
        Self { counters, now, dropped_count: 0, reasons: PhantomData }
    }

    /// Drops a packet and counts it under `reason`. The result is the verdict to return; a
    /// [`BurstStage`](crate::BurstStage), which may need none, calls [`discard`](Self::discard).
    #[inline(always)]
    #[allow(clippy::should_implement_trait, reason = "nothing to do with the trait Drop")]
    pub fn drop<I: Carries, T>(&mut self, packet: I, reason: D) -> Verdict<T> {
        self.discard(packet, reason);
        Err(Dropped(()))
    }

    /// Drops a packet and counts it under `reason`, where no verdict is returned: in the loop of a
    /// [`BurstStage`](crate::BurstStage) over its packets, in its `tick`, or for packets that it
    /// held.
    #[inline(always)]
    pub fn discard<I: Carries>(&mut self, packet: I, reason: D) {
        self.dropped_count += 1;
        dispose(self.counters, reason, self.now, packet);
    }

    /// Counts a packet as dropped for `reason` and returns it, so that a [`BurstStage`] can make
    /// its own packet in the same memory: an answer to it.
    ///
    /// The returned packet counts as free memory. It leaves as a packet that the stage made, by
    /// [`Output::push_created`], or is simply dropped, in the sense of Rust, if it isn't used:
    /// neither [`drop`](Self::drop) nor [`Output::push`] may count it again. A [`Stage`], which
    /// makes no packets, has no use for it.
    ///
    /// ```
    /// use hotloop_packet::memory::MemPacket;
    /// use hotloop_stage::{Burst, BurstStage, Cx, Output, drop_reasons};
    ///
    /// drop_reasons! { pub enum EchoDrop { Answered = "answered" } }
    ///
    /// struct Echo;
    ///
    /// impl BurstStage<MemPacket> for Echo {
    ///     type Out = MemPacket;
    ///     type Drop = EchoDrop;
    ///
    ///     fn process(
    ///         &mut self,
    ///         cx: &mut Cx<'_, EchoDrop>,
    ///         input: &mut Burst<MemPacket>,
    ///         out: &mut Output<'_, MemPacket>,
    ///     ) {
    ///         input.fetch();
    ///         while let Some(request) = input.pop() {
    ///             let mut packet = cx.reuse(request, EchoDrop::Answered);
    ///             if hotloop_packet::answer::echo_reply(&mut packet).is_ok() {
    ///                 out.push_created(packet);
    ///             }
    ///         }
    ///     }
    /// }
    /// ```
    ///
    /// [`BurstStage`]: crate::BurstStage
    /// [`Output::push_created`]: crate::Output::push_created
    /// [`Output::push`]: crate::Output::push
    /// [`Stage`]: crate::Stage
    #[inline]
    pub fn reuse<I: Carries>(&mut self, packet: I, reason: D) -> I {
        self.counters.count_drop(reason.index());
        self.dropped_count += 1;
        if !self.counters.is_tapped() {
            return packet;
        }
        let point = TapPoint::Drop(D::NAMES[reason.index()]);
        show_one(TapEvent { counters: self.counters, point, now: self.now }, packet)
    }

    /// The time of this burst.
    #[inline]
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Number of packets dropped through this value.
    #[inline(always)]
    #[must_use]
    pub const fn dropped_count(&self) -> u64 {
        self.dropped_count
    }
}
