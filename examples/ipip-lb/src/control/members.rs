//! The owner of everything known about backends and clients apart from the configuration: health,
//! drains, blocks, and operators' changes, which it saves.
//!
//! It reads the configuration in force, and the store, over which nodes exchange their findings.
//! Health and blocks [change](Members::take_changed) the table in use. Weights and removals only
//! enter the overrides at a [switchover](super::switchover), once a table with them is built.

use super::blocks::BlockList;
use super::cluster_link::ClusterLink;
use super::drains::Drains;
use super::health::Findings;
use super::saved_changes::Keeper;
use crate::config::Config;
use crate::overrides::Overrides;
use hotloop_health::{HealthChange, Probed, Probes, Room, State};
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
    /// Clients that wait for `ctl backends`, and the states of their probes.
    pub backends_asked: Vec<(Receiver<Vec<State>>, Answerer)>,
    pub changes: Receiver<HealthChange>,
    pub findings: Findings,
    pub keeper: Option<Keeper>,
    /// Whether health or blocks have changed since the table was last refreshed.
    pub is_changed: bool,
}

impl Members {
    /// The owner at the start. `changes` delivers the findings of `probes`.
    pub fn new(probes: Probes, changes: Receiver<HealthChange>) -> Self {
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

    /// Takes the findings of probes and other nodes, and ends blocks.
    pub fn turn(&mut self, config: &Config, link: &ClusterLink) {
        self.follow_health(config, link);
        self.end_blocks();
    }

    /// Whether health or blocks have changed since the last call.
    pub const fn take_changed(&mut self) -> bool {
        std::mem::replace(&mut self.is_changed, false)
    }

    /// Sets the backends to probe, and logs a warning if there is no room for all of them.
    pub fn probe(&mut self, probed: Vec<Probed>) -> Room {
        let room = self.probes.set(probed);
        if !room.is_enough() {
            tracing::warn!("health: {room}");
        }
        room
    }

    /// The health and blocks in force, which outlast a configuration, with the weights and removals
    /// of another version.
    pub(super) fn lasting_with(&self, other: &Overrides) -> Arc<Overrides> {
        let (down, blocked) = (self.overrides.down.clone(), self.overrides.blocked.clone());
        let (weights, removed) = (other.weights.clone(), other.removed.clone());
        Arc::new(Overrides { down, blocked, weights, removed })
    }
}
