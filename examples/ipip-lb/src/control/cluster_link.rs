//! The owner of this node's links to others: its peers, and the store of its configuration.
//!
//! It may use the [`Publisher`](super::publisher::Publisher), which gets the store's changes and the
//! reference tables.

use super::cluster::Node;
use super::config_store::{ConfigStore, Wanted};
use super::members::Members;
use super::proposal::Proposal;
use super::publisher::Publisher;
use super::reload::ReloadOrigin;

/// The peers and the store; each may be absent.
#[derive(Debug, Default)]
pub struct ClusterLink {
    pub node: Option<Node>,
    pub store: Option<ConfigStore>,
}

impl ClusterLink {
    /// The name of this node in its store; empty without a store.
    pub fn node_name(&self) -> &str {
        self.store.as_ref().map_or("", |store| &store.node)
    }

    /// Whether neither peers nor the store keep this node from announcing VIPs.
    pub fn may_announce(&self) -> bool {
        self.store.as_ref().is_none_or(|store| store.may_announce)
            && self.node.as_ref().is_none_or(|node| node.is_ready)
    }

    /// Builds the store's proposal, and switches over to its revision in force if that is new.
    pub(super) fn turn(&mut self, publisher: &mut Publisher, members: &mut Members) {
        let is_loading = publisher.publication.is_loading();
        let Some(store) = &mut self.store else { return };
        match store.turn(is_loading) {
            Some(Wanted::Prepare(loaded)) => publisher.prepare(loaded),
            Some(Wanted::Discard) => publisher.discard(),
            Some(Wanted::Adopt(stored)) => {
                let is_adopted = publisher.adopt(&stored, members, self);
                if let Some(store) = &mut self.store {
                    store.newest = stored;
                }
                if !is_adopted {
                    publisher.reload(ReloadOrigin::Store);
                }
            }
            None => {}
        }
        let prepared = match publisher.proposal() {
            Proposal::Prepared => Some(Ok(())),
            Proposal::Refused(why) => Some(Err(why.clone())),
            Proposal::None | Proposal::Waiting => None,
        };
        if let Some((store, prepared)) = self.store.as_mut().zip(prepared) {
            store.answer(prepared);
        }
    }

    /// Shows the store's revision in force to peers.
    pub(super) fn show_revision(&self) {
        if let Some((node, store)) = self.node.as_ref().zip(self.store.as_ref()) {
            node.sync.set_revision(store.revision() as u64);
        }
    }
}
