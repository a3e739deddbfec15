//! Addresses as numbers.

use std::net::IpAddr;

/// The address as a number; an IPv4 address takes the lower 32 bits.
pub fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The mask of the first `len` bits of an IPv4 address.
pub fn mask_v4(len: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)
}

/// The mask of the first `len` bits of an IPv6 address.
pub fn mask_v6(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}
