//! Which node a connection of others is of: the one with the best claim.
//!
//! Only that node may end it here, and where its snapshot no longer names the connection, it has ended while
//! the two nodes couldn't talk.

use super::PeerId;
use hotloop::packet::flow_key::FlowKey;
use hotloop_balancer::connection::State;
use hotloop_balancer::exceptions::{Existing, Record, Verdict, is_ahead, merge};
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
    /// The place of the node's name among those of all peers.
    pub rank: u8,
}

impl Owner {
    /// Its bit among claimants: there are fewer peers than bits. None for a run of it that is over.
    const fn bit(self) -> u32 {
        if self.lifetime == 0 { 0 } else { 1 << self.peer.0 }
    }
}

#[derive(Clone, Copy, Debug)]
struct Claim {
    owner: Owner,
    /// The peers that claim it, one bit each: the owner, unless that is gone, and those with lesser claims.
    claimants: u32,
    /// Those that have named it since their last snapshots began.
    named: u32,
    state: State,
    backend: IpAddr,
    since_ms: i64,
    until_ms: i64,
    /// As its owner says, unless that is an heir.
    moves: u8,
    /// Whether a better claim was withdrawn since the owner's, so that the owner's `moves` are not known.
    is_heir: bool,
    /// The number of the last claim among all imports, for this node to enter.
    import: u64,
}

/// By how much two ages of one connection may differ, in milliseconds: claims get older under way, each time that they are
/// relayed.
const AGE_MARGIN_MS: i64 = 3_000;

impl Claim {
    fn existing(&self, now_ms: i64) -> Existing {
        let length = |ms: i64| u32::try_from(ms.max(0)).unwrap_or(u32::MAX);
        Existing {
            backend: self.backend,
            state: self.state,
            age_ms: length(now_ms - self.since_ms),
            left_ms: length(self.until_ms - now_ms),
            moves: self.moves,
            is_own: false,
            is_exception: false,
            has_seen_syn: false,
        }
    }

    /// Leaves it to another node, which has claimed it, too.
    const fn inherit(&mut self, owner: Owner) {
        (self.owner, self.is_heir) = (owner, true);
    }

    /// Whether the owner is another node than that of `known`, to which the connection, on the same backend, has moved
    /// since, or of two with equal counts, the one that keeps it.
    const fn takes_over(&self, known: &Self) -> bool {
        let is_behind = is_ahead(known.moves, self.moves);
        let wins_tie = !is_behind && self.owner.rank < known.owner.rank;
        is_ahead(self.moves, known.moves) || wins_tie
    }
}

/// The connections that peers have claimed.
#[derive(Debug, Default)]
pub struct Owners {
    claims: HashMap<FlowKey, Claim>,
    expired_ms: u64,
}

