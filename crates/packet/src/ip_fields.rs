//! Fields that IPv4's and IPv6's headers share: addresses, protocol numbers, fragments, congestion marks.

use std::net::IpAddr;

/// Protocol numbers (IANA's registry), used in IPv4's protocol and IPv6's next-header field.
pub mod protocol {
    /// IPv6's hop-by-hop options.
    pub const HOP_BY_HOP: u8 = 0;
    /// ICMP for IPv4.
    pub const ICMP: u8 = 1;
    /// An IPv4 packet: IP in IP (RFC 2003).
    pub const IPV4: u8 = 4;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// An IPv6 packet (RFC 2473, RFC 4213).
    pub const IPV6: u8 = 41;
    /// IPv6's routing header.
    pub const ROUTING: u8 = 43;
    /// IPv6's fragment header.
    pub const FRAGMENT: u8 = 44;
    /// Generic routing encapsulation (RFC 2784): see [`crate::gre`].
    pub const GRE: u8 = 47;
    /// The authentication header (RFC 4302).
    pub const AUTHENTICATION: u8 = 51;
    /// ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
    /// IPv6's destination options.
    pub const DESTINATION_OPTIONS: u8 = 60;
}

/// The part of a datagram that a packet holds.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Fragment {
    /// The whole datagram.
    #[default]
    None,
    /// The first fragment, which holds the transport header.
    First,
    /// A later fragment, which has no transport header and so no ports.
    Later,
}

impl Fragment {
    #[inline]
    pub(crate) const fn new(offset: u16, more: bool) -> Self {
        match (offset, more) {
            (0, false) => Self::None,
            (0, true) => Self::First,
            _ => Self::Later,
        }
    }
}

/// The congestion mark in the low two bits of IPv4's TOS and of IPv6's traffic class (RFC 3168).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Ecn {
    /// The transport does not understand congestion marks.
    NotEct = 0,
    /// Not congested so far, ECT(1).
    Ect1 = 1,
    /// Not congested so far, ECT(0).
    Ect0 = 2,
    /// Congestion experienced.
    Ce = 3,
}

impl Ecn {
    /// The mark in a TOS or traffic class.
    #[inline]
    pub(crate) const fn of(traffic_class: u8) -> Self {
        match traffic_class & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }
}

/// Whether an address may belong to one host on a network: not unspecified, loopback, multicast or
/// reserved. A packet with any other source or destination is martian (RFC 1812, section 5.3.7; RFC
/// 4291, section 2).
#[inline(always)]
pub const fn is_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => HOSTS_V4[address.octets()[0] as usize],
        IpAddr::V6(address) => {
            !address.is_unspecified() && !address.is_loopback() && !address.is_multicast()
        }
    }
}

/// Whether an IPv4 address may be a host's, by its first octet: one load is cheaper than three
/// comparisons.
const HOSTS_V4: [bool; 256] = {
    let mut hosts = [false; 256];
    let mut octet = 1;
    while octet < 224 {
        hosts[octet] = octet != 127;
        octet += 1;
    }
    hosts
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_single() {
        for (address, expected) in [
            ("10.0.0.1", true),
            ("1.0.0.0", true),
            ("126.255.255.255", true),
            ("128.0.0.0", true),
            ("223.255.255.255", true),
            ("0.0.0.0", false),
            ("0.0.0.1", false),
            ("127.0.0.1", false),
            ("224.0.0.1", false),
            ("240.0.0.1", false),
            ("255.255.255.255", false),
            ("2001:db8::1", true),
            ("fe80::1", true),
            ("::2", true),
            ("::", false),
            ("::1", false),
            ("ff02::1", false),
        ] {
            assert_eq!(is_host(address.parse().unwrap()), expected, "{address}");
        }
    }
}
