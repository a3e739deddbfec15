//! A node and its peers: the node sends its workers' exceptions to the peers, and the peers'
//! exceptions to its workers.
//!
//! [`Node`] belongs to the [`ClusterLink`]; it reads the table in use, and serves a successor too.
//! It acknowledges a peer's exceptions only after all workers have entered them.

mod metrics;

use super::cluster_link::ClusterLink;
use super::config_store::ConfigStore;
use crate::answer::{self, Among, Peer};
use crate::failure::Failure;
use hotloop_balancer::exception_mover::{ExceptionMover, Pulled};
use hotloop_balancer::exceptions::Change;
use hotloop_balancer::services::ServiceTable;
use hotloop_balancer::spec::Balancer;
use hotloop_cluster::replace::Successor;
use hotloop_cluster::settings::Cluster;
use hotloop_cluster::sync::wire::NodeState;
use hotloop_cluster::sync::{PeerState, PeerStatus, Sync, Tls, Walk};
use std::time::{Duration, Instant};

/// Maximum number of changes in a worker's journal. After more than that between two turns, peers
/// need new snapshots.
pub const JOURNAL_MAX: usize = 1 << 16;

/// Maximum number of peers' changes to enter at once.
const IMPORTS_MAX: usize = 4096;

/// How long the start waits for a peer that is away. Peers try to connect more often than that.
const AWAY_MAX: Duration = Duration::from_secs(10);

/// This node among its peers.
#[derive(Debug)]
pub struct Node {
    cluster: Cluster,
    pub(super) sync: Sync,
    /// The exceptions of the workers.
    pub(super) exceptions: ExceptionMover,
    /// Peers' changes that are not yet on their way to workers.
    imports: Vec<Change>,
    /// The snapshot that is being collected.
    walk: Option<Walk>,
    since: Instant,
    /// Whether this node has the exceptions of all peers within reach, and has had no older
    /// configuration than theirs since it started.
    pub(super) is_ready: bool,
    /// Absent peers that were already logged.
    said_away: Vec<String>,
    /// Whether it was logged that a peer has a newer configuration.
    said_behind: bool,
}

impl Node {
    /// Connects to the peers of `cluster`, for the workers of `exceptions`.
    ///
    /// # Errors
    /// As [`Sync::start`].
    pub fn start(
        cluster: &Cluster,
        balancer: &Balancer,
        exceptions: ExceptionMover,
    ) -> Result<Self, Failure> {
        Ok(Self {
            cluster: cluster.clone(),
            sync: Sync::start(cluster, balancer)?,
            exceptions,
            imports: Vec::with_capacity(IMPORTS_MAX),
            walk: None,
            since: Instant::now(),
            is_ready: false,
            said_away: Vec::new(),
            said_behind: false,
        })
    }

    /// Moves changes in both directions, as far as possible without waiting. `table` is the service
    /// table in use. A successor, if there is one, gets the same changes.
    pub fn turn(&mut self, table: &ServiceTable, mut successor: Option<&mut Successor>) {
        self.follow_walk(successor.as_deref_mut());
        self.enter(table, successor.as_deref_mut());
        let Self { sync, exceptions, walk, .. } = self;
        exceptions.turn(|pulled| {
            match (pulled, *walk) {
                (Pulled::Changes(changes), _) => {
                    sync.offer(changes);
                    successor.iter_mut().for_each(|successor| successor.offer(changes));
                }
                (Pulled::Exceptions { own, entered }, Some(walk)) => {
                    sync.give_page(walk, own, entered, false);
                }
                // Without one, its peer went away meanwhile.
                (Pulled::Exceptions { .. }, None) => {
                    successor.iter_mut().for_each(|successor| successor.take(pulled));
                }
            }
            true
        });
        let has_lost = exceptions.take_has_lost();
        if let Some(successor) = successor.filter(|_| walk.is_none()) {
            successor.end_walk(exceptions.is_walking(), has_lost);
        }
        if has_lost {
            tracing::warn!(
                "cluster: workers found more changes than control took; all peers get snapshots"
            );
            sync.resync();
        } else if !exceptions.is_walking()
            && let Some(walk) = walk.take()
        {
            sync.give_page(walk, &[], &[], true);
        }
        if !self.is_ready {
            self.follow_peers();
        }
        self.sync.say(NodeState { tables: table.digest(), is_ready: self.is_ready });
    }

    /// Begins the next walk once the previous one is over. A walk waits for room at its peer.
    fn follow_walk(&mut self, successor: Option<&mut Successor>) {
        if let Some(successor) = successor
            && (successor.is_walking() || self.walk.is_none())
        {
            successor.follow_walk(&mut self.exceptions);
            if successor.is_walking() {
                return;
            }
        }
        let room = self.walk.and_then(|walk| self.sync.has_room_for(walk));
        if room.is_none() {
            self.walk = self.sync.snapshot_wanted();
            if self.walk.is_some() {
                self.exceptions.begin_whole_walk();
            }
        }
        self.exceptions.hold_walk(room == Some(false));
    }

