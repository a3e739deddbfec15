//! The builder: a network function as a chain of factories, each run on the core that will own what
//! it makes.
#![expect(clippy::type_complexity, reason = "what a builder returns is inferred, never written")]

use crate::chain::{Head, Inlet, Outlet, Then, ThenBurst};
use crate::deployment::{Deployment, PlanError};
use crate::router::{Lanes, Shard};
use crate::worker::{self, Back, Dispatcher, Front, RunToCompletion, ShardWorker, Worker};
use hotloop_ring::{Column, Mesh, Row};
use hotloop_stage::{BurstStage, Carries, Core, Error, Role, Source, Stage};
use std::convert::Infallible;
use std::marker::PhantomData;

/// How the factories of a graph are called: on which core, and how its chains are to be run.
#[derive(Debug)]
pub struct Site<'a> {
    pub(crate) core: &'a Core,
    /// Whether the clock is the packets' own.
    pub(crate) paced: bool,
}

/// What a factory makes.
type Made<T> = Result<T, Error>;

/// A core's ends of the rings between cores.
#[derive(Debug)]
pub struct Ends<T> {
    pub(crate) row: Option<Row<T>>,
    pub(crate) column: Option<Column<T>>,
}

/// A whole network function: what `.sink(..)` returns and [`Engine::plan`](crate::Engine::plan)
/// takes.
pub trait Graph: Sync {
    /// What crosses from core to core.
    type Crossing: Send;

    /// Whether it has a boundary, made by `shard_by`.
    const IS_SHARDED: bool;

    /// Makes the worker of a core, on that core.
    ///
    /// # Errors
    /// The first factory's that fails.
    fn worker<'a>(
        &'a self,
        site: &Site<'_>,
        ends: Ends<Self::Crossing>,
        worker_count: usize,
    ) -> Result<Box<dyn Worker + 'a>, Error>;
}

/// The rings of a deployment, as each core's ends: dispatchers first, then workers.
pub(crate) fn mesh<T>(deployment: Deployment, ring_capacity: usize) -> Vec<Ends<T>> {
    match deployment {
        Deployment::RunToCompletion { workers: 1 } => vec![Ends { row: None, column: None }],
        Deployment::RunToCompletion { workers } => {
            let Mesh { rows, columns } = Mesh::all_to_all(workers, ring_capacity);
            let ends = rows.into_iter().zip(columns);
            ends.map(|(row, column)| Ends { row: Some(row), column: Some(column) }).collect()
        }
        Deployment::Pipeline { dispatchers, workers } => {
            let Mesh { rows, columns } = Mesh::new(dispatchers, workers, ring_capacity);
            let rows = rows.into_iter().map(|row| Ends { row: Some(row), column: None });
            let columns =
                columns.into_iter().map(|column| Ends { row: None, column: Some(column) });
            rows.chain(columns).collect()
        }
    }
}

/// A graph from its source to some stage, before any boundary. [`source`] starts it.
#[derive(Debug)]
pub struct Unsharded<F> {
    make: F,
}

/// A graph behind its boundary.
#[derive(Debug)]
pub struct Sharded<F, K, G> {
    make: F,
    key: K,
    tail: G,
}

/// Starts a graph: `make` is called on each core that polls, and returns its source, such as an RX
/// queue.
pub fn source<S, E>(
    make: impl Fn(&Core) -> Result<S, E> + Sync,
) -> Unsharded<impl Fn(&Site<'_>) -> Made<(S, Inlet<S::Item>)> + Sync>
where
    S: Source<Item: Carries>,
    E: Into<Error>,
{
    Unsharded {
        make: move |site: &Site<'_>| {
            let source = make(site.core).map_err(Into::into)?;
            Ok((source, Inlet::new("source", site.paced)))
        },
    }
}

