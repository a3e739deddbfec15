//! What the methods of a chain return: each part with the factories before it.
//!
//! Workers are made from the sink towards the source. On a core that does not belong to the group of
//! what was made so far there is no `down` yet.

use super::boundary::{Boundary, Key, mesh};
use super::exit_node::{ExitNode, Fork};
use super::group::{Group, Input, Rings};
use super::node::Node;
use super::sink_node::Outlet;
use super::stage_node::StageNode;
use super::{Chain, Ends, Graph, Outline, Site};
use crate::deployment::{Deployment, PlanError};
use crate::worker::Worker;
use hotloop_ring::Mesh;
use hotloop_stage::{BurstStage, Carries, Core, Error, Source};
use std::marker::PhantomData;

/// The start of a chain.
pub struct Start<S, F> {
    make: F,
    name: String,
    made: PhantomData<fn() -> S>,
}

impl<S, F> Start<S, F> {
    pub fn new(make: F) -> Self {
        Self { make, name: "source".to_owned(), made: PhantomData }
    }
}

impl<S, F> Chain for Start<S, F>
where
    S: Source<Item: Carries>,
    F: Fn(&Core) -> Result<S, Error> + Sync,
{
    type Out = S::Item;
    type Ends = ();
    const GROUP: usize = 0;

    fn set_name(&mut self, name: String) {
        self.name = name;
    }

    fn outline(&self, outline: &mut Outline) {
        outline.push(vec![self.name.clone()]);
    }

    fn check(&self, _: Deployment) -> Result<(), PlanError> {
        Ok(())
    }

    fn ends(&self, deployment: Deployment, _: Option<usize>) -> Vec<()> {
        vec![(); deployment.core_count()]
    }

    fn worker<'a, D: Node<S::Item> + 'a>(
        &'a self,
        site: &Site,
        (): (),
        down: Option<D>,
    ) -> Result<Box<dyn Worker + 'a>, Error> {
        let (Some(core), Some(down)) = (site.core_in(0), down) else {
            unreachable!("a core of another group begins at a boundary")
        };
        let source = (self.make)(&core)?;
        Ok(Box::new(Group::new(Input::source(source, self.name.clone(), site.is_paced), down)))
    }
}

/// A chain and one more stage.
pub struct Then<C, A, F> {
    before: C,
    make: F,
    name: String,
    made: PhantomData<fn() -> A>,
}

impl<C, A, F> Then<C, A, F> {
    pub const fn new(before: C, name: String, make: F) -> Self {
        Self { before, make, name, made: PhantomData }
    }
}

impl<C, A, F> Chain for Then<C, A, F>
where
    C: Chain,
    A: BurstStage<C::Out>,
    F: Fn(&Core) -> Result<A, Error> + Sync,
{
    type Out = A::Out;
    type Ends = C::Ends;
    const GROUP: usize = C::GROUP;

    fn set_name(&mut self, name: String) {
        self.name = name;
    }

    fn outline(&self, outline: &mut Outline) {
        self.before.outline(outline);
        outline[C::GROUP].push(self.name.clone());
    }

    fn check(&self, deployment: Deployment) -> Result<(), PlanError> {
        self.before.check(deployment)
    }

    fn ends(&self, deployment: Deployment, ring_capacity: Option<usize>) -> Vec<C::Ends> {
        self.before.ends(deployment, ring_capacity)
    }

    fn worker<'a, D: Node<A::Out> + 'a>(
        &'a self,
        site: &Site,
        ends: C::Ends,
        down: Option<D>,
    ) -> Result<Box<dyn Worker + 'a>, Error> {
        let node = match (site.core_in(C::GROUP), down) {
            (Some(core), Some(down)) => {
                let stage = (self.make)(&core)?;
                Some(StageNode::new(stage, self.name.clone(), C::GROUP, down))
            }
            _ => None,
        };
        self.before.worker(site, ends, node)
    }
}

/// A chain and an exit.
pub struct Exit<C, S, F> {
    before: C,
    make: F,
    name: String,
    made: PhantomData<fn() -> S>,
}

impl<C, S, F> Exit<C, S, F> {
    pub fn new(before: C, make: F) -> Self {
        Self { before, make, name: "exit".to_owned(), made: PhantomData }
    }
}

impl<C, On, Z, F> Chain for Exit<C, (On, Z), F>
where
    C: Chain<Out = Fork<On, Z::Item>>,
    Z: Outlet,
    F: Fn(&Core) -> Result<Z, Error> + Sync,
{
    type Out = On;
    type Ends = C::Ends;
    const GROUP: usize = C::GROUP;

    fn set_name(&mut self, name: String) {
        self.name = name;
    }

    fn outline(&self, outline: &mut Outline) {
        self.before.outline(outline);
        outline[C::GROUP].push(self.name.clone());
    }

    fn check(&self, deployment: Deployment) -> Result<(), PlanError> {
        self.before.check(deployment)
    }

    fn ends(&self, deployment: Deployment, ring_capacity: Option<usize>) -> Vec<C::Ends> {
        self.before.ends(deployment, ring_capacity)
    }

    fn worker<'a, D: Node<On> + 'a>(
        &'a self,
        site: &Site,
        ends: C::Ends,
        down: Option<D>,
    ) -> Result<Box<dyn Worker + 'a>, Error> {
        let node = match (site.core_in(C::GROUP), down) {
            (Some(core), Some(down)) => {
                let sinks = format!("{} sink", self.name);
                let exit = (self.make)(&core)?.into_node(sinks, C::GROUP);
                Some(ExitNode::new(self.name.clone(), C::GROUP, exit, down))
            }
            _ => None,
        };
        self.before.worker(site, ends, node)
    }
}

