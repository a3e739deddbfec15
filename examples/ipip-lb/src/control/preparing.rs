//! A change that is not in force yet: first, peers are to know all connections that it would place elsewhere.
//!
//! Workers mark these ([`ServiceTable::other`](hotloop_balancer::services::ServiceTable::other)), control offers them to all peers, and
//! once all has been entered there, this node may go over to the change and end at any moment thereafter. A change of this
//! node's alone goes on after a time, whatever is missing; one that all nodes make together does not.

use super::Operator;
use super::publication::{Aside, Building, Built};
use crate::config::Config;
use hotloop_balancer::services::Builder;
use hotloop_cluster::store::layout::Stored;
use hotloop_cluster::sync::{Entered, Watermark};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many times as long as [`prepare_ms_max`](crate::config::Cluster::prepare_ms_max) a change is prepared at most. In the
/// first part workers look through their connections; the others are for peers to enter what was found.
pub const PREPARE_PARTS: u32 = 5;

/// For how long a peer that is away is taken to go by the table before the one in use.
const OLDER_MAX: Duration = Duration::from_secs(60);

/// A change that was built, and is being prepared.
#[derive(Debug)]
pub struct Preparing {
    pub building: Building,
    pub rest: Rest,
    progress: Progress,
    deadline: Instant,
}

/// What of a [`Built`] table is of use once it is in force.
#[derive(Debug)]
pub struct Rest {
    pub builder: Arc<Builder>,
    pub removed: Vec<hotloop_balancer::services::RemovedTarget>,
    pub probed: Vec<crate::health::Probed>,
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

impl Operator {
    /// Takes over what was built: at once where there are no peers, else once that is prepared.
    pub(super) fn built(&mut self, built: Built, building: Building) {
        let Built { config, overrides, table, builder, removed, probed } = built;
        let rest = Rest { builder, removed, probed };
        let aside = Aside { config, overrides, table };
        let prepare_ms_max = self.config.cluster.as_ref().map_or(0, |it| it.prepare_ms_max);
        let bound = Duration::from_millis(prepare_ms_max.into()) * PREPARE_PARTS;
        let progress = if self.node.is_some() { Progress::Marking } else { Progress::Prepared };
        let is_alone = matches!(progress, Progress::Prepared);
        let preparing = Preparing { building, rest, progress, deadline: Instant::now() + bound };
        self.publication.preparing = Some(preparing);
        self.set_aside(Some(aside));
        if is_alone {
            self.end_preparing();
        }
    }

    /// Has workers compare connections with this table as well from now on, or with none.
    fn set_aside(&mut self, aside: Option<Aside>) {
        self.publication.other = aside;
        self.publication.is_stale = true;
        self.publication.is_outdated = self.publication.refresher.is_busy();
    }

    /// Goes on with a change that is being prepared, and ends the time in which peers may go by the table before.
    pub(super) fn follow_preparing(&mut self) {
        let Some(node) = &mut self.node else { return };
        let Some(preparing) = &mut self.publication.preparing else {
            let revision = self.sharing.as_ref().map_or(0, |it| it.revision() as u64);
            let waits_for_away = self.publication.adopted.elapsed() < OLDER_MAX;
            if self.publication.other.is_some() && node.have_peers_adopted(revision, waits_for_away)
            {
                self.set_aside(None);
            }
            return;
        };
        // Before it is published, nobody compares anything with it.
        let other = self.publication.other.as_ref().map(|it| &it.table);
        let is_compared = self.is_published
            && self.table.other().zip(other).is_some_and(|(it, other)| Arc::ptr_eq(it, other));
        let unmarked = if is_compared { node.unmarked(&self.table) } else { node.all_workers() };
        let missing = preparing.progress.go_on(
            unmarked,
            || node.watermark(),
            |watermark| node.entered(watermark),
        );
        let is_over = preparing.deadline <= Instant::now();
        match preparing.building {
            Building::Proposal(_) if matches!(preparing.progress, Progress::Prepared) => {}
            Building::Proposal(_) if is_over || !missing.peers.away.is_empty() => {
                self.refuse_proposal(missing.to_string());
            }
            _ if missing.is_nothing() => {
                node.say_away(&missing.peers.away);
                self.end_preparing();
            }
            Building::Proposal(_) => {}
            _ if is_over => {
                tracing::warn!(
                    "cluster: a change goes on unprepared: {missing}; should this node end now, connections \
                     may break"
                );
                self.end_preparing();
            }
            _ => {}
        }
    }

    /// A change is prepared: it is in force from now on, but for one that the other nodes have to agree to.
    fn end_preparing(&mut self) {
        match &mut self.publication.preparing {
            Some(Preparing { building: Building::Proposal(_), progress, .. }) => {
                *progress = Progress::Prepared;
                self.publication.proposal = Proposal::Prepared;
            }
            _ => self.go_over(),
        }
    }

    fn refuse_proposal(&mut self, why: String) {
        self.publication.preparing = None;
        self.set_aside(None);
        self.publication.proposal = Proposal::Refused(why);
    }
}

/// What the store has all nodes prepare. Changes that are made here wait until it is adopted or discarded; health does
/// not.
impl Operator {
    /// Begins to prepare a configuration, in place of any that was before. `stored` is what of it is the store's.
    pub fn prepare(&mut self, config: Arc<Config>, stored: Option<Arc<Stored>>) {
        self.discard();
        self.publication.proposal = Proposal::Waiting;
        self.publication.propose((config, stored));
    }

    /// How far what is to be [prepared](Self::prepare) is.
    #[must_use]
    pub const fn proposal(&self) -> &Proposal {
        &self.publication.proposal
    }

    /// Goes over to what is [prepared](Proposal::Prepared), by what is in force in the store now. Returns whether it was
    /// that: anything else needs a reload.
    pub fn adopt(&mut self, stored: &Arc<Stored>) -> bool {
        let is_prepared = self.publication.proposal == Proposal::Prepared;
        match &mut self.publication.preparing {
            Some(Preparing { building: Building::Proposal(Some(proposed)), .. })
                if is_prepared && proposed.text == stored.text =>
            {
                *proposed = Arc::clone(stored);
                self.publication.proposal = Proposal::None;
                self.go_over();
                true
            }
            _ => {
                self.discard();
                false
            }
        }
    }

    /// Forgets what is to be prepared: all is as it was.
    pub fn discard(&mut self) {
        self.publication.proposal = Proposal::None;
        self.publication.forget_proposed();
        let preparing = &mut self.publication.preparing;
        if preparing.take_if(|it| matches!(it.building, Building::Proposal(_))).is_some() {
            self.set_aside(None);
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
