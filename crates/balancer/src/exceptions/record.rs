//! What nodes say to each other of connections.

use crate::state::State;
use hotloop::packet::flow_key::FlowKey;
use std::net::IpAddr;

/// A connection that is on another backend than the configuration says, as another node may enter it. Times are
/// lengths, so that no clocks are compared.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Record {
    /// From the client to the service.
    pub key: FlowKey,
    /// Where its packets go.
    pub backend: IpAddr,
    /// How far it has come.
    pub state: State,
    /// How long ago its backend got its first packet, in milliseconds.
    pub age_ms: u32,
    /// For how long it is still remembered if no packet comes, in milliseconds.
    pub left_ms: u32,
    /// How often a packet made it another node's than before, modulo [`MOVES`](super::MOVES).
    pub moves: u8,
    /// Whether it wins against a claim of the receiver's with as many moves: the name of the node that claims it comes
    /// first. Set on receipt; not sent.
    pub wins_ties: bool,
}

impl Record {
    /// What it says so many milliseconds later.
    #[must_use]
    pub fn later(self, passed_ms: u64) -> Self {
        let passed_ms = u32::try_from(passed_ms).unwrap_or(u32::MAX);
        Self {
            age_ms: self.age_ms.saturating_add(passed_ms),
            left_ms: self.left_ms.saturating_sub(passed_ms),
            ..self
        }
    }
}

/// A change of what the other nodes need to know.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// A connection is on a backend that the configuration does not say, or still is.
    Claim(Record),
    /// The connection of this key has ended, or is where the configuration says.
    End(FlowKey),
}
