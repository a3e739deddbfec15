//! Preparing for a change that is built: the third step of a [publication](super::publication).
//! Before the change is in force, peers must know all connections that it would place elsewhere, so
//! that this node may end at any moment afterwards.
//!
//! Workers mark these connections
//! ([`ServiceTable::other`](hotloop_balancer::services::ServiceTable::other)), control offers them
//! to all peers, and waits until the peers have entered them. A change on this node alone continues
//! after a deadline even if something is missing. A [proposal](Proposal), which all nodes make
//! together, does not. A node without peers has nothing to prepare.

use super::build::{AfterBuild, Built, PendingChange};
use super::cluster_link::ClusterLink;
use super::members::Members;
use super::publication::Stage;
use super::publisher::Publisher;
use super::reload::LoadedConfig;
use hotloop_cluster::store::layout::Stored;
use hotloop_cluster::sync::{Entered, Watermark};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The maximum duration of a preparation, as a multiple of
/// [`prepare_ms_max`](hotloop_cluster::settings::Cluster::prepare_ms_max). In the first part
/// workers examine their connections; the others are for peers to enter the exceptions found.
pub const PREPARE_PARTS: u32 = 5;

/// How long a peer that is away is assumed to use the table before the one in use.
const OLDER_MAX: Duration = Duration::from_secs(60);

/// A built change that is being prepared.
#[derive(Debug)]
pub struct Preparing {
    pub built: Built,
    pub after: AfterBuild,
    progress: Progress,
    deadline: Instant,
}

/// The progress of a preparation.
#[derive(Debug)]
enum Progress {
    /// Workers examine their connections.
    Marking,
    /// Peers enter the exceptions up to the watermark.
    Entering(Watermark),
    /// Waits for the other nodes.
    Prepared,
}

/// A configuration that all nodes prepare before any of them adopts it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Proposal {
    /// No proposal.
    #[default]
    None,
    /// The proposal is being prepared, or is queued.
    Waiting,
    /// This node may adopt the proposal.
    Prepared,
    /// This node can't adopt the proposal, for this reason.
    Refused(String),
}

/// The workers and peers that a preparation still waits for.
#[derive(Debug, Default, Eq, PartialEq)]
pub struct Missing {
    /// Workers that have not examined all of their connections.
    pub workers: Vec<usize>,
    pub peers: Entered,
}

impl Missing {
    /// Whether nothing is missing that may still come.
    const fn is_nothing(&self) -> bool {
        self.workers.is_empty() && self.peers.waiting.is_empty()
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workers, peers: Entered { waiting, away } } = self;
        let workers = workers
            .iter()
            .map(|worker| format!("worker {worker} has not looked through its connections"));
        let waiting =
            waiting.iter().map(|peer| format!("peer {peer} has not entered what this node knows"));
        let away = away.iter().map(|peer| format!("peer {peer} is away"));
        f.write_str(&workers.chain(waiting).chain(away).collect::<Vec<_>>().join(", "))
    }
}

impl Progress {
    /// Advances as far as workers and peers permit. Returns what is missing.
    fn go_on(
        &mut self,
        unmarked: Vec<usize>,
        watermark: impl FnOnce() -> Watermark,
        entered: impl FnOnce(&Watermark) -> Entered,
    ) -> Missing {
        if matches!(self, Self::Marking) {
            if !unmarked.is_empty() {
                return Missing { workers: unmarked, ..Missing::default() };
            }
            *self = Self::Entering(watermark());
        }
        match self {
            Self::Entering(watermark) => {
                Missing { peers: entered(watermark), ..Missing::default() }
            }
            Self::Marking | Self::Prepared => Missing::default(),
        }
    }
}

impl Publisher {
    /// Begins to prepare a built change: workers compare connections with its table from now on,
    /// too.
    pub(super) fn begin_preparing(&mut self, built: Built, after: AfterBuild) {
        let prepare_ms_max =
            self.config.cluster.as_ref().map_or(0, |cluster| cluster.prepare_ms_max);
        let bound = Duration::from_millis(prepare_ms_max.into()) * PREPARE_PARTS;
        let deadline = Instant::now() + bound;
        let preparing = Preparing { built, after, progress: Progress::Marking, deadline };
        self.publication.stage = Stage::Preparing(Box::new(preparing));
        self.publication.previous = None;
        self.publication.refresh.restart();
    }

