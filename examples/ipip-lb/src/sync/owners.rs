//! Which node claimed a connection last.
//!
//! Only that node may end it here, and where its snapshot no longer names the connection, it has ended while
//! the two nodes couldn't talk.

use super::PeerId;
use hotloop::packet::flow_key::FlowKey;
use std::collections::HashMap;

/// How many connections are followed, 64 bytes each. What peers claim beyond that is entered all the same; but an
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
    until_s: u32,
}

/// The connections that peers have claimed.
#[derive(Debug, Default)]
pub struct Owners {
    claims: HashMap<FlowKey, Claim>,
    expired_ms: u64,
}

impl Owners {
    /// Notes a claim by `owner`, in or after that node's `snapshot`, that holds for `left_ms`.
    pub fn claimed(
        &mut self,
        key: FlowKey,
        (owner, snapshot): (Owner, u16),
        now_ms: u64,
        left_ms: u32,
    ) {
        if now_ms.saturating_sub(self.expired_ms) >= EXPIRY_MS {
            self.expired_ms = now_ms;
            self.claims.retain(|_, claim| u64::from(claim.until_s) * 1000 >= now_ms);
        }
        let until_s = (now_ms + u64::from(left_ms)).div_ceil(1000).min(u32::MAX.into()) as u32;
        let claim = Claim { owner, snapshot, until_s };
        if self.claims.len() < FOLLOWED_MAX {
            self.claims.insert(key, claim);
        } else if let Some(known) = self.claims.get_mut(&key) {
            *known = claim;
        }
    }

    /// Who claimed a connection last, and in which of its snapshots or after which.
    pub fn of(&self, key: &FlowKey) -> Option<(Owner, u16)> {
        self.claims.get(key).map(|claim| (claim.owner, claim.snapshot))
    }

    /// Forgets a connection: it has ended, or is this node's.
    pub fn forget(&mut self, key: &FlowKey) {
        self.claims.remove(key);
    }

    /// Forgets the connections that `owner` claimed before this `snapshot` and not since, each of which goes to
    /// `ended`.
    pub fn sweep(&mut self, owner: Owner, snapshot: u16, mut ended: impl FnMut(FlowKey)) {
        self.claims.retain(|key, claim| {
            let is_gone = claim.owner == owner && claim.snapshot != snapshot;
            if is_gone {
                ended(*key);
            }
            !is_gone
        });
    }

    /// Notes that a node has restarted: what it claimed before, it no longer knows, so that it can't end it.
    pub fn orphan(&mut self, owner: Owner) {
        for claim in self.claims.values_mut().filter(|claim| claim.owner == owner) {
            claim.owner.lifetime = 0;
        }
    }
}
