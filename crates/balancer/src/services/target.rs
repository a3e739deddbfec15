//! The backend of a service as the packet path knows it.

use hotloop::packet::ethernet;
use hotloop::packet::ipip::Tunnel;
use std::net::IpAddr;

/// A backend of a service, for as long as it belongs to the service: the next backend in its slot
/// has another generation.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct TargetId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl TargetId {
    /// The target's index in tables with an entry for each target.
    #[inline]
    #[must_use]
    pub const fn slot(self) -> usize {
        self.slot as usize
    }
}

/// A slot and the backend of a service that has it now.
// In a cache line of its own.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Target {
    pub(super) generation: u32,
    /// For each of the 32 previous generations, the last in the lowest bit, whether its connections
    /// were ended.
    pub(super) flushed: u32,
    /// The outer header of packets to it.
    pub tunnel: Tunnel,
    /// Longest packet that fits the path's MTU once it is encapsulated, in bytes.
    pub packet_bytes_max: u16,
    /// Whether new connections may go to this target.
    pub is_usable: bool,
    /// Whether the target is up, or has no health check.
    pub is_up: bool,
    /// The index of the target's service; `None` if the slot is vacant.
    pub service: Option<u32>,
    /// The target's current share of new connections.
    pub weight: u32,
}

const _: () = assert!(size_of::<Target>() == 64);

/// The state of a connection's target.
#[derive(Clone, Copy, Debug)]
pub enum Found<'a> {
    /// The target is a backend of its service.
    Active(&'a Target),
    /// The target was removed, or its service was.
    Removed,
    /// The target was removed, and its connections had to end.
    Flushed,
}

impl Target {
    /// Whether the packet in a frame of this length fits the path's MTU after encapsulation. A
    /// packet with padding or VLAN tags may fit even if its frame does not.
    #[inline(always)]
    pub(crate) const fn takes_frame(&self, frame_bytes: usize) -> bool {
        frame_bytes <= ethernet::HEADER_BYTES + self.packet_bytes_max as usize
    }

    /// Whether the connections of an earlier generation were ended with it.
    pub(super) fn was_flushed(&self, generation: u32) -> bool {
        let ago = self.generation.wrapping_sub(generation).wrapping_sub(1);
        self.flushed.checked_shr(ago).is_some_and(|flushed| flushed & 1 == 1)
    }

    /// The address of the backend's end of the tunnel.
    #[inline]
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.tunnel.destination()
    }

    /// The target's identity, if the slot is in use.
    #[must_use]
    pub fn id(&self, slot: usize) -> Option<TargetId> {
        let id = TargetId { slot: slot as u32, generation: self.generation };
        self.service.map(|_| id)
    }
}