    /// Continues the preparation under way, and returns the change once it is prepared. Otherwise,
    /// ends the time in which peers may use the previous table.
    pub(super) fn go_on_preparing(&mut self, link: &mut ClusterLink) -> Option<Preparing> {
        let Stage::Preparing(preparing) = &mut self.publication.stage else {
            self.forget_previous(link);
            return None;
        };
        let is_proposal = matches!(preparing.after, AfterBuild::Proposal(_));
        if is_proposal && matches!(preparing.progress, Progress::Prepared) {
            // Wait for the other nodes.
            return None;
        }
        let mut missing = Missing::default();
        if let Some(node) = &mut link.node {
            // Workers compare nothing with a table before it is published.
            let prepared = &preparing.built.version.table;
            let is_compared = self.is_published
                && self.table.other().is_some_and(|table| Arc::ptr_eq(table, prepared));
            let unmarked = match is_compared {
                true => node.unmarked(&self.table),
                false => (0..node.exceptions.worker_count()).collect(),
            };
            let (watermark, entered) = (|| node.sync.watermark(), |at: &_| node.sync.entered(at));
            missing = preparing.progress.go_on(unmarked, watermark, entered);
        }
        let is_over = link.node.is_some() && preparing.deadline <= Instant::now();
        if is_proposal && (is_over || !missing.peers.away.is_empty()) {
            self.publication.proposal = Proposal::Refused(missing.to_string());
            self.give_up_preparing();
            return None;
        }
        if missing.is_nothing() {
            if let Some(node) = &mut link.node {
                node.say_away(&missing.peers.away);
            }
        } else if is_over {
            tracing::warn!(
                "cluster: a change goes on unprepared: {missing}; should this node end now, connections \
                 may break"
            );
        } else {
            return None;
        }
        if is_proposal {
            preparing.progress = Progress::Prepared;
            self.publication.proposal = Proposal::Prepared;
            return None;
        }
        self.take_preparing()
    }

    fn forget_previous(&mut self, link: &ClusterLink) {
        let (Some(node), Some(_)) = (&link.node, &self.publication.previous) else { return };
        let revision = link.store.as_ref().map_or(0, |store| store.revision() as u64);
        let waits_for_away = self.publication.adopted.elapsed() < OLDER_MAX;
        if node.have_peers_adopted(revision, waits_for_away) {
            self.publication.previous = None;
            self.publication.refresh.restart();
        }
    }

    /// Takes the change that is being prepared, which ends that stage.
    fn take_preparing(&mut self) -> Option<Preparing> {
        match std::mem::replace(&mut self.publication.stage, Stage::Idle) {
            Stage::Preparing(preparing) => Some(*preparing),
            stage => {
                self.publication.stage = stage;
                None
            }
        }
    }

    /// Drops the change that is being prepared. Workers compare connections with no other table
    /// then.
    fn give_up_preparing(&mut self) {
        self.publication.stage = Stage::Idle;
        self.publication.refresh.restart();
    }
}

/// Proposals of the store. This node's own changes wait until a proposal is adopted or discarded;
/// health does not wait.
impl Publisher {
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
            && let Stage::Preparing(preparing) = &mut self.publication.stage
            && let AfterBuild::Proposal(Some(proposed)) = &mut preparing.after
            && proposed.text == stored.text
        {
            *proposed = Arc::clone(stored);
            self.publication.proposal = Proposal::None;
            self.take_preparing()
                .into_iter()
                .for_each(|prepared| self.switch_over(prepared, members, link));
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
            Stage::Preparing(preparing) if matches!(preparing.after, AfterBuild::Proposal(_)) => {
                self.give_up_preparing();
            }
            Stage::Preparing(_) | Stage::Idle => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop_cluster::sync::{Local, Peers};

    fn watermark() -> Watermark {
        let local = Local { node: "lb-a".into(), incarnation: 1, digest: [0; 16] };
        Peers::new(local, []).watermark()
    }

    fn entered(waiting: &[&str], away: &[&str]) -> Entered {
        let [waiting, away] =
            [waiting, away].map(|names| names.iter().map(|&it| it.to_owned()).collect());
        Entered { waiting, away }
    }

    #[test]
    fn peers_are_asked_once_all_workers_have_marked_and_of_what_was_offered_then() {
        let mut progress = Progress::Marking;
        let mut go_on = |unmarked: &[usize], marks: &mut u32, peers: Entered| {
            let watermark = || {
                *marks += 1;
                watermark()
            };
            progress.go_on(unmarked.to_vec(), watermark, |_| peers)
        };
        let mut marks = 0;
        let missing = go_on(&[1], &mut marks, entered(&[], &[]));
        assert_eq!(
            (missing.to_string().as_str(), marks),
            ("worker 1 has not looked through its connections", 0)
        );
        assert!(!missing.is_nothing());
        let missing = go_on(&[], &mut marks, entered(&["lb-b"], &["lb-c"]));
        assert!(!missing.is_nothing() && marks == 1);
        assert_eq!(
            missing.to_string(),
            "peer lb-b has not entered what this node knows, peer lb-c is away"
        );
        // A change of health makes workers examine everything once more, which doesn't set the
        // progress back.
        let missing = go_on(&[0], &mut marks, entered(&[], &["lb-c"]));
        assert!(missing.is_nothing() && marks == 1);
    }
}
