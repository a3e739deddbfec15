//! The whole network function, from source to sink, for either deployment.

use crate::config::{Config, DeploymentKind, Engine};
use crate::next_hops::NextHopSelector;
use hotloop::arena::{Obtained, Pages};
use hotloop::engine::{
    Asker, Chain, Deployment, Graph, Mailboxes, Outlet, Publisher, Routed, Subscribers, mailbox,
    publish, source,
};
use hotloop::packet::PacketBuf;
use hotloop::packet::seed::Seed;
use hotloop::stage::neighbours::{Learn, Neighbours, NextHop, Resolve};
use hotloop::stage::{Classified, Core, Error, Source};
use hotloop_balancer::balance::{
    BUFFERS_MAX, Balance, BalancerConfig, Buffer, CLIENTS_MAX, Create, Egresses, Exchange, Probing,
    QueryPage, Route, Sharing,
};
use hotloop_balancer::capture_order::{CaptureOrder, InOrder};
use hotloop_balancer::classify::{Classify, ReceivingPorts, shard};
use hotloop_balancer::counts::{Summary, WorkerCounts};
use hotloop_balancer::services::{Builder, ServiceTable, Standing};
use hotloop_balancer::vlan::{Tag, Untag};
use hotloop_health::ProbeChannel;
use hotloop_kernel::PacketRoutes;
use quanta::Clock;
use std::sync::Arc;

/// Maximum number of packets that wait for a neighbour, on each worker.
const WAITING_MAX: usize = 256;

/// The balancer with all its workers.
#[derive(Debug)]
pub struct NetworkFunction {
    services: Arc<ServiceTable>,
    subscribers: Subscribers<ServiceTable>,
    mailboxes: Mailboxes<QueryPage, QueryPage>,
    /// Mailboxes of health checks through tunnels, if there may be any.
    probes: Option<Mailboxes<Buffer, Buffer>>,
    /// Mailboxes of exceptions, if there are other nodes, and the size of each worker's journal.
    exchanges: Option<(Mailboxes<Exchange, Exchange>, usize)>,
    deployment: Deployment,
    egresses: Egresses,
    ports: ReceivingPorts,
    counts: Arc<[WorkerCounts]>,
    connections_max: usize,
    slot_capacity: usize,
    require_hugepages: bool,
    by_kernel: Option<PacketRoutes<Route>>,
    /// The neighbours of the ports, if the kernel resolves none of them.
    neighbours: Arc<Neighbours>,
    /// The VLAN of each port, in order.
    vlans: Box<[Option<u16>]>,
    /// The order of the replayed capture, if workers share limits.
    order: Option<Arc<CaptureOrder>>,
}

/// Control's handles of a balancer, for changing it while it runs.
#[derive(Debug)]
pub struct ControlHandles {
    /// Builds service tables.
    pub builder: Builder,
    /// Publishes the tables to the workers.
    pub publisher: Publisher<ServiceTable>,
    /// The last published service table.
    pub services: Arc<ServiceTable>,
    /// Sends queries to the workers.
    pub asker: Asker<QueryPage, QueryPage>,
    /// Sends probes through tunnels, if the configuration has a probe source.
    pub probe_channel: Option<ProbeChannel>,
    /// The workers' counters.
    pub counts: Arc<[WorkerCounts]>,
}

impl NetworkFunction {
    /// Makes the balancer that `config` describes, with packets leaving by `egresses`, and the
    /// handles for changing it.
    ///
    /// # Errors
    /// If there are more backends than a balancer can have.
    pub fn new(config: &Config, egresses: Egresses) -> Result<(Self, ControlHandles), Error> {
        Self::standing(config, egresses, &Standing::default())
    }

    /// Like [`new`](Self::new), with the changes by operators and health checks since the
    /// configuration was read.
    ///
    /// # Errors
    /// Like [`new`](Self::new).
    pub fn standing(
        config: &Config,
        egresses: Egresses,
        standing: &Standing,
    ) -> Result<(Self, ControlHandles), Error> {
        Self::built(config, egresses, standing, Builder::new(&config.services))
    }

    /// Like [`new`](Self::new), for the replay of a capture in this order. If there are limits,
    /// each worker may then receive only its own frames of the capture, from their beginning.
    ///
    /// # Errors
    /// Like [`new`](Self::new).
    pub fn replaying(
        config: &Config,
        egresses: Egresses,
        order: Option<&Arc<CaptureOrder>>,
    ) -> Result<Self, Error> {
        let builder = Builder::new(&config.services).repeatable();
        let (function, _) = Self::built(config, egresses, &Standing::default(), builder)?;
        let order = order.filter(|_| function.services.has_limits());
        Ok(Self { order: order.cloned(), ..function })
    }

    /// Whether workers wait for one another: see [`replaying`](Self::replaying).
    #[must_use]
    pub const fn is_in_order(&self) -> bool {
        self.order.is_some()
    }

