//! Message authentication codes: a host recognises its own cookies without keeping state.

use siphasher::sip::SipHasher24;
use zerocopy::IntoBytes;

use crate::flow_key::FlowKey;

/// A secret key that authenticates cookies: values that a peer sends back, such as the sequence
/// number of a SYN-ACK (RFC 4987, section 3.6).
///
/// The code is [SipHash-2-4](https://www.aumasson.jp/siphash/siphash.pdf) of a flow's key and 64
/// more bits. No one can compute or guess it without the secret, in contrast to the hashes of
/// [`Seed`](crate::seed::Seed). It is the same on every machine with the same key.
///
/// A key must be random, from the operating system, and should be replaced from time to time: a
/// cookie is valid as long as its key. Keep the last key beside the current one, and let a bit of
/// the cookie name the key, so that cookies of both are valid and each takes one code to check:
///
/// ```
/// use hotloop_packet::{cookie::CookieKey, flow_key::FlowKey};
///
/// /// The sequence number of the SYN-ACK to a SYN with the number `isn`. The low three bits are
/// /// readable, one for the key and two for the client's segment size; the others are the code.
/// fn syn_cookie(keys: &[CookieKey; 2], flow: &FlowKey, isn: u32, readable: u32) -> u32 {
///     let key = &keys[(readable & 1) as usize];
///     let code = key.mac(flow, u64::from(isn) << 32 | u64::from(readable));
///     code as u32 & !7 | readable
/// }
///
/// let keys = [[7; 16], [8; 16]].map(CookieKey::new);
/// let flow = FlowKey::new("10.0.0.1:1000".parse()?, "192.0.2.1:80".parse()?, 6).unwrap();
/// let (isn, key, mss_index) = (0x1234_5678, 1, 2);
/// let cookie = syn_cookie(&keys, &flow, isn, mss_index << 1 | key);
///
/// // The handshake's last segment carries both numbers, each plus one, and no options.
/// let (sequence, acknowledgment) = (isn.wrapping_add(1), cookie.wrapping_add(1));
/// let is_valid = |flow: &FlowKey| {
///     let cookie = acknowledgment.wrapping_sub(1);
///     syn_cookie(&keys, flow, sequence.wrapping_sub(1), cookie & 7) == cookie
/// };
/// assert!(is_valid(&flow));
/// assert!(!is_valid(&flow.reversed()));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Copy)]
pub struct CookieKey {
    hasher: SipHasher24,
}

impl CookieKey {
    /// The key from 128 secret random bits.
    pub fn new(secret: [u8; 16]) -> Self {
        Self { hasher: SipHasher24::new_with_key(&secret) }
    }

    /// The code of a flow's key and `extra`, the other facts that the cookie vouches for. All 64
    /// bits are equally good: a cookie with less room takes any of them.
    pub fn mac(&self, flow: &FlowKey, extra: u64) -> u64 {
        const EXTRA_BYTES: usize = size_of::<u64>();
        let (mut v4, mut v6) = ([0; 16 + EXTRA_BYTES], [0; 40 + EXTRA_BYTES]);
        let (message, key) = match flow {
            FlowKey::V4(key) => (&mut v4[..], key.as_bytes()),
            FlowKey::V6(key) => (&mut v6[..], key.as_bytes()),
        };
        let (front, rest) = message.split_at_mut(key.len());
        front.copy_from_slice(key);
        rest.copy_from_slice(&extra.to_be_bytes());
        self.hasher.hash(message)
    }
}

/// Leaves out the secret.
impl std::fmt::Debug for CookieKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CookieKey").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn flow(source: &str, destination: &str) -> FlowKey {
        FlowKey::new(source.parse().unwrap(), destination.parse().unwrap(), 6).unwrap()
    }

    /// Computed by another implementation, from the key's bytes and the number's, big-endian.
    #[test]
    fn codes_are_those_of_siphash() {
        let key = CookieKey::new(std::array::from_fn(|index| index as u8));
        let extra = 0x0102_0304_0506_0708;
        let v4 = flow("10.0.0.1:4660", "192.0.2.1:80");
        assert_eq!(key.mac(&v4, extra), 0x2b17_59a7_0914_48a1);
        let v6 = flow("[2001:db8::1]:4660", "[2001:db8::2]:80");
        assert_eq!(key.mac(&v6, extra), 0x2814_841f_1981_9054);
    }

    #[test]
    fn every_bit_of_secret_and_number_counts() {
        let flow = flow("10.0.0.1:1000", "192.0.2.1:80");
        let mut codes = HashSet::from([CookieKey::new([0; 16]).mac(&flow, 0)]);
        for bit in 0..128 {
            let key = CookieKey::new((1u128 << bit).to_le_bytes());
            assert!(codes.insert(key.mac(&flow, 0)));
        }
        for bit in 0..64 {
            assert!(codes.insert(CookieKey::new([0; 16]).mac(&flow, 1 << bit)));
        }
        assert!(codes.insert(CookieKey::new([0; 16]).mac(&flow.reversed(), 0)));
    }

    #[test]
    fn the_secret_is_not_printed() {
        assert_eq!(format!("{:?}", CookieKey::new([7; 16])), "CookieKey { .. }");
    }
}
