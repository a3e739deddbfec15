//! Sets of offloads and of RSS hash fields.

use hotloop_dpdk_sys as sys;
use std::fmt;
use std::ops::BitOr;

/// Work that a device does in place of the CPU, for one direction.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct Offloads(u64);

/// Bits of [`Offloads`], each with DPDK's for RX and TX, and its name.
const OFFLOADS: [(Offloads, u64, u64, &str); 6] = [
    (Offloads::IPV4_CHECKSUM, sys::SH_RX_IPV4_CKSUM, sys::SH_TX_IPV4_CKSUM, "ipv4-checksum"),
    (Offloads::UDP_CHECKSUM, sys::SH_RX_UDP_CKSUM, sys::SH_TX_UDP_CKSUM, "udp-checksum"),
    (Offloads::TCP_CHECKSUM, sys::SH_RX_TCP_CKSUM, sys::SH_TX_TCP_CKSUM, "tcp-checksum"),
    (Offloads::SCATTER, sys::SH_RX_SCATTER, 0, "scatter"),
    (Offloads::RSS_HASH, sys::SH_RX_RSS_HASH, 0, "rss-hash"),
    (Offloads::CHAINS, 0, sys::SH_TX_MULTI_SEGS, "chains"),
];

impl Offloads {
    /// None.
    pub const NONE: Self = Self(0);
    /// IPv4 header checksums: checked, or filled in.
    pub const IPV4_CHECKSUM: Self = Self(1);
    /// UDP checksums.
    pub const UDP_CHECKSUM: Self = Self(1 << 1);
    /// TCP checksums.
    pub const TCP_CHECKSUM: Self = Self(1 << 2);
    /// RX: packets larger than a buffer come in several.
    pub const SCATTER: Self = Self(1 << 3);
    /// RX: the RSS hash is left in the mbuf, where a packet's metadata is.
    pub const RSS_HASH: Self = Self(1 << 4);
    /// TX: chains of several segments are sent.
    pub const CHAINS: Self = Self(1 << 5);

    /// Whether all of `others` are in it.
    #[must_use]
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    pub(super) fn from_rx(bits: u64) -> Self {
        Self::collect(|rx, _| bits & rx != 0)
    }

    pub(super) fn from_tx(bits: u64) -> Self {
        Self::collect(|_, tx| bits & tx != 0)
    }

    fn collect(has: impl Fn(u64, u64) -> bool) -> Self {
        let there = OFFLOADS.iter().filter(|(_, rx, tx, _)| has(*rx, *tx));
        there.fold(Self::NONE, |set, (offload, ..)| set | *offload)
    }

    pub(super) fn rx_bits(self) -> u64 {
        self.each().map(|(_, rx, _, _)| rx).sum()
    }

    pub(super) fn tx_bits(self) -> u64 {
        self.each().map(|(_, _, tx, _)| tx).sum()
    }

    fn each(self) -> impl Iterator<Item = &'static (Self, u64, u64, &'static str)> {
        OFFLOADS.iter().filter(move |(offload, ..)| self.contains(*offload))
    }
}

impl BitOr for Offloads {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for Offloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_names(f, self.each().map(|(.., name)| *name))
    }
}

impl fmt::Debug for Offloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What RSS hashes.
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

    /// What is in both.
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
        write_names(f, there.map(|(_, name)| *name))
    }
}

impl fmt::Debug for RssFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn write_names<'a>(
    f: &mut fmt::Formatter<'_>,
    names: impl Iterator<Item = &'a str>,
) -> fmt::Result {
    let names = names.collect::<Vec<_>>();
    f.pad(&if names.is_empty() { "none".into() } else { names.join("+") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offloads_become_the_bits_of_their_direction() {
        let set = Offloads::IPV4_CHECKSUM | Offloads::SCATTER | Offloads::CHAINS;
        assert_eq!(set.rx_bits(), sys::SH_RX_IPV4_CKSUM | sys::SH_RX_SCATTER);
        assert_eq!(set.tx_bits(), sys::SH_TX_IPV4_CKSUM | sys::SH_TX_MULTI_SEGS);
        assert_eq!(Offloads::from_rx(set.rx_bits()), Offloads::IPV4_CHECKSUM | Offloads::SCATTER);
        assert_eq!(Offloads::from_tx(set.tx_bits()), Offloads::IPV4_CHECKSUM | Offloads::CHAINS);
        assert_eq!(set.to_string(), "ipv4-checksum+scatter+chains");
        assert_eq!(Offloads::NONE.to_string(), "none");
    }

    #[test]
    fn hash_fields_have_names() {
        assert_eq!((RssFields::IP | RssFields::UDP).to_string(), "ip+udp");
        assert_eq!(RssFields::from_bits(0), RssFields::NONE);
    }
}
