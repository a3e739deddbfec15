//! Preparing for a change that is built, the third step of a [publication](super::publication): before it is in force, peers
//! must know all connections that it would place elsewhere, so that this node may end at any moment thereafter.
//!
//! Workers mark these ([`ServiceTable::other`](hotloop_balancer::services::ServiceTable::other)), control offers them to all peers,
//! and waits until the peers have entered them. A change of this node alone goes on after a time, whatever is missing; a
//! [proposal](Proposal), which all nodes make together, does not. A node without peers has nothing to prepare.

use super::build::{AfterBuild, Built, PendingChange};
use super::cluster_link::ClusterLink;
use super::members::Members;
use super::publication::Stage;
use super::publisher::Publisher;
use crate::config::Config;
use hotloop_cluster::store::layout::Stored;
use hotloop_cluster::sync::{Entered, Watermark};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many times as long as [`prepare_ms_max`](hotloop_cluster::settings::Cluster::prepare_ms_max) a change is prepared at most. In the
/// first part workers look through their connections; the others are for peers to enter what was found.
pub const PREPARE_PARTS: u32 = 5;

/// For how long a peer that is away is taken to go by the table before the one in use.
const OLDER_MAX: Duration = Duration::from_secs(60);

/// A change that was built, and is being prepared.
#[derive(Debug)]
pub struct Preparing {
    pub built: Built,
    pub after: AfterBuild,
    progress: Progress,
    deadline: Instant,
}

/// How far a change is.
#[derive(Debug)]
enum Progress {
    /// Workers look through their connections.
    Marking,
    /// Peers enter what was offered up to then.
    Entering(Watermark),
    /// It waits for the other nodes.
    Prepared,
}

/// A configuration that all nodes prepare before any of them adopts it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Proposal {
    /// There is none.
    #[default]
    None,
    /// It is being prepared, or waits for its turn.
    Waiting,
    /// This node may adopt it.
    Prepared,
    /// This node can't adopt it, for this reason.
    Refused(String),
}

/// What a change lacks.
#[derive(Debug, Default, Eq, PartialEq)]
pub struct Missing {
    /// Workers that have not looked through all of their connections.
    pub workers: Vec<usize>,
    pub peers: Entered,
}

impl Missing {
    /// Whether there is nothing that may still come.
    const fn is_nothing(&self) -> bool {
        self.workers.is_empty() && self.peers.waiting.is_empty()
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let workers = self
            .workers
            .iter()
            .map(|it| format!("worker {it} has not looked through its connections"));
        let waiting = self
            .peers
            .waiting
            .iter()
            .map(|it| format!("peer {it} has not entered what this node knows"));
        let away = self.peers.away.iter().map(|it| format!("peer {it} is away"));
        let all: Vec<_> = workers.chain(waiting).chain(away).collect();
        f.write_str(&all.join(", "))
    }
}

impl Progress {
    /// Goes on as far as workers and peers are. Returns what is missing.
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
    /// Begins to prepare what was built: workers compare connections with its table as well from now on.
    pub(super) fn begin_preparing(&mut self, built: Built, after: AfterBuild) {
        let prepare_ms_max = self.config.cluster.as_ref().map_or(0, |it| it.prepare_ms_max);
        let bound = Duration::from_millis(prepare_ms_max.into()) * PREPARE_PARTS;
        let deadline = Instant::now() + bound;
        let preparing = Preparing { built, after, progress: Progress::Marking, deadline };
        self.publication.stage = Stage::Preparing(Box::new(preparing));
        self.publication.previous = None;
        self.publication.refresh.restart();
    }

    /// Goes on with a change that is being prepared, and returns it once that is done. Without one, ends the time in which
    /// peers may go by the table before.
    pub(super) fn go_on_preparing(&mut self, link: &mut ClusterLink) -> Option<Preparing> {
        let Stage::Preparing(preparing) = &mut self.publication.stage else {
            self.forget_previous(link);
            return None;
        };
        let is_proposal = matches!(preparing.after, AfterBuild::Proposal(_));
        if is_proposal && matches!(preparing.progress, Progress::Prepared) {
            // It waits for the other nodes.
            return None;
        }
        let mut missing = Missing::default();
        if let Some(node) = &mut link.node {
            // Before it is published, nobody compares anything with it.
            let prepared = &preparing.built.version.table;
            let is_compared =
                self.is_published && self.table.other().is_some_and(|it| Arc::ptr_eq(it, prepared));
            let unmarked =
                if is_compared { node.unmarked(&self.table) } else { node.all_workers() };
            missing = preparing.progress.go_on(
                unmarked,
                || node.watermark(),
                |watermark| node.entered(watermark),
            );
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
        let revision = link.store.as_ref().map_or(0, |it| it.revision() as u64);
        let waits_for_away = self.publication.adopted.elapsed() < OLDER_MAX;
        if node.have_peers_adopted(revision, waits_for_away) {
            self.publication.previous = None;
            self.publication.refresh.restart();
        }
    }

    /// The change that is being prepared, which ends that stage.
    fn take_preparing(&mut self) -> Option<Preparing> {
        match std::mem::replace(&mut self.publication.stage, Stage::Idle) {
            Stage::Preparing(preparing) => Some(*preparing),
            stage => {
                self.publication.stage = stage;
                None
            }
        }
    }

    /// Drops the change that is being prepared: workers compare connections with nothing else.
    fn give_up_preparing(&mut self) {
        self.publication.stage = Stage::Idle;
        self.publication.refresh.restart();
    }
}

/// What the store has all nodes prepare. Changes that are made here wait until it is adopted or discarded; health does
/// not.
impl Publisher {
    /// Begins to prepare a configuration, in place of any that was before. `stored` is the store's part of it.
    pub fn prepare(&mut self, config: Arc<Config>, stored: Option<Arc<Stored>>) {
        self.discard();
        self.publication.proposal = Proposal::Waiting;
        self.publication.queue.push_back(PendingChange::Proposal((config, stored)));
    }

    /// How far the configuration to [prepare](Self::prepare) is.
    #[must_use]
    pub const fn proposal(&self) -> &Proposal {
        &self.publication.proposal
    }

    /// Switches over to the [prepared](Proposal::Prepared) configuration if its text is what is in force in the store now,
    /// and returns whether it was: anything else needs a reload.
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

    /// Forgets the configuration to prepare: nothing has changed.
    pub fn discard(&mut self) {
        let publication = &mut self.publication;
        publication.proposal = Proposal::None;
        publication.queue.retain(|it| !matches!(it, PendingChange::Proposal(_)));
        match &mut publication.stage {
            Stage::Building(after) => {
                after.take_if(|it| matches!(it, AfterBuild::Proposal(_)));
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
        // Workers that look through all once more, as health has changed, don't set it back.
        let missing = go_on(&[0], &mut marks, entered(&[], &["lb-c"]));
        assert!(missing.is_nothing() && marks == 1);
    }
}
