//! Messages between nodes about connections. Plain values: of times, only births are points.

use crate::state::State;
use hotloop::flow::STEP_NS;
use hotloop::packet::flow_key::FlowKey;
use hotloop_agreement::{Birth, Claim};
use std::net::IpAddr;

const NS_PER_MS: u64 = 1_000_000;

/// A claim to a connection, in the form that another node can enter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Record {
    /// The flow, from the client to the service.
    pub key: FlowKey,
    /// The connection's backend.
    pub backend: IpAddr,
    /// The connection's state.
    pub state: State,
    /// When it began, by the cluster's [clock](crate::clock).
    pub birth: Birth,
    /// Time until it is forgotten if no packet comes, in milliseconds.
    pub left_ms: u32,
}

impl Record {
    /// The same record after `passed_ms` milliseconds.
    #[must_use]
    pub fn later(self, passed_ms: u64) -> Self {
        let passed_ms = u32::try_from(passed_ms).unwrap_or(u32::MAX);
        Self { left_ms: self.left_ms.saturating_sub(passed_ms), ..self }
    }

    /// The claim, as the rules of the agreement see it.
    #[must_use]
    pub const fn claim(&self) -> Claim<IpAddr> {
        Claim { backend: self.backend, birth: self.birth, stage: self.state.stage() }
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

/// A peer's message about a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// A peer claims a connection.
    Claim(Record),
    /// A peer has claimed the connection of this key, and is gone, perhaps before others had the claim:
    /// the connection is claimed again.
    Inherit(FlowKey),
}