    fn built(
        config: &Config,
        egresses: Egresses,
        standing: &Standing,
        mut builder: Builder,
    ) -> Result<(Self, ControlHandles), Error> {
        let services = Arc::new(builder.build(&config.spec(), standing)?);
        let deployment = config.engine.deployment();
        let slot_capacity = builder.slot_capacity();
        let counts: Arc<[_]> =
            (0..deployment.cores_in(1)).map(|_| WorkerCounts::new(slot_capacity)).collect();
        let (publisher, subscribers) = publish(Arc::clone(&services));
        let (asker, mailboxes) = mailbox(1);
        let has_probes = !config.balancer.probe_sources.is_empty();
        let (probe_asker, probes) = has_probes.then(|| mailbox(BUFFERS_MAX)).unzip();
        let probe_channel = probe_asker.map(ProbeChannel::new);
        let function = Self {
            services: Arc::clone(&services),
            subscribers,
            mailboxes,
            probes,
            exchanges: None,
            deployment,
            egresses,
            ports: ReceivingPorts::default(),
            counts: Arc::clone(&counts),
            connections_max: config.balancer.connections_max,
            slot_capacity,
            require_hugepages: config.engine.require_hugepages,
            by_kernel: None,
            neighbours: Neighbours::new(2 * config.ports.len()),
            vlans: config.ports.iter().map(|port| port.vlan).collect(),
            order: None,
        };
        let handles = ControlHandles { builder, publisher, services, asker, probe_channel, counts };
        Ok((function, handles))
    }

    /// Sets the properties of the receiving ports; without them, all frames are for the balancer,
    /// and tunnels may end at any port.
    #[must_use]
    pub fn receiving(self, ports: ReceivingPorts) -> Self {
        Self { ports, ..self }
    }

    /// Makes workers share their exceptions with other nodes, each with room for this many changes
    /// until control takes them. Also returns control's side, for
    /// [`ExceptionMover`](hotloop_balancer::exception_mover::ExceptionMover).
    #[must_use]
    pub fn sharing(self, journal_max: usize) -> (Self, Asker<Exchange, Exchange>) {
        let (asker, mailboxes) = mailbox(1);
        (Self { exchanges: Some((mailboxes, journal_max)), ..self }, asker)
    }

    /// Makes packets leave by the kernel's routes, for sides with a port that is configured so. The
    /// graph must be a [resolving](Self::resolving_graph) one.
    #[must_use]
    pub fn by_kernel(self, by_kernel: Option<PacketRoutes<Route>>) -> Self {
        Self { by_kernel, ..self }
    }

    /// The neighbours that a [resolving](Self::resolving_graph) graph uses.
    #[must_use]
    pub fn neighbours(&self) -> Arc<Neighbours> {
        let own = || Arc::clone(&self.neighbours);
        self.by_kernel.as_ref().map_or_else(own, PacketRoutes::neighbours)
    }