impl Owners {
    /// Notes a claim by `owner`, which that node has named itself or another node has relayed. The connection becomes
    /// that node's unless another one has the better claim, as [`merge`] says, and is not gone. Returns whether it was
    /// that node's, on another backend: then it is another connection, and the end of the one before is lost.
    pub fn claimed(
        &mut self,
        record: &Record,
        (owner, is_named): (Owner, bool),
        now_ms: u64,
        is_gone: impl FnOnce(Owner) -> bool,
    ) -> bool {
        if now_ms.saturating_sub(self.expired_ms) >= EXPIRY_MS {
            self.expired_ms = now_ms;
            self.claims.retain(|_, claim| claim.until_ms >= now_ms as i64);
        }
        let now_ms = now_ms as i64;
        let Record { key, backend, state, age_ms, left_ms, moves, .. } = *record;
        let (since_ms, until_ms) = (now_ms - i64::from(age_ms), now_ms + i64::from(left_ms));
        let claimants = owner.bit();
        let named = if is_named { claimants } else { 0 };
        let claim = Claim {
            owner,
            claimants,
            named,
            state,
            backend,
            since_ms,
            until_ms,
            moves,
            is_heir: false,
            import: 0,
        };
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
                let is_another = known.owner == owner && known.backend != backend;
                let is_gone = || is_gone(known.owner);
                let (claimants, named) = (known.claimants | claimants, known.named | named);
                let joint = Claim { claimants, named, ..claim };
                if known.backend != backend {
                    let verdict = merge(&known.existing(now_ms), record);
                    if is_another || verdict == Verdict::Replace {
                        entry.insert(claim);
                    } else if is_gone() {
                        entry.insert(joint);
                    } else {
                        entry.insert(Claim { claimants, named, ..known });
                    }
                } else if known.owner == owner || known.is_heir {
                    entry.insert(joint);
                } else if claim.takes_over(&known) {
                    // The other nodes leave it to this one when they hear of it.
                    entry.insert(claim);
                } else if is_gone() {
                    entry.insert(joint);
                } else if since_ms > known.since_ms + AGE_MARGIN_MS {
                    // Another connection of the same port, which the node may have alone.
                    entry.insert(Claim { claimants, named, ..known });
                }
                is_another
            }
        }
    }

    /// Notes the number of a claim that was noted last, among all imports.
    pub fn enters(&mut self, key: &FlowKey, import: u64) {
        if let Some(claim) = self.claims.get_mut(key) {
            claim.import = import;
        }
    }

    /// Which node a connection is of, and whether that has named it since its last snapshot began.
    pub fn of(&self, key: &FlowKey) -> Option<(Owner, bool)> {
        let claim = self.claims.get(key)?;
        Some((claim.owner, claim.named & claim.owner.bit() != 0))
    }

    /// Withdraws a node's claim. True if that ends the connection: no other node claims it, or nobody that can end it does.
    pub fn withdraw(
        &mut self,
        from: Owner,
        key: &FlowKey,
        owner_of: impl Fn(PeerId) -> Owner,
        is_gone: impl FnOnce(Owner) -> bool,
    ) -> bool {
        let Some(claim) = self.claims.get_mut(key) else { return true };
        let others = claim.claimants & !from.bit();
        if claim.owner == from && others != 0 {
            claim.inherit(owner_of(PeerId(others.trailing_zeros() as usize)));
        }
        claim.claimants = others;
        claim.owner == from || is_gone(claim.owner)
    }

    /// Forgets a connection that has ended.
    pub fn forget(&mut self, key: &FlowKey) {
        self.claims.remove(key);
    }

    /// Forgets a connection that this node claims. False, and it does not, unless this node has entered so many imports,
    /// and with these all claims of peers to it: with another one, the connection may become a peer's again.
    pub fn forget_entered(&mut self, key: &FlowKey, entered_count: u64) -> bool {
        let is_entered = self.claims.get(key).is_none_or(|claim| claim.import <= entered_count);
        if is_entered {
            self.claims.remove(key);
        }
        is_entered
    }

    /// A node names all of its connections anew.
    pub fn begin_snapshot(&mut self, owner: Owner) {
        self.claims.values_mut().for_each(|claim| claim.named &= !owner.bit());
    }

    /// A node has named all of its connections. What it did not name is that of another node that claims it; or else it has
    /// ended, and is forgotten where `ended` says so.
    pub fn end_snapshot(
        &mut self,
        owner: Owner,
        owner_of: impl Fn(PeerId) -> Owner,
        mut ended: impl FnMut(FlowKey) -> bool,
    ) {
        self.claims.retain(|key, claim| {
            if claim.claimants & !claim.named & owner.bit() == 0 {
                return true;
            }
            let others = claim.claimants & !owner.bit();
            if claim.owner == owner {
                if others == 0 {
                    return !ended(*key);
                }
                claim.inherit(owner_of(PeerId(others.trailing_zeros() as usize)));
            }
            claim.claimants = others;
            true
        });
    }

    /// Notes that a node has restarted: what it claimed before, it no longer knows, so that it can't end it.
    pub fn orphan(&mut self, owner: Owner) {
        for claim in self.claims.values_mut() {
            claim.claimants &= !owner.bit();
            claim.named &= !owner.bit();
            if claim.owner == owner {
                claim.owner.lifetime = 0;
            }
        }
    }
}
