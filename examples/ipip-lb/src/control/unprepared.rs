//! Switching over to the store's revision in force: the turn of the [`ClusterLink`].
//!
//! A revision that is prepared here comes into force at once. Otherwise, only this node knows the
//! backends of some connections: a node that announces VIPs withdraws them first, and announces
//! them again once its peers know.

use super::cluster::Node;
use super::cluster_link::ClusterLink;
use super::config_store::Wanted;
use super::members::Members;
use super::preparation::Proposal;
use super::presence::Presence;
use super::publisher::Publisher;
use super::reload::ReloadOrigin;
use hotloop_cluster::store::layout::Stored;
use hotloop_kernel::VipAnnouncer;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum time to wait for routes that can't be deleted.
const WITHDRAWAL_MAX: Duration = Duration::from_secs(5);

/// Maximum time to wait for peers that don't enter this node's changes.
const RETURN_MAX: Duration = Duration::from_secs(10);

/// An unprepared change under way.
#[derive(Debug)]
pub(super) enum UnpreparedChange {
    /// The VIPs are withdrawn; the switchover follows once routers send packets elsewhere.
    Leaving {
        stored: Arc<Stored>,
        since: Instant,
        /// When the last VIP was withdrawn.
        gone: Option<Instant>,
    },
    /// The change is in force; the VIPs are announced again once peers have this node's exceptions.
    Returning { since: Instant },
}

impl ClusterLink {
    /// Prepares the store's proposal, and switches over to its revision in force if that is new.
    pub(super) fn turn(
        &mut self,
        publisher: &mut Publisher,
        members: &mut Members,
        presence: &mut Presence,
    ) {
        let is_loading = publisher.publication.is_loading();
        let Some(store) = &mut self.store else { return };
        match store.turn(is_loading) {
            Some(Wanted::Prepare(loaded)) => publisher.prepare(loaded),
            Some(Wanted::Discard) => publisher.discard(),
            Some(Wanted::Adopt { stored, is_prepared }) => {
                self.go_by(stored, is_prepared, publisher, members, presence)
            }
            None => {}
        }
        let prepared = match publisher.proposal() {
            Proposal::Prepared => Some(Ok(())),
            Proposal::Refused(why) => Some(Err(why.clone())),
            Proposal::None | Proposal::Waiting => None,
        };
        if let Some((store, prepared)) = self.store.as_mut().zip(prepared) {
            store.answer(prepared);
        }
        self.follow_unprepared(publisher, presence);
    }

    fn go_by(
        &mut self,
        stored: Arc<Stored>,
        is_prepared: bool,
        publisher: &mut Publisher,
        members: &mut Members,
        presence: &mut Presence,
    ) {
        if let Some(UnpreparedChange::Leaving { stored: next, .. }) = &mut self.unprepared {
            *next = stored;
            return;
        }
        if publisher.adopt(&stored, members, self) {
            if let Some(store) = &mut self.store {
                store.newest = stored;
            }
            return;
        }
        let (name, revision) = (stored.name.clone(), stored.revision);
        if is_prepared || !self.node.as_ref().is_some_and(Node::has_peers_in_sync) {
            return self.take_over(stored, publisher);
        }
        let is_announced = |announcer: &VipAnnouncer| announcer.installed().next().is_some();
        match presence
            .announcer
            .as_mut()
            .filter(|announcer| self.unprepared.is_some() || is_announced(announcer))
        {
            Some(announcer) => {
                tracing::warn!(
                    "{name}: revision {revision} was not prepared here: the VIPs are withdrawn, and \
                     announced again once it is in force and peers know this node's connections"
                );
                announcer.pause(true);
                let since = Instant::now();
                self.unprepared = Some(UnpreparedChange::Leaving { stored, since, gone: None });
            }
            None => {
                tracing::warn!(
                    "{name}: revision {revision} was not prepared here: should this node end before its \
                     peers know its connections, some of them break"
                );
                self.take_over(stored, publisher);
            }
        }
    }

    fn take_over(&mut self, stored: Arc<Stored>, publisher: &mut Publisher) {
        if let Some(store) = &mut self.store {
            store.newest = stored;
        }
        publisher.reload(ReloadOrigin::Store);
    }

    fn follow_unprepared(&mut self, publisher: &mut Publisher, presence: &mut Presence) {
        match self.unprepared.take() {
            None => {}
            Some(UnpreparedChange::Leaving { stored, since, gone }) => {
                let left =
                    presence.announcer.as_ref().and_then(|announcer| announcer.installed().next());
                let is_gone = left.is_none() || since.elapsed() >= WITHDRAWAL_MAX;
                let gone = gone.or_else(|| is_gone.then(Instant::now));
                let linger_ms =
                    publisher.config.announce.as_ref().map_or(0, |announce| announce.linger_ms);
                let linger = Duration::from_millis(linger_ms.into());
                if gone.is_some_and(|gone| gone.elapsed() >= linger) {
                    self.take_over(stored, publisher);
                    self.unprepared = Some(UnpreparedChange::Returning { since: Instant::now() });
                } else {
                    self.unprepared = Some(UnpreparedChange::Leaving { stored, since, gone });
                }
            }
            Some(UnpreparedChange::Returning { since }) => {
                let is_in_force = publisher.is_published
                    && !publisher.publication.refresh.is_stale()
                    && !publisher.publication.is_loading();
                let node = self.node.as_ref();
                let is_known =
                    is_in_force && node.is_none_or(|node| node.has_handed_over(&publisher.table));
                if is_known || since.elapsed() >= RETURN_MAX {
                    if let Some(announcer) = &mut presence.announcer {
                        announcer.pause(false);
                    }
                } else {
                    self.unprepared = Some(UnpreparedChange::Returning { since });
                }
            }
        }
    }
}
