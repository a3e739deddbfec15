//! The control thread's part: what changes a balancer while it runs, and what tells of it.
//!
//! An [`Operator`] stands between those that want something (an operator at the control socket, a
//! SIGHUP, the health checks) and the workers. Whatever is to change, it has a whole new
//! [`ServiceTable`] made and publishes it; what it is asked about single connections, it asks the
//! workers. Neither ever makes a worker wait; and what takes long, reading a configuration and making
//! service tables, is done on other threads, so that signals, health and clients don't wait either.
//! Nor is a worker waited for: what it answers is taken in a later turn. The one exception is
//! [closing](Operator::hands_over) for a program that takes over, which waits for 500 ms at most, while
//! nothing is received.

mod annotation;
mod announcement;
mod background;
mod blocks;
mod build;
mod cluster;
mod config_store;
mod connections;
mod departure;
mod drains;
mod handover;
mod health;
mod lookup;
mod metrics;
pub mod operator_file;
mod overview;
mod preparation;
mod probe_verdict;
mod publication;
mod questions;
mod refresh;
mod reload;
mod saved_changes;
mod switchover;
mod unprepared;
mod weights;

pub use build::probed;
pub use cluster::{JOURNAL_MAX, Node};
pub use config_store::ConfigStore;
pub use preparation::{PREPARE_PARTS, Proposal};

use crate::announce::Announcer;
use crate::config::Config;
use crate::dropped::Dropped;
use crate::failure::Failure;
use crate::health::{Change, Probed, Probes, Room, State};
use crate::network_function::Steering;
use crate::next_hops::NextHopWatch;
use crate::overrides::Overrides;
use crate::port_hops::PortHops;
use crate::request::Request;
use crate::source::ConfigSource;
use annotation::Notes;
use blocks::BlockList;
use departure::Leave;
use drains::Drains;
pub use handover::Handover;
use health::Findings;
use hotloop::engine::{Control, Publisher};
use hotloop_balancer::counts::RemovedCounts;
use hotloop_balancer::counts::{Summary, WorkerCounts};
use hotloop_balancer::services::ServiceTable;
use hotloop_ops::{Annotate, Answerer, Hangup, Reply};
use publication::Publication;
use questions::Questions;
pub use saved_changes::Keeper;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Instant;
use unprepared::UnpreparedChange;

/// What the control thread has of a running balancer.
#[derive(Debug)]
pub struct Operator {
    /// Where the configuration is, for messages.
    source: ConfigSource,
    config: Arc<Config>,
    overrides: Arc<Overrides>,
    /// The service table in use, or soon to be, except for weights and health.
    table: Arc<ServiceTable>,
    /// The same, for what captures say of packets.
    notes: Notes,
    /// Whether it was published, or one that it was refreshed to.
    is_published: bool,
    publisher: Publisher<ServiceTable>,
    questions: Questions,
    counts: Arc<[WorkerCounts]>,
    dropped: Dropped,
    removed_counts: RemovedCounts,
    publication: Publication,
    blocks: BlockList,
    drains: Drains,
    probes: Probes,
    /// Who waits for the backends, and for how the probes say they stand.
    backends_asked: Vec<(Receiver<Vec<State>>, Answerer)>,
    changes: Receiver<Change>,
    findings: Findings,
    hangup: Hangup,
    since: Instant,
    reload_count: u64,
    /// What the last reload that failed said; none once one has succeeded.
    reload_failure: Option<String>,
    announcer: Option<Announcer>,
    /// That the balancer is on its way out, where an operator has said so.
    leave: Option<Leave>,
    next_hops: Option<NextHopWatch>,
    port_hops: PortHops,
    store: Option<ConfigStore>,
    /// A change of the store's that was not prepared, where VIPs are withdrawn for it.
    unprepared: Option<UnpreparedChange>,
    node: Option<Node>,
    keeper: Option<Keeper>,
    handover: Handover,
}

impl Operator {
    /// Takes over a balancer that is about to run, and starts its health checks.
    ///
    /// # Errors
    /// The system grants no thread or no signal handler.
    pub fn start(
        source: ConfigSource,
        config: Config,
        steering: Steering,
    ) -> Result<Self, Failure> {
        let Steering { builder, publisher, services: table, asker, wire, counts } = steering;
        let (sender, changes) = mpsc::channel();
        let failed = |error: std::io::Error| Failure::Run(format!("health checks: {error}"));
        let probes = Probes::start_with(sender, wire).map_err(failed)?;
        let hangup = Hangup::watch().map_err(|error| Failure::Run(format!("SIGHUP: {error}")))?;
        let publication = Publication::start(source.clone(), builder);
        let mut operator = Self {
            source,
            config: Arc::new(config),
            overrides: Arc::default(),
            notes: Notes::new(&table),
            table,
            is_published: true,
            publisher,
            questions: Questions::new(asker, counts.len()),
            counts,
            dropped: Dropped::default(),
            removed_counts: RemovedCounts::default(),
            publication: publication.map_err(|error| Failure::Run(format!("threads: {error}")))?,
            blocks: BlockList::default(),
            drains: Drains::default(),
            probes,
            backends_asked: Vec::new(),
            changes,
            findings: Findings::default(),
            hangup,
            since: Instant::now(),
            reload_count: 0,
            reload_failure: None,
            announcer: None,
            leave: None,
            next_hops: None,
            port_hops: PortHops::default(),
            store: None,
            unprepared: None,
            node: None,
            keeper: None,
            handover: Handover::default(),
        };
        let room = operator.probe(build::probed(&operator.config));
        if room.probed_count > 0 && room.is_enough() {
            tracing::info!("health: {room}");
        }
        Ok(operator)
    }

