//! Claims and ends of other nodes. Changes this worker's connections only, by the verdict of
//! `merge`. An older claim never replaces a newer one, and a peer never ends this node's own
//! connection.

use super::schedule::{ServicePair, is_exception};
use super::{Tables, Worker};
use crate::connection::Connection;
use crate::connections::{Kept, Position};
use crate::counts::WorkerCounts;
use crate::exceptions::{Existing, Record, Verdict, left_ms, merge};
use crate::services::{ServiceTable, TargetId};
use hotloop::packet::flow_key::FlowKey;
use hotloop::stage::Instant;

/// The outcome of a claim or an end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Imported {
    /// The connection is now as the other node reports it.
    Taken,
    /// This node's own entry takes precedence, or there is nothing to end.
    Stale,
    /// The backend is gone, or the table has no room.
    Refused,
}

impl<P> Worker<P> {
    /// Takes a peer's claim to a connection, which is on `target`, unless this node's own entry
    /// takes precedence.
    pub(super) fn import(
        &mut self,
        Tables { services, counts }: Tables<'_>,
        record: &Record,
        target: TargetId,
        now: Instant,
    ) -> Imported {
        if services.active(target).is_none() {
            return Imported::Refused;
        }
        let mut claim = Connection::remote(target, record, now);
        let hash = self.seed.hash(&record.key);
        let pair = ServicePair::new(services, &record.key, hash);
        claim.set_exception(is_exception(services, &pair, &record.key, target));
        let Some((position, here, silent_ns)) = self.connections.peek_silent(&record.key, now)
        else {
            return self.enter_remote(counts, record, hash, claim, now);
        };
        let existing = self.existing(services, &here, silent_ns, record, now);
        // A connection without a backend is about to get another one.
        let verdict = existing.map_or(Verdict::Replace, |existing| merge(&existing, record));
        let is_established = existing.is_some_and(|existing| existing.is_established_by(record));
        match verdict {
            Verdict::Known if !is_established => Imported::Taken,
            Verdict::Stale => Imported::Stale,
            Verdict::Renew => {
                let mut renewed = here;
                renewed.renew(&claim);
                self.connections.set_remote(position, renewed, record.left_ns());
                Imported::Taken
            }
            Verdict::Reclaim | Verdict::Known => {
                let mut changed = here;
                if verdict == Verdict::Reclaim {
                    changed.set_moves(record.moves.wrapping_add(1));
                }
                if is_established {
                    changed.establish();
                }
                // If the connection is an exception, this journals it.
                self.connections.set(position, &record.key, changed, now.earlier_by(silent_ns));
                Imported::Taken
            }
            Verdict::Replace => {
                self.replace_by_remote(counts, position, here, claim, record.left_ns());
                Imported::Taken
            }
        }
    }

    /// Ends a peer's connection. A connection of this node's own continues: if another connection
    /// of the same ports replaces it, the other's claim has replaced it already.
    pub(super) fn end_remote(
        &mut self,
        counts: &WorkerCounts,
        key: &FlowKey,
        now: Instant,
    ) -> Imported {
        let found = self.connections.peek_silent(key, now);
        if !found.is_some_and(|(_, connection, _)| connection.is_remote()) {
            return Imported::Stale;
        }
        if let Some(ended) = self.connections.remove(key) {
            self.schedule.connection_removed(ended.target, counts);
        }
        Imported::Taken
    }

    /// This node's entry for a connection that a peer claims; `None` if its backend is gone.
    fn existing(
        &self,
        services: &ServiceTable,
        here: &Connection,
        silent_ns: u64,
        record: &Record,
        now: Instant,
    ) -> Option<Existing> {
        let target = services.active(here.target)?;
        // For one of this node's own connections, the remaining time shows which node saw a packet
        // last. The timeout depends on the state, too: a connection that is over at the peer has
        // little time left after its latest packet.
        let idle_ns = match here.is_remote() {
            true => self.connections.idle_ns(here),
            false => services.settings.idle_ns[record.state as usize],
        };
        Some(Existing {
            backend: target.address(),
            state: here.state(),
            age_ms: here.age_ms(now),
            left_ms: left_ms(idle_ns, silent_ns),
            moves: here.moves(),
            is_own: !here.is_remote(),
            is_exception: here.is_exception(),
            has_seen_syn: here.has_seen_syn(),
        })
    }

    /// Enters a claim to a connection that is not known here.
    fn enter_remote(
        &mut self,
        counts: &WorkerCounts,
        record: &Record,
        hash: u32,
        claim: Connection,
        now: Instant,
    ) -> Imported {
        let Self { connections, schedule, .. } = self;
        let Err(vacancy) = connections.find(&record.key, now) else { return Imported::Stale };
        let on_removed = |left| schedule.connection_removed(left, counts);
        let kept = Kept::without_header(hash);
        let Some(position) = connections.insert(vacancy, kept, claim, now, on_removed) else {
            return Imported::Refused;
        };
        connections.set_remote(position, claim, record.left_ns());
        schedule.connection_added(claim.target, counts.target(claim.target));
        Imported::Taken
    }

    fn replace_by_remote(
        &mut self,
        counts: &WorkerCounts,
        position: Position,
        here: Connection,
        claim: Connection,
        left_ns: u64,
    ) {
        self.schedule.connection_removed(here.target, counts);
        self.schedule.connection_added(claim.target, counts.target(claim.target));
        self.connections.set_remote(position, claim, left_ns);
    }
}
