//! The owner of what is known of backends and clients apart from the configuration: health, drains, blocks, and what else
//! operators have changed, which it saves.
//!
//! It knows the configuration in force and the store, over which nodes exchange what their probes find, and changes neither.
//! Health and blocks [change](Members::take_changed) the table in use; weights and removals are entered by the
//! [switchover](super::switchover) alone, once a table with them is built.

use super::blocks::BlockList;
use super::cluster_link::ClusterLink;
use super::drains::Drains;
use super::health::Findings;
use super::saved_changes::Keeper;
use crate::config::Config;
use crate::health::{Change, Probed, Probes, Room, State};
use crate::overrides::Overrides;
use hotloop_ops::Answerer;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

/// Backends and clients, apart from the configuration.
#[derive(Debug)]
pub struct Members {
    pub overrides: Arc<Overrides>,
    pub blocks: BlockList,
    pub drains: Drains,
    pub probes: Probes,
    /// Clients that wait for the backends, and for the states of their probes.
    pub backends_asked: Vec<(Receiver<Vec<State>>, Answerer)>,
    pub changes: Receiver<Change>,
    pub findings: Findings,
    pub keeper: Option<Keeper>,
    /// Whether health or blocks have changed since the table was last refreshed.
    pub is_changed: bool,
}

impl Members {
    /// Nothing is known yet, but for what `probes` find, which come by `changes`.
    pub fn new(probes: Probes, changes: Receiver<Change>) -> Self {
        Self {
            overrides: Arc::default(),
            blocks: BlockList::default(),
            drains: Drains::default(),
            probes,
            backends_asked: Vec::new(),
            changes,
            findings: Findings::default(),
            keeper: None,
            is_changed: false,
        }
    }

    /// Takes in what probes and other nodes have found, and ends blocks whose time is over.
    pub fn turn(&mut self, config: &Config, link: &ClusterLink) {
        self.follow_health(config, link);
        self.end_blocks();
    }

    /// Whether health or blocks have changed since this was asked last.
    pub const fn take_changed(&mut self) -> bool {
        std::mem::replace(&mut self.is_changed, false)
    }

    /// Probes these from now on, and warns if there is no room for all.
    pub fn probe(&mut self, probed: Vec<Probed>) -> Room {
        let room = self.probes.set(probed);
        if !room.is_enough() {
            tracing::warn!("health: {room}");
        }
        room
    }

    /// The overrides of health and blocks in force, which outlast a configuration, with the weights and removals of another
    /// version.
    pub(super) fn lasting_with(&self, other: &Overrides) -> Arc<Overrides> {
        let (down, blocked) = (self.overrides.down.clone(), self.overrides.blocked.clone());
        let (weights, removed) = (other.weights.clone(), other.removed.clone());
        Arc::new(Overrides { down, blocked, weights, removed })
    }
}
