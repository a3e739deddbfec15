//! Proposals of the store: a configuration that all nodes build before any of them adopts it.
//!
//! Part of [`Publisher`]; a proposal is the change under way from its build until the store puts it in
//! force or it ends. This node's own changes wait until then; health does not.

use super::build::{AfterBuild, Built, PendingChange};
use super::cluster_link::ClusterLink;
use super::members::Members;
use super::publication::Stage;
use super::publisher::Publisher;
use super::reload::{LoadedConfig, ReloadOrigin};
use hotloop_cluster::store::layout::Stored;
use std::sync::Arc;

/// The state of a proposal.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Proposal {
    /// No proposal.
    #[default]
    None,
    /// The proposal is being built, or is queued.
    Waiting,
    /// This node may adopt the proposal.
    Prepared,
    /// This node can't adopt the proposal, for this reason.
    Refused(String),
}

impl Publisher {
    /// Takes a built change further: a proposal waits for the other nodes, any other change is in force.
    pub(super) fn go_on_with(
        &mut self,
        (built, after): (Built, AfterBuild),
        members: &mut Members,
        link: &mut ClusterLink,
    ) {
        match after {
            AfterBuild::Proposal(stored) => {
                self.publication.stage = Stage::Proposed(Box::new(built), stored);
                self.publication.proposal = Proposal::Prepared;
            }
            after => self.switch_over(built, after, members, link),
        }
    }

    /// Begins to prepare a configuration, in place of an earlier one.
    pub fn prepare(&mut self, loaded: LoadedConfig) {
        self.discard();
        self.publication.proposal = Proposal::Waiting;
        self.publication.queue.push_back(PendingChange::Proposal(loaded));
    }

    /// The state of the configuration to [prepare](Self::prepare).
    #[must_use]
    pub const fn proposal(&self) -> &Proposal {
        &self.publication.proposal
    }

    /// Switches over to the [prepared](Proposal::Prepared) configuration if the store now has its
    /// text in force, and returns whether that was so. Anything else needs a reload.
    pub fn adopt(
        &mut self,
        stored: &Arc<Stored>,
        members: &mut Members,
        link: &mut ClusterLink,
    ) -> bool {
        if self.publication.proposal == Proposal::Prepared
            && let Stage::Proposed(_, Some(proposed)) = &self.publication.stage
            && proposed.text == stored.text
            && let Stage::Proposed(built, _) =
                std::mem::replace(&mut self.publication.stage, Stage::Idle)
        {
            self.publication.proposal = Proposal::None;
            let after = AfterBuild::Configuration(
                Some(Arc::clone(stored)),
                None,
                vec![ReloadOrigin::Store],
            );
            self.switch_over(*built, after, members, link);
            return true;
        }
        self.discard();
        false
    }

    /// Forgets the configuration to prepare. Nothing has changed.
    pub fn discard(&mut self) {
        let publication = &mut self.publication;
        publication.proposal = Proposal::None;
        publication.queue.retain(|change| !matches!(change, PendingChange::Proposal(_)));
        match &mut publication.stage {
            Stage::Building(after) => {
                after.take_if(|after| matches!(after, AfterBuild::Proposal(_)));
            }
            Stage::Proposed(..) => publication.stage = Stage::Idle,
            Stage::Idle => {}
        }
    }
}
