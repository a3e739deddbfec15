//! Errors in headers.

/// A protocol with a header that can be malformed.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Header {
    /// Ethernet, VLAN tags included.
    Ethernet = 0,
    /// ARP for IPv4 over Ethernet.
    Arp = 1,
    /// IPv4, options included.
    Ipv4 = 2,
    /// IPv6's fixed header.
    Ipv6 = 3,
    /// The chain of IPv6 extension headers.
    Ipv6Extension = 4,
    /// TCP, options included.
    Tcp = 5,
    /// UDP.
    Udp = 6,
    /// ICMP for IPv4.
    Icmp = 7,
    /// ICMP for IPv6.
    Icmpv6 = 8,
    /// VXLAN.
    Vxlan = 9,
    /// GUE, optional fields included.
    Gue = 10,
    /// GRE, optional fields included.
    Gre = 11,
}

impl Header {
    /// The header with this number, or the first one if there is none.
    pub(crate) const fn from_index(index: u8) -> Self {
        match index {
            1 => Self::Arp,
            2 => Self::Ipv4,
            3 => Self::Ipv6,
            4 => Self::Ipv6Extension,
            5 => Self::Tcp,
            6 => Self::Udp,
            7 => Self::Icmp,
            8 => Self::Icmpv6,
            9 => Self::Vxlan,
            10 => Self::Gue,
            11 => Self::Gre,
            _ => Self::Ethernet,
        }
    }
}

impl std::fmt::Display for Header {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ethernet => "Ethernet",
            Self::Arp => "ARP",
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
            Self::Ipv6Extension => "IPv6 extension",
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Icmp => "ICMP",
            Self::Icmpv6 => "ICMPv6",
            Self::Vxlan => "VXLAN",
            Self::Gue => "GUE",
            Self::Gre => "GRE",
        })
    }
}

/// A header that cannot be used: it is cut, or inconsistent in itself or with the headers around
/// it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Malformed {
    /// There are fewer bytes than the header needs.
    #[error("{header} header cut: {wanted_bytes} bytes wanted, {available_bytes} there")]
    Cut {
        /// The header's protocol.
        header: Header,
        /// Number of bytes needed, as far as could be read.
        wanted_bytes: usize,
        /// Number of bytes available.
        available_bytes: usize,
    },
    /// A field holds an impossible value.
    #[error("{header} header with an impossible {field}")]
    Inconsistent {
        /// The header's protocol.
        header: Header,
        /// The field's name in the RFC.
        field: &'static str,
    },
}

impl Malformed {
    /// The protocol of the malformed header.
    pub const fn header(&self) -> Header {
        match self {
            Self::Cut { header, .. } | Self::Inconsistent { header, .. } => *header,
        }
    }

    pub(crate) const fn cut(header: Header, wanted_bytes: usize, available_bytes: usize) -> Self {
        Self::Cut { header, wanted_bytes, available_bytes }
    }

    pub(crate) const fn inconsistent(header: Header, field: &'static str) -> Self {
        Self::Inconsistent { header, field }
    }
}