impl<F> Unsharded<F> {
    /// Adds a stage, made by `make` on the core that will own it.
    pub fn stage<S, H, A>(
        self,
        make: impl Fn(&Core) -> A + Sync,
    ) -> Unsharded<impl Fn(&Site<'_>) -> Made<(S, Then<H, A>)> + Sync>
    where
        F: Fn(&Site<'_>) -> Result<(S, H), Error> + Sync,
        H: Head,
        A: Stage<H::Out>,
    {
        self.try_stage(move |core| Ok::<_, Infallible>(make(core)))
    }

    /// Adds a stage whose making can fail, which keeps the engine from starting.
    pub fn try_stage<S, H, A, E>(
        self,
        make: impl Fn(&Core) -> Result<A, E> + Sync,
    ) -> Unsharded<impl Fn(&Site<'_>) -> Made<(S, Then<H, A>)> + Sync>
    where
        F: Fn(&Site<'_>) -> Result<(S, H), Error> + Sync,
        H: Head,
        A: Stage<H::Out>,
        E: Into<Error>,
    {
        Unsharded {
            make: move |site: &Site<'_>| {
                let (source, head) = (self.make)(site)?;
                Ok((source, Then::new(head, make(site.core).map_err(Into::into)?)))
            },
        }
    }

    /// Adds a stage that takes bursts, made by `make` on the core that will own it.
    pub fn burst_stage<S, H, A>(
        self,
        make: impl Fn(&Core) -> A + Sync,
    ) -> Unsharded<impl Fn(&Site<'_>) -> Made<(S, ThenBurst<H, A>)> + Sync>
    where
        F: Fn(&Site<'_>) -> Result<(S, H), Error> + Sync,
        H: Head,
        A: BurstStage<H::Out>,
    {
        self.try_burst_stage(move |core| Ok::<_, Infallible>(make(core)))
    }

    /// Adds a stage that takes bursts and whose making can fail, which keeps the engine from starting.
    pub fn try_burst_stage<S, H, A, E>(
        self,
        make: impl Fn(&Core) -> Result<A, E> + Sync,
    ) -> Unsharded<impl Fn(&Site<'_>) -> Made<(S, ThenBurst<H, A>)> + Sync>
    where
        F: Fn(&Site<'_>) -> Result<(S, H), Error> + Sync,
        H: Head,
        A: BurstStage<H::Out>,
        E: Into<Error>,
    {
        Unsharded {
            make: move |site: &Site<'_>| {
                let (source, head) = (self.make)(site)?;
                Ok((source, ThenBurst::new(head, make(site.core).map_err(Into::into)?)))
            },
        }
    }

    /// Sets the boundary: `key` says of each packet, by a hash or by number, which worker goes on
    /// with it, whatever core received it.
    pub fn shard_by<S, H, K, I>(
        self,
        key: K,
    ) -> Sharded<F, K, impl Fn(&Site<'_>) -> Made<Inlet<H::Out>> + Sync>
    where
        F: Fn(&Site<'_>) -> Result<(S, H), Error> + Sync,
        H: Head<Out: Carries + Send>,
        K: Fn(&H::Out) -> I + Sync,
        I: Into<Shard>,
    {
        let tail = |site: &Site<'_>| Ok(Inlet::new("shard", site.paced));
        Sharded { make: self.make, key, tail }
    }

    /// Ends the graph: `make` is called on each core and returns its sink, such as a TX queue, or
    /// several as [`outlets`](crate::outlets).
    pub fn sink<S, H, Z, E, M>(self, make: M) -> impl Graph
    where
        F: Fn(&Site<'_>) -> Result<(S, H), Error> + Sync,
        S: Source<Item: Carries>,
        H: Head<In = S::Item>,
        Z: Outlet<Item = H::Out>,
        E: Into<Error>,
        M: Fn(&Core) -> Result<Z, E> + Sync,
    {
        Whole { make: self.make, sink: make, made: PhantomData }
    }
}

impl<F, K, G> Sharded<F, K, G> {
    /// As [`Unsharded::stage`], on the core that owns the packet's shard.
    pub fn stage<T, A>(
        self,
        make: impl Fn(&Core) -> A + Sync,
    ) -> Sharded<F, K, impl Fn(&Site<'_>) -> Made<Then<T, A>> + Sync>
    where
        G: Fn(&Site<'_>) -> Result<T, Error> + Sync,
        T: Head,
        A: Stage<T::Out>,
    {
        self.try_stage(move |core| Ok::<_, Infallible>(make(core)))
    }

    /// As [`Unsharded::try_stage`], on the core that owns the packet's shard.
    pub fn try_stage<T, A, E>(
        self,
        make: impl Fn(&Core) -> Result<A, E> + Sync,
    ) -> Sharded<F, K, impl Fn(&Site<'_>) -> Made<Then<T, A>> + Sync>
    where
        G: Fn(&Site<'_>) -> Result<T, Error> + Sync,
        T: Head,
        A: Stage<T::Out>,
        E: Into<Error>,
    {
        let Self { make: front, key, tail } = self;
        let tail =
            move |site: &Site<'_>| Ok(Then::new(tail(site)?, make(site.core).map_err(Into::into)?));
        Sharded { make: front, key, tail }
    }

    /// As [`Unsharded::burst_stage`], on the core that owns the packet's shard.
    pub fn burst_stage<T, A>(
        self,
        make: impl Fn(&Core) -> A + Sync,
    ) -> Sharded<F, K, impl Fn(&Site<'_>) -> Made<ThenBurst<T, A>> + Sync>
    where
        G: Fn(&Site<'_>) -> Result<T, Error> + Sync,
        T: Head,
        A: BurstStage<T::Out>,
    {
        self.try_burst_stage(move |core| Ok::<_, Infallible>(make(core)))
    }

    /// As [`Unsharded::try_burst_stage`], on the core that owns the packet's shard.
    pub fn try_burst_stage<T, A, E>(
        self,
        make: impl Fn(&Core) -> Result<A, E> + Sync,
    ) -> Sharded<F, K, impl Fn(&Site<'_>) -> Made<ThenBurst<T, A>> + Sync>
    where
        G: Fn(&Site<'_>) -> Result<T, Error> + Sync,
        T: Head,
        A: BurstStage<T::Out>,
        E: Into<Error>,
    {
        let Self { make: front, key, tail } = self;
        let tail = move |site: &Site<'_>| {
            Ok(ThenBurst::new(tail(site)?, make(site.core).map_err(Into::into)?))
        };
        Sharded { make: front, key, tail }
    }

    /// As [`Unsharded::sink`], on the core that owns the packet's shard.
    pub fn sink<S, H, I, T, Z, E, M>(self, make: M) -> impl Graph
    where
        F: Fn(&Site<'_>) -> Result<(S, H), Error> + Sync,
        S: Source<Item: Carries>,
        H: Head<In = S::Item, Out: Carries + Send>,
        K: Fn(&H::Out) -> I + Sync,
        I: Into<Shard>,
        G: Fn(&Site<'_>) -> Result<T, Error> + Sync,
        T: Head<In = H::Out>,
        Z: Outlet<Item = T::Out>,
        E: Into<Error>,
        M: Fn(&Core) -> Result<Z, E> + Sync,
    {
        let Self { make: front, key, tail } = self;
        Bounded { make: front, key, tail, sink: make, made: PhantomData }
    }
}

/// A whole graph without a boundary.
struct Whole<F, M, P> {
    make: F,
    sink: M,
    /// What the factories make, so that their types are known.
    made: PhantomData<fn() -> P>,
}

impl<F, M, S, H, Z, E> Graph for Whole<F, M, (S, H, Z, E)>
where
    F: Fn(&Site<'_>) -> Result<(S, H), Error> + Sync,
    S: Source<Item: Carries>,
    H: Head<In = S::Item>,
    Z: Outlet<Item = H::Out>,
    E: Into<Error>,
    M: Fn(&Core) -> Result<Z, E> + Sync,
{
    type Crossing = Infallible;
    const IS_SHARDED: bool = false;

    fn worker<'a>(
        &'a self,
        site: &Site<'_>,
        _: Ends<Infallible>,
        _: usize,
    ) -> Result<Box<dyn Worker + 'a>, Error> {
        let (source, chain) = (self.make)(site)?;
        let end = (self.sink)(site.core).map_err(Into::into)?.into_end();
        Ok(Box::new(worker::Line::new(Front::new(source, chain), end)))
    }
}

/// A whole graph with a boundary.
struct Bounded<F, K, G, M, P> {
    make: F,
    key: K,
    tail: G,
    sink: M,
    made: PhantomData<fn() -> P>,
}

impl<F, K, G, M, S, H, I, T, Z, E> Graph for Bounded<F, K, G, M, (S, H, I, T, Z, E)>
where
    F: Fn(&Site<'_>) -> Result<(S, H), Error> + Sync,
    S: Source<Item: Carries>,
    H: Head<In = S::Item, Out: Carries + Send>,
    K: Fn(&H::Out) -> I + Sync,
    I: Into<Shard>,
    G: Fn(&Site<'_>) -> Result<T, Error> + Sync,
    T: Head<In = H::Out>,
    Z: Outlet<Item = T::Out>,
    E: Into<Error>,
    M: Fn(&Core) -> Result<Z, E> + Sync,
{
    type Crossing = H::Out;
    const IS_SHARDED: bool = true;

    fn worker<'a>(
        &'a self,
        site: &Site<'_>,
        ends: Ends<H::Out>,
        worker_count: usize,
    ) -> Result<Box<dyn Worker + 'a>, Error> {
        let core = site.core;
        let front = || -> Result<_, Error> {
            let (source, chain) = (self.make)(site)?;
            Ok(Front::new(source, chain))
        };
        let back = || -> Result<_, Error> {
            let chain = (self.tail)(site)?;
            let end = (self.sink)(core).map_err(Into::into)?.into_end();
            Ok(Back::new(chain, end, ends.column))
        };
        let lanes = Lanes::new(ends.row, worker_count);
        Ok(match core.role() {
            Role::RunToCompletion => {
                let (front, back) = (front()?, back()?);
                Box::new(RunToCompletion::new(core.index(), front, &self.key, lanes, back))
            }
            Role::Dispatcher => Box::new(Dispatcher::new(front()?, &self.key, lanes)),
            Role::Worker => Box::new(ShardWorker::new(back()?)),
        })
    }
}

/// Checks that a deployment suits a graph.
pub(crate) fn check<G: Graph>(deployment: Deployment) -> Result<(), PlanError> {
    deployment.check()?;
    match deployment {
        Deployment::Pipeline { .. } if !G::IS_SHARDED => Err(PlanError::NoBoundary),
        _ => Ok(()),
    }
}
