//! Going over to what the store has in force.
//!
//! What this node has prepared is gone over to at once. Otherwise there is a time in which its peers do not
//! know connections of which it alone knows the backend: where it announces VIPs, it withdraws them first,
//! and announces them again once the peers know.

use super::config_store::Wanted;
use super::preparation::Proposal;
use super::reload::ReloadOrigin;
use super::{Node, Operator};
use crate::announce::Announcer;
use hotloop_cluster::store::layout::Stored;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long routes are waited for that can't be deleted.
const WITHDRAWAL_MAX: Duration = Duration::from_secs(5);

/// How long peers are waited for that do not enter what they were sent.
const RETURN_MAX: Duration = Duration::from_secs(10);

/// A change that was not prepared, on its way.
#[derive(Debug)]
pub(super) enum UnpreparedChange {
    /// The VIPs are withdrawn, and this is gone over to once routers send packets elsewhere.
    Leaving {
        stored: Arc<Stored>,
        since: Instant,
        /// When the last VIP was withdrawn.
        gone: Option<Instant>,
    },
    /// It is gone over to, and the VIPs are announced again once peers know what they need.
    Returning { since: Instant },
}

impl Operator {
    /// Prepares what is proposed, and goes over to what is in force, where that is new.
    pub(super) fn follow_store(&mut self) {
        let is_loading = self.publication.is_loading();
        let Some(store) = &mut self.store else { return };
        match store.turn(is_loading) {
            Some(Wanted::Prepare((config, stored))) => self.prepare(config, stored),
            Some(Wanted::Discard) => self.discard(),
            Some(Wanted::Adopt { stored, is_prepared }) => self.go_by(stored, is_prepared),
            None => {}
        }
        let prepared = match self.proposal() {
            Proposal::Prepared => Some(Ok(())),
            Proposal::Refused(why) => Some(Err(why.clone())),
            Proposal::None | Proposal::Waiting => None,
        };
        if let Some((store, prepared)) = self.store.as_mut().zip(prepared) {
            store.answer(prepared);
        }
        self.follow_unprepared();
    }

    fn go_by(&mut self, stored: Arc<Stored>, is_prepared: bool) {
        if let Some(UnpreparedChange::Leaving { stored: next, .. }) = &mut self.unprepared {
            *next = stored;
            return;
        }
        if self.adopt(&stored) {
            if let Some(store) = &mut self.store {
                store.take(stored);
            }
            return;
        }
        let (name, revision) = (stored.name.clone(), stored.revision);
        if is_prepared || !self.node.as_ref().is_some_and(Node::has_peers_in_sync) {
            return self.take_over(stored);
        }
        let is_announced = |it: &Announcer| it.installed().next().is_some();
        match self.announcer.as_mut().filter(|it| self.unprepared.is_some() || is_announced(it)) {
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
                self.take_over(stored);
            }
        }
    }

    fn take_over(&mut self, stored: Arc<Stored>) {
        if let Some(store) = &mut self.store {
            store.take(stored);
        }
        self.reload(ReloadOrigin::Store);
    }

    fn follow_unprepared(&mut self) {
        match self.unprepared.take() {
            None => {}
            Some(UnpreparedChange::Leaving { stored, since, gone }) => {
                let left = self.announcer.as_ref().and_then(|it| it.installed().next());
                let is_gone = left.is_none() || since.elapsed() >= WITHDRAWAL_MAX;
                let gone = gone.or_else(|| is_gone.then(Instant::now));
                let linger_ms = self.config.announce.as_ref().map_or(0, |it| it.linger_ms);
                let linger = Duration::from_millis(linger_ms.into());
                if gone.is_some_and(|gone| gone.elapsed() >= linger) {
                    self.take_over(stored);
                    self.unprepared = Some(UnpreparedChange::Returning { since: Instant::now() });
                } else {
                    self.unprepared = Some(UnpreparedChange::Leaving { stored, since, gone });
                }
            }
            Some(UnpreparedChange::Returning { since }) => {
                let is_in_force = self.is_published
                    && !self.publication.refresh.is_stale()
                    && !self.publication.is_loading();
                let node = self.node.as_ref();
                let is_known = is_in_force && node.is_none_or(|it| it.has_handed_over(&self.table));
                if is_known || since.elapsed() >= RETURN_MAX {
                    if let Some(announcer) = &mut self.announcer {
                        announcer.pause(false);
                    }
                } else {
                    self.unprepared = Some(UnpreparedChange::Returning { since });
                }
            }
        }
    }
}
