//! What a record keeps of its arguments: plain values, so that they are formatted later.

use hotloop_packet::ethernet::MacAddress;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The most values of one record, fields and arguments of the message together.
pub const VALUE_COUNT_MAX: usize = 6;

/// The longest array of bytes that is a value.
pub const BYTES_MAX: usize = 16;

/// An argument of a record, by value: what [`From`] takes. It shows as the type it was made of does, in
/// `{}` and `{:?}`, width and precision included.
#[derive(Clone, Copy, Default, Eq, PartialEq)]
pub struct Value(pub(super) Kind);

#[derive(Clone, Copy, Default, Eq, PartialEq)]
pub(super) enum Kind {
    #[default]
    None,
    Unsigned(u64),
    Signed(i64),
    Bool(bool),
    Text(&'static str),
    V4(Ipv4Addr),
    V6(Ipv6Addr),
    Ip(IpAddr),
    Mac(MacAddress),
    /// Bytes, and how many of them there are.
    Bytes([u8; BYTES_MAX], u8),
}

impl Value {
    fn inner(&self) -> (&dyn fmt::Debug, Option<&dyn fmt::Display>) {
        match &self.0 {
            Kind::None => (&(), None),
            Kind::Unsigned(number) => (number, Some(number)),
            Kind::Signed(number) => (number, Some(number)),
            Kind::Bool(is_so) => (is_so, Some(is_so)),
            Kind::Text(text) => (text, Some(text)),
            Kind::V4(address) => (address, Some(address)),
            Kind::V6(address) => (address, Some(address)),
            Kind::Ip(address) => (address, Some(address)),
            Kind::Mac(address) => (address, Some(address)),
            Kind::Bytes(..) => (&(), None),
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Bytes(bytes, count) => bytes[..usize::from(*count)].fmt(f),
            _ => self.inner().0.fmt(f),
        }
    }
}

/// As the type itself shows; bytes, which have no such form, as in `{:?}`.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.inner().1 {
            Some(shown) => shown.fmt(f),
            None => fmt::Debug::fmt(self, f),
        }
    }
}

macro_rules! from {
    ($($kind:ident: $($type:ty)+;)+) => {
        $($(impl From<$type> for Value {
            #[inline]
            fn from(value: $type) -> Self {
                Self(Kind::$kind(value.into()))
            }
        })+)+
    };
}

from! {
    Unsigned: u8 u16 u32 u64;
    Signed: i8 i16 i32 i64;
    Bool: bool;
    Text: &'static str;
    V4: Ipv4Addr;
    V6: Ipv6Addr;
    Ip: IpAddr;
    Mac: MacAddress;
}

impl From<usize> for Value {
    #[inline]
    fn from(number: usize) -> Self {
        Self(Kind::Unsigned(number as u64))
    }
}

impl From<isize> for Value {
    #[inline]
    fn from(number: isize) -> Self {
        Self(Kind::Signed(number as i64))
    }
}

/// At most [`BYTES_MAX`] bytes: more don't compile.
impl<const N: usize> From<[u8; N]> for Value {
    #[inline]
    fn from(bytes: [u8; N]) -> Self {
        const { assert!(N <= BYTES_MAX, "a record keeps arrays of at most 16 bytes") };
        let mut kept = [0; BYTES_MAX];
        kept[..N].copy_from_slice(&bytes);
        Self(Kind::Bytes(kept, N as u8))
    }
}

/// The values of one record, fields first.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Values(pub(super) [Value; VALUE_COUNT_MAX]);

impl Values {
    /// These values: more than [`VALUE_COUNT_MAX`] don't compile.
    #[inline]
    #[must_use]
    pub fn new<const N: usize>(values: [Value; N]) -> Self {
        const { assert!(N <= VALUE_COUNT_MAX, "a record has at most 6 values") };
        let mut kept = Self::default();
        kept.0[..N].copy_from_slice(&values);
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_shows<T: Into<Value> + Copy + fmt::Display + fmt::Debug>(values: &[T]) {
        for &plain in values {
            let value: Value = plain.into();
            assert_eq!(format!("{value}|{value:?}"), format!("{plain}|{plain:?}"));
            assert_eq!(format!("{value:>20}|{value:<3}"), format!("{plain:>20}|{plain:<3}"));
        }
    }

    #[test]
    fn values_show_as_what_they_were_made_of() {
        assert_shows(&[0, 1, u8::MAX]);
        assert_shows(&[0, u16::MAX]);
        assert_shows(&[u32::MAX]);
        assert_shows(&[u64::MAX]);
        assert_shows(&[usize::MAX]);
        assert_shows(&[i8::MIN, i8::MAX]);
        assert_shows(&[i16::MIN]);
        assert_shows(&[i32::MIN]);
        assert_shows(&[i64::MIN, i64::MAX]);
        assert_shows(&[isize::MIN]);
        assert_shows(&[true, false]);
        assert_shows(&["", "two words", "a \"quote\"\n"]);
        assert_shows(&[Ipv4Addr::LOCALHOST]);
        assert_shows(&[Ipv6Addr::LOCALHOST, "2001:db8::1".parse().unwrap()]);
        assert_shows::<IpAddr>(&["10.0.0.1".parse().unwrap(), "::ffff:1.2.3.4".parse().unwrap()]);
        assert_shows(&[MacAddress::BROADCAST]);
        let bytes = [0, 7, 255];
        let value = Value::from(bytes);
        assert_eq!(
            format!("{value:?}|{value}|{value:02x?}"),
            "[0, 7, 255]|[0, 7, 255]|[00, 07, ff]"
        );
        assert_eq!(format!("{:?}", Value::from([])), "[]");
        assert_eq!(format!("{:?}", Value::from([9; BYTES_MAX])), format!("{:?}", [9; BYTES_MAX]));
    }

    #[test]
    fn a_value_is_small() {
        assert!(size_of::<Value>() <= 24);
    }
}
