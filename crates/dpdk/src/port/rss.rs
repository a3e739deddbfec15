//! The packets that RSS hashes, and their fields.

use hotloop_dpdk_sys as sys;
use std::fmt;
use std::ops::BitOr;

/// A set of fields that RSS hashes.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct RssFields(u64);

const FIELDS: [(RssFields, &str); 3] =
    [(RssFields::IP, "ip"), (RssFields::TCP, "tcp"), (RssFields::UDP, "udp")];

impl RssFields {
    /// Nothing: every packet goes to queue 0.
    pub const NONE: Self = Self(0);
    /// The two addresses of IPv4 and IPv6 packets.
    pub const IP: Self = Self(sys::SH_RSS_IP);
    /// Addresses and ports of TCP packets.
    pub const TCP: Self = Self(sys::SH_RSS_TCP);
    /// Addresses and ports of UDP packets.
    pub const UDP: Self = Self(sys::SH_RSS_UDP);

    /// The intersection of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(super) const fn from_bits(bits: u64) -> Self {
        Self(bits & (Self::IP.0 | Self::TCP.0 | Self::UDP.0))
    }

    pub(super) const fn bits(self) -> u64 {
        self.0
    }
}

impl BitOr for RssFields {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for RssFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let there = FIELDS.iter().filter(|(field, _)| self.and(*field) != Self::NONE);
        let names = there.map(|(_, name)| *name).collect::<Vec<_>>();
        f.pad(&if names.is_empty() { "none".into() } else { names.join("+") })
    }
}

impl fmt::Debug for RssFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_fields_have_names() {
        assert_eq!((RssFields::IP | RssFields::UDP).to_string(), "ip+udp");
        assert_eq!(RssFields::from_bits(0), RssFields::NONE);
    }
}
