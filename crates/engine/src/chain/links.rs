//! The return types of a chain's methods: each part with the factories before it.
//!
//! Workers are made from the sink towards the source. On a core outside the group that was made
//! last, there is no `down` yet.

use super::boundary::{Boundary, Key, mesh};
use super::bounds::Forked;
use super::exit_node::ExitNode;
use super::group::{Group, Input, Rings};
use super::make::Make;
use super::node::Node;
use super::sink_node::Outlet;
use super::stage_node::StageNode;
use super::{Chain, Ends, Graph, MakeWorker, Outline, Site};
use crate::deployment::{Deployment, PlanError};
use crate::worker::Worker;
use hotloop_ring::Mesh;
use hotloop_stage::{BurstStage, Carries, Core, Error, Source};

/// The start of a chain.
pub struct Start<M> {
    make: M,
    name: String,
}

impl<M> Start<M> {
    pub fn new(make: M) -> Self {
        Self { make, name: "source".to_owned() }
    }
}

impl<M: Make<Made: Source<Item: Carries>>> Chain for Start<M> {
    type Out = <M::Made as Source>::Item;
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

    fn worker<'a, D: Node<Self::Out> + 'a>(
        &'a self,
        site: &Site,
        (): (),
        down: Option<D>,
    ) -> Result<Box<dyn Worker + 'a>, Error> {
        let (Some(core), Some(down)) = (site.core_in(0), down) else {
            unreachable!("a core of another group begins at a boundary")
        };
        let source = self.make.make(&core)?;
        Ok(Box::new(Group::new(Input::source(source, self.name.clone(), site.is_paced), down)))
    }
}

/// A chain and one more stage.
pub struct Then<C, M> {
    before: C,
    make: M,
    name: String,
}

impl<C, M> Then<C, M> {
    pub const fn new(before: C, name: String, make: M) -> Self {
        Self { before, make, name }
    }
}

impl<C, M> Chain for Then<C, M>
where
    C: Chain,
    M: Make<Made: BurstStage<C::Out>>,
{
    type Out = <M::Made as BurstStage<C::Out>>::Out;
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

    fn worker<'a, D: Node<Self::Out> + 'a>(
        &'a self,
        site: &Site,
        ends: C::Ends,
        down: Option<D>,
    ) -> Result<Box<dyn Worker + 'a>, Error> {
        let node = match (site.core_in(C::GROUP), down) {
            (Some(core), Some(down)) => {
                let stage = self.make.make(&core)?;
                Some(StageNode::new(stage, self.name.clone(), C::GROUP, down))
            }
            _ => None,
        };
        self.before.worker(site, ends, node)
    }
}

/// A chain and an exit.
pub struct Exit<C, M> {
    before: C,
    make: M,
    name: String,
}

impl<C, M> Exit<C, M> {
    pub fn new(before: C, make: M) -> Self {
        Self { before, make, name: "exit".to_owned() }
    }
}

impl<C, M> Chain for Exit<C, M>
where
    C: Chain<Out: Forked>,
    M: Make<Made: Outlet<<C::Out as Forked>::Exit>>,
{
    type Out = <C::Out as Forked>::On;
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

    fn worker<'a, D: Node<Self::Out> + 'a>(
        &'a self,
        site: &Site,
        ends: C::Ends,
        down: Option<D>,
    ) -> Result<Box<dyn Worker + 'a>, Error> {
        let node = match (site.core_in(C::GROUP), down) {
            (Some(core), Some(down)) => {
                let sinks = format!("{} sink", self.name);
                let exit = self.make.make(&core)?.into_node(sinks, C::GROUP);
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

/// The ends of the rings after `group`, for each core in order.
fn dealt<T>(mesh: Mesh<T>, deployment: Deployment, group: usize) -> Vec<Ends<T>> {
    let Mesh { producers, consumers } = mesh;
    let (mut producers, mut consumers) = (producers.into_iter(), consumers.into_iter());
    let belongs = |core: &Core, group| deployment.is_run_to_completion() || core.group() == group;
    let ends = |core: Core| Ends {
        producers: belongs(&core, group).then(|| producers.next()).flatten(),
        consumers: belongs(&core, group + 1).then(|| consumers.next()).flatten(),
    };
    deployment.cores().into_iter().map(ends).collect()
}

impl<C, K> Chain for Bounded<C, K>
where
    C: Chain<Out: Carries>,
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
        let mesh = mesh(deployment, C::GROUP, K::IS_HANDOFF, ring_capacity);
        let before = self.before.ends(deployment, ring_capacity);
        before.into_iter().zip(dealt(mesh, deployment, C::GROUP)).collect()
    }

    fn worker<'a, D: Node<C::Out> + 'a>(
        &'a self,
        site: &Site,
        (before, ends): Self::Ends,
        down: Option<D>,
    ) -> Result<Box<dyn Worker + 'a>, Error> {
        let next = match (down, ends.consumers) {
            (Some(down), Some(consumers)) => {
                let input = Input::rings(Rings(consumers), Self::GROUP, site.is_paced);
                Some(Box::new(Group::new(input, down)))
            }
            _ => None,
        };
        match (ends.producers, next) {
            (None, Some(next)) => Ok(next),
            (None, None) => self.before.worker(site, before, None::<Boundary<'a, C::Out, K, D>>),
            (Some(producers), next) => {
                let (index, name) = (site.core.index(), self.name.clone());
                let boundary = Boundary::new(&self.key, C::GROUP, index, name, producers, next);
                self.before.worker(site, before, Some(boundary))
            }
        }
    }
}

/// A whole graph.
pub struct Whole<C, M> {
    chain: C,
    make: M,
}

impl<C, M> Whole<C, M> {
    pub const fn new(chain: C, make: M) -> Self {
        Self { chain, make }
    }
}

#[diagnostic::do_not_recommend]
impl<C, M> Graph for Whole<C, M>
where
    C: Chain,
    M: Make<Made: Outlet<C::Out>>,
{
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

    fn workers(&self, deployment: Deployment, ring_capacity: Option<usize>) -> Vec<MakeWorker<'_>> {
        let mut workers: Vec<MakeWorker<'_>> = Vec::new();
        for ends in self.chain.ends(deployment, ring_capacity) {
            workers.push(Box::new(|site| self.worker(site, ends)));
        }
        workers
    }
}

impl<C, M> Whole<C, M>
where
    C: Chain,
    M: Make<Made: Outlet<C::Out>>,
{
    fn worker<'a>(&'a self, site: &Site, ends: C::Ends) -> Result<Box<dyn Worker + 'a>, Error> {
        let node = match site.core_in(C::GROUP) {
            Some(core) => Some(self.make.make(&core)?.into_node("sink".to_owned(), C::GROUP)),
            None => None,
        };
        self.chain.worker(site, ends, node)
    }
}
