//! The control thread's part: what changes a balancer while it runs, and what tells of it.
//!
//! [`Control`] stands between those that want something (an operator at the control socket, a SIGHUP, the health checks, the
//! store) and the workers. It has four owners, each with one turn:
//!
//! | owner | of |
//! |---|---|
//! | `ClusterLink` | peers, and the store |
//! | `Members` | health, drains, blocks, and operators' changes |
//! | `Publisher` | the configuration, the service table, and their changes |
//! | `Presence` | VIPs, the way out, and the handover |
//!
//! Whatever is to change, a whole new [`ServiceTable`](hotloop_balancer::services::ServiceTable) is made and published; what
//! is asked about single connections, workers are asked. Neither ever makes a worker wait; and what takes long, reading a
//! configuration and making service tables, is done on other threads, so that signals, health and clients don't wait either.
//! Nor is a worker waited for: its answers are taken in a later turn. The one exception is [closing](Control::hands_over) for a
//! program that takes over, which waits for 500 ms at most, while nothing is received.

mod annotation;
mod announcement;
mod background;
mod blocks;
mod build;
mod cluster;
mod cluster_link;
mod config_store;
mod connections;
mod departure;
mod drains;
mod handover;
mod health;
mod lookup;
mod members;
mod metrics;
pub mod operator_file;
mod overview;
mod preparation;
mod presence;
mod probe_verdict;
mod publication;
mod publisher;
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
pub use handover::Handover;
pub use preparation::{PREPARE_PARTS, Proposal};
pub use saved_changes::Keeper;

use crate::announce::Announcer;
use crate::config::Config;
use crate::dropped::Dropped;
use crate::failure::Failure;
use crate::health::Probes;
use crate::network_function::Steering;
use crate::next_hops::NextHopWatch;
use crate::port_hops::PortHops;
use crate::replace::inheritance::Inherited;
use crate::request::Request;
use crate::source::ConfigSource;
use annotation::Notes;
use cluster_link::ClusterLink;
use hotloop::engine;
use hotloop_balancer::counts::{RemovedCounts, Summary};
use hotloop_cluster::store::layout::Stored;
use hotloop_ops::{Annotate, Hangup, Reply};
use members::Members;
use presence::Presence;
use publication::Publication;
use publisher::Publisher;
use questions::Questions;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// What the control thread has of a running balancer.
#[derive(Debug)]
pub struct Control {
    link: ClusterLink,
    members: Members,
    publisher: Publisher,
    presence: Presence,
    /// What clients ask of single connections.
    questions: Questions,
    /// Messages on packets that workers drop.
    dropped: Dropped,
    /// The table in use, for what captures add to packets.
    notes: Notes,
    next_hops: Option<NextHopWatch>,
    port_hops: PortHops,
    /// Where the configuration is, for messages.
    source: ConfigSource,
    since: Instant,
}

