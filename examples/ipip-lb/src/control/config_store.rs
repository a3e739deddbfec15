//! The configuration that all nodes share: the newest revision in the store, the revision in force
//! here, and proposals.
//!
//! Part of the [`ClusterLink`](super::cluster_link::ClusterLink). It changes only its copy of the
//! store, and returns the store's [requests](Wanted). The copy holds a revision that was in force.

use super::background::Background;
use super::reload::{LoadedConfig, ReadInput, Reader, reader};
use crate::answer::{self, StoreNode};
use crate::source::ConfigSource;
use hotloop_cluster::settings::Store;
use hotloop_cluster::store::layout::Stored;
use hotloop_cluster::store::{Pace, StoreWatch, Task, copy};
use hotloop_privileges::Capabilities;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// A request of the store to this node.
#[derive(Debug)]
pub(super) enum Wanted {
    /// Prepare the proposal.
    Prepare(LoadedConfig),
    /// Forget the proposal.
    Discard,
    /// Switch over to this revision.
    Adopt(Arc<Stored>),
}

/// The store of a running balancer.
#[derive(Debug)]
pub struct ConfigStore {
    address: String,
    /// The name of this node.
    pub(super) node: String,
    /// The watch of the store, which also exchanges the nodes' findings on backends.
    pub(super) watch: StoreWatch,
    /// The newest revision in the store, which a reload takes.
    pub(super) newest: Arc<Stored>,
    in_force: Arc<Stored>,
    /// Reads proposals.
    reader: Reader,
    /// The proposal that is being read or prepared, unless it was withdrawn.
    preparing: Option<i64>,
    /// The next proposal to read.
    unread: Option<(i64, Arc<Stored>)>,
    saver: Background<Arc<Stored>, Result<(), String>>,
    unsaved: Option<Arc<Stored>>,
    /// The reason that the last copy was not saved.
    copy_failure: Option<String>,
    /// Whether this node may announce VIPs: only once changes wait for it, or if the store was out
    /// of reach.
    pub(super) may_announce: bool,
}

impl ConfigStore {
    /// Follows a store. `stored`, which may come from the node's copy, is in force; `source` has
    /// the part of the configuration that belongs to this node alone.
    ///
    /// # Errors
    /// If the system provides no threads, or a file for access to the store is wrong.
    pub fn start(source: ConfigSource, store: &Store, stored: Stored) -> io::Result<Self> {
        let Store { access, node, copy } = store.clone();
        let name = access.address.to_string();
        let is_copy = stored.name == copy.display().to_string();
        let stored = Arc::new(stored);
        let in_force = Some(Arc::clone(&stored));
        Ok(Self {
            watch: StoreWatch::start(access, &node, in_force, Pace::default())?,
            reader: reader("lb-propose", source)?,
            preparing: None,
            unread: None,
            saver: saver(copy)?,
            address: name,
            node,
            unsaved: (!is_copy).then(|| Arc::clone(&stored)),
            newest: Arc::clone(&stored),
            in_force: stored,
            copy_failure: None,
            may_announce: false,
        })
    }

    /// Sets the revision in force.
    pub(super) fn accept(&mut self, stored: Arc<Stored>) {
        // A reload retries a copy that failed.
        let is_known =
            self.in_force.revision == stored.revision && self.in_force.text == stored.text;
        if is_known && self.copy_failure.is_none() {
            return;
        }
        tracing::info!("{}: revision {} is in force", stored.name, stored.revision);
        self.watch.has_in_force(stored.revision);
        self.in_force = Arc::clone(&stored);
        self.unsaved = Some(stored);
    }

    /// The revision that is in force.
    pub(super) fn revision(&self) -> i64 {
        self.in_force.revision
    }

    /// Whether the store has another revision.
    pub(super) fn is_pending(&self) -> bool {
        self.newest.revision != self.revision()
    }

    /// For how many seconds the store has been out of reach; `None` if it can be read.
    pub(super) fn unread_s(&self) -> Option<u64> {
        self.watch.state().failure.map(|(since, _)| since.elapsed().as_secs())
    }

