//! Ethernet addresses.

use std::{fmt, str::FromStr};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A 48-bit Ethernet address.
///
/// ```
/// use hotloop_packet::ethernet::MacAddress;
///
/// let mac: MacAddress = "02:00:00:00:00:01".parse()?;
/// assert_eq!(mac, MacAddress::new([2, 0, 0, 0, 0, 1]));
/// assert_eq!(mac.to_string(), "02:00:00:00:00:01");
/// # Ok::<(), hotloop_packet::ethernet::BadMacAddress>(())
/// ```
#[derive(
    Clone,
    Copy,
    Default,
    Eq,
    Hash,
    Ord,
    PartialEq,
    PartialOrd,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(transparent)]
pub struct MacAddress([u8; 6]);

impl MacAddress {
    /// The address of every station.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// An address from its bytes in wire order.
    pub const fn new(bytes: [u8; 6]) -> Self {
        Self(bytes)
    }

    /// The address' bytes in wire order.
    pub const fn bytes(self) -> [u8; 6] {
        self.0
    }

    /// Whether the address names a group of stations; the broadcast address does.
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<[u8; 6]> for MacAddress {
    fn from(bytes: [u8; 6]) -> Self {
        Self(bytes)
    }
}

/// A text that is not an Ethernet address.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "{text:?} is not an Ethernet address: six bytes in hexadecimal wanted, as 02:00:00:00:00:01"
)]
pub struct BadMacAddress {
    /// The text.
    pub text: String,
}

impl FromStr for MacAddress {
    type Err = BadMacAddress;

    fn from_str(text: &str) -> Result<Self, BadMacAddress> {
        parse(text).map(Self).ok_or_else(|| BadMacAddress { text: text.into() })
    }
}

fn parse(text: &str) -> Option<[u8; 6]> {
    let separator = if text.contains('-') { '-' } else { ':' };
    let mut bytes = [0; 6];
    let mut parts = text.split(separator);
    for byte in &mut bytes {
        let part = parts.next()?;
        // `from_str_radix` would take a sign.
        if part.len() != 2 || !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_prints_and_dashes_too() {
        for text in ["00:1b:21:3c:4d:5e", "ff:ff:ff:ff:ff:ff"] {
            let mac: MacAddress = text.parse().unwrap();
            assert_eq!(mac.to_string(), text);
            assert_eq!(text.replace(':', "-").to_uppercase().parse(), Ok(mac));
        }
        assert!(MacAddress::BROADCAST.is_multicast());
        assert!(!MacAddress::new([2, 0, 0, 0, 0, 1]).is_multicast());
    }

    #[test]
    fn refuses_what_is_no_address() {
        for text in [
            "",
            "02:00:00:00:00",
            "02:00:00:00:00:01:02",
            "2:0:0:0:0:1",
            "02:00:00:00:00:0g",
            "+2:00:00:00:00:01",
            "02-00:00:00:00:01",
            "020000000001",
        ] {
            let error = text.parse::<MacAddress>().unwrap_err();
            assert_eq!(error.text, text);
        }
    }
}
