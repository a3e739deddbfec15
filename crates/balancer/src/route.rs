//! Ways out of the balancer: ports, and the kernel. Plain values for the engine's dispatch.

use hotloop::packet::ethernet::MacAddress;
use std::fmt;

/// A port to send by: the route of the engine.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct Route(pub u16);

impl Route {
    /// The port that the kernel's routes select for a packet's destination.
    pub const BY_KERNEL: Self = Self(0x8000);

    /// The route to the kernel, by the interface of the port with this index.
    #[must_use]
    pub const fn to_kernel(index: u16) -> Self {
        Self(u16::MAX - index)
    }

    /// The index of that port; `None` if the route is a port itself.
    const fn kernel_index(self) -> Option<u16> {
        if self.0 > u16::MAX / 2 { Some(u16::MAX - self.0) } else { None }
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kernel_index() {
            _ if *self == Self::BY_KERNEL => f.write_str("by the kernel's routes"),
            Some(index) => write!(f, "kernel {index}"),
            None => write!(f, "port {}", self.0),
        }
    }
}

/// A port to send packets by, and the addresses of their frames.
#[derive(Clone, Copy, Debug)]
pub struct Egress {
    /// The port.
    pub route: Route,
    /// The port's own MAC address.
    pub source: MacAddress,
    /// The next hop's MAC address.
    pub destination: MacAddress,
}

impl Egress {
    /// Destination and source of the port's frames.
    pub(crate) fn addresses(&self) -> [u8; 12] {
        let mut addresses = [0; 12];
        addresses[..6].copy_from_slice(&self.destination.bytes());
        addresses[6..].copy_from_slice(&self.source.bytes());
        addresses
    }
}

/// The egress of each side.
#[derive(Clone, Copy, Debug)]
pub struct Egresses {
    /// Towards clients.
    pub clients: Egress,
    /// Towards backends.
    pub backends: Egress,
}
