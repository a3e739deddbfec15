//! Messages between nodes about connections. Plain values; lengths of time, never points in time.

use crate::state::State;
use hotloop::flow::STEP_NS;
use hotloop::packet::flow_key::FlowKey;
use std::net::IpAddr;

const NS_PER_MS: u64 = 1_000_000;

/// A connection on another backend than the configuration chooses, in the form that another node
/// can enter. Times are lengths, so that no clocks are compared.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Record {
    /// The flow, from the client to the service.
    pub key: FlowKey,
    /// The connection's backend.
    pub backend: IpAddr,
    /// The connection's state.
    pub state: State,
    /// Time since its backend got its first packet, in milliseconds.
    pub age_ms: u32,
    /// Time until it is forgotten if no packet comes, in milliseconds.
    pub left_ms: u32,
    /// Number of times that a packet moved it to another node, modulo [`MOVES`](super::MOVES).
    pub moves: u8,
    /// Whether this record wins against a claim of the receiver's with equal moves: the name of the
    /// node that claims it comes first. Set on receipt; not sent.
    pub wins_ties: bool,
}

impl Record {
    /// The same record after `passed_ms` milliseconds.
    #[must_use]
    pub fn later(self, passed_ms: u64) -> Self {
        let passed_ms = u32::try_from(passed_ms).unwrap_or(u32::MAX);
        Self {
            age_ms: self.age_ms.saturating_add(passed_ms),
            left_ms: self.left_ms.saturating_sub(passed_ms),
            ..self
        }
    }

    /// Time until it is forgotten if no packet comes, in nanoseconds.
    pub(crate) const fn left_ns(&self) -> u64 {
        self.left_ms as u64 * NS_PER_MS
    }
}

/// Time in milliseconds until a connection is forgotten that times out after `idle_ns`, and was
/// last seen `silent_ns` ago, as the table rounds it: down, by less than two steps. A claim never
/// reports more than what is left, or two nodes could keep a silent connection forever.
pub(crate) fn left_ms(idle_ns: u64, silent_ns: u64) -> u32 {
    let left_ns = idle_ns.saturating_sub(silent_ns + 2 * STEP_NS);
    u32::try_from(left_ns / NS_PER_MS).unwrap_or(u32::MAX)
}

/// A change that the other nodes need to know.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// A connection is on another backend than the configuration chooses, or still is.
    Claim(Record),
    /// The connection of this key has ended, or is on the backend that the configuration chooses.
    End(FlowKey),
}
