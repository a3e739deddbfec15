//! The way of a change to the workers, as one state machine: [`Publication`] has its states, and [`Publisher::publish_changes`]
//! is its turn, which takes each change through these steps in this order:
//!
//! | step | module | thread |
//! |---|---|---|
//! | a configuration is read | [`reload`](super::reload) | `lb-read`: a disk may hang |
//! | a service table is built | [`build`](super::build) | `lb-build`: with many services that takes seconds |
//! | peers prepare for it | [`preparation`](super::preparation) | |
//! | it is in force | [`switchover`](super::switchover) | |
//! | weights, health and blocks are brought up to date | [`refresh`](super::refresh) | `lb-refresh`: what has not changed is left alone |
//! | workers get it, and clients their answers | [`refresh`](super::refresh) | |
//!
//! Each step hands its result to the next one and calls no other. Changes take the [stages](Stage) from the build to the
//! switchover one at a time; the next ones are read meanwhile, and health and blocks are refreshed meanwhile, as they wait
//! for no change. Nothing here blocks.

use super::background::Background;
use super::build::{AfterBuild, BuildInput, Built, PendingChange, build};
use super::cluster_link::ClusterLink;
use super::members::Members;
use super::preparation::{Preparing, Proposal};
use super::publisher::Publisher;
use super::refresh::Refresh;
use super::reload::Reads;
use crate::config::Config;
use crate::overrides::Overrides;
use crate::source::ConfigSource;
use hotloop_balancer::services::{Builder, Maglevs, ServiceTable};
use hotloop_privileges::Capabilities;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// A service table, with the configuration and the overrides that it was made of.
#[derive(Clone, Debug)]
pub struct TableVersion {
    pub config: Arc<Config>,
    pub overrides: Arc<Overrides>,
    pub table: Arc<ServiceTable>,
}

impl TableVersion {
    /// The same with weights, health and blocks as the overrides have them now.
    pub fn refreshed(self, maglevs: &Maglevs) -> Self {
        let Self { config, overrides, table } = self;
        let table = table
            .refreshed(&config.spec(), &overrides.standing(&config), maglevs)
            .map_or(table, Arc::new);
        Self { config, overrides, table }
    }
}

/// How far the change is that was begun last.
#[derive(Debug)]
pub enum Stage {
    /// It is in force, or refused: the next one may begin.
    Idle,
    /// Its service table is being built; `None` if it was discarded.
    Building(Option<AfterBuild>),
    /// Its service table is there, and workers and peers prepare for it.
    Preparing(Box<Preparing>),
}

/// All changes on their way.
#[derive(Debug)]
pub struct Publication {
    pub reads: Reads,
    /// Changes that wait for the one before.
    pub queue: VecDeque<PendingChange>,
    pub stage: Stage,
    pub builder: Background<BuildInput, Result<Built, String>>,
    /// What built the table in use.
    pub built_by: Arc<Builder>,
    /// How far the store's proposal is, which takes the same stages.
    pub proposal: Proposal,
    /// The version before the one in use, for as long as peers may go by that. `None` while a change is prepared.
    pub previous: Option<TableVersion>,
    /// When the table in use came into use.
    pub adopted: Instant,
    pub refresh: Refresh,
}

impl Publication {
    /// Starts the threads.
    ///
    /// # Errors
    /// The system grants no threads.
    pub fn start(source: ConfigSource, builder: Builder) -> io::Result<Self> {
        Ok(Self {
            reads: Reads::start(source)?,
            queue: VecDeque::new(),
            stage: Stage::Idle,
            builder: Background::start("lb-build", Capabilities::empty(), build)?,
            proposal: Proposal::default(),
            previous: None,
            adopted: Instant::now(),
            refresh: Refresh::start(builder.maglevs().clone())?,
            built_by: Arc::new(builder),
        })
    }

    /// Whether a configuration is on its way to be in force.
    pub fn is_loading(&self) -> bool {
        self.reads.is_busy() || !self.may_build()
    }

    /// Whether the next change may be built.
    pub const fn may_build(&self) -> bool {
        matches!(self.stage, Stage::Idle)
    }

    /// Whether anything is on its way, or waits.
    pub fn is_busy(&self) -> bool {
        self.is_loading() || !self.queue.is_empty() || self.refresh.is_busy()
    }

    /// The change that is being built or prepared.
    pub fn under_way(&self) -> Option<&AfterBuild> {
        match &self.stage {
            Stage::Idle => None,
            Stage::Building(after) => after.as_ref(),
            Stage::Preparing(preparing) => Some(&preparing.after),
        }
    }

    /// The version that workers compare connections with, apart from the one in use.
    pub fn other(&mut self) -> Option<&mut TableVersion> {
        match &mut self.stage {
            Stage::Preparing(preparing) => Some(&mut preparing.built.version),
            Stage::Idle | Stage::Building(_) => self.previous.as_mut(),
        }
    }

    /// Begins to build a change.
    pub fn begin(&mut self, input: BuildInput, after: AfterBuild) {
        self.stage = Stage::Building(Some(after));
        self.builder.give(input);
    }
}

impl Publisher {
    /// Takes each change on its way as far as it goes without waiting.
    pub(super) fn publish_changes(&mut self, members: &mut Members, link: &mut ClusterLink) {
        if let Some(change) = self.read(link) {
            self.publication.queue.push_back(change);
        }
        if let Some((built, after)) = self.take_built(members) {
            self.begin_preparing(built, after);
        }
        if let Some(prepared) = self.go_on_preparing(link) {
            self.switch_over(prepared, members, link);
        }
        self.build_next(members);
        self.refresh(members, link);
    }
}
