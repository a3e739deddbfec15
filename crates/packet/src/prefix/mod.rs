//! Address prefixes, of both IP versions, and maps and sets of them.

mod map;

pub use map::{PrefixMap, PrefixSet};

use crate::excerpt::excerpt;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address prefix: all addresses that begin with the same [`len`](Self::len) bits. A single address
/// is a prefix of 32 bits, or of 128. The bits after the prefix are always clear, so prefixes of the
/// same addresses are equal.
///
/// A text without a length is a single address. IPv6 addresses that are mapped from IPv4 are refused,
/// because no packet has them.
///
/// ```
/// use hotloop_packet::prefix::Prefix;
///
/// let prefix: Prefix = "203.0.113.0/24".parse()?;
/// assert!(prefix.contains("203.0.113.7".parse()?));
/// assert_eq!((prefix.to_string(), prefix.last().to_string()), ("203.0.113.0/24".into(), "203.0.113.255".into()));
///
/// let error = "203.0.113.7/24".parse::<Prefix>().unwrap_err();
/// assert_eq!(error.to_string(), "\"203.0.113.7/24\" has address bits after its prefix; write 203.0.113.0/24");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Prefix {
    /// Invariant: no bit is set after the first `len`.
    network: IpAddr,
    /// Invariant: at most the family's width.
    len: u8,
}

/// The reason that a text is not a prefix, with a correct form.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PrefixError {
    /// Neither an address nor an address, a slash and a length.
    #[error(
        "\"{0}\" is not an IP address or prefix; write 203.0.113.10, 203.0.113.0/24 or 2001:db8::/32"
    )]
    Syntax(String),
    /// The length exceeds the family's width.
    #[error("\"{text}\" has a prefix longer than its address; write a length from 0 to {width}")]
    Length {
        /// The text.
        text: String,
        /// Number of bits of an address of its family.
        width: u8,
    },
    /// IPv4 addresses in the form of the IPv6 addresses to which they are mapped (RFC 4291, section
    /// 2.5.5.2): no packet has such addresses.
    #[error("\"{text}\" is mapped from IPv4 into IPv6, where no packet has it; write {plain}")]
    Mapped {
        /// The text.
        text: String,
        /// The same addresses in IPv4's form.
        plain: Prefix,
    },
    /// Bits are set after the prefix.
    #[error("\"{text}\" has address bits after its prefix; write {network}")]
    HostBits {
        /// The text.
        text: String,
        /// The prefix that contains it.
        network: Prefix,
    },
}

impl Prefix {
    /// The prefix that holds only `address`.
    #[must_use]
    pub const fn host(address: IpAddr) -> Self {
        Self { network: address, len: width(address) }
    }

    /// The prefix of this length that contains `address`. A length of more bits than the address has
    /// counts as all of them.
    #[must_use]
    pub fn of(address: IpAddr, len: u8) -> Self {
        let len = len.min(width(address));
        Self { network: masked(address, len), len }
    }

    /// The first address.
    #[must_use]
    pub const fn network(self) -> IpAddr {
        self.network
    }

    /// The last address.
    #[must_use]
    pub fn last(self) -> IpAddr {
        match self.network {
            IpAddr::V4(first) => Ipv4Addr::from_bits(first.to_bits() | !mask_v4(self.len)).into(),
            IpAddr::V6(first) => Ipv6Addr::from_bits(first.to_bits() | !mask_v6(self.len)).into(),
        }
    }

    /// Number of fixed bits.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a length in bits, not of a collection")]
    pub const fn len(self) -> u8 {
        self.len
    }

    /// Whether the prefix holds a single address.
    #[must_use]
    pub const fn is_host(self) -> bool {
        self.len == width(self.network)
    }

    /// The prefix, unless it is of mapped addresses.
    fn plain(self, text: &str) -> Result<Self, PrefixError> {
        match self.unmapped() {
            Some(plain) => Err(PrefixError::Mapped { text: text.to_owned(), plain }),
            None => Ok(self),
        }
    }

