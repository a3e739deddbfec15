//! From what is to change to the workers: what is read, built and refreshed on threads of their own,
//! and published once it is there.
//!
//! Three threads, so that what waits for one doesn't wait for another. One reads configurations: a
//! disk may hang. One builds a whole service table, for a new configuration or where backends are taken
//! out: with many services that takes seconds. One brings a service table up to date with weights and
//! health, which leaves alone what has not changed.

use super::background::Background;
use super::draining::Drained;
use super::preparing::{Preparing, Proposal};
use crate::config::Config;
use crate::health::Probed;
use crate::overrides::Overrides;
use crate::request;
use crate::source::ConfigSource;
use crate::until::Until;
use hotloop_balancer::services::{
    Builder, Maglevs, Removal, RemovedTarget, ServiceTable, TargetName,
};
use hotloop_balancer::spec::Backend;
use hotloop_cluster::store::layout::Stored;
use hotloop_cluster::sync::Tls;
use hotloop_ops::Answerer;
use hotloop_privileges::Capabilities;
use serde_json::Value;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// What has asked for a reload.
#[derive(Debug)]
pub enum Asker {
    /// A SIGHUP.
    Signal,
    /// A client of the control socket, which waits for the answer.
    Client(Answerer),
    /// The store, which has another configuration now.
    Store,
}

/// A configuration that was read, and what of it is the store's.
pub type Read = (Arc<Config>, Option<Arc<Stored>>);

/// Reads configurations, each together with what of it is the store's, if it comes from one; and what secures connections
/// to peers, where that is given as it is: none where that is the same still.
pub type Reader =
    Background<(Option<Arc<Stored>>, Option<Tls>), Result<(Read, Option<Tls>), String>>;

/// A change that needs a new service table.
#[derive(Debug)]
pub enum Change {
    /// A configuration that was read, and what is to secure connections to peers, where that is new.
    Configuration(Read, Option<Tls>, Vec<Asker>),
    /// `ctl remove`.
    Removal(request::Backend, Removal, Answerer),
    /// `ctl drain` or `ctl weight`.
    Weights(Weighing),
    /// A configuration that all nodes are to prepare.
    Proposal(Read),
}

/// Another weight for a backend, and what comes of it then.
#[derive(Debug)]
pub struct Weighing {
    pub names: Vec<TargetName>,
    pub weight: u32,
    /// Until when it is drained, where it is to be removed then, and since when.
    pub until: Option<(Until, Instant)>,
    /// Why a drain that there was is over.
    pub why: &'static str,
    pub answerer: Answerer,
    pub answer: Value,
}

/// What to do after a service table is built.
#[derive(Debug)]
pub enum Building {
    /// To go over to the configuration, of which this is the store's, and to what is to secure connections to peers,
    /// where that is new; and to say so.
    Configuration(Option<Arc<Stored>>, Option<Tls>, Vec<Asker>),
    /// To remember which backend was taken out, and to say so.
    Removal(Removed, Answerer),
    /// To remember that these were, as their drains are over.
    Drained(Vec<Drained>),
    /// To remember the weights, and to say so.
    Weights(Vec<Weighing>),
    /// To wait until all nodes adopt it; this is the store's part of it.
    Proposal(Option<Arc<Stored>>),
}

/// The backend that `ctl remove` takes out, and the answer to that.
#[derive(Debug)]
pub struct Removed {
    pub names: Vec<(TargetName, Removal)>,
    pub answer: Value,
}

/// The input for a new service table.
#[derive(Debug)]
pub struct Plans {
    pub config: Arc<Config>,
    pub overrides: Arc<Overrides>,
    /// Whether all workers use the last service table.
    pub is_settled: bool,
    /// What the new configuration must not differ from, where it is a new one.
    pub old: Option<Arc<Config>>,
    /// A table with the same services and backends, where only weights change.
    pub like: Option<Arc<ServiceTable>>,
    /// What built the table in use.
    pub builder: Arc<Builder>,
}

/// A new service table.
#[derive(Debug)]
pub struct Built {
    pub config: Arc<Config>,
    pub overrides: Arc<Overrides>,
    pub table: Arc<ServiceTable>,
    /// What builds the next one, where this one comes into use.
    pub builder: Arc<Builder>,
    pub removed: Vec<RemovedTarget>,
    /// The backends to probe from now on.
    pub probed: Vec<Probed>,
}

/// A service table, and what it follows from.
#[derive(Clone, Debug)]
pub struct Aside {
    pub config: Arc<Config>,
    pub overrides: Arc<Overrides>,
    pub table: Arc<ServiceTable>,
}

/// The input for a refresh: the table in use, and the other one that connections are compared with.
#[derive(Debug)]
pub struct Refresh {
    pub used: Aside,
    pub other: Option<Aside>,
}

/// The threads, and what waits for them.
#[derive(Debug)]
pub struct Publication {
    pub reader: Reader,
    /// What waits for the configuration that is being read.
    pub reading: Vec<Asker>,
    /// What came while one was being read: the file may be another one by now.
    pub unread: Vec<Asker>,
    pub builder: Background<Plans, Result<Built, String>>,
    pub building: Option<Building>,
    pub unbuilt: VecDeque<Change>,
    /// What built the table in use.
    pub built_by: Arc<Builder>,
    /// What was built, and is not in force yet: others wait for it.
    pub preparing: Option<Preparing>,
    /// What of it is the store's.
    pub proposal: Proposal,
    /// The table that is being prepared, or else the one before the table in use, as long as peers may go by that.
    pub other: Option<Aside>,
    /// When the table in use came into use.
    pub adopted: Instant,
    pub refresher: Background<Refresh, Arc<ServiceTable>>,
    /// Whether weights or health have changed since the refresher was given its last job.
    pub is_stale: bool,
    /// Whether the refresher works on a service table that is no longer the newest.
    pub is_outdated: bool,
    /// The answers to give once what is being refreshed is published.
    pub refreshing: Vec<(Answerer, Value)>,
    /// Those to give once what is to be refreshed next is.
    pub unrefreshed: Vec<(Answerer, Value)>,
}

