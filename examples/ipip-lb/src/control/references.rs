//! Service tables with the reference tables of the cluster.
//!
//! The [`Node`] agrees on reference tables with its peers, and the [`Publisher`] builds the service
//! tables with them. Peers get the tables once all workers use them.

use super::cluster::Node;
use super::cluster_link::ClusterLink;
use super::members::Members;
use super::publisher::Publisher;
use crate::config::Config;
use crate::overrides::Overrides;
use crate::reference;
use crate::replace::SavedReferences;
use hotloop_agreement::Decision;
use hotloop_agreement::barrier::Action;
use hotloop_balancer::services::{Builder, ServiceTable};
use hotloop_balancer::spec::{ServiceSpec, Spec};
use hotloop_cluster::sync::{PeerStatus, Reference, Turn};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval of looks at peers.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// How long to wait after a reference table that can't be built.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// The reference tables that a service table is built with, the one in use first.
#[derive(Clone, Debug, Default)]
pub struct ReferenceSpecs(Vec<(Reference, Arc<[ServiceSpec]>)>);

impl ReferenceSpecs {
    fn new(tables: &[Reference]) -> Result<Self, String> {
        let parsed = |table: &Reference| {
            let services = reference::from_text(&table.text);
            let error = |error| format!("cluster: reference table {}: {error}", table.number);
            Ok((table.clone(), services.map_err(error)?.into()))
        };
        tables.iter().map(parsed).collect::<Result<_, _>>().map(Self)
    }

    fn is_same(&self, other: &Self) -> bool {
        self.0.iter().map(|it| &it.0).eq(other.0.iter().map(|it| &it.0))
    }

    /// `table` with these reference tables. `builder` has built it.
    ///
    /// # Errors
    /// If there are more backends than slots.
    pub fn attach(
        &self,
        table: ServiceTable,
        builder: &Builder,
        config: &Config,
    ) -> Result<ServiceTable, String> {
        let build = |(reference, services): &(Reference, Arc<[ServiceSpec]>)| {
            let spec = Spec { services, ..config.spec() };
            // Its backends must not take slots from those of the configuration.
            let built = builder.clone().build(&spec, &Default::default());
            let error = |error| format!("cluster: reference table {}: {error}", reference.number);
            built.map(Arc::new).map_err(error)
        };
        let built = self.0.iter().map(build).collect::<Result<Vec<_>, _>>()?;
        if built.is_empty() {
            return Ok(table);
        }
        Ok(table.with_references([built.first(), built.get(1)]))
    }
}

/// The state between turns.
#[derive(Debug)]
pub(super) struct References {
    /// The tables that were requested last.
    requested: ReferenceSpecs,
    /// The configuration and the overrides that the wanted table follows from.
    wanted_by: Option<(Arc<Config>, Arc<Overrides>)>,
    /// Number of connections that were not entered, or were evicted.
    lost_count: u64,
    /// When each peer was last in contact, or this node started.
    seen: Vec<Instant>,
    due: Instant,
}

impl References {
    pub fn new(peer_count: usize) -> Self {
        let (requested, now) = (ReferenceSpecs::default(), Instant::now());
        let seen = vec![now; peer_count];
        Self { requested, wanted_by: None, lost_count: 0, seen, due: now }
    }

    /// The text of the table that the configuration and operators want, if they have changed.
    fn wanted(&mut self, config: &Arc<Config>, overrides: &Arc<Overrides>) -> Option<String> {
        let is_same = |(of, with): &(Arc<Config>, Arc<Overrides>)| {
            let is_with = || with.weights == overrides.weights && with.removed == overrides.removed;
            Arc::ptr_eq(of, config) && (Arc::ptr_eq(with, overrides) || is_with())
        };
        if self.wanted_by.as_ref().is_some_and(is_same) {
            return None;
        }
        self.wanted_by = Some((Arc::clone(config), Arc::clone(overrides)));
        Some(reference::to_text(&config.services, overrides))
    }
}

/// How long a connection that a node has lost may be alive: twice the longest idle timeout, as peers
/// may count on it for longer than its own.
pub(super) fn lost_ms(config: &Config) -> u64 {
    let timeouts = &config.balancer.timeouts;
    let longest_s = timeouts.tcp_established_s.max(timeouts.udp_s).max(timeouts.other_s);
    2_000 * u64::from(longest_s)
}

