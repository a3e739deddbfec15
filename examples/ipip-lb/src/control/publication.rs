//! The path of a change to the workers, as one state machine. [`Publication`] has its states, and
//! [`Publisher::publish_changes`] is its turn, which takes each change through these steps in this
//! order:
//!
//! | step | module | thread |
//! |---|---|---|
//! | a configuration is read | [`reload`](super::reload) | `lb-read`: a disk may hang |
//! | a service table is built | [`build`](super::build) | `lb-build`: with many services that takes seconds |
//! | a proposal waits for the other nodes | [`proposal`](super::proposal) | |
//! | it is in force | [`switchover`](super::switchover) | |
//! | weights, health and blocks are brought up to date | [`refresh`](super::refresh) | `lb-refresh`: the rest stays as it is |
//! | workers get it, and clients their answers | [`refresh`](super::refresh) | |
//!
//! Each step passes its result to the next one and calls no other. One change at a time takes the
//! [stages](Stage) from the build to the switchover. Meanwhile, the next configurations are read,
//! and health and blocks are refreshed, because they wait for no change. Nothing here blocks.

use super::background::Background;
use super::build::{AfterBuild, BuildInput, Built, PendingChange, build};
use super::cluster_link::ClusterLink;
use super::members::Members;
use super::proposal::Proposal;
use super::publisher::Publisher;
use super::references::ReferenceSpecs;
use super::refresh::Refresh;
use super::reload::Reads;
use crate::config::Config;
use crate::overrides::Overrides;
use crate::source::ConfigSource;
use hotloop_balancer::services::{Builder, Maglevs, ServiceTable};
use hotloop_cluster::store::layout::Stored;
use hotloop_privileges::Capabilities;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// A service table, with the configuration and the overrides that it was built from.
#[derive(Clone, Debug)]
pub struct TableVersion {
    pub config: Arc<Config>,
    pub overrides: Arc<Overrides>,
    pub table: Arc<ServiceTable>,
}

impl TableVersion {
    /// The version with the current weights, health and blocks of its overrides.
    pub fn refreshed(self, maglevs: &Maglevs) -> Self {
        let Self { config, overrides, table } = self;
        let table = table
            .refreshed(&config.spec(), &overrides.standing(&config), maglevs)
            .map_or(table, Arc::new);
        Self { config, overrides, table }
    }
}

/// The progress of the change under way.
#[derive(Debug)]
pub enum Stage {
    /// The last change is in force or refused: the next one may begin.
    Idle,
    /// The service table is being built; `None` if the change was discarded.
    Building(Option<AfterBuild>),
    /// The store's proposal is built, and waits for the other nodes. With its text.
    Proposed(Box<Built>, Option<Arc<Stored>>),
}

/// All changes under way.
#[derive(Debug)]
pub struct Publication {
    pub reads: Reads,
    /// Changes that wait for the previous one.
    pub queue: VecDeque<PendingChange>,
    pub stage: Stage,
    pub builder: Background<BuildInput, Result<Built, String>>,
    /// The builder of the table in use.
    pub built_by: Arc<Builder>,
    /// The state of the store's proposal, which takes the same stages.
    pub proposal: Proposal,
    /// The reference tables that the table in use has.
    pub references: ReferenceSpecs,
    /// When the table in use came into use.
    pub adopted: Instant,
    pub refresh: Refresh,
}

impl Publication {
    /// Starts the threads.
    ///
    /// # Errors
    /// If the system provides no threads.
    pub fn start(source: ConfigSource, builder: Builder) -> io::Result<Self> {
        Ok(Self {
            reads: Reads::start(source)?,
            queue: VecDeque::new(),
            stage: Stage::Idle,
            builder: Background::start("lb-build", Capabilities::empty(), build)?,
            proposal: Proposal::default(),
            references: ReferenceSpecs::default(),
            adopted: Instant::now(),
            refresh: Refresh::start(builder.maglevs().clone())?,
            built_by: Arc::new(builder),
        })
    }

    /// Whether a configuration is under way.
    pub fn is_loading(&self) -> bool {
        self.reads.is_busy() || !self.may_build()
    }

    /// Whether the next change may be built.
    pub const fn may_build(&self) -> bool {
        matches!(self.stage, Stage::Idle)
    }

    /// Whether anything is under way or queued.
    pub fn is_busy(&self) -> bool {
        self.is_loading() || !self.queue.is_empty() || self.refresh.is_busy()
    }

    /// The change that is being built or prepared.
    pub fn under_way(&self) -> Option<&AfterBuild> {
        match &self.stage {
            Stage::Idle | Stage::Proposed(..) => None,
            Stage::Building(after) => after.as_ref(),
        }
    }

    /// Whether other reference tables are under way.
    pub fn awaits_references(&self) -> bool {
        let is_it = |change: &PendingChange| matches!(change, PendingChange::References(_));
        matches!(self.stage, Stage::Building(Some(AfterBuild::References(_))))
            || self.queue.iter().any(is_it)
    }

    /// Begins to build a change.
    pub fn begin(&mut self, input: BuildInput, after: AfterBuild) {
        self.stage = Stage::Building(Some(after));
        self.builder.give(input);
    }
}

impl Publisher {
    /// Advances each change as far as possible without waiting.
    pub(super) fn publish_changes(&mut self, members: &mut Members, link: &mut ClusterLink) {
        if let Some(change) = self.read(link) {
            self.publication.queue.push_back(change);
        }
        if let Some(built) = self.take_built(members) {
            self.go_on_with(built, members, link);
        }
        self.build_next(members);
        self.refresh(members, link);
    }
}
