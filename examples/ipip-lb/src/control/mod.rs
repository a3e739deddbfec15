//! The control thread's part: everything that changes a balancer while it runs, or reports on it.
//!
//! [`Control`] stands between the sources of changes (an operator at the control socket, a SIGHUP,
//! health checks, the store) and the workers. It has four owners, each with one turn:
//!
//! | owner | of |
//! |---|---|
//! | `ClusterLink` | peers, and the store |
//! | `Members` | health, drains, blocks, and operators' changes |
//! | `Publisher` | the configuration, the service table, and their changes |
//! | `Presence` | VIPs, the way out, and the handover |
//!
//! Each change builds and publishes a whole new
//! [`ServiceTable`](hotloop_balancer::services::ServiceTable). Questions about single connections
//! are passed to the workers. Neither makes a worker wait. Slow work, such as reading a
//! configuration or building a service table, runs on other threads, so signals, health and clients
//! don't wait for it. Control doesn't wait for workers, either: it takes their answers in a later
//! turn. The only exception is `Control::hands_over` for a program that takes over, which
//! waits for at most 500 ms, while nothing is received.

mod annotation;
mod announcement;
mod background;
mod blocks;
mod build;
mod cluster;
mod cluster_link;
mod config_store;
mod departure;
mod drains;
mod elsewhere;
mod handover;
mod health;
mod lookup;
mod members;
mod metrics;
pub mod operator_file;
mod overview;
mod presence;
mod probe_verdict;
mod proposal;
mod publication;
mod publisher;
mod questions;
mod references;
mod refresh;
mod reload;
mod saved_changes;
mod switchover;
mod weights;

pub use build::probed;
pub use cluster::{JOURNAL_MAX, Node};
pub use config_store::ConfigStore;
pub use handover::Handover;
pub use proposal::Proposal;
pub use saved_changes::Keeper;

use crate::answer::Change;
use crate::config::Config;
use crate::dropped::Dropped;
use crate::failure::Failure;
use crate::network_function::ControlHandles;
use crate::next_hops::KernelHopWatch;
use crate::port_hops;
use crate::replace::Inherited;
use crate::request::Request;
use crate::source::ConfigSource;
use annotation::CaptureNotes;
use cluster_link::ClusterLink;
use hotloop::engine;
use hotloop::stage::neighbours::NextHopWatch;
use hotloop_balancer::counts::{RemovedCounts, Summary};
use hotloop_cluster::store::layout::Stored;
use hotloop_health::Probes;
use hotloop_kernel::VipAnnouncer;
use hotloop_ops::{Annotate, Reply, Scrape, Steer, notify};
use members::Members;
use presence::Presence;
use publication::Publication;
use publisher::Publisher;
use questions::Questions;
use reload::{LoadedConfig, ReloadOrigin};
use serde_json::json;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The control thread's state of a running balancer.
#[derive(Debug)]
pub struct Control {
    link: ClusterLink,
    members: Members,
    publisher: Publisher,
    presence: Presence,
    /// Clients' questions about single connections.
    questions: Questions,
    /// Messages on packets that workers drop.
    dropped: Dropped,
    /// The table in use, for notes in captures.
    notes: CaptureNotes,
    next_hops: Option<KernelHopWatch>,
    port_hops: NextHopWatch,
    /// Each port's device, and its name in the configuration.
    port_names: Vec<[String; 2]>,
    /// The source of the configuration, for messages.
    source: ConfigSource,
    since: Instant,
}

impl Control {
    /// Takes control of a balancer that is about to run, and starts its health checks.
    ///
    /// # Errors
    /// If the system provides no thread.
    pub fn start(
        source: ConfigSource,
        config: Config,
        handles: ControlHandles,
    ) -> Result<Self, Failure> {
        let ControlHandles { builder, publisher, services: table, asker, probe_channel, counts } =
            handles;
        let (sender, changes) = mpsc::channel();
        let failed = |error: std::io::Error| Failure::Run(format!("health checks: {error}"));
        let probes = Probes::start_with(sender, probe_channel).map_err(failed)?;
        let publication = Publication::start(source.clone(), builder);
        let questions = Questions::new("connections", asker);
        let notes = CaptureNotes::new(&table);
        let publisher = Publisher {
            config: Arc::new(config),
            table,
            is_published: true,
            workers: publisher,
            counts,
            removed_counts: RemovedCounts::default(),
            publication: publication.map_err(|error| Failure::Run(format!("threads: {error}")))?,
            reload_count: 0,
            reload_failure: None,
        };
        let mut members = Members::new(probes, changes);
        let room = members.probe(build::probed(&publisher.config));
        if room.probed_count > 0 && room.is_enough() {
            tracing::info!("health: {room}");
        }
        Ok(Self {
            link: ClusterLink::default(),
            members,
            publisher,
            presence: Presence::default(),
            questions,
            dropped: Dropped::default(),
            notes,
            next_hops: None,
            port_hops: NextHopWatch::default(),
            port_names: Vec::new(),
            source,
            since: Instant::now(),
        })
    }

