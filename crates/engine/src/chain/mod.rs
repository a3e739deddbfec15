//! The builder: a network function as a chain of factories, each called on the core that will own
//! the result.

mod boundary;
mod bounds;
mod exit_node;
mod group;
mod links;
mod make;
mod node;
mod outlets;
mod sink_node;
mod stage_node;

pub use boundary::Shard;
pub use exit_node::Fork;
pub use outlets::{Outlets, Routed, outlets};
pub use sink_node::Outlet;

use crate::deployment::{Deployment, PlanError};
use crate::worker::Worker;
use boundary::{ByShard, Handoff};
use bounds::{Adds, BurstStages, Forked, IntoShard, IsResult, SharedByCores, Stages};
use hotloop_ring::{Consumers, Producers};
use hotloop_stage::{Carries, Core, Error, Source};
use links::{Bounded, Exit, Start, Whole};
use make::Try;
use node::Node;

/// The site of a chain: a core of a deployment.
#[derive(Debug)]
pub struct Site {
    /// The core, in the first group that it belongs to.
    pub(crate) core: Core,
    pub(crate) deployment: Deployment,
    /// Whether the clock is the packets' own.
    pub(crate) is_paced: bool,
}

impl Site {
    /// The core from the view of `group`'s factories; `None` if it does not belong to that group.
    fn core_in(&self, group: usize) -> Option<Core> {
        let belongs = self.deployment.is_run_to_completion() || self.core.group() == group;
        belongs.then(|| self.core.in_group(group))
    }
}

/// The ends of the rings of one boundary on one core.
#[derive(Debug)]
pub struct Ends<T> {
    /// To the cores of the next group, if this core belongs to the group before the boundary.
    producers: Option<Producers<T>>,
    /// From the cores of the previous group, if this core belongs to the next one.
    consumers: Option<Consumers<T>>,
}

/// The names of the parts of a graph, group by group.
pub type Outline = Vec<Vec<String>>;

/// A graph from its source to some stage. [`source`] starts it.
///
/// A middle section is a function from chain to chain:
///
/// ```
/// use hotloop_engine::Chain;
/// use hotloop_stage::each;
///
/// fn doubled(chain: impl Chain<Out = u64>) -> impl Chain<Out = u64> {
///     chain.stage(|_| each(|number: u64| number * 2)).named("doubled")
/// }
/// ```
///
/// The type of a closure names the type parameters of its function: each closure in such a function
/// names the chain once more. Programs stay small if factories come from functions that don't know
/// the chain.
///
/// The methods without documentation are for the engine.
pub trait Chain: Sync + Sized {
    /// The items at its end.
    type Out;

    /// The ends of all its boundaries' rings on one core.
    #[doc(hidden)]
    type Ends: Send;

    /// The group of the chain's end.
    #[doc(hidden)]
    const GROUP: usize;

    #[doc(hidden)]
    fn set_name(&mut self, name: String);

    #[doc(hidden)]
    fn outline(&self, outline: &mut Outline);

    #[doc(hidden)]
    fn check(&self, deployment: Deployment) -> Result<(), PlanError>;

    #[doc(hidden)]
    fn ends(&self, deployment: Deployment, ring_capacity: Option<usize>) -> Vec<Self::Ends>;

    #[doc(hidden)]
    fn worker<'a, D: Node<Self::Out> + 'a>(
        &'a self,
        site: &Site,
        ends: Self::Ends,
        down: Option<D>,
    ) -> Result<Box<dyn Worker + 'a>, Error>;

    /// Names the last part for reports: a source, a stage, a boundary or an exit. A stage without a
    /// name has the name of its type.
    fn named(mut self, name: impl Into<String>) -> Self {
        self.set_name(name.into());
        self
    }

    /// Adds a stage, made by `make` on the core that will own it.
    fn stage<A>(
        self,
        make: impl Fn(&Core) -> A + SharedByCores,
    ) -> impl Chain<Out = <Stages as Adds<Self::Out, A>>::Emits>
    where
        Stages: Adds<Self::Out, A>,
    {
        Stages::add(self, make)
    }

