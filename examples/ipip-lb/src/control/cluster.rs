//! A node and its peers: the node sends its workers' exceptions to the peers, and the peers'
//! exceptions to its workers.
//!
//! [`Node`] belongs to the [`ClusterLink`]; it reads the table in use, and serves a successor too.
//! It acknowledges a peer's exceptions only after all workers have entered them.

mod metrics;

use super::cluster_link::ClusterLink;
use super::config_store::ConfigStore;
use super::elsewhere::Elsewhere;
use super::references::{References, lost_ms};
use crate::answer::{self, Among, Peer};
use crate::config::Config;
use crate::failure::Failure;
use hotloop_balancer::exception_mover::{ExceptionMover, Pulled};
use hotloop_balancer::exceptions::Change;
use hotloop_balancer::services::ServiceTable;
use hotloop_cluster::replace::Bequest;
use hotloop_cluster::settings::Cluster;
use hotloop_cluster::sync::wire::NodeState;
use hotloop_cluster::sync::{Agreement, PeerState, PeerStatus, Sync, Tls, Walk};
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
    pub(super) cluster: Cluster,
    pub(super) sync: Sync,
    /// The exceptions of the workers.
    pub(super) exceptions: ExceptionMover,
    /// Peers' changes that are not yet on their way to workers.
    imports: Vec<Change>,
    /// The snapshot that is being collected.
    walk: Option<Walk>,
    /// The serial of the set of targets, and the number of claims refused by the ones before.
    targets: (u64, u64),
    since: Instant,
    /// Whether this node has the exceptions of all peers within reach.
    pub(super) has_waited: bool,
    /// Whether it also has the reference table.
    pub(super) is_ready: bool,
    pub(super) agreement: Agreement,
    pub(super) references: References,
    pub(super) elsewhere: Elsewhere,
}

impl Node {
    /// Connects to the peers of `cluster`, for the workers of `exceptions`.
    ///
    /// # Errors
    /// As [`Sync::start`].
    pub fn start(
        cluster: &Cluster,
        config: &Config,
        exceptions: ExceptionMover,
    ) -> Result<Self, Failure> {
        let sync = Sync::start(cluster, &config.balancer)?;
        let agreement = Agreement::new(&cluster.node, sync.incarnation(), lost_ms(config));
        Ok(Self {
            cluster: cluster.clone(),
            sync,
            exceptions,
            imports: Vec::with_capacity(IMPORTS_MAX),
            walk: None,
            targets: (ServiceTable::NO_TARGETS, 0),
            since: Instant::now(),
            has_waited: false,
            is_ready: false,
            agreement,
            references: References::new(cluster.peers.len()),
            elsewhere: Elsewhere::default(),
        })
    }

    /// Moves changes in both directions, as far as possible without waiting. `table` is the service
    /// table in use. A successor, if there is one, gets the same changes.
    pub fn turn(&mut self, table: &ServiceTable, mut successor: Option<&mut Bequest>) {
        self.follow_targets(table);
        self.follow_walk(successor.as_deref_mut());
        self.enter(table, successor.as_deref_mut());
        let Self { sync, exceptions, walk, .. } = self;
        exceptions.turn(|pulled| {
            match (pulled, *walk) {
                (Pulled::Changes(claims), _) => {
                    sync.offer(claims);
                    successor.iter_mut().for_each(|successor| successor.offer(claims));
                }
                (Pulled::Exceptions(claims), Some(walk)) => sync.give_page(walk, claims, false),
                // Without one, its peer went away meanwhile.
                (Pulled::Exceptions(_), None) => {
                    successor.iter_mut().for_each(|successor| successor.take(pulled));
                }
            }
            true
        });
        let has_lost = exceptions.take_has_lost();
        if let Some(successor) = successor {
            // A walk for a peer is not for the successor.
            successor.end_walk(exceptions.is_walking() || walk.is_some(), has_lost);
        }
        if has_lost {
            tracing::warn!(
                "cluster: workers found more changes than control took; all peers get snapshots"
            );
            sync.resync();
        } else if !exceptions.is_walking()
            && let Some(walk) = walk.take()
        {
            sync.give_page(walk, &[], true);
        }
        if !self.is_ready {
            self.follow_peers();
        }
        let standing = self.agreement.standing(self.now_ms());
        self.exceptions.hear_clock(self.sync.clock());
        let clock = self.exceptions.clock();
        let (tables, is_ready) = (table.digest(), self.is_ready);
        self.sync.say(NodeState { tables, is_ready, clock, standing });
    }