    /// Enters peers' changes into workers. Taking the next ones acknowledges all earlier ones, so
    /// workers must have entered those.
    fn enter(&mut self, table: &ServiceTable, successor: Option<&mut Successor>) {
        if self.imports.is_empty() && self.exceptions.has_entered_all() {
            self.sync.take_imports(&mut self.imports, IMPORTS_MAX);
        }
        let taken = self.exceptions.import(table, &self.imports);
        successor.into_iter().for_each(|successor| successor.offer(&self.imports[..taken]));
        self.imports.drain(..taken);
    }

    /// See [`Sync::renew`].
    pub(super) fn renew(&mut self, tls: Tls) {
        tracing::info!("cluster: connections to peers are made anew, by other certificates");
        self.sync.renew(tls);
    }

    /// Whether each peer has reported the configuration of this epoch or a newer one. Peers that
    /// are away count only if `waits_for_away`.
    pub(super) fn have_peers_adopted(&self, epoch: u64, waits_for_away: bool) -> bool {
        let status = self.sync.status();
        let has_adopted = |peer: &PeerStatus| peer.epoch >= epoch;
        let is_left_out = |peer: &PeerStatus| !waits_for_away && peer.state == PeerState::Away;
        status.iter().all(|peer| has_adopted(peer) || is_left_out(peer))
    }

    /// The workers that have not marked all exceptions to this service table.
    pub fn unmarked(&self, table: &ServiceTable) -> Vec<usize> {
        self.exceptions.unmarked(table).collect()
    }

    /// Logs the peers that a change was not prepared with, unless they were already logged.
    pub(super) fn say_away(&mut self, away: &[String]) {
        let is_new = |name: &&String| !self.said_away.contains(name);
        for name in away.iter().filter(is_new) {
            tracing::warn!(
                "cluster: changes go on without peer {name}, which is away: connections that come from it may \
                 break"
            );
        }
        self.said_away = away.to_vec();
    }

    /// Whether any peer enters this node's changes.
    pub fn has_peers_in_sync(&self) -> bool {
        self.sync.status().iter().any(|peer| peer.state == PeerState::InSync)
    }

    /// Whether the peers in sync have all exceptions to `table`, the table in use.
    pub fn has_handed_over(&self, table: &ServiceTable) -> bool {
        let is_behind = |peer: &PeerStatus| peer.state == PeerState::InSync && !peer.is_caught_up;
        self.exceptions.is_marked(table) && !self.sync.status().iter().any(is_behind)
    }

    fn follow_peers(&mut self) {
        if self.sync.is_behind() {
            if !std::mem::replace(&mut self.said_behind, true) {
                tracing::warn!(
                    "cluster: peers go by a newer configuration; this node announces no VIPs until it has that"
                );
            }
            return;
        }
        let waited = self.since.elapsed();
        let missing: Vec<_> =
            self.sync.status().into_iter().filter(|peer| !peer.has_its_snapshot).collect();
        let is_over = waited >= Duration::from_secs(self.cluster.ready_timeout_s.into());
        let is_unreachable = |peer: &PeerStatus| peer.state == PeerState::Away;
        self.is_ready = is_over || waited >= AWAY_MAX && missing.iter().all(is_unreachable);
        self.is_ready |= missing.is_empty();
        if !self.is_ready {
            return;
        }
        for PeerStatus { name, last_error, .. } in missing {
            let why = last_error.map_or_else(String::new, |why| format!(" ({why})"));
            tracing::error!(
                "cluster: peer {name} has sent no snapshot within {waited:.0?}{why}; this node goes on without \
                 what {name} knows: connections may break that come from it"
            );
        }
    }

    /// This node among its peers, for `ctl cluster`; `table` is the service table in use.
    fn among(&self, table: &ServiceTable) -> Among {
        Among {
            listen: self.sync.local_address(),
            is_ready: self.is_ready,
            certificate_not_after: self.sync.tls().and_then(Tls::not_after),
            tables: digest_text(table.digest()),
            is_marked: self.exceptions.is_marked(table),
            waiting: self.exceptions.waiting_count(),
            stale: self.exceptions.stale_count(),
            refused: self.exceptions.refused_count(),
        }
    }

    fn peers(&self) -> Vec<Peer> {
        let peer = |status: PeerStatus| Peer {
            tables: status.said.map(|said| digest_text(said.tables)),
            is_ready: status.said.map(|said| said.is_ready),
            status,
        };
        self.sync.status().into_iter().map(peer).collect()
    }
}

fn digest_text(digest: u64) -> String {
    format!("{digest:016x}")
}

impl ClusterLink {
    /// The answer of `ctl cluster`.
    pub(super) fn cluster(&self, table: &ServiceTable) -> Result<answer::Cluster, String> {
        let name = match (&self.node, &self.store) {
            (Some(node), _) => &node.cluster.node,
            (None, Some(store)) => &store.node,
            (None, None) => {
                let problem = "this balancer has neither peers nor a store; its configuration has no \
                               section [cluster]";
                return Err(problem.to_owned());
            }
        };
        Ok(answer::Cluster {
            node: name.clone(),
            among: self.node.as_ref().map(|node| node.among(table)),
            peers: self.node.as_ref().map(Node::peers).unwrap_or_default(),
            store: self.store.as_ref().map(ConfigStore::with_nodes),
        })
    }
}
