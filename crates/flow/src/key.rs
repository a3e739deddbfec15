//! What a flow is found by.

use hotloop_packet::flow_key::{FlowKey, FlowKeyV4, FlowKeyV6};

/// A flow's key: small, compared as a whole, and hashed with a seed.
///
/// ```
/// use hotloop_flow::{Key, hash_words};
///
/// #[derive(Clone, Copy, PartialEq, Eq)]
/// struct Subscriber {
///     tunnel: u32,
///     address: u32,
/// }
///
/// impl Key for Subscriber {
///     fn hash(&self, seed: u64) -> u64 {
///         hash_words(&[u64::from(self.tunnel) << 32 | u64::from(self.address)], seed)
///     }
/// }
///
/// let key = Subscriber { tunnel: 7, address: 0x0a00_0001 };
/// assert_ne!(key.hash(1), key.hash(2));
/// ```
pub trait Key: Copy + Eq {
    /// A hash of all that makes two keys differ, every bit of it depending on the seed.
    ///
    /// Without knowing the seed, nobody must be able to choose keys whose hashes agree.
    fn hash(&self, seed: u64) -> u64;
}

impl<const N: usize> Key for [u64; N] {
    #[inline]
    fn hash(&self, seed: u64) -> u64 {
        hash_words(self, seed)
    }
}

impl Key for FlowKeyV4 {
    #[inline]
    fn hash(&self, seed: u64) -> u64 {
        hash_words(&self.words(), seed)
    }
}

impl Key for FlowKeyV6 {
    #[inline]
    fn hash(&self, seed: u64) -> u64 {
        hash_words(&self.words(), seed)
    }
}

impl Key for FlowKey {
    #[inline]
    fn hash(&self, seed: u64) -> u64 {
        match self {
            Self::V4(key) => Key::hash(key, seed),
            Self::V6(key) => Key::hash(key, seed),
        }
    }
}

/// Odd constants with about as many ones as zeroes: the fractions of the square roots of 2 and 3.
const MULTIPLIERS: [u64; 2] = [0x6a09_e667_f3bc_c909, 0xbb67_ae85_84ca_a73b];

/// Hashes `words`: seeded multiplications whose two halves are folded together, two words each.
///
/// For tables: quick, and unpredictable without the seed, but no cryptographic hash.
#[inline]
pub fn hash_words(words: &[u64], seed: u64) -> u64 {
    let mut state = fold(seed ^ MULTIPLIERS[0], MULTIPLIERS[1] ^ words.len() as u64);
    let (pairs, rest) = words.as_chunks::<2>();
    for pair in pairs {
        state = mix(*pair, state);
    }
    if let [word] = rest {
        state = mix([*word, 0], state);
    }
    fold(state ^ seed, MULTIPLIERS[1])
}

#[inline(always)]
fn mix([first, second]: [u64; 2], state: u64) -> u64 {
    fold(first ^ state, second ^ state.rotate_left(32) ^ MULTIPLIERS[0])
}

/// The two halves of the 128-bit product, one upon the other.
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    #[test]
    fn every_bit_of_key_and_seed_counts() {
        let key = [7; 5];
        let plain = key.hash(9);
        for bit in 0..key.len() * 64 {
            let mut other = key;
            other[bit / 64] ^= 1 << (bit % 64);
            let changed_count = (other.hash(9) ^ plain).count_ones();
            assert!((12..=52).contains(&changed_count), "bit {bit}: {changed_count}");
        }
        for bit in 0..64 {
            let changed_count = (key.hash(9 ^ 1 << bit) ^ plain).count_ones();
            assert!((12..=52).contains(&changed_count), "seed bit {bit}: {changed_count}");
        }
    }

    #[test]
    fn trailing_zeroes_count() {
        let hashes: Vec<_> = (0..6).map(|count| hash_words(&[0; 6][..count], 1)).collect();
        for (index, hash) in hashes.iter().enumerate() {
            assert!(!hashes[..index].contains(hash));
        }
    }

    #[test]
    fn keys_in_a_row_fill_buckets_evenly() {
        for shift in [0, 16, 32, 48] {
            let mut counts = [0_u32; 64];
            for number in 0..64_000_u64 {
                counts[[number << shift, 0].hash(3) as usize % 64] += 1;
            }
            assert!(counts.iter().all(|count| (800..1_200).contains(count)), "{counts:?}");
        }
    }

    #[test]
    fn flow_keys_hash_as_their_words() {
        let v4 = FlowKeyV4::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 1_000, 80, 6);
        assert_eq!(Key::hash(&v4, 5), v4.words().hash(5));
        assert_eq!(Key::hash(&FlowKey::V4(v4), 5), v4.words().hash(5));
        assert_ne!(Key::hash(&v4.reversed(), 5), Key::hash(&v4, 5));
        let v6 = FlowKeyV6::new(Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED, 1_000, 80, 6);
        assert_eq!(Key::hash(&v6, 5), v6.words().hash(5));
        assert_eq!(Key::hash(&FlowKey::V6(v6), 5), v6.words().hash(5));
    }
}
