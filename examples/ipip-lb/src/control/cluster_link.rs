//! The owner of what this node has to do with others: its peers, and the store that its configuration comes from.
//!
//! It may use the [`Publisher`](super::publisher::Publisher), to which it hands the store's changes, and
//! [`Presence`](super::presence::Presence), which withdraws VIPs while a change is in force that peers don't know. Claims of
//! workers belong to the store's revision in force, never to a newer one.

use super::cluster::Node;
use super::config_store::ConfigStore;
use super::unprepared::UnpreparedChange;

/// Peers and store, as far as there are any.
#[derive(Debug, Default)]
pub struct ClusterLink {
    pub node: Option<Node>,
    pub store: Option<ConfigStore>,
    /// A change of the store that was not prepared, if VIPs are withdrawn for it.
    pub unprepared: Option<UnpreparedChange>,
}

impl ClusterLink {
    /// The name of this node in its store; empty if there is none.
    pub fn node_name(&self) -> &str {
        self.store.as_ref().map_or("", ConfigStore::node)
    }

    /// Whether neither peers nor the store keep this node from announcing VIPs.
    pub fn may_announce(&self) -> bool {
        self.store.as_ref().is_none_or(ConfigStore::may_announce)
            && self.node.as_ref().is_none_or(Node::is_ready)
    }

    /// Claims of workers follow from the store's revision in force from now on.
    pub(super) fn set_epoch(&self) {
        if let Some((node, store)) = self.node.as_ref().zip(self.store.as_ref()) {
            node.set_epoch(store.revision() as u64);
        }
    }

    /// All workers go by the store's revision that is in force.
    pub(super) fn enter_epoch(&self) {
        if let Some((node, store)) = self.node.as_ref().zip(self.store.as_ref()) {
            node.enter_epoch(store.revision() as u64);
        }
    }
}
