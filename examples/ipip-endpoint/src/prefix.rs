//! Addresses under a mask.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// An address, or all addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Prefix {
    address: IpAddr,
    /// Invariant: at most the family's width.
    bit_count: u8,
}

/// A text that is not a prefix.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("\"{text}\" is no address or prefix: write 192.0.2.1, 192.0.2.0/26 or 2001:db8::/64")]
pub struct BadPrefix {
    /// The text.
    pub text: String,
}

impl Prefix {
    /// Whether `address` begins with the same bits.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let same_bits = match (self.address, address) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                (ours.to_bits() ^ theirs.to_bits()).leading_zeros()
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                (ours.to_bits() ^ theirs.to_bits()).leading_zeros()
            }
            _ => return false,
        };
        same_bits >= u32::from(self.bit_count)
    }
}

/// Bits of an address of the same family.
const fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl FromStr for Prefix {
    type Err = BadPrefix;

    fn from_str(text: &str) -> Result<Self, BadPrefix> {
        let bad = || BadPrefix { text: text.to_owned() };
        let (address, bit_count) = match text.split_once('/') {
            Some((address, bit_count)) => (address, Some(bit_count)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let Some(bit_count) = bit_count else {
            return Ok(Self { address, bit_count: width(address) });
        };
        let bit_count = bit_count.parse().ok().filter(|count| *count <= width(address));
        Ok(Self { address, bit_count: bit_count.ok_or_else(bad)? })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bit_count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_holds_what_begins_with_its_bits() {
        for (text, inside, outside) in [
            ("192.0.2.0/26", "192.0.2.63", "192.0.2.64"),
            ("192.0.2.1", "192.0.2.1", "192.0.2.0"),
            ("0.0.0.0/0", "255.255.255.255", "::"),
            ("2001:db8::/32", "2001:db8:ffff::", "2001:db9::"),
            ("2001:db8::1", "2001:db8::1", "2001:db8::2"),
            ("::/0", "ffff::", "0.0.0.0"),
        ] {
            let prefix: Prefix = text.parse().unwrap();
            assert!(prefix.contains(inside.parse().unwrap()), "{text} {inside}");
            assert!(!prefix.contains(outside.parse().unwrap()), "{text} {outside}");
        }
    }

    #[test]
    fn what_is_no_prefix_is_refused_with_what_to_write() {
        for text in ["", "balancer", "192.0.2.1/33", "192.0.2.1/", "192.0.2.1/-1", "::/129", "/8"] {
            let message = text.parse::<Prefix>().unwrap_err().to_string();
            assert!(message.contains("write 192.0.2.1"), "{message}");
        }
    }
}
