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
use crate::answer::ChangeCounts;
use crate::config::Config;
use crate::overrides::Overrides;
use crate::replace::saved_overrides::SavedOverrides;
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
    /// Whether an operator has withdrawn the VIPs.
    pub is_withdrawn: bool,
    /// Whether a withdrawal was [reset](Self::carry_over), and the VIPs aren't announced again yet.
    was_reset: bool,
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
            is_withdrawn: false,
            was_reset: false,
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

    /// Records whether an operator has withdrawn the VIPs.
    pub const fn set_withdrawn(&mut self, is_withdrawn: bool) {
        self.is_withdrawn = is_withdrawn;
        self.note_change();
    }

    /// The overrides under another configuration.
    pub(super) fn overrides_under(&self, config: &Config, is_reset: bool) -> Arc<Overrides> {
        self.with_changes(&self.carried(config, is_reset)[0])
    }

    /// Goes over to another configuration: operators' changes stay in force, unless they are
    /// `reset`, or of backends that the configuration doesn't have. Returns the numbers of the
    /// changes that stay, and of those that end.
    pub(super) fn carry_over(&mut self, config: &Config, is_reset: bool) -> [ChangeCounts; 2] {
        let changes = self.carried(config, is_reset);
        let [kept, ended] = &changes;
        self.overrides = self.with_changes(kept);
        let why = if is_reset { "it was reset" } else { "it is not in the configuration any more" };
        ended.drains.iter().for_each(|(name, _)| self.drains.cancel(name, why));
        if is_reset {
            self.unblock_all();
            self.was_reset = std::mem::take(&mut self.is_withdrawn);
        }
        changes.each_ref().map(SavedOverrides::counts)
    }

    /// Forgets weights that the configuration in force has, too.
    pub(super) fn forget_configured(&mut self, config: &Config) {
        self.overrides = self.overrides_under(config, false);
    }

    /// Whether a withdrawal was reset since the last call.
    pub const fn take_reset(&mut self) -> bool {
        std::mem::replace(&mut self.was_reset, false)
    }

    /// The operators' changes that stay under a configuration, and those that end.
    fn carried(&self, config: &Config, is_reset: bool) -> [SavedOverrides; 2] {
        let mut kept = self.set_by_operators();
        if is_reset {
            return [SavedOverrides::default(), kept];
        }
        let unknown = kept.take_unknown(config);
        [kept, unknown]
    }

    /// The health and blocks in force, with these weights and removals.
    fn with_changes(&self, changes: &SavedOverrides) -> Arc<Overrides> {
        let Overrides { down, blocked, .. } = &*self.overrides;
        let (weights, removed) = (changes.weights(), changes.removals());
        Arc::new(Overrides { down: down.clone(), blocked: blocked.clone(), weights, removed })
    }
}