    /// The workers' counts up to now, with the service table that they started with.
    #[must_use]
    pub fn summary(&self) -> Summary<'_> {
        Summary { services: &self.services, workers: &self.counts, removed: None }
    }

    /// The graph: packets from the sources are classified, go to the worker that owns their shard,
    /// are balanced there and leave by the sinks.
    pub fn graph<S, Z>(
        &self,
        receive: impl Fn(&Core) -> Result<S, Error> + Sync,
        send: impl Fn(&Core) -> Result<Z, Error> + Sync,
    ) -> impl Graph
    where
        S: Source<Item: PacketBuf>,
        Z: Outlet<Routed<S::Item, Route>>,
    {
        self.balanced(source(receive), |_| None).sink(send)
    }

    /// Like [`graph`](Self::graph), for routes to neighbours: requests their Ethernet addresses.
    /// `next_hops` are those of the routes, in order.
    pub fn resolving_graph<S, Z>(
        &self,
        next_hops: &[Option<NextHop>],
        receive: impl Fn(&Core) -> Result<S, Error> + Sync,
        send: impl Fn(&Core) -> Result<Z, Error> + Sync,
    ) -> impl Graph
    where
        S: Source<Item: PacketBuf>,
        Z: Outlet<Routed<S::Item, Route>>,
    {
        self.probing_graph(|_| None, next_hops, receive, send)
    }

    /// Like [`resolving_graph`](Self::resolving_graph), and sends probes through tunnels in packets
    /// that `create` makes. Also the graph for ports with VLANs.
    pub fn probing_graph<S, Z>(
        &self,
        create: impl Fn(&Core) -> Option<Create<S::Item>> + Sync,
        next_hops: &[Option<NextHop>],
        receive: impl Fn(&Core) -> Result<S, Error> + Sync,
        send: impl Fn(&Core) -> Result<Z, Error> + Sync,
    ) -> impl Graph
    where
        S: Source<Item: PacketBuf>,
        Z: Outlet<Routed<S::Item, Route>>,
    {
        let by_kernel = self.by_kernel.as_ref();
        let neighbours = self.neighbours();
        let learning = Arc::clone(&neighbours);
        let links: Vec<_> = next_hops.iter().flatten().filter_map(NextHop::station).collect();
        let has_kernel = self.ports.has_punted();
        let received = source(receive)
            .burst_stage(|_| Untag::new(&self.ports))
            .stage(move |_| Learn::new(Arc::clone(&learning), links.iter().copied()));
        self.balanced(received, create)
            .burst_stage(move |_| {
                let by_kernel = by_kernel.map(PacketRoutes::subscribe);
                let selector = NextHopSelector { by_port: next_hops, has_kernel, by_kernel };
                Resolve::by(Arc::clone(&neighbours), WAITING_MAX, selector)
            })
            .named("neighbours")
            .burst_stage(|_| Tag::new(&self.vlans))
            .sink(send)
    }

    fn balanced<P: PacketBuf>(
        &self,
        received: impl Chain<Out = P>,
        create: impl Fn(&Core) -> Option<Create<P>> + Sync,
    ) -> impl Chain<Out = Routed<P, Route>> {
        received
            .burst_stage(self.classify())
            .shard_by(sharded(self.services.settings.hashes.seed()))
            .try_burst_stage(self.balance_by(create))
    }

    // The factory of a step names all type parameters of its surrounding function. In `balanced`,
    // each would name the previous chain once more, and programs would grow by that.

    fn classify(&self) -> impl Fn(&Core) -> Classify {
        |_| if self.is_one_core() { Classify::later() } else { Classify::new(&self.ports) }
    }

    /// Whether one core does everything, so that shards aren't needed.
    fn is_one_core(&self) -> bool {
        self.deployment.is_run_to_completion() && self.deployment.core_count() == 1
    }

    fn balance_by<P: PacketBuf>(
        &self,
        create: impl Fn(&Core) -> Option<Create<P>> + Sync,
    ) -> impl Fn(&Core) -> Result<Balance<P>, Error> + Sync {
        move |core| self.balance(core, create(core))
    }

    /// The balancer of a core.
    fn balance<P: PacketBuf>(
        &self,
        core: &Core,
        create: Option<Create<P>>,
    ) -> Result<Balance<P>, Error> {
        let sharing = |(mailboxes, journal_max): &(Mailboxes<_, _>, usize)| {
            Ok::<_, Error>(Sharing { mailbox: mailboxes.open(core)?, journal_max: *journal_max })
        };
        let balance = Balance::new(BalancerConfig {
            services: self.subscribers.subscribe(),
            egresses: self.egresses,
            counts: Arc::clone(&self.counts),
            worker: core.index(),
            connections_max: self.connections_max,
            slot_capacity: self.slot_capacity,
            clients_max: CLIENTS_MAX,
            node: core.node(),
            mailbox: Some(self.mailboxes.open(core)?),
            sharing: self.exchanges.as_ref().map(sharing).transpose()?,
            table_seed: None,
        })?;
        let tables = balance.obtained();
        if self.require_hugepages {
            check_hugepages(core.index(), &tables)?;
        }
        // This is the only balancer of this core.
        let _ = self.counts[core.index()].tables.set(tables);
        let mailbox = self.probes.as_ref().map(|mailboxes| mailboxes.open(core)).transpose()?;
        let probing = mailbox.zip(create).map(|(mailbox, create)| Probing::new(mailbox, create));
        let order = self.order.clone().map(|order| InOrder::new(order, core.index()));
        let balance = balance.receiving(self.ports.clone()).probing(probing).in_order(order);
        let balance = if self.is_one_core() { balance.classifying() } else { balance };
        Ok(balance.timed(Clock::new()))
    }
}

/// The hash that selects a packet's worker.
fn sharded<P: PacketBuf>(seed: Seed) -> impl Fn(&Classified<P>) -> u32 {
    move |packet| shard(packet.packet.data(), packet.tag(), &seed)
}

/// Checks that all of a worker's tables are on reserved huge pages.
///
/// # Errors
/// Names the table that is not, with the pages that it got, and a remedy.
pub fn check_hugepages(worker: usize, tables: &[(&str, Obtained)]) -> Result<(), Error> {
    let is_huge = |pages| matches!(pages, Pages::Huge | Pages::Gigantic);
    match tables.iter().find(|(_, obtained)| !is_huge(obtained.pages)) {
        None => Ok(()),
        Some((table, obtained)) => {
            let pages = obtained.bytes.div_ceil(2 << 20);
            Err(Error::message(format!(
                "engine.require_hugepages: the table of {table} of worker {worker} got {obtained}; \
                 reserve {pages} more hugepages of 2 MiB (vm.nr_hugepages), or leave out \
                 require_hugepages"
            )))
        }
    }
}

impl Engine {
    /// The deployment in the engine's terms.
    #[must_use]
    pub const fn deployment(&self) -> Deployment {
        match self.deployment {
            DeploymentKind::RunToCompletion => Deployment::run_to_completion(self.workers),
            DeploymentKind::Pipeline => Deployment::pipeline([self.dispatchers, self.workers]),
        }
    }
}