    /// The state for `ctl status`.
    pub(super) fn status(&self) -> answer::Store {
        let state = self.watch.state();
        answer::Store {
            address: self.address.clone(),
            revision: self.revision(),
            newest: self.newest.revision,
            proposed: state.proposed,
            is_registered: state.is_registered,
            is_replaced: state.is_replaced,
            unread_s: state.failure.as_ref().map(|(since, _)| since.elapsed().as_secs()),
            failure: state.failure.map(|(_, why)| why),
            copy_failure: self.copy_failure.clone(),
            nodes: None,
        }
    }

    /// The state for `ctl cluster`, with the nodes in the store.
    pub(super) fn with_nodes(&self) -> answer::Store {
        let nodes = self.watch.state().nodes.into_iter().map(|(name, state)| {
            let state = state.unwrap_or_default();
            let (answer_to, refused) = state.answer.unzip();
            StoreNode { name, revision: state.in_force, answer_to, refused: refused.flatten() }
        });
        answer::Store { nodes: Some(nodes.collect()), ..self.status() }
    }

    /// The next request, if any. `is_loading` means that a configuration is on its way.
    pub(super) fn turn(&mut self, is_loading: bool) -> Option<Wanted> {
        self.follow_saver();
        // Check before taking a task: the check covers the task as well.
        let has_come = self.may_announce || self.has_come();
        let task = self.watch.take();
        self.may_announce |= has_come && task.is_none() && !is_loading;
        match task {
            Some(Task::Prepare(at, stored)) => {
                self.preparing = None;
                self.unread = Some((at, stored));
            }
            Some(Task::Discard) => {
                self.forget();
                return Some(Wanted::Discard);
            }
            Some(Task::Adopt(stored)) => {
                self.forget();
                return Some(Wanted::Adopt(stored));
            }
            None => {}
        }
        self.follow_reader()
    }

    /// Whether changes wait for this node, or the store is out of reach.
    fn has_come(&self) -> bool {
        let state = self.watch.state();
        state.is_registered || state.failure.is_some()
    }

    fn forget(&mut self) {
        (self.preparing, self.unread) = (None, None);
    }

    /// Returns the proposal that was read, and begins to read the next one.
    fn follow_reader(&mut self) -> Option<Wanted> {
        let read = self.reader.take().filter(|_| self.preparing.is_some());
        if !self.reader.is_busy()
            && let Some((at, stored)) = self.unread.take()
        {
            self.preparing = Some(at);
            self.reader.give(ReadInput { stored: Some(stored), tls: None });
        }
        match read?.and_then(|read| read) {
            Ok(loaded) => Some(Wanted::Prepare(loaded)),
            Err(why) => {
                self.answer(Err(why));
                None
            }
        }
    }

    /// Reports that the proposal is prepared, or the reason that it can't be. Ignored if the
    /// proposal was withdrawn.
    pub(super) fn answer(&mut self, prepared: Result<(), String>) {
        let Some(at) = self.preparing.take() else { return };
        match &prepared {
            Ok(()) => tracing::info!("{}: proposal {at} is prepared", self.address),
            Err(why) => tracing::error!("{}: proposal {at} is refused: {why}", self.address),
        }
        self.watch.answer(at, prepared);
    }

    /// Keeps the copy equal to the revision in force.
    fn follow_saver(&mut self) {
        if let Some(saved) = self.saver.take() {
            self.copy_failure = saved.and_then(|saved| saved).err();
            if let Some(failure) = &self.copy_failure {
                tracing::error!("{failure}; without the store, this node would not start");
            }
        }
        if !self.saver.is_busy()
            && let Some(stored) = self.unsaved.take()
        {
            self.saver.give(stored);
        }
    }
}

fn saver(copy: PathBuf) -> io::Result<Background<Arc<Stored>, Result<(), String>>> {
    Background::start("lb-save", Capabilities::empty(), move |stored: Arc<Stored>| {
        copy::save(&copy, &stored)
    })
}
