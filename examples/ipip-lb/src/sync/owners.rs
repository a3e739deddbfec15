//! Which node a connection of others is of: the one with the best claim.
//!
//! Only that node may end it here, and where its snapshot no longer names the connection, it has ended while
//! the two nodes couldn't talk.

use super::{Existing, PeerId, Record, Verdict, merge};
use crate::connection::State;
use hotloop::packet::flow_key::FlowKey;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;

/// How many connections are followed, about 100 bytes each. What peers claim beyond that is entered all the same; but an
/// end of it that gets lost in a cut connection is noticed by its idle timeout alone.
pub const FOLLOWED_MAX: usize = 1 << 22;

/// From one look at what has timed out to the next, in milliseconds.
const EXPIRY_MS: u64 = 60_000;

/// A node from its start to its end, as far as this node could tell runs of it apart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Owner {
    /// The node.
    pub peer: PeerId,
    /// Counts its starts, from 1; 0 for all that it claimed before the last one.
    pub lifetime: u16,
}

#[derive(Clone, Copy, Debug)]
struct Claim {
    owner: Owner,
    /// The snapshot of the owner in which it was claimed, or after which.
    snapshot: u16,
    state: State,
    backend: IpAddr,
    since_ms: i64,
    until_ms: i64,
}

impl Claim {
    fn existing(&self, now_ms: i64) -> Existing {
        let length = |ms: i64| u32::try_from(ms.max(0)).unwrap_or(u32::MAX);
        Existing {
            backend: self.backend,
            state: self.state,
            age_ms: length(now_ms - self.since_ms),
            left_ms: length(self.until_ms - now_ms),
            has_seen_syn: false,
        }
    }
}

/// The connections that peers have claimed.
#[derive(Debug, Default)]
pub struct Owners {
    claims: HashMap<FlowKey, Claim>,
    expired_ms: u64,
}

impl Owners {
    /// Notes a claim by `owner`, in or after that node's `snapshot`. The connection becomes that node's
    /// unless another one has the better claim, as [`merge`] says, and is not gone. Returns whether it was that
    /// node's, on another backend: then it is another connection, and the end of the one before is lost.
    pub fn claimed(
        &mut self,
        record: &Record,
        (owner, snapshot): (Owner, u16),
        now_ms: u64,
        is_gone: impl FnOnce(Owner) -> bool,
    ) -> bool {
        if now_ms.saturating_sub(self.expired_ms) >= EXPIRY_MS {
            self.expired_ms = now_ms;
            self.claims.retain(|_, claim| claim.until_ms >= now_ms as i64);
        }
        let now_ms = now_ms as i64;
        let Record { key, backend, state, age_ms, left_ms } = *record;
        let (since_ms, until_ms) = (now_ms - i64::from(age_ms), now_ms + i64::from(left_ms));
        let claim = Claim { owner, snapshot, state, backend, since_ms, until_ms };
        let has_room = self.claims.len() < FOLLOWED_MAX;
        match self.claims.entry(key) {
            Entry::Vacant(vacant) => {
                if has_room {
                    vacant.insert(claim);
                }
                false
            }
            Entry::Occupied(mut entry) => {
                let known = *entry.get();
                let is_better = || {
                    let verdict = merge(&known.existing(now_ms), record);
                    matches!(verdict, Verdict::Replace | Verdict::Renew)
                };
                if known.owner == owner || is_better() || is_gone(known.owner) {
                    entry.insert(claim);
                }
                known.owner == owner && known.backend != backend
            }
        }
    }

    /// Which node a connection is of, and in which of its snapshots or after which.
    pub fn of(&self, key: &FlowKey) -> Option<(Owner, u16)> {
        self.claims.get(key).map(|claim| (claim.owner, claim.snapshot))
    }

    /// Forgets a connection: it has ended, or is this node's.
    pub fn forget(&mut self, key: &FlowKey) {
        self.claims.remove(key);
    }

    /// Finds the connections that `owner` claimed before this `snapshot` and not since. Those for which `ended` says
    /// so are forgotten.
    pub fn sweep(&mut self, owner: Owner, snapshot: u16, mut ended: impl FnMut(FlowKey) -> bool) {
        self.claims.retain(|key, claim| {
            let is_gone = claim.owner == owner && claim.snapshot != snapshot;
            !(is_gone && ended(*key))
        });
    }

    /// Notes that a node has restarted: what it claimed before, it no longer knows, so that it can't end it.
    pub fn orphan(&mut self, owner: Owner) {
        for claim in self.claims.values_mut().filter(|claim| claim.owner == owner) {
            claim.owner.lifetime = 0;
        }
    }
}