    /// Announces VIPs with `announcer`, if there is one.
    #[must_use]
    pub fn with_announcer(mut self, announcer: Option<VipAnnouncer>) -> Self {
        self.presence.announcer = announcer;
        self
    }

    /// Names ports, each by its device and its name in the configuration, for metrics.
    #[must_use]
    pub fn with_port_names(self, port_names: Vec<[String; 2]>) -> Self {
        Self { port_names, ..self }
    }

    /// Resolves the backends' next hops if the kernel knows them, and shows those of ports.
    #[must_use]
    pub fn with_next_hops(
        self,
        next_hops: Option<KernelHopWatch>,
        port_hops: NextHopWatch,
    ) -> Self {
        Self { next_hops, port_hops, ..self }
    }

    /// Follows the configuration's store, and shares exceptions with other nodes, if there are any.
    #[must_use]
    pub fn with_cluster(mut self, store: Option<ConfigStore>, node: Option<Node>) -> Self {
        (self.link.store, self.link.node) = (store, node);
        self
    }

    /// Saves operators' changes, if there is a keeper.
    #[must_use]
    pub fn with_keeper(mut self, keeper: Option<Keeper>) -> Self {
        self.members.keeper = keeper;
        self
    }

    /// Can hand over to a successor, or continues with a predecessor's state, before anything is
    /// received: workers enter its connections first.
    #[must_use]
    pub fn with_handover(
        mut self,
        handover: Handover,
        predecessor: Option<&mut Inherited>,
    ) -> Self {
        self.presence.handover = handover;
        if let Some(inherited) = predecessor {
            let neighbour = |[address, mac, port]: &[String; 3]| {
                Some((port.clone(), address.parse().ok()?, mac.parse().ok()?))
            };
            let neighbours = inherited.state.neighbours.iter().filter_map(neighbour);
            self.port_hops.inherit(&neighbours.collect::<Vec<_>>());
            self.link.inherit_references(&inherited.state.references, &mut self.publisher);
            self.presence.handover.inherit(inherited);
        }
        self
    }

    /// Runs the turns of the owners.
    pub fn advance(&mut self) {
        let Self { link, members, publisher, .. } = self;
        link.turn(publisher, members);
        members.turn(&publisher.config, link);
        let in_force = publisher.in_force();
        self.questions.turn(|worker, row| questions::json_of(in_force, worker, row));
        self.answer_backends();
        let Self { link, members, publisher, presence, .. } = self;
        let is_in_force = publisher.turn(members, link);
        link.follow_references(publisher, members, is_in_force);
        if let Some(node) = &mut link.node {
            node.follow_drains(publisher, members);
        }
        members.keep();
        self.notes.follow(&publisher.table);
        if let Some(next_hops) = &mut self.next_hops {
            next_hops.turn(&publisher.config);
        }
        presence.move_exceptions(link, &publisher.table);
        if members.take_reset() {
            presence.return_vips();
        }
        let may_announce = is_in_force && link.may_announce();
        presence.turn(publisher, self.next_hops.as_ref(), may_announce);
    }

    /// Logs messages about the cores' packets, in each turn, and with `is_end` when the cores have
    /// ended.
    pub fn log_packets(&mut self, now: hotloop::stage::Instant, is_end: bool) {
        self.dropped.report(&self.publisher.counts, now, is_end);
        self.port_hops.report(now, is_end);
    }