    /// Gets claims again that were refused, once there are other targets: peers may have had a new backend
    /// before this node.
    fn follow_targets(&mut self, table: &ServiceTable) {
        let (serial, refused_count) = (table.targets_serial(), self.exceptions.refused_count());
        if serial != self.targets.0 {
            if refused_count != self.targets.1 {
                tracing::info!(
                    "cluster: backends have changed: peers send the connections again that were refused here"
                );
                self.sync.rejoin();
            }
            self.targets = (serial, refused_count);
        }
    }

    /// Begins the next walk once the previous one is over. A walk waits for room at its peer.
    fn follow_walk(&mut self, successor: Option<&mut Bequest>) {
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
                self.exceptions.begin_walk();
            }
        }
        self.exceptions.hold_walk(room == Some(false));
    }

    /// Enters peers' changes into workers. Taking the next ones acknowledges all earlier ones, so
    /// workers must have entered those.
    fn enter(&mut self, table: &ServiceTable, mut successor: Option<&mut Bequest>) {
        if self.imports.is_empty() && self.exceptions.has_entered_all() {
            self.sync.take_imports(&mut self.imports, IMPORTS_MAX);
        }
        let taken = self.exceptions.import(table, &self.imports);
        for change in self.imports.drain(..taken) {
            if let (Change::Claim(record), Some(successor)) = (change, successor.as_deref_mut()) {
                successor.offer(&[record]);
            }
        }
    }

    /// The time since this node started, in milliseconds.
    pub(super) fn now_ms(&self) -> u64 {
        self.since.elapsed().as_millis() as u64
    }

    /// See [`Sync::renew`].
    pub(super) fn renew(&mut self, tls: Tls) {
        tracing::info!("cluster: connections to peers are made anew, by other certificates");
        self.sync.renew(tls);
    }

    /// Whether workers have found all exceptions to the reference tables of this service table.
    #[must_use]
    pub fn is_marked(&self, table: &ServiceTable) -> bool {
        self.exceptions.is_marked(table)
    }

    /// Whether a peer is in sync, and all peers in sync have entered all exceptions to the reference
    /// tables of this service table.
    #[must_use]
    pub fn has_handed_over(&self, table: &ServiceTable) -> bool {
        let status = self.sync.status();
        let mut in_sync = status.iter().filter(|peer| peer.state == PeerState::InSync).peekable();
        self.is_marked(table) && in_sync.peek().is_some() && in_sync.all(|peer| peer.is_caught_up)
    }

    /// Whether the node may announce VIPs: it has a reference table, and has waited for its peers'
    /// snapshots.
    fn follow_peers(&mut self) {
        self.has_waited |= self.has_snapshots();
        self.is_ready = self.has_waited && !self.agreement.tables().is_empty();
    }

    /// Whether this node has the snapshots of all peers, or waits no longer.
    fn has_snapshots(&self) -> bool {
        let waited = self.since.elapsed();
        let missing: Vec<_> =
            self.sync.status().into_iter().filter(|peer| !peer.has_its_snapshot).collect();
        let is_over = waited >= Duration::from_secs(self.cluster.ready_timeout_s.into());
        let is_unreachable = |peer: &PeerStatus| peer.state == PeerState::Away;
        if !(is_over || waited >= AWAY_MAX && missing.iter().all(is_unreachable)) {
            return missing.is_empty();
        }
        for PeerStatus { name, last_error, .. } in missing {
            let why = last_error.map_or_else(String::new, |why| format!(" ({why})"));
            tracing::error!(
                "cluster: peer {name} has sent no snapshot within {waited:.0?}{why}; this node goes on without \
                 what {name} knows: connections may break that come from it"
            );
        }
        true
    }

    /// This node among its peers, for `ctl cluster`; `table` is the service table in use.
    fn among(&self, table: &ServiceTable) -> Among {
        Among {
            listen: self.sync.local_address(),
            is_ready: self.is_ready,
            certificate_not_after: self.sync.tls().and_then(Tls::not_after),
            tables: digest_text(table.digest()),
            references: self.agreement.tables().iter().map(|table| table.number).collect(),
            is_waiting: self.agreement.standing(self.now_ms()).member.is_waiting,
            is_marked: self.is_marked(table),
            waiting: self.exceptions.waiting_count(),
            stale: self.exceptions.stale_count(),
            refused: self.exceptions.refused_count(),
        }
    }

    fn peers(&self) -> Vec<Peer> {
        let peer = |status: PeerStatus| Peer {
            tables: status.said.map(|said| digest_text(said.tables)),
            is_ready: status.said.map(|said| said.is_ready),
            reference: status
                .said
                .and_then(|said| said.standing.in_use.map(|_| said.standing.member.phase.in_use())),
            is_waiting: status.said.map(|said| said.standing.member.is_waiting),
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
