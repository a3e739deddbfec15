//! The outer header that each IPv4 connection keeps for its packets. Uses the service table once
//! per change of targets. A kept header is valid only with the targets that it was made for.

use crate::connection::Connection;
use crate::services::{ServiceTable, TargetId};
use hotloop::packet::flow_key::FlowKeyV4;
use hotloop::packet::ipip::FlowHeader;

/// The outer header of a connection's packets. With it, the packets are wrapped without reading
/// their target until the service table has other targets, so the number of targets matters little.
///
/// Invariant: unless it is marked as headerless, in service tables with the targets of
/// `targets_serial` the connection's target is active, and `header` is its tunnel's for this flow.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    targets_serial: u64,
    header: FlowHeader,
    flow_hash: u32,
}

/// In `targets_serial`: the target was checked and has no header. It is not active, or its tunnel
/// is an IPv6 one.
const HEADERLESS: u64 = 1 << 63;

// With this value, an entry takes one cache line.
const _: () = assert!(size_of::<(FlowKeyV4, Connection, Kept)>() + 8 <= 64);

impl Kept {
    /// No header yet: the next packet of the flow with this hash looks the target up.
    #[inline(always)]
    #[must_use]
    pub const fn without_header(flow_hash: u32) -> Self {
        let targets_serial = ServiceTable::NO_TARGETS;
        Self { targets_serial, header: FlowHeader::UNSPECIFIED, flow_hash }
    }

    /// A value with the header of a target that is active in the service tables with [these
    /// targets](ServiceTable::targets_serial).
    #[inline(always)]
    #[must_use]
    pub const fn new(flow_hash: u32, targets_serial: u64, header: FlowHeader) -> Self {
        Self { targets_serial, header, flow_hash }
    }

    /// The header, if it is valid in a service table with [these
    /// targets](ServiceTable::targets_serial).
    #[inline(always)]
    #[must_use]
    pub fn header(&self, targets_serial: u64) -> Option<&FlowHeader> {
        (self.targets_serial == targets_serial).then_some(&self.header)
    }

    /// Whether [`renew`](Self::renew) has not been called for [these
    /// targets](ServiceTable::targets_serial).
    #[inline(always)]
    #[must_use]
    pub const fn is_new_to(&self, targets_serial: u64) -> bool {
        self.targets_serial | HEADERLESS != targets_serial | HEADERLESS
    }

    /// Takes the header from the connection's target, if it has one.
    pub fn renew(&mut self, services: &ServiceTable, target: TargetId) {
        let (flow_hash, targets_serial) = (self.flow_hash, services.targets_serial());
        let target = services.active(target);
        *self = match target.and_then(|target| target.tunnel.flow_header(flow_hash)) {
            Some(header) => Self::new(flow_hash, targets_serial, header),
            None => Self { targets_serial: targets_serial | HEADERLESS, ..*self },
        };
    }

    /// Drops the header, because the connection has another target.
    pub const fn forget_header(&mut self) {
        self.targets_serial = ServiceTable::NO_TARGETS;
    }

    /// The hash of the connection's flow.
    #[inline(always)]
    #[must_use]
    pub const fn flow_hash(&self) -> u32 {
        self.flow_hash
    }
}
