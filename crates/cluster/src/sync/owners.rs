//! The owner of each remote connection: the node with the best claim.
//!
//! Only the owner may end the connection here. If the owner's snapshot no longer lists it, it ended
//! while the two nodes couldn't talk.

use super::PeerId;
use hotloop::packet::flow_key::FlowKey;
use hotloop_balancer::connection::State;
use hotloop_balancer::exceptions::{Existing, Record, Verdict, is_ahead, merge};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;

/// Maximum number of connections to follow, about 100 bytes each. Claims beyond that are entered
/// all the same, but if such a connection's end is lost in a cut connection, only its idle timeout
/// removes it.
pub const FOLLOWED_MAX: usize = 1 << 22;

/// Interval of checks for timed-out connections, in milliseconds.
const EXPIRY_MS: u64 = 60_000;

/// A node from its start to its end, as far as this node could distinguish its runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Owner {
    /// The node.
    pub peer: PeerId,
    /// Number of the node's starts, from 1; 0 for everything that it claimed before the last one.
    pub lifetime: u16,
    /// The rank of the node's name among the names of all peers.
    pub rank: u8,
}

impl Owner {
    /// The owner's bit among claimants: there are fewer peers than bits. No bit for a run that is
    /// over.
    const fn bit(self) -> u32 {
        if self.lifetime == 0 { 0 } else { 1 << self.peer.0 }
    }
}

#[derive(Clone, Copy, Debug)]
struct Claim {
    owner: Owner,
    /// The peers that claim the connection, one bit each: the owner, unless it is gone, and peers
    /// with lesser claims.
    claimants: u32,
    /// The claimants that have listed it since their last snapshots began.
    named: u32,
    state: State,
    backend: IpAddr,
    since_ms: i64,
    until_ms: i64,
    /// The number of moves in the owner's claim, unless the owner is an heir.
    moves: u8,
    /// Whether a better claim was withdrawn since the owner's, so that the owner's `moves` are
    /// unknown.
    is_heir: bool,
    /// The number of the last claim among all imports for this node to enter.
    import: u64,
}

/// Maximum difference between two ages of one connection, in milliseconds: claims get older under
/// way, each time that they are relayed.
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

    /// Passes the connection to another node, which has claimed it, too.
    const fn inherit(&mut self, owner: Owner) {
        (self.owner, self.is_heir) = (owner, true);
    }

    /// Whether this claim's owner takes the connection over from the owner of `known`: the
    /// connection, on the same backend, has moved there since, or both have equal counts of moves
    /// and this owner keeps it.
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
    /// Notes a claim by `owner`, which that node or another node has sent. The connection becomes
    /// that node's unless another node has the better claim, by [`merge`]'s rules, and is not gone.
    /// Returns whether it was that node's on another backend: then it is another connection, and
    /// the end of the previous one is lost.
    pub fn claimed(
        &mut self,
        record: &Record,
        owner: Owner,
        is_named: bool,
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
                    // The other nodes leave the connection to this one when they learn of it.
                    entry.insert(claim);
                } else if is_gone() {
                    entry.insert(joint);
                } else if since_ms > known.since_ms + AGE_MARGIN_MS {
                    // Another connection of the same port, which perhaps only this node has.
                    entry.insert(Claim { claimants, named, ..known });
                }
                is_another
            }
        }
    }

    /// Notes the import number of the last claim.
    pub fn enters(&mut self, key: &FlowKey, import: u64) {
        if let Some(claim) = self.claims.get_mut(key) {
            claim.import = import;
        }
    }

    /// The owner of a connection, and whether it has listed the connection since its last snapshot
    /// began.
    pub fn of(&self, key: &FlowKey) -> Option<(Owner, bool)> {
        let claim = self.claims.get(key)?;
        Some((claim.owner, claim.named & claim.owner.bit() != 0))
    }

    /// Withdraws a node's claim. Returns true if that ends the connection: no other node claims it,
    /// or only nodes that can't end it.
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

    /// Forgets a connection that this node claims. Does nothing and returns false unless this node
    /// has entered this many imports, and with them all claims of peers to the connection: a later
    /// claim might make the connection a peer's again.
    pub fn forget_entered(&mut self, key: &FlowKey, entered_count: u64) -> bool {
        let is_entered = self.claims.get(key).is_none_or(|claim| claim.import <= entered_count);
        if is_entered {
            self.claims.remove(key);
        }
        is_entered
    }

    /// Begins a node's snapshot, which lists all of its connections.
    pub fn begin_snapshot(&mut self, owner: Owner) {
        self.claims.values_mut().for_each(|claim| claim.named &= !owner.bit());
    }

    /// Ends a node's snapshot. A connection that it did not list belongs to another node that
    /// claims it; otherwise it has ended, and is forgotten if `ended` returns true.
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

    /// Notes that a node has restarted: it no longer knows its earlier claims, and can't end them.
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
