//! The two sides of the firewall.

use hotloop::packet::flow_key::FlowKey;
use serde::Deserialize;

/// Where a packet comes from, or goes to.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The protected side.
    Inside,
    /// Everything else.
    Outside,
}

impl Side {
    /// The side to which packets from this side pass.
    pub const fn other(self) -> Self {
        if matches!(self, Self::Inside) { Self::Outside } else { Self::Inside }
    }

    /// The key under which a packet from this side is tracked: that of the direction from the inside to
    /// the outside. Both directions have the same, and a packet that claims the address of a station
    /// on the other side has another one.
    pub fn oriented(self, key: FlowKey) -> FlowKey {
        if self == Self::Inside { key } else { key.reversed() }
    }
}
