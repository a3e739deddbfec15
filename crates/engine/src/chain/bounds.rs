//! The bounds of a chain's methods. Each has a message for the mistake that breaks it; the compiler
//! would otherwise report the bounds of an implementation, at length.

use super::Chain;
use super::boundary::Shard;
use super::exit_node::Fork;
use super::links::Then;
use super::make::{Always, Packets, Try, TryPackets};
use super::stage_node::stage_name;
use hotloop_stage::{Burst, BurstStage, Core, Error, Stage};

/// Adds stages of one kind to chains. The stage is a parameter, as the compiler would also show the
/// definition of the implementing type if that is the author's own.
#[diagnostic::on_unimplemented(
    message = "the stage `{A}` does not take `{In}`, which the part before it emits",
    label = "`.stage(..)` adds a `Stage<{In}>`, and `.burst_stage(..)` a `BurstStage<{In}>`"
)]
pub trait Adds<In, A> {
    /// The items for the next stage.
    type Emits;

    /// The chain `before` with the stage that `make` makes.
    fn add<C: Chain<Out = In>>(
        before: C,
        make: impl Fn(&Core) -> A + Sync,
    ) -> impl Chain<Out = Self::Emits>;

    /// [`add`](Self::add) with a factory that may fail.
    fn try_add<C: Chain<Out = In>, R: IsResult<Value = A>>(
        before: C,
        make: impl Fn(&Core) -> R + Sync,
    ) -> impl Chain<Out = Self::Emits>;
}

/// Stages that take items one by one.
pub struct Stages;

#[diagnostic::do_not_recommend]
impl<In, A: Stage<In>> Adds<In, A> for Stages {
    type Emits = A::Out;

    fn add<C: Chain<Out = In>>(
        before: C,
        make: impl Fn(&Core) -> A + Sync,
    ) -> impl Chain<Out = A::Out> {
        Then::new(before, stage_name::<A>(), Packets(make))
    }

    fn try_add<C: Chain<Out = In>, R: IsResult<Value = A>>(
        before: C,
        make: impl Fn(&Core) -> R + Sync,
    ) -> impl Chain<Out = A::Out> {
        Then::new(before, stage_name::<A>(), TryPackets(make))
    }
}

/// Stages that take bursts.
pub struct BurstStages;

#[diagnostic::do_not_recommend]
impl<In, A: BurstStage<In>> Adds<In, A> for BurstStages {
    type Emits = A::Out;

    fn add<C: Chain<Out = In>>(
        before: C,
        make: impl Fn(&Core) -> A + Sync,
    ) -> impl Chain<Out = A::Out> {
        Then::new(before, stage_name::<A>(), Always(make))
    }

    fn try_add<C: Chain<Out = In>, R: IsResult<Value = A>>(
        before: C,
        make: impl Fn(&Core) -> R + Sync,
    ) -> impl Chain<Out = A::Out> {
        Then::new(before, stage_name::<A>(), Try(make))
    }
}

/// A factory or a key that all cores may call: any [`Sync`] one.
#[diagnostic::on_unimplemented(
    message = "each core calls this closure, which holds a value that cores can't share",
    label = "a value in it isn't `Sync`, such as a queue, an `Rc` or a `Cell`",
    note = "make the queue or the stage in its factory; share an `Arc`, an atomic or a `Mutex`"
)]
pub trait SharedByCores: Sync {}

#[diagnostic::do_not_recommend]
impl<F: Sync> SharedByCores for F {}

/// The result of a factory that may fail: any [`Result`] with an error for [`Error`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no result of a factory that may fail",
    note = "the result is a `Result` with an error that converts into `hotloop::Error`: wrap a \
            value in `Ok::<_, Error>(..)`, make an error of a text by `Error::message(..)`"
)]
pub trait IsResult {
    /// The source, stage or sink.
    type Value;

    fn result(self) -> Result<Self::Value, Error>;
}

#[diagnostic::do_not_recommend]
impl<T, E: Into<Error>> IsResult for Result<T, E> {
    type Value = T;

    fn result(self) -> Result<T, Error> {
        self.map_err(Into::into)
    }
}

/// The choice of a core by a key of [`shard_by`](super::Chain::shard_by).
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not select a core",
    note = "the key of a packet is a hash of type `u32`, or a `Shard`"
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
#[diagnostic::on_unimplemented(message = "an exit follows a stage that emits `Fork`, not `{Self}`")]
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