    /// The same addresses in IPv4's form, if the prefix holds nothing but mapped addresses.
    #[must_use]
    pub fn unmapped(self) -> Option<Self> {
        let IpAddr::V6(network) = self.network else { return None };
        let len = self.len.checked_sub(MAPPED_BITS)?;
        network.to_ipv4_mapped().map(|network| Self { network: network.into(), len })
    }

    /// Whether the prefix contains `address`.
    #[inline]
    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        width(address) == width(self.network) && masked(address, self.len) == self.network
    }
}

/// Number of bits that mark an address as mapped from IPv4.
const MAPPED_BITS: u8 = 96;

/// Number of bits of an address of the same family.
const fn width(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// The mask of the first `len` bits of an IPv4 address.
fn mask_v4(len: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)
}

/// The mask of the first `len` bits of an IPv6 address.
fn mask_v6(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}

/// The address with all but its first `len` bits cleared.
fn masked(address: IpAddr, len: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() & mask_v4(len)).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & mask_v6(len)).into(),
    }
}

impl std::str::FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let syntax = || PrefixError::Syntax(excerpt(text));
        let (address, len) = text.split_once('/').map_or((text, None), |(a, l)| (a, Some(l)));
        let address: IpAddr = address.parse().map_err(|_| syntax())?;
        let Some(len) = len else { return Self::host(address).plain(text) };
        let digits =
            !len.is_empty() && len.len() <= 3 && len.bytes().all(|byte| byte.is_ascii_digit());
        let len: u16 = digits.then(|| len.parse().ok()).flatten().ok_or_else(syntax)?;
        let width = width(address);
        let len = u8::try_from(len).ok().filter(|len| *len <= width);
        let len = len.ok_or_else(|| PrefixError::Length { text: text.to_owned(), width })?;
        let prefix = Self { network: masked(address, len), len };
        if prefix.network != address {
            return Err(PrefixError::HostBits { text: text.to_owned(), network: prefix });
        }
        prefix.plain(text)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_host() {
            write!(f, "{}", self.network)
        } else {
            write!(f, "{}/{}", self.network, self.len)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap()
    }

    #[test]
    fn a_prefix_holds_the_addresses_under_its_mask() {
        for (text, inside, outside) in [
            ("203.0.113.0/24", "203.0.113.255", "203.0.114.0"),
            ("203.0.113.10", "203.0.113.10", "203.0.113.11"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
            ("::/0", "ffff::", "0.0.0.0"),
        ] {
            assert!(prefix(text).contains(inside.parse().unwrap()), "{text} {inside}");
            assert!(!prefix(text).contains(outside.parse().unwrap()), "{text} {outside}");
            assert_eq!(prefix(text).to_string(), text);
        }
        assert_eq!(prefix("203.0.113.10/32"), prefix("203.0.113.10"));
    }

    #[test]
    fn a_prefix_is_of_no_more_bits_than_an_address() {
        let address: IpAddr = "203.0.113.10".parse().unwrap();
        assert_eq!(Prefix::of(address, 33), Prefix::host(address));
        assert_eq!(Prefix::of(address, u8::MAX).last(), address);
        let address: IpAddr = "2001:db8::1".parse().unwrap();
        assert_eq!(Prefix::of(address, 129), Prefix::host(address));
        assert_eq!(
            Prefix::of(address, 0).last(),
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff".parse::<IpAddr>().unwrap()
        );
    }

    #[test]
    fn what_is_no_prefix_says_what_to_write() {
        for (text, message) in [
            ("web", "not an IP address or prefix; write 203.0.113.10"),
            ("10.0.0.0/", "not an IP address or prefix"),
            ("10.0.0.0/+8", "not an IP address or prefix"),
            ("10.0.0.0/33", "write a length from 0 to 32"),
            ("10.0.0.0/999", "write a length from 0 to 32"),
            ("2001:db8::/129", "write a length from 0 to 128"),
            ("203.0.113.5/24", "write 203.0.113.0/24"),
            ("::ffff:203.0.113.10", "write 203.0.113.10"),
            ("::ffff:203.0.113.0/120", "write 203.0.113.0/24"),
            ("::ffff:0:0/96", "write 0.0.0.0/0"),
        ] {
            let error = text.parse::<Prefix>().unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
