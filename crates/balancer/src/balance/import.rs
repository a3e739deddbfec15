//! Claims of other nodes. Changes this worker's connections only, by the rules of
//! [`Known`](hotloop_agreement::Known).

use super::schedule::Placement;
use super::{Tables, Worker};
use crate::connection::{Connection, State};
use crate::connections::{Kept, Position};
use crate::counts::WorkerCounts;
use crate::exceptions::{Record, left_ms};
use crate::services::TargetId;
use hotloop::flow::STEP_NS;
use hotloop::packet::flow_key::FlowKey;
use hotloop::stage::Instant;
use hotloop_agreement::{Circumstances, Known, Stage};
use std::net::IpAddr;

/// Time in which a client without an answer sends its SYN again, twice (RFC 6298, sections 2.1 and 5.5),
/// with a margin: four seconds.
const SYN_AGAIN_STEPS: u64 = 4_000_000_000 / STEP_NS;

/// How much later a packet may come, by another way, than one that was sent after it: half a second. Ports
/// are not used again within a second (Linux, `tcp_tw_reuse`).
const LATE_NS: u64 = 500_000_000;

/// The outcome of a claim.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Imported {
    /// The connection is now as the other node reports it.
    Taken,
    /// This node's own entry takes precedence.
    Stale,
    /// The backend is gone, or the table has no room.
    Refused,
}

/// A connection that this node has, and that a peer claims.
struct Here {
    position: Position,
    connection: Connection,
    backend: IpAddr,
    /// Time since its last packet.
    silent_ns: u64,
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
        self.connections.hear_clock(record.birth.number(), now);
        let mut claim = Connection::remote(target, record, self.connections.clock(now));
        let hash = self.seed.hash(&record.key);
        let placement = Placement::new(services, &record.key, hash);
        claim.set_exception(placement.is_exception(services, &record.key, target));
        let Some((position, connection, silent_ns)) =
            self.connections.peek_silent(&record.key, now)
        else {
            return self.enter_remote(counts, record, hash, claim, now);
        };
        let Some(its) = services.active(connection.target) else {
            // It is about to get another backend.
            self.replace_by_remote(counts, position, &connection, claim, record, now);
            return Imported::Taken;
        };
        let here = Here { position, connection, backend: its.address(), silent_ns };
        self.merge(counts, here, claim, record, now)
    }

    /// Merges a claim with this node's own knowledge.
    fn merge(
        &mut self,
        counts: &WorkerCounts,
        here: Here,
        claim: Connection,
        record: &Record,
        now: Instant,
    ) -> Imported {
        let Here { position, connection, backend, silent_ns } = here;
        let clock = self.connections.clock(now);
        let known = Known::Entry(connection.entry(backend, clock));
        let circumstances = self.circumstances(&here, claim, record, clock);
        let outcome = known.after_claim(record.claim(), circumstances);
        let Known::Entry(after) = outcome.known else { return Imported::Stale };
        if after.backend != backend {
            self.replace_by_remote(counts, position, &connection, claim, record, now);
            return Imported::Taken;
        }
        // Both may be of one connection: the last packets of its client must find it for as long as here.
        let left = |idle_ns| Record {
            left_ms: record.left_ms.max(left_ms(idle_ns, silent_ns)),
            ..*record
        };
        let stage = connection.state().stage();
        if stage == Stage::Closing && after.stage != Stage::Closing {
            let longer = left(self.connections.idle_ns(&connection));
            self.replace_by_remote(counts, position, &connection, claim, &longer, now);
            return Imported::Taken;
        }
        let mut merged = connection;
        merged.set_birth(after.birth, clock);
        if after.is_shared {
            merged.share();
        }
        let is_joined = known.joins(&record.claim());
        let idle_ns = self.connections.idle_ns(&merged);
        if after.stage != stage {
            merged.take_state(record.state);
        }
        let seen = now.earlier_by(silent_ns);
        if outcome.claim.is_some() {
            self.connections.claim(&record.key, &mut merged, seen);
        }
        // An end takes no time from other claims.
        let is_over = stage == Stage::Closing && record.state != State::Closing;
        let is_longer = is_joined && !is_over && record.left_ms > left_ms(idle_ns, silent_ns);
        if after.stage == Stage::Closing && stage != Stage::Closing {
            let longer = left(self.connections.idle_ns(&merged));
            self.connections.set_claimed(position, merged, longer.left_ns(), now);
        } else if is_longer {
            self.connections.set_claimed(position, merged, record.left_ns(), now);
        } else {
            self.connections.put(position, merged);
        }
        if is_joined { Imported::Taken } else { Imported::Stale }
    }

    /// The circumstances of a claim, by the births and the last packets of both connections.
    fn circumstances(
        &self,
        here: &Here,
        claim: Connection,
        record: &Record,
        clock: Instant,
    ) -> Circumstances {
        let begun_here = here.connection.birth(clock).number();
        let (begun, seen) = (record.birth.number(), clock.earlier_by(here.silent_ns));
        // A client that has had an answer sends its SYN no more.
        let is_before_last = begun <= seen.as_ns() / STEP_NS + LATE_NS / STEP_NS;
        let its_silent_ns = self.connections.idle_ns(&claim).saturating_sub(record.left_ns());
        // Later than the claim, which may have come within a step of time.
        let mut again = claim;
        again.begin(clock);
        Circumstances {
            // Claims are sent in order, and what a cut session loses follows in a snapshot.
            is_owed: false,
            is_orphaned: false,
            is_syn_again: is_before_last && begun.abs_diff(begun_here) <= SYN_AGAIN_STEPS,
            is_used_since: here.silent_ns + LATE_NS < its_silent_ns,
            now: again.birth(clock),
        }
    }

    /// Claims a connection again, if it is still here: the peer that claimed it is gone.
    pub(super) fn inherit(&mut self, key: &FlowKey, now: Instant) -> Imported {
        let found = self.connections.peek_silent(key, now);
        let Some((position, mut connection, silent_ns)) = found else { return Imported::Stale };
        self.connections.claim(key, &mut connection, now.earlier_by(silent_ns));
        self.connections.put(position, connection);
        Imported::Taken
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
        connections.set_claimed(position, claim, record.left_ns(), now);
        schedule.connection_added(claim.target, counts.target(claim.target));
        Imported::Taken
    }

    fn replace_by_remote(
        &mut self,
        counts: &WorkerCounts,
        position: Position,
        here: &Connection,
        claim: Connection,
        record: &Record,
        now: Instant,
    ) {
        self.schedule.connection_removed(here.target, counts);
        self.schedule.connection_added(claim.target, counts.target(claim.target));
        self.connections.set_claimed(position, claim, record.left_ns(), now);
    }
}
