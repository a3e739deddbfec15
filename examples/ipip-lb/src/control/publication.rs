//! From what is to change to the workers: what is read, built and refreshed on threads of their own,
//! and published once it is there.
//!
//! Three threads, so that what waits for one doesn't wait for another. One reads configurations: a
//! disk may hang. One builds a whole service table, for a new configuration or where backends are taken
//! out: with many services that takes seconds. One brings a service table up to date with weights and
//! health, which leaves alone what has not changed.

use super::background::Background;
use super::draining::Drained;
use crate::cli::Common;
use crate::config::Config;
use crate::health::Probed;
use crate::services::{
    Builder, Maglevs, Removal, RemovedTarget, ServiceTable, Standing, TargetName,
};
use crate::store::layout::Stored;
use hotloop_ops::Capabilities;
use serde_json::Value;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;

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

/// By which a client is answered. One that has gone away is none the worse for it.
pub type Answerer = Sender<Result<Value, String>>;

/// A change that needs a new service table.
#[derive(Debug)]
pub enum Change {
    /// A configuration that was read.
    Configuration(Read, Vec<Asker>),
    /// `ctl remove`, with its arguments.
    Removal(Value, Answerer),
}

/// What to do after a service table is built.
#[derive(Debug)]
pub enum Building {
    /// To go over to the configuration, of which this is the store's, and to say so.
    Configuration(Option<Arc<Stored>>, Vec<Asker>),
    /// To remember which backend was taken out, and to say so.
    Removal(Removed, Answerer),
    /// To remember that these were, as their drains are over.
    Drained(Vec<Drained>),
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
    pub standing: Arc<Standing>,
    /// Whether all workers use the last service table.
    pub is_settled: bool,
    /// What the new configuration must not differ from, where it is a new one.
    pub old: Option<Arc<Config>>,
}

/// A new service table.
#[derive(Debug)]
pub struct Built {
    pub config: Arc<Config>,
    pub table: Arc<ServiceTable>,
    pub removed: Vec<RemovedTarget>,
    /// The backends to probe from now on.
    pub probed: Vec<Probed>,
}

/// The input for a refresh.
#[derive(Debug)]
pub struct Refresh {
    pub table: Arc<ServiceTable>,
    pub config: Arc<Config>,
    pub standing: Arc<Standing>,
}

/// The threads, and what waits for them.
#[derive(Debug)]
pub struct Publication {
    pub reader: Background<Option<Arc<Stored>>, Result<Read, String>>,
    /// What waits for the configuration that is being read.
    pub reading: Vec<Asker>,
    /// What came while one was being read: the file may be another one by now.
    pub unread: Vec<Asker>,
    pub builder: Background<Plans, Result<Built, String>>,
    pub building: Option<Building>,
    pub unbuilt: VecDeque<Change>,
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
    pub fn start(source: Common, mut builder: Builder) -> io::Result<Self> {
        let maglevs = builder.maglevs().clone();
        let none = Capabilities::empty();
        let read = move |stored: Option<Arc<Stored>>| {
            let config = source.configuration_with(stored.as_deref());
            config.map(|it| (Arc::new(it), stored)).map_err(|error| error.to_string())
        };
        Ok(Self {
            reader: Background::start("lb-read", Capabilities::DAC_READ_SEARCH, read)?,
            reading: Vec::new(),
            unread: Vec::new(),
            builder: Background::start("lb-build", none, move |plans| build(&mut builder, plans))?,
            building: None,
            unbuilt: VecDeque::new(),
            refresher: Background::start("lb-refresh", none, move |it| refresh(it, &maglevs))?,
            is_stale: false,
            is_outdated: false,
            refreshing: Vec::new(),
            unrefreshed: Vec::new(),
        })
    }

    /// Whether a configuration is on its way to be in force.
    pub fn is_loading(&self) -> bool {
        !self.unread.is_empty() || self.reader.is_busy() || self.builder.is_busy()
    }
}

fn build(builder: &mut Builder, plans: Plans) -> Result<Built, String> {
    let Plans { config, standing, is_settled, old } = plans;
    if let Some(old) = old {
        super::change::check_same_run(&old, &config)?;
    }
    if is_settled {
        // Control has taken their counts.
        builder.settle();
    }
    let table = builder.build(&config, &standing).map_err(|error| error.to_string())?;
    let removed = builder.take_removed();
    Ok(Built { probed: probed(&config), config, table: Arc::new(table), removed })
}

fn refresh(refresh: Refresh, maglevs: &Maglevs) -> Arc<ServiceTable> {
    let Refresh { table, config, standing } = refresh;
    table.refreshed(&config, &standing, maglevs).map_or(table, Arc::new)
}

/// The backends to probe, those of weight 0 among them.
pub fn probed(config: &Config) -> Vec<Probed> {
    let mut probed = Vec::new();
    for service in &config.services {
        let Some(health) = &service.health else { continue };
        for health in health.ways() {
            let of = |it: &crate::config::Backend| Probed {
                address: it.address,
                health: health.clone(),
            };
            probed.extend(service.backends.iter().map(of));
        }
    }
    probed
}