    /// Adds a stage made by `make`, which returns a [`Result`]. An error prevents the engine from
    /// starting.
    fn try_stage<A, R: IsResult<Value = A>>(
        self,
        make: impl Fn(&Core) -> R + SharedByCores,
    ) -> impl Chain<Out = <Stages as Adds<Self::Out, A>>::Emits>
    where
        Stages: Adds<Self::Out, A>,
    {
        Stages::try_add(self, make)
    }

    /// Adds a stage that takes bursts, made by `make` on the core that will own it.
    fn burst_stage<A>(
        self,
        make: impl Fn(&Core) -> A + SharedByCores,
    ) -> impl Chain<Out = <BurstStages as Adds<Self::Out, A>>::Emits>
    where
        BurstStages: Adds<Self::Out, A>,
    {
        BurstStages::add(self, make)
    }

    /// Adds a stage that takes bursts, made by `make`, which returns a [`Result`]. An error prevents
    /// the engine from starting.
    fn try_burst_stage<A, R: IsResult<Value = A>>(
        self,
        make: impl Fn(&Core) -> R + SharedByCores,
    ) -> impl Chain<Out = <BurstStages as Adds<Self::Out, A>>::Emits>
    where
        BurstStages: Adds<Self::Out, A>,
    {
        BurstStages::try_add(self, make)
    }

    /// Adds an exit: of the previous stage's [`Fork`]s, some go on to the next stage, and the
    /// others leave by the sink in the [`Result`] of `make`, or by one of several [`outlets`], on the
    /// core of the exit.
    fn exit<Z, R: IsResult<Value = Z>>(
        self,
        make: impl Fn(&Core) -> R + SharedByCores,
    ) -> impl Chain<Out = <Self::Out as Forked>::On>
    where
        Self::Out: Forked,
        Z: Outlet<<Self::Out as Forked>::Exit>,
    {
        Exit::new(self, Try(make))
    }

    /// Adds a boundary: `key` selects, by a hash or by number, the core of the next group that owns
    /// the packet, whatever core received it.
    fn shard_by<I: IntoShard>(
        self,
        key: impl Fn(&Self::Out) -> I + SharedByCores,
    ) -> impl Chain<Out = Self::Out>
    where
        Self::Out: Carries,
    {
        Bounded::new(self, ByShard::new(key))
    }

    /// Adds a boundary without a key: all packets of a core go to one core of the next group, in
    /// their order. In run-to-completion they stay on their core.
    fn handoff(self) -> impl Chain<Out = Self::Out>
    where
        Self::Out: Carries,
    {
        Bounded::new(self, Handoff)
    }

    /// Ends the graph: `make` is called on each core of the last group and returns, in a [`Result`],
    /// its sink, such as a TX queue, or several as [`outlets`].
    fn sink<Z: Outlet<Self::Out>, R: IsResult<Value = Z>>(
        self,
        make: impl Fn(&Core) -> R + SharedByCores,
    ) -> impl Graph {
        Whole::new(self, Try(make))
    }
}

/// A whole network function: the result of [`Chain::sink`] and the input of
/// [`Engine::plan`](crate::Engine::plan).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no whole graph",
    label = "a graph starts with `source(..)` and ends with `.sink(..)`"
)]
pub trait Graph: Sync {
    #[doc(hidden)]
    fn outline(&self) -> Outline;

    #[doc(hidden)]
    fn check(&self, deployment: Deployment) -> Result<(), PlanError>;

    #[doc(hidden)]
    fn workers(&self, deployment: Deployment, ring_capacity: Option<usize>) -> Vec<MakeWorker<'_>>;
}

/// Makes the worker of one core, on the thread that it will run on. This type doesn't name the
/// graph, and neither does the code that starts and joins threads, so that this code is compiled
/// once.
pub type MakeWorker<'a> = Box<dyn FnOnce(&Site) -> Result<Box<dyn Worker + 'a>, Error> + Send + 'a>;

/// Starts a graph: `make` is called on each core of the first group and returns, in a [`Result`],
/// its source, such as an RX queue.
pub fn source<S: Source<Item: Carries>, R: IsResult<Value = S>>(
    make: impl Fn(&Core) -> R + SharedByCores,
) -> impl Chain<Out = S::Item> {
    Start::new(Try(make))
}
