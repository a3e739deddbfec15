//! The bounds of a chain's methods. Each has a message for the mistake that breaks it; the compiler
//! would otherwise report the bounds of an implementation, at length.

use super::boundary::Shard;
use super::exit_node::Fork;
use hotloop_stage::{Burst, BurstStage, Stage};

/// A stage for the items of a chain: any [`Stage`] of them.
#[diagnostic::on_unimplemented(
    message = "the stage `{Self}` does not take what comes out of the one before it",
    label = "the stage must take `{In}`",
    note = "what a stage emits (`Stage::Out`) is what the next one takes (`Stage<In>`); a \
            `BurstStage` is added by `.burst_stage(..)`"
)]
pub trait Takes<In>: Stage<In, Out = Self::Emits> {
    /// The items for the next stage.
    type Emits;
}

#[diagnostic::do_not_recommend]
impl<In, A: Stage<In>> Takes<In> for A {
    type Emits = A::Out;
}

/// A stage for the bursts of a chain: any [`BurstStage`] of its items.
#[diagnostic::on_unimplemented(
    message = "the stage `{Self}` does not take bursts of what comes out of the one before it",
    label = "the stage must take bursts of `{In}`",
    note = "what a stage emits (`BurstStage::Out`) is what the next one takes (`BurstStage<In>`); a \
            `Stage` is added by `.stage(..)`"
)]
pub trait TakesBursts<In>: BurstStage<In, Out = Self::Emits> {
    /// The items for the next stage.
    type Emits;
}

#[diagnostic::do_not_recommend]
impl<In, A: BurstStage<In>> TakesBursts<In> for A {
    type Emits = A::Out;
}

/// The choice of a core by a key of [`shard_by`](super::Chain::shard_by).
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not select a core",
    label = "the key of a packet is a hash of type `u32`, or a `Shard`"
)]
pub trait IntoShard {
    fn into_shard(self) -> Shard;
}

#[diagnostic::do_not_recommend]
impl<I: Into<Shard>> IntoShard for I {
    #[inline(always)]
    fn into_shard(self) -> Shard {
        self.into()
    }
}

/// The items before an exit: [`Fork`].
#[diagnostic::on_unimplemented(
    message = "an exit follows a stage that emits `Fork`, not `{Self}`",
    label = "the stage before emits no `Fork`"
)]
pub trait Forked {
    /// The items for the next stage.
    type On;

    /// The items for the exit.
    type Exit;

    fn fork(self) -> Fork<Self::On, Self::Exit>;
}

#[diagnostic::do_not_recommend]
impl<On, Exit> Forked for Fork<On, Exit> {
    type On = On;
    type Exit = Exit;

    #[inline(always)]
    fn fork(self) -> Self {
        self
    }
}

/// The same type as `T`. The compiler reports a bound on an associated type that differs without
/// the message of the trait that requires it, and this one with that message.
pub trait Is<T>: Sized {
    fn same(burst: &mut Burst<Self>) -> &mut Burst<T>;
}

impl<T> Is<T> for T {
    #[inline(always)]
    fn same(burst: &mut Burst<Self>) -> &mut Burst<T> {
        burst
    }
}
