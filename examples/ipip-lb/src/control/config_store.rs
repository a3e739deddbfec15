//! The configuration that all nodes share: which revision the store has, which is in force here, and what is proposed.
//!
//! Part of the [`ClusterLink`](super::cluster_link::ClusterLink); it changes nothing but its copy of the store, and returns
//! what the store [wants](Wanted). The copy has a revision that was in force.

use super::background::Background;
use super::reload::{Read, Reader, reader};
use crate::config::Store;
use crate::source::ConfigSource;
use crate::store::copy;
use hotloop_cluster::store::layout::Stored;
use hotloop_cluster::store::{Pace, StoreWatch, Task};
use hotloop_privileges::Capabilities;
use serde_json::{Value, json};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// What the store has this node do.
#[derive(Debug)]
pub(super) enum Wanted {
    /// To prepare what is proposed.
    Prepare(Read),
    /// To forget what was to be prepared.
    Discard,
    /// To go over to this, which may have been prepared.
    Adopt { stored: Arc<Stored>, is_prepared: bool },
}

/// The store of a running balancer.
#[derive(Debug)]
pub struct ConfigStore {
    address: String,
    node: String,
    watch: StoreWatch,
    /// What the store had last: what a reload takes.
    newest: Arc<Stored>,
    in_force: Arc<Stored>,
    /// Of what is proposed.
    reader: Reader,
    /// The proposal that is being read or prepared, unless nobody wants to know any more.
    preparing: Option<i64>,
    /// The proposal that is read next.
    unread: Option<(i64, Arc<Stored>)>,
    saver: Background<Arc<Stored>, Result<(), String>>,
    unsaved: Option<Arc<Stored>>,
    /// Why the last copy was not saved.
    copy_failure: Option<String>,
    /// Whether changes have come to wait for this node, or the store could not be reached.
    may_announce: bool,
}

impl ConfigStore {
    /// Follows a store of which `stored`, which may be the node's copy, is in force. `source` says what
    /// belongs to this node alone.
    ///
    /// # Errors
    /// The system grants no threads.
    pub fn start(source: ConfigSource, store: &Store, stored: Stored) -> io::Result<Self> {
        let Store { address, node, copy } = store.clone();
        let name = address.to_string();
        let is_copy = stored.name == copy.display().to_string();
        let stored = Arc::new(stored);
        let in_force = Some(Arc::clone(&stored));
        Ok(Self {
            watch: StoreWatch::start(address, &node, in_force, Pace::default())?,
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

    /// What the store had last.
    pub(super) fn newest(&self) -> Arc<Stored> {
        Arc::clone(&self.newest)
    }

    /// This is what a reload takes from now on.
    pub(super) fn take(&mut self, stored: Arc<Stored>) {
        self.newest = stored;
    }

    /// This is in force from now on.
    pub(super) fn accept(&mut self, stored: Arc<Stored>) {
        // A copy that failed is tried again by a reload.
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

    /// For how many seconds the store could not be read, where it can't.
    pub(super) fn unread_s(&self) -> Option<u64> {
        self.watch.state().failure.map(|(since, _)| since.elapsed().as_secs())
    }

    /// Whether this node may announce VIPs: not before changes wait for it, unless the store can't be
    /// reached.
    pub(super) const fn may_announce(&self) -> bool {
        self.may_announce
    }

    /// The name of this node.
    pub(super) fn node(&self) -> &str {
        &self.node
    }

    /// What nodes find of backends goes by it, too.
    pub(super) const fn watch(&self) -> &StoreWatch {
        &self.watch
    }

    pub(super) fn to_json(&self) -> Value {
        let state = self.watch.state();
        json!({
            "address": self.address,
            "revision": self.revision(),
            "newest": self.newest.revision,
            "proposed": state.proposed,
            "is_registered": state.is_registered,
            "is_replaced": state.is_replaced,
            "unread_s": state.failure.as_ref().map(|(since, _)| since.elapsed().as_secs()),
            "failure": state.failure.map(|(_, why)| why),
            "copy_failure": self.copy_failure,
        })
    }

    /// The nodes that the store knows.
    pub(super) fn nodes_json(&self) -> Value {
        let row = |(name, state): (String, Option<hotloop_cluster::store::phases::NodeState>)| {
            let state = state.unwrap_or_default();
            let (answer_to, refused) = state.answer.unzip();
            json!({
                "name": name,
                "revision": state.in_force,
                "answer_to": answer_to,
                "refused": refused.flatten(),
            })
        };
        self.watch.state().nodes.into_iter().map(row).collect()
    }

    /// What is to be done, where there is something. A configuration is on its way where `is_loading`.
    pub(super) fn turn(&mut self, is_loading: bool) -> Option<Wanted> {
        self.follow_saver();
        // In this order: what it has come with is among the tasks.
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
            Some(Task::Adopt { stored, is_prepared }) => {
                self.forget();
                return Some(Wanted::Adopt { stored, is_prepared });
            }
            None => {}
        }
        self.follow_reader()
    }

    /// Whether changes wait for this node, or the store can't be reached.
    fn has_come(&self) -> bool {
        let state = self.watch.state();
        state.is_registered || state.failure.is_some()
    }

    fn forget(&mut self) {
        (self.preparing, self.unread) = (None, None);
    }

    /// Returns what was read of a proposal, and begins with what is next.
    fn follow_reader(&mut self) -> Option<Wanted> {
        let read = self.reader.take().filter(|_| self.preparing.is_some());
        if !self.reader.is_busy()
            && let Some((at, stored)) = self.unread.take()
        {
            self.preparing = Some(at);
            self.reader.give((Some(stored), None));
        }
        match read?.and_then(|read| read) {
            Ok((read, _)) => Some(Wanted::Prepare(read)),
            Err(why) => {
                self.answer(Err(why));
                None
            }
        }
    }

    /// The proposal is prepared, or why it can't be. Nothing comes of it where that is no longer proposed.
    pub(super) fn answer(&mut self, prepared: Result<(), String>) {
        let Some(at) = self.preparing.take() else { return };
        match &prepared {
            Ok(()) => tracing::info!("{}: proposal {at} is prepared", self.address),
            Err(why) => tracing::error!("{}: proposal {at} is refused: {why}", self.address),
        }
        self.watch.answer(at, prepared);
    }

    /// Keeps the copy what is in force.
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
