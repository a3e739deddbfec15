//! Reading the configuration again: the first step of a [publication](super::publication), and the
//! answer to those who requested it.
//!
//! Part of [`Publisher`]; reads the [`ClusterLink`]. Requests during a read wait for the next one,
//! because the file may have changed by then; earlier requests share the result. If the
//! configuration is invalid, nothing changes.

use super::background::Background;
use super::build::PendingChange;
use super::cluster_link::ClusterLink;
use super::publisher::Publisher;
use crate::answer::{Change, ChangeCounts, Effect};
use crate::config::Config;
use crate::source::ConfigSource;
use hotloop_cluster::store::layout::Stored;
use hotloop_cluster::sync::Tls;
use hotloop_ops::{Answerer, Reply, notify, one_line};
use hotloop_privileges::Capabilities;
use serde_json::json;
use std::io;
use std::sync::Arc;

/// Maximum number of differences between configurations that an answer names.
const SHOWN_MAX: usize = 20;

/// The origin of a reload.
#[derive(Debug)]
pub enum ReloadOrigin {
    /// A SIGHUP.
    Signal,
    /// A client of the control socket, which waits for the answer.
    Client {
        answerer: Answerer,
        /// Whether operators' changes end.
        is_reset: bool,
    },
    /// The store, which has another configuration now.
    Store,
}

impl ReloadOrigin {
    /// Whether the reload ends operators' changes.
    pub const fn is_reset(&self) -> bool {
        matches!(self, Self::Client { is_reset: true, .. })
    }
}

/// A configuration that was read.
#[derive(Debug)]
pub struct LoadedConfig {
    pub config: Arc<Config>,
    /// The store's part of the configuration, if it comes from a store.
    pub stored: Option<Arc<Stored>>,
    /// New TLS settings for peers; `None` if they haven't changed.
    pub tls: Option<Tls>,
}

/// The input of a read.
#[derive(Debug)]
pub struct ReadInput {
    /// The store's part of the configuration, if it comes from a store.
    pub stored: Option<Arc<Stored>>,
    /// The TLS settings for peers, if they are read again.
    pub tls: Option<Tls>,
}

/// Reads configurations.
pub type Reader = Background<ReadInput, Result<LoadedConfig, String>>;

/// The reading thread, and the requests that wait for it.
#[derive(Debug)]
pub struct Reads {
    reader: Reader,
    /// The requests that wait for the current read.
    reading: Vec<ReloadOrigin>,
    /// The requests since the current read began.
    next: Vec<ReloadOrigin>,
}

impl Reads {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system provides no thread.
    pub fn start(source: ConfigSource) -> io::Result<Self> {
        let reader = reader("lb-read", source)?;
        Ok(Self { reader, reading: Vec::new(), next: Vec::new() })
    }

    /// Whether a configuration is being read, or will be.
    pub const fn is_busy(&self) -> bool {
        self.reader.is_busy() || !self.next.is_empty()
    }
}

/// Starts a thread of this name that reads configurations.
///
/// # Errors
/// If the system provides no thread.
pub fn reader(name: &'static str, source: ConfigSource) -> io::Result<Reader> {
    let read = move |ReadInput { stored, tls }| {
        let config =
            source.configuration_with(stored.as_deref()).map_err(|error| error.to_string())?;
        let tls = match tls.zip(config.cluster.as_ref()) {
            Some((tls, cluster)) => {
                tls.renewed(cluster).map_err(|why| format!("cluster: {why}"))?
            }
            None => None,
        };
        Ok(LoadedConfig { config: Arc::new(config), stored, tls })
    };
    Background::start(name, Capabilities::DAC_READ_SEARCH, read)
}

impl Publisher {
    /// Reads the configuration again and switches over to it.
    pub(super) fn reload(&mut self, origin: ReloadOrigin) {
        notify::reloading();
        self.publication.reads.next.push(origin);
    }

    pub(super) fn reload_now(&mut self, is_reset: bool) -> Reply {
        let (answerer, reply) = Reply::later();
        self.reload(ReloadOrigin::Client { answerer, is_reset });
        reply
    }

    /// Takes the configuration that was read, and begins the next read.
    pub(super) fn read(&mut self, link: &ClusterLink) -> Option<PendingChange> {
        let reads = &mut self.publication.reads;
        let read = reads.reader.take().map(|read| (read, std::mem::take(&mut reads.reading)));
        if !reads.reader.is_busy() && !reads.next.is_empty() {
            reads.reading = std::mem::take(&mut reads.next);
            let stored = link.store.as_ref().map(|store| Arc::clone(&store.newest));
            // The store has the configuration, but no certificates.
            let is_wanted =
                reads.reading.iter().any(|origin| !matches!(origin, ReloadOrigin::Store));
            let tls =
                link.node.as_ref().filter(|_| is_wanted).and_then(|node| node.sync.tls()).cloned();
            reads.reader.give(ReadInput { stored, tls });
        }
        match read? {
            (Ok(Ok(loaded)), origins) => Some(PendingChange::Configuration(loaded, origins)),
            (Ok(Err(error)) | Err(error), origins) => {
                self.refuse(origins, &error);
                None
            }
        }
    }

    /// Accepts a new configuration, which is in force but not published yet: clients are answered
    /// after that.
    pub(super) fn accept(
        &mut self,
        origins: Vec<ReloadOrigin>,
        mut changes: Vec<String>,
        [kept, undone]: [ChangeCounts; 2],
    ) {
        notify::ready();
        self.reload_count += 1;
        self.reload_failure = None;
        let services = &self.config.services;
        let backends = services.iter().map(|service| service.backends.len()).sum();
        let services = services.len();
        let change_count = changes.len();
        changes.truncate(SHOWN_MAX);
        let effect = Some(Effect { changes, change_count, kept, undone });
        let reloaded = Change::Reloaded { services, backends, effect };
        let text = one_line(&reloaded.text(""));
        for origin in origins {
            match origin {
                ReloadOrigin::Signal => tracing::info!("SIGHUP: the configuration was {text}"),
                ReloadOrigin::Client { answerer, .. } => {
                    self.publication.refresh.answer_later(answerer, json!(reloaded));
                }
                ReloadOrigin::Store => tracing::info!("the store's configuration was {text}"),
            }
        }
    }

    /// Refuses an invalid configuration. Nothing has changed.
    pub(super) fn refuse(&mut self, origins: Vec<ReloadOrigin>, error: &str) {
        notify::ready();
        self.reload_failure = Some(error.to_owned());
        for origin in origins {
            match origin {
                ReloadOrigin::Signal => tracing::error!("SIGHUP: nothing has changed: {error}"),
                ReloadOrigin::Client { answerer, .. } => answerer.send(Err(error.to_owned())),
                ReloadOrigin::Store => {
                    tracing::error!("the store's configuration: nothing has changed: {error}");
                }
            }
        }
    }
}