    /// Announces VIPs from now on.
    #[must_use]
    pub fn announcing(self, announcer: Option<Announcer>) -> Self {
        Self { announcer, ..self }
    }

    /// Keeps the next hops of backends resolved from now on, where the kernel knows them, and shows those of
    /// ports.
    #[must_use]
    pub fn watching(self, next_hops: Option<NextHopWatch>, port_hops: PortHops) -> Self {
        Self { next_hops, port_hops, ..self }
    }

    /// Follows the store that the configuration comes from, if it does.
    #[must_use]
    pub fn with_store(self, store: Option<ConfigStore>) -> Self {
        Self { store, ..self }
    }

    /// Shares exceptions with other nodes from now on, if there are any.
    #[must_use]
    pub fn with_cluster(self, node: Option<Node>) -> Self {
        let operator = Self { node, ..self };
        operator.set_epoch();
        operator.enter_epoch();
        operator
    }

    /// What captures say of a packet: the backend that it goes to.
    #[must_use]
    pub fn annotate(&self) -> Annotate {
        let notes = self.notes.clone();
        Arc::new(move |record| notes.of(record))
    }

    /// What is to be done every few milliseconds: signals, health, and service tables on their way.
    pub fn turn(&mut self) {
        if self.hangup.came() {
            self.reload(reload::ReloadOrigin::Signal);
        }
        self.follow_store();
        self.follow_health();
        self.questions.turn((&self.config, &self.table), Instant::now());
        self.answer_backends();
        self.end_blocks();
        self.publish_changes();
        self.keep();
        self.notes.follow(&self.table);
        let is_in_force = self.publisher.collect() && self.is_published;
        if is_in_force {
            // No worker knows an earlier service table: nothing counts in vacated slots.
            self.removed_counts.settle(&self.counts);
            self.enter_epoch();
        }
        self.end_drains(is_in_force);
        if let Some(next_hops) = &mut self.next_hops {
            next_hops.turn(&self.config);
        }
        self.share();
        if let Some(announcer) = &mut self.announcer {
            let is_awaited = self.store.as_ref().is_none_or(ConfigStore::may_announce);
            let may_announce =
                is_in_force && is_awaited && self.node.as_ref().is_none_or(Node::is_ready);
            let hops = self.next_hops.as_ref().map(NextHopWatch::hops);
            announcer.follow(&self.config, (&self.table, hops), may_announce);
        }
    }

    /// Writes messages on what the cores have met: to be called every few milliseconds, and with `is_end`
    /// when they have ended.
    pub fn report(&mut self, now: hotloop::stage::Instant, is_end: bool) {
        self.dropped.report(&self.counts, now, is_end);
        self.port_hops.report(now, is_end);
    }

    /// Answers a request from the control socket: with an error that says what to ask instead where
    /// something is wrong with it.
    pub fn answer(&mut self, control: &Control<'_>, request: &hotloop_ops::Request) -> Reply {
        self.try_answer(control, request).unwrap_or_else(|error| Reply::Now(Err(error)))
    }

    fn try_answer(
        &mut self,
        control: &Control<'_>,
        request: &hotloop_ops::Request,
    ) -> Result<Reply, String> {
        Ok(Reply::Now(Ok(match Request::read(request)? {
            Request::Overview => self.overview(control),
            Request::Services => self.services(),
            Request::Backends => return Ok(self.backends()),
            Request::NextHops => {
                let of_ports = self.port_hops.rows(&self.config, control.now());
                of_ports.chain(self.next_hops.iter().flat_map(NextHopWatch::rows)).collect()
            }
            Request::Connections { filter, limit } => {
                return self.connections(filter.as_deref(), limit);
            }
            Request::Lookup(flow) => return self.lookup(&flow),
            Request::Cluster => self.cluster()?,
            Request::Blocks => self.blocks.rows(Instant::now()),
            Request::Block(block) => return self.block(&block),
            Request::Unblock { prefix } => return self.unblock(&prefix),
            Request::Drain { backend, end } => return self.drain(&backend, &end),
            Request::Weight { backend, weight } => return self.set_weight(&backend, weight),
            Request::Remove { backend, flush } => return Ok(self.remove(&backend, flush)),
            Request::Reload => return Ok(self.reload_now()),
            Request::Withdraw => self.withdraw_now()?,
            Request::Announce => self.announce_again()?,
            Request::Leave { for_s, .. } => self.leave(for_s)?,
            Request::Replace(candidate) => return self.replace(candidate),
            Request::Unknown => request.unknown()?,
        })))
    }

    /// The service table in use, or about to be.
    fn table(&self) -> &ServiceTable {
        &self.table
    }

    /// What the workers counted up to now.
    #[must_use]
    pub fn summary(&self) -> Summary<'_> {
        let removed = Some(&self.removed_counts);
        Summary { services: &self.table, workers: &self.counts, removed }
    }

    /// Probes these from now on, and says so where there is no room for all.
    fn probe(&mut self, probed: Vec<Probed>) -> Room {
        let room = self.probes.set(probed);
        if !room.is_enough() {
            tracing::warn!("health: {room}");
        }
        room
    }
}
