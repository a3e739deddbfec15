//! The owner of this node's links to others: its peers, and the store of its configuration.
//!
//! It may use the [`Publisher`](super::publisher::Publisher), which gets the store's changes, and
//! [`Presence`](super::presence::Presence), which withdraws VIPs during a change that peers don't
//! know. Workers' claims carry the epoch of the store's revision in force, never of a newer one.

use super::cluster::Node;
use super::config_store::ConfigStore;
use super::unprepared::UnpreparedChange;

/// The peers and the store; each may be absent.
#[derive(Debug, Default)]
pub struct ClusterLink {
    pub node: Option<Node>,
    pub store: Option<ConfigStore>,
    /// The store's change that this node did not prepare, while VIPs are withdrawn for it.
    pub unprepared: Option<UnpreparedChange>,
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

    /// Sets the epoch of workers' claims to the store's revision in force.
    pub(super) fn set_epoch(&self) {
        if let Some((node, store)) = self.node.as_ref().zip(self.store.as_ref()) {
            node.sync.set_epoch(store.revision() as u64);
        }
    }

    /// Notes that all workers use the store's revision in force.
    pub(super) fn enter_epoch(&self) {
        if let Some((node, store)) = self.node.as_ref().zip(self.store.as_ref()) {
            node.sync.enter_epoch(store.revision() as u64);
        }
    }
}