impl ClusterLink {
    /// Continues with the reference tables of the program that this one takes over from.
    pub(super) fn inherit_references(
        &mut self,
        saved: &SavedReferences,
        publisher: &mut Publisher,
    ) {
        if let Some((node, (phase, tables))) = self.node.as_mut().zip(saved.tables()) {
            node.agreement.inherit(phase, tables.clone());
            node.request_references(&tables, publisher);
        }
    }

    /// Takes the next step of the agreement on reference tables. `is_in_force` is whether all workers
    /// use the table in force.
    pub(super) fn follow_references(
        &mut self,
        publisher: &mut Publisher,
        members: &Members,
        is_in_force: bool,
    ) {
        let now = Instant::now();
        if let Some(node) = &mut self.node
            && (node.references.due <= now || node.agreement.is_awaiting())
        {
            node.references.due = now + LOOK_INTERVAL;
            node.follow_references(publisher, members, is_in_force);
        }
    }
}

impl Node {
    fn follow_references(
        &mut self,
        publisher: &mut Publisher,
        members: &Members,
        is_in_force: bool,
    ) {
        let (now_ms, lost_ms) = (self.now_ms(), lost_ms(&publisher.config));
        let stateless = publisher.counts.iter().map(|counts| counts.stateless.count());
        let lost_count = stateless.sum::<u64>() + self.exceptions.evicted_count();
        if std::mem::replace(&mut self.references.lost_count, lost_count) != lost_count {
            self.agreement.lose(now_ms, lost_ms);
        }
        if let Some(text) = self.references.wanted(&publisher.config, &members.overrides) {
            self.agreement.want(text);
        }
        if self.agreement.is_awaiting() {
            return self.await_references(publisher, is_in_force);
        }
        let turn = Turn {
            now_ms,
            has_waited: self.has_waited,
            is_marked: is_in_force && self.is_marked(&publisher.table),
            settle_ms: 1_000 * u64::from(self.cluster.settle_s),
            lost_ms,
        };
        let (sync, status) = (&self.sync, self.sync.status());
        let in_contact = |(peer, _): &(&PeerStatus, _)| peer.said.is_some();
        let seen = status.iter().zip(&mut self.references.seen).filter(in_contact);
        seen.for_each(|(_, seen)| *seen = Instant::now());
        let (watermark, entered) = (|| sync.watermark(), |mark: &_| sync.entered(mark));
        let Some((decision, tables)) = self.agreement.turn(&status, turn, watermark, entered)
        else {
            return;
        };
        let number = tables.last().map_or(0, |table| table.number);
        match decision {
            Decision::Create => {
                tracing::info!("cluster: this configuration is the reference table");
            }
            Decision::Adopt(index, _) => {
                let name = &status[index].name;
                tracing::info!("cluster: reference table {number} comes from {name}");
            }
            Decision::Begin(_) => {
                tracing::info!("cluster: the reference table is to be {number}");
            }
            Decision::Continue(Action::Finish) => {
                tracing::info!("cluster: the reference table is {number} on all nodes");
            }
            Decision::Continue(_) => {}
        }
        self.request_references(&tables, publisher);
    }

    fn request_references(&mut self, tables: &[Reference], publisher: &mut Publisher) {
        match ReferenceSpecs::new(tables) {
            Ok(specs) => {
                publisher.refer_to(specs.clone());
                self.references.requested = specs;
            }
            Err(error) => {
                tracing::error!("{error}");
                self.give_up_references();
            }
        }
    }

    /// Whether every connection that may be alive is remembered by some node: for a time after a node
    /// has lost connections, or is out of contact, that is not so.
    pub(super) fn remembers_all(&self, config: &Config) -> bool {
        let lost = Duration::from_millis(lost_ms(config));
        let is_complete = |(peer, seen): (PeerStatus, &Instant)| match peer.said {
            Some(said) => !said.standing.member.is_waiting,
            None => seen.elapsed() >= lost,
        };
        !self.agreement.standing(self.now_ms()).member.is_waiting
            && self.sync.status().into_iter().zip(&self.references.seen).all(is_complete)
    }

    /// Reports the tables to peers once all workers use them.
    fn await_references(&mut self, publisher: &Publisher, is_in_force: bool) {
        let is_built = publisher.publication.references.is_same(&self.references.requested);
        if is_built && is_in_force {
            self.sync.set_references(self.agreement.use_awaited().to_vec());
        } else if !is_built && !publisher.publication.awaits_references() {
            // The reason was logged.
            self.give_up_references();
        }
    }

    fn give_up_references(&mut self) {
        self.agreement.give_up();
        self.references.due = Instant::now() + RETRY_INTERVAL;
    }
}