    /// The workers' counts up to now.
    #[must_use]
    pub fn summary(&self) -> Summary<'_> {
        self.publisher.summary()
    }

    /// Begins to prepare a configuration, in place of an earlier one. `stored` is the store's part
    /// of it.
    pub fn prepare(&mut self, config: Arc<Config>, stored: Option<Arc<Stored>>) {
        self.publisher.prepare(LoadedConfig { config, stored, tls: None });
    }

    /// The state of the configuration to [prepare](Self::prepare).
    #[must_use]
    pub const fn proposal(&self) -> &Proposal {
        self.publisher.proposal()
    }

    /// Switches over to the [prepared](Proposal::Prepared) configuration if the store now has its
    /// text in force, and returns whether that was so. Anything else needs a reload.
    pub fn adopt(&mut self, stored: &Arc<Stored>) -> bool {
        self.publisher.adopt(stored, &mut self.members, &mut self.link)
    }

    /// Forgets the configuration to prepare. Nothing has changed.
    pub fn discard(&mut self) {
        self.publisher.discard();
    }
}

impl Steer for Control {
    fn answer(
        &mut self,
        control: &engine::Control<'_>,
        request: &hotloop_ops::Request,
    ) -> Result<Reply, String> {
        let Self { link, members, publisher, presence, .. } = self;
        let answer = match Request::read(request)? {
            Request::Overview => json!(self.overview(control)),
            Request::Services => json!(self.services()),
            Request::Backends => return Ok(self.backends()),
            Request::NextHops => {
                let of_ports = port_hops::rows(&self.port_hops, &publisher.config, control.now());
                let of_kernel = self.next_hops.iter().flat_map(KernelHopWatch::rows);
                of_ports.chain(of_kernel).map(|row| json!(row)).collect()
            }
            Request::Connections { filter, limit } => {
                return self.connections(filter.as_deref(), limit);
            }
            Request::Lookup(flow) => return self.lookup(&flow),
            Request::Cluster => json!(link.cluster(&publisher.table)?),
            Request::Blocks => json!(members.blocks.rows(Instant::now())),
            Request::Block(block) => {
                return Ok(publisher.publish_blocks(json!(members.block(&block)?)));
            }
            Request::Unblock { prefix } => {
                return Ok(publisher.publish_blocks(json!(members.unblock(&prefix)?)));
            }
            Request::Drain { backend, end } => return publisher.drain(&backend, &end, members),
            Request::Weight { backend, weight } => {
                return publisher.set_weight(&backend, weight, members);
            }
            Request::Remove { backend, flush } => return Ok(publisher.remove(&backend, flush)),
            Request::Reload { reset } => return Ok(publisher.reload_now(reset)),
            Request::Withdraw => {
                members.set_withdrawn(presence.announcer.is_some());
                let withdrawn = presence.withdraw_now()?;
                return Ok(members.reply_once_kept(json!(Change::Withdrawn { withdrawn })));
            }
            Request::Announce => {
                let announced = json!(presence.announce_again()?);
                members.set_withdrawn(false);
                return Ok(members.reply_once_kept(announced));
            }
            Request::Leave { for_s, .. } => {
                json!(presence.leave(for_s, &publisher.config, publisher.connection_count())?)
            }
            Request::Replace(candidate) => return presence.replace(candidate, &publisher.config),
            Request::Unknown => return request.unknown(),
        };
        Ok(answer.into())
    }

    fn turn(&mut self, control: &engine::Control<'_>) {
        self.continue_entering(false);
        self.advance();
        self.log_packets(control.now(), false);
    }

    /// Whether the departure that an operator requested is over, which is logged, or another program
    /// has taken over.
    fn is_over(&mut self) -> bool {
        if self.is_entering() {
            return false;
        }
        self.presence.has_left(self.publisher.connection_count()) || self.hands_over()
    }

    /// Withdraws the VIPs before anything else ends, unless another program has taken over. Packets
    /// must still be forwarded until routers have moved them elsewhere.
    fn end(&mut self) -> Duration {
        self.continue_entering(true);
        if self.has_handed_over() {
            notify::leave();
            return Duration::ZERO;
        }
        self.presence.withdraw(&self.publisher.config)
    }

    fn hangup(&mut self) {
        self.publisher.reload(ReloadOrigin::Signal);
    }

    fn metrics(&mut self, scrape: &mut Scrape) {
        self.add_metrics(scrape);
    }

    /// The notes that captures add to packets: the backend that a packet goes to.
    fn annotate(&self) -> Option<Annotate> {
        let notes = self.notes.clone();
        Some(Arc::new(move |record| notes.of(record)))
    }
}