impl Control {
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
        let questions = Questions::new(asker, counts.len());
        let notes = Notes::new(&table);
        let publisher = Publisher {
            config: Arc::new(config),
            table,
            is_published: true,
            workers: publisher,
            counts,
            removed_counts: RemovedCounts::default(),
            publication: publication.map_err(|error| Failure::Run(format!("threads: {error}")))?,
            hangup,
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
            port_hops: PortHops::default(),
            source,
            since: Instant::now(),
        })
    }

    /// Announces VIPs from now on.
    #[must_use]
    pub fn announcing(mut self, announcer: Option<Announcer>) -> Self {
        self.presence.announcer = announcer;
        self
    }

    /// Keeps the next hops of backends resolved from now on, if the kernel knows them, and shows those of ports.
    #[must_use]
    pub fn watching(self, next_hops: Option<NextHopWatch>, port_hops: PortHops) -> Self {
        Self { next_hops, port_hops, ..self }
    }

    /// Follows the store that the configuration comes from, if it does.
    #[must_use]
    pub fn with_store(mut self, store: Option<ConfigStore>) -> Self {
        self.link.store = store;
        self
    }

    /// Shares exceptions with other nodes from now on, if there are any.
    #[must_use]
    pub fn with_cluster(mut self, node: Option<Node>) -> Self {
        self.link.node = node;
        self.link.set_epoch();
        self.link.enter_epoch();
        self
    }

    /// Saves operators' changes from now on, if there is a keeper.
    #[must_use]
    pub fn keeping(mut self, keeper: Option<Keeper>) -> Self {
        self.members.keeper = keeper;
        self
    }

    /// Can leave everything to a program that takes over from now on, and go on in place of one that has.
    #[must_use]
    pub fn handing_over(mut self, handover: Handover) -> Self {
        self.presence.handover = handover;
        self
    }

    /// Goes on with what a predecessor knew, before anything is received: its connections are then to be
    /// [entered](Self::enter).
    #[must_use]
    pub fn inheriting(mut self, inherited: Option<&mut Inherited>) -> Self {
        if let Some(inherited) = inherited {
            self.port_hops.inherit(&inherited.neighbours);
            self.presence.handover.inherit(inherited);
        }
        self
    }

    /// What captures add to a packet: the backend that it goes to.
    #[must_use]
    pub fn annotate(&self) -> Annotate {
        let notes = self.notes.clone();
        Arc::new(move |record| notes.of(record))
    }

    /// Does what is due, every few milliseconds: the turns of the owners.
    pub fn turn(&mut self) {
        let Self { link, members, publisher, presence, .. } = self;
        link.turn(publisher, members, presence);
        members.turn(&publisher.config, link);
        self.questions.turn((&publisher.config, &publisher.table), Instant::now());
        self.answer_backends();
        let Self { link, members, publisher, presence, .. } = self;
        let is_in_force = publisher.turn(members, link);
        members.keep(&publisher.config, link.store.as_ref().map(ConfigStore::revision));
        self.notes.follow(&publisher.table);
        if let Some(next_hops) = &mut self.next_hops {
            next_hops.turn(&publisher.config);
        }
        presence.move_exceptions(link, &publisher.table);
        let may_announce = is_in_force && link.may_announce();
        presence.turn(publisher, self.next_hops.as_ref(), may_announce);
    }

    /// Writes messages on what the cores have met: to be called every few milliseconds, and with `is_end`
    /// when they have ended.
    pub fn report(&mut self, now: hotloop::stage::Instant, is_end: bool) {
        self.dropped.report(&self.publisher.counts, now, is_end);
        self.port_hops.report(now, is_end);
    }

    /// Answers a request from the control socket: with an error that says what to ask instead where
    /// something is wrong with it.
    pub fn answer(
        &mut self,
        control: &engine::Control<'_>,
        request: &hotloop_ops::Request,
    ) -> Reply {
        self.try_answer(control, request).unwrap_or_else(|error| Reply::Now(Err(error)))
    }

    fn try_answer(
        &mut self,
        control: &engine::Control<'_>,
        request: &hotloop_ops::Request,
    ) -> Result<Reply, String> {
        let Self { link, members, publisher, presence, .. } = self;
        Ok(Reply::Now(Ok(match Request::read(request)? {
            Request::Overview => self.overview(control),
            Request::Services => self.services(),
            Request::Backends => return Ok(self.backends()),
            Request::NextHops => {
                let of_ports = self.port_hops.rows(&publisher.config, control.now());
                of_ports.chain(self.next_hops.iter().flat_map(NextHopWatch::rows)).collect()
            }
            Request::Connections { filter, limit } => {
                return self.connections(filter.as_deref(), limit);
            }
            Request::Lookup(flow) => return self.lookup(&flow),
            Request::Cluster => link.to_json(&publisher.table)?,
            Request::Blocks => members.blocks.rows(Instant::now()),
            Request::Block(block) => {
                let answer = members.block(&block)?;
                return Ok(publisher.publish_blocks(answer));
            }
            Request::Unblock { prefix } => {
                let answer = members.unblock(&prefix)?;
                return Ok(publisher.publish_blocks(answer));
            }
            Request::Drain { backend, end } => return publisher.drain(&backend, &end, members),
            Request::Weight { backend, weight } => {
                return publisher.set_weight(&backend, weight, members);
            }
            Request::Remove { backend, flush } => return Ok(publisher.remove(&backend, flush)),
            Request::Reload => return Ok(publisher.reload_now()),
            Request::Withdraw => presence.withdraw_now()?,
            Request::Announce => presence.announce_again()?,
            Request::Leave { for_s, .. } => {
                presence.leave(for_s, &publisher.config, publisher.connection_count())?
            }
            Request::Replace(candidate) => return presence.replace(candidate, &publisher.config),
            Request::Unknown => request.unknown()?,
        })))
    }

    /// What the workers counted up to now.
    #[must_use]
    pub fn summary(&self) -> Summary<'_> {
        self.publisher.summary()
    }

    /// Begins to prepare a configuration, in place of any that was before. `stored` is the store's part of it.
    pub fn prepare(&mut self, config: Arc<Config>, stored: Option<Arc<Stored>>) {
        self.publisher.prepare(config, stored);
    }

    /// How far the configuration to [prepare](Self::prepare) is.
    #[must_use]
    pub const fn proposal(&self) -> &Proposal {
        self.publisher.proposal()
    }

    /// Switches over to the [prepared](Proposal::Prepared) configuration if its text is what is in force in the store now,
    /// and returns whether it was: anything else needs a reload.
    pub fn adopt(&mut self, stored: &Arc<Stored>) -> bool {
        self.publisher.adopt(stored, &mut self.members, &mut self.link)
    }

    /// Forgets the configuration to prepare: nothing has changed.
    pub fn discard(&mut self) {
        self.publisher.discard();
    }

    /// Withdraws the VIPs, ahead of everything else that ends. Returns for how long what still comes is to be balanced: until
    /// routers send it elsewhere.
    pub fn withdraw(&mut self) -> Duration {
        self.presence.withdraw(&self.publisher.config)
    }

    /// Whether the balancer was to leave and may end now, which it logs.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.presence.has_left(self.publisher.connection_count())
    }
}