impl Publication {
    /// Starts the threads.
    ///
    /// # Errors
    /// The system grants no threads.
    pub fn start(source: ConfigSource, builder: Builder) -> io::Result<Self> {
        let maglevs = builder.maglevs().clone();
        let none = Capabilities::empty();
        Ok(Self {
            reader: reader("lb-read", source)?,
            reading: Vec::new(),
            unread: Vec::new(),
            builder: Background::start("lb-build", none, build)?,
            building: None,
            unbuilt: VecDeque::new(),
            built_by: Arc::new(builder),
            preparing: None,
            proposal: Proposal::default(),
            other: None,
            adopted: Instant::now(),
            refresher: Background::start("lb-refresh", none, move |it| refresh(it, &maglevs))?,
            is_stale: false,
            is_outdated: false,
            refreshing: Vec::new(),
            unrefreshed: Vec::new(),
        })
    }

    /// Whether a configuration is on its way to be in force.
    pub fn is_loading(&self) -> bool {
        !self.unread.is_empty()
            || self.reader.is_busy()
            || self.builder.is_busy()
            || self.preparing.is_some()
    }

    /// Whether the next change may be built.
    pub const fn may_build(&self) -> bool {
        !self.builder.is_busy() && self.preparing.is_none()
    }

    /// Has a configuration that all nodes are to prepare be built in its turn.
    pub fn propose(&mut self, read: Read) {
        self.unbuilt.push_back(Change::Proposal(read));
    }

    /// Forgets it, where it waits for that still or is being built.
    pub fn forget_proposed(&mut self) {
        self.unbuilt.retain(|it| !matches!(it, Change::Proposal(_)));
        self.building.take_if(|it| matches!(it, Building::Proposal(_)));
    }

    /// All weights that are to change next, with those that follow on `first`.
    pub fn weighings(&mut self, first: Weighing) -> Vec<Weighing> {
        let mut all = vec![first];
        while let Some(Change::Weights(_)) = self.unbuilt.front()
            && let Some(Change::Weights(next)) = self.unbuilt.pop_front()
        {
            all.push(next);
        }
        all
    }
}

/// Starts a thread of this name that reads configurations.
///
/// # Errors
/// The system grants no thread.
pub fn reader(name: &'static str, source: ConfigSource) -> io::Result<Reader> {
    let read = move |(stored, tls): (Option<Arc<Stored>>, Option<Tls>)| {
        let config = source.configuration_with(stored.as_deref());
        let config = config.map_err(|error| error.to_string())?;
        let renewed = match tls.zip(config.cluster.as_ref()) {
            Some((tls, cluster)) => {
                tls.renewed(cluster).map_err(|why| format!("cluster: {why}"))?
            }
            None => None,
        };
        Ok(((Arc::new(config), stored), renewed))
    };
    Background::start(name, Capabilities::DAC_READ_SEARCH, read)
}

fn build(plans: Plans) -> Result<Built, String> {
    let Plans { config, overrides, is_settled, old, like, builder } = plans;
    if let Some(table) = like {
        let table = refreshed(Aside { config, overrides, table }, builder.maglevs());
        let Aside { config, overrides, table } = table;
        let (removed, probed) = (Vec::new(), Vec::new());
        return Ok(Built { config, overrides, table, builder, removed, probed });
    }
    // Should the table not come into use, its slots are as they were.
    let mut builder = (*builder).clone();
    if let Some(old) = old {
        super::change::check_same_run(&old, &config)?;
    }
    if is_settled {
        // Control has taken their counts.
        builder.settle();
    }
    let table = builder
        .build(&config.spec(), &overrides.standing(&config))
        .map_err(|error| error.to_string())?;
    let (removed, probed) = (builder.take_removed(), probed(&config));
    let (table, builder) = (Arc::new(table), Arc::new(builder));
    Ok(Built { config, overrides, table, builder, removed, probed })
}

/// The same with weights, health and blocks as they are now.
fn refreshed(aside: Aside, maglevs: &Maglevs) -> Aside {
    let Aside { config, overrides, table } = aside;
    let table = table
        .refreshed(&config.spec(), &overrides.standing(&config), maglevs)
        .map_or(table, Arc::new);
    Aside { config, overrides, table }
}

fn refresh(refresh: Refresh, maglevs: &Maglevs) -> Arc<ServiceTable> {
    let table = refreshed(refresh.used, maglevs).table;
    let other = refresh.other.map(|other| refreshed(other, maglevs).table);
    let is_same = match (&other, table.other()) {
        (Some(other), Some(before)) => Arc::ptr_eq(other, before),
        (other, before) => other.is_none() && before.is_none(),
    };
    if is_same { table } else { Arc::new(table.with_other(other)) }
}

/// The backends to probe, those of weight 0 among them.
pub fn probed(config: &Config) -> Vec<Probed> {
    let mut probed = Vec::new();
    for service in &config.services {
        for health in config.ways_of(&service.name) {
            let of = |it: &Backend| Probed { address: it.address, health: health.clone() };
            probed.extend(service.backends.iter().map(of));
        }
    }
    probed
}
