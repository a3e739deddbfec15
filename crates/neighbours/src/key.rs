//! The key of a neighbour: an address on a link.

use hotloop_packet::PortId;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The link of an address: a neighbour on one link is unknown on every other.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct LinkId(pub(crate) u32);

impl LinkId {
    /// The neighbours that the [system](crate::NextHop::of_system) resolves, on all its links: no frame changes
    /// them.
    pub const SYSTEM: Self = Self(u32::MAX);

    /// The link of this port, or of one VLAN of it.
    #[must_use]
    pub const fn new(port: PortId, vlan: Option<u16>) -> Self {
        let vlan = match vlan {
            Some(vlan) => vlan & 0xfff,
            None => 0,
        };
        Self((port.number() as u32) << 16 | vlan as u32)
    }

    /// The numbers of the port and of its VLAN, 0 without a VLAN.
    pub(crate) const fn numbers(self) -> (u16, u16) {
        ((self.0 >> 16) as u16, self.0 as u16)
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.numbers() {
            _ if *self == Self::SYSTEM => f.write_str("the system"),
            (port, 0) => write!(f, "port {port}"),
            (port, vlan) => write!(f, "port {port}, VLAN {vlan}"),
        }
    }
}

/// A neighbour: an address on a link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Key {
    /// IPv4 addresses in mapped IPv6 form, the upper half first. No neighbour has the address `::`,
    /// which marks a free slot.
    pub halves: [u64; 2],
    pub link: LinkId,
}

impl Key {
    pub const fn new(link: LinkId, address: IpAddr) -> Self {
        let bits = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
            IpAddr::V6(address) => address.to_bits(),
        };
        Self { halves: [(bits >> 64) as u64, bits as u64], link }
    }

    pub const fn address(&self) -> IpAddr {
        self.v6().to_canonical()
    }

    /// The IPv4 address of a key that is known to have one.
    pub const fn v4(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.halves[1] as u32)
    }

    /// The IPv6 address of a key that is known to have one.
    pub const fn v6(&self) -> Ipv6Addr {
        Ipv6Addr::from_bits((self.halves[0] as u128) << 64 | self.halves[1] as u128)
    }

    pub const fn is_free(&self) -> bool {
        self.halves[0] | self.halves[1] == 0
    }

    #[inline]
    pub const fn hash(&self, seeds: &[u64; 2]) -> u64 {
        let upper = self.halves[0] ^ seeds[0] ^ self.link.0 as u64;
        let product = upper as u128 * (self.halves[1] ^ seeds[1]) as u128;
        (product >> 64) as u64 ^ product as u64
    }
}
