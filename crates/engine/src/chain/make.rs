//! Factories, which make a core's values on that core.
//!
//! A chain's type names each factory once, and nothing that the factory's result implies: symbols
//! grow with it. And no closure is made here: its type would name the type parameters of its
//! surroundings, which may include the chain.

use super::bounds::IsResult;
use super::stage_node::PerPacket;
use hotloop_stage::{Core, Error};

/// A factory.
pub trait Make: Sync {
    /// The type of the value that it makes.
    type Made;

    /// Makes the value on this core.
    fn make(&self, core: &Core) -> Result<Self::Made, Error>;
}

/// A factory that doesn't fail.
pub struct Always<F>(pub F);

impl<A, F: Fn(&Core) -> A + Sync> Make for Always<F> {
    type Made = A;

    fn make(&self, core: &Core) -> Result<A, Error> {
        Ok((self.0)(core))
    }
}

/// A factory that may fail.
pub struct Try<F>(pub F);

impl<R: IsResult, F: Fn(&Core) -> R + Sync> Make for Try<F> {
    type Made = R::Value;

    fn make(&self, core: &Core) -> Result<R::Value, Error> {
        (self.0)(core).result()
    }
}

/// A factory of stages that take packets one by one, adapted to bursts.
pub struct PerPackets<M>(pub M);

impl<M: Make> Make for PerPackets<M> {
    type Made = PerPacket<M::Made>;

    fn make(&self, core: &Core) -> Result<PerPacket<M::Made>, Error> {
        self.0.make(core).map(PerPacket)
    }
}
