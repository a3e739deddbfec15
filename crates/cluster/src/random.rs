//! Unpredictable random numbers from the system's generator.

use rustix::rand::{GetRandomFlags, getrandom};
use std::io;

/// `N` random bytes, at most 256.
///
/// # Errors
/// The system has no random numbers.
pub fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    // Up to 256 bytes come at once, unless a signal comes first (getrandom(2)).
    while getrandom(&mut bytes, GetRandomFlags::empty())? < bytes.len() {}
    Ok(bytes)
}

/// A name that nothing else has: 32 random hexadecimal digits.
///
/// # Errors
/// The system has no random numbers.
pub fn random_name() -> io::Result<String> {
    Ok(format!("{:032x}", u128::from_ne_bytes(random_bytes()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes_and_names_differ() {
        assert_ne!(random_bytes::<16>().unwrap(), random_bytes::<16>().unwrap());
        let (one, other) = (random_name().unwrap(), random_name().unwrap());
        assert_eq!(one.len(), 32);
        assert_ne!(one, other);
    }
}
