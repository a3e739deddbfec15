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

/// Like [`Always`], for a stage that takes packets one by one.
pub struct Packets<F>(pub F);

impl<A, F: Fn(&Core) -> A + Sync> Make for Packets<F> {
    type Made = PerPacket<A>;

    fn make(&self, core: &Core) -> Result<PerPacket<A>, Error> {
        Ok(PerPacket((self.0)(core)))
    }
}

/// Like [`Try`], for a stage that takes packets one by one.
pub struct TryPackets<F>(pub F);

impl<R: IsResult, F: Fn(&Core) -> R + Sync> Make for TryPackets<F> {
    type Made = PerPacket<R::Value>;

    fn make(&self, core: &Core) -> Result<PerPacket<R::Value>, Error> {
        (self.0)(core).result().map(PerPacket)
    }
}