/// A chain and a boundary, after which another group begins.
pub struct Bounded<C, K> {
    before: C,
    key: K,
    name: String,
}

impl<C: Chain, K: Key<C::Out>> Bounded<C, K> {
    pub fn new(before: C, key: K) -> Self {
        Self { before, key, name: K::NAME.to_owned() }
    }
}

impl<C, K> Chain for Bounded<C, K>
where
    C: Chain<Out: Carries + Send>,
    K: Key<C::Out>,
{
    type Out = C::Out;
    type Ends = (C::Ends, Ends<C::Out>);
    const GROUP: usize = C::GROUP + 1;

    fn set_name(&mut self, name: String) {
        self.name = name;
    }

    fn outline(&self, outline: &mut Outline) {
        self.before.outline(outline);
        outline[C::GROUP].push(self.name.clone());
        outline.push(Vec::new());
    }

    fn check(&self, deployment: Deployment) -> Result<(), PlanError> {
        self.before.check(deployment)?;
        let senders = deployment.cores_in(C::GROUP);
        let receivers = deployment.cores_in(Self::GROUP);
        if K::IS_HANDOFF && receivers > senders {
            return Err(PlanError::Handoff { senders, receivers });
        }
        Ok(())
    }

    fn ends(&self, deployment: Deployment, ring_capacity: Option<usize>) -> Vec<Self::Ends> {
        let Mesh { producers, consumers } =
            mesh(deployment, C::GROUP, K::IS_HANDOFF, ring_capacity);
        let (mut producers, mut consumers) = (producers.into_iter(), consumers.into_iter());
        let belongs =
            |core: &Core, group| deployment.is_run_to_completion() || core.group() == group;
        let own = deployment.cores().into_iter().map(|core| Ends {
            producers: belongs(&core, C::GROUP).then(|| producers.next()).flatten(),
            consumers: belongs(&core, Self::GROUP).then(|| consumers.next()).flatten(),
        });
        self.before.ends(deployment, ring_capacity).into_iter().zip(own).collect()
    }

    fn worker<'a, D: Node<C::Out> + 'a>(
        &'a self,
        site: &Site,
        (before, ends): Self::Ends,
        down: Option<D>,
    ) -> Result<Box<dyn Worker + 'a>, Error> {
        let next = down.zip(ends.consumers).map(|(down, consumers)| {
            Box::new(Group::new(Input::rings(Rings(consumers), Self::GROUP, site.is_paced), down))
        });
        match (ends.producers, next) {
            (None, Some(next)) => Ok(next),
            (None, None) => self.before.worker(site, before, None::<Boundary<'a, C::Out, K, D>>),
            (Some(producers), next) => {
                let (index, name) = (site.core.index(), self.name.clone());
                let boundary = Boundary::new(&self.key, (C::GROUP, index), name, producers, next);
                self.before.worker(site, before, Some(boundary))
            }
        }
    }
}

/// A whole graph.
pub struct Whole<C, Z, F> {
    chain: C,
    make: F,
    made: PhantomData<fn() -> Z>,
}

impl<C, Z, F> Whole<C, Z, F> {
    pub const fn new(chain: C, make: F) -> Self {
        Self { chain, make, made: PhantomData }
    }
}

impl<C, Z, F> Graph for Whole<C, Z, F>
where
    C: Chain,
    Z: Outlet<Item = C::Out>,
    F: Fn(&Core) -> Result<Z, Error> + Sync,
{
    type Ends = C::Ends;

    fn outline(&self) -> Outline {
        let mut outline = Outline::new();
        self.chain.outline(&mut outline);
        outline[C::GROUP].push("sink".to_owned());
        outline
    }

    fn check(&self, deployment: Deployment) -> Result<(), PlanError> {
        deployment.check(C::GROUP + 1)?;
        self.chain.check(deployment)
    }

    fn ends(&self, deployment: Deployment, ring_capacity: Option<usize>) -> Vec<C::Ends> {
        self.chain.ends(deployment, ring_capacity)
    }

    fn worker<'a>(&'a self, site: &Site, ends: C::Ends) -> Result<Box<dyn Worker + 'a>, Error> {
        let node = match site.core_in(C::GROUP) {
            Some(core) => Some((self.make)(&core)?.into_node("sink".to_owned(), C::GROUP)),
            None => None,
        };
        self.chain.worker(site, ends, node)
    }
}
