//! The configuration that all nodes share: its changes are taken over from a store as they come.

use super::Operator;
use super::background::Background;
use super::publication::Asker;
use crate::config::Store;
use crate::store::layout::Stored;
use crate::store::{Pace, StoreWatch, copy};
use hotloop_ops::Capabilities;
use serde_json::{Value, json};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The store of a running balancer.
#[derive(Debug)]
pub struct Sharing {
    address: String,
    watch: StoreWatch,
    /// What the store had last: what a reload takes.
    newest: Arc<Stored>,
    /// The revision that is in force.
    revision: i64,
    saver: Background<Arc<Stored>, Result<(), String>>,
    unsaved: Option<Arc<Stored>>,
    /// Why the last copy was not saved.
    copy_failure: Option<String>,
}

impl Sharing {
    /// Follows a store of which `stored`, which may be the node's copy, is in force.
    ///
    /// # Errors
    /// The system grants no threads.
    pub fn start(store: &Store, stored: Stored) -> io::Result<Self> {
        let Store { address, copy } = store.clone();
        let (name, revision) = (address.to_string(), stored.revision);
        let is_copy = stored.name == copy.display().to_string();
        let stored = Arc::new(stored);
        Ok(Self {
            watch: StoreWatch::start(address, revision, Pace::default())?,
            saver: saver(copy)?,
            address: name,
            unsaved: (!is_copy).then(|| Arc::clone(&stored)),
            newest: stored,
            revision,
            copy_failure: None,
        })
    }

    /// What the store had last.
    pub(super) fn newest(&self) -> Arc<Stored> {
        Arc::clone(&self.newest)
    }

    /// This is in force from now on.
    pub(super) fn accept(&mut self, stored: Arc<Stored>) {
        // A copy that failed is tried again by a reload.
        if self.revision == stored.revision && self.copy_failure.is_none() {
            return;
        }
        self.revision = stored.revision;
        tracing::info!("{}: revision {} is in force", stored.name, stored.revision);
        self.unsaved = Some(stored);
    }

    /// The revision that is in force.
    pub(super) const fn revision(&self) -> i64 {
        self.revision
    }

    /// Whether the store has another revision.
    pub(super) fn is_pending(&self) -> bool {
        self.newest.revision != self.revision
    }

    /// For how many seconds the store could not be read, where it can't.
    pub(super) fn unread_s(&self) -> Option<u64> {
        self.watch.state().failure.map(|(since, _)| since.elapsed().as_secs())
    }

    pub(super) fn to_json(&self) -> Value {
        let failure = self.watch.state().failure;
        json!({
            "address": self.address,
            "revision": self.revision,
            "newest": self.newest.revision,
            "unread_s": failure.as_ref().map(|(since, _)| since.elapsed().as_secs()),
            "failure": failure.map(|(_, why)| why),
            "copy_failure": self.copy_failure,
        })
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

impl Operator {
    /// Takes over what the store has, where that is new.
    pub(super) fn follow_store(&mut self) {
        let Some(sharing) = &mut self.sharing else { return };
        sharing.follow_saver();
        if let Some(stored) = sharing.watch.take() {
            sharing.newest = stored;
            self.reload(Asker::Store);
        }
    }
}
