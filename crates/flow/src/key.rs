//! The keys of flows.

use hotloop_packet::flow_key::{FlowKey, FlowKeyV4, FlowKeyV6};
use hotloop_packet::fragment::FragmentId;

/// A flow's key: small, compared as a whole, and hashed with a seed.
///
/// ```
/// use hotloop_flow::{HashSeed, Key, hash_words};
///
/// #[derive(Clone, Copy, PartialEq, Eq)]
/// struct Subscriber {
///     tunnel: u32,
///     address: u32,
/// }
///
/// impl Key for Subscriber {
///     fn hash(&self, seed: &HashSeed) -> u64 {
///         hash_words(&[u64::from(self.tunnel) << 32 | u64::from(self.address)], seed)
///     }
/// }
///
/// let key = Subscriber { tunnel: 7, address: 0x0a00_0001 };
/// assert_ne!(key.hash(&HashSeed::new(1)), key.hash(&HashSeed::new(2)));
/// ```
pub trait Key: Copy + Eq {
    /// A hash of everything that makes two keys differ. Every bit must depend on the seed.
    ///
    /// Without the seed, it must be impossible to choose keys with equal hashes. A table takes a
    /// key's groups from the two halves of the hash, and its tag from the bits between them: every
    /// bit must be good.
    fn hash(&self, seed: &HashSeed) -> u64;
}

impl<const N: usize> Key for [u64; N] {
    #[inline]
    fn hash(&self, seed: &HashSeed) -> u64 {
        hash_words(self, seed)
    }
}

impl Key for FlowKeyV4 {
    #[inline]
    fn hash(&self, seed: &HashSeed) -> u64 {
        hash_words(&self.words(), seed)
    }
}

impl Key for FlowKeyV6 {
    #[inline]
    fn hash(&self, seed: &HashSeed) -> u64 {
        hash_words(&self.words(), seed)
    }
}

impl Key for FlowKey {
    #[inline]
    fn hash(&self, seed: &HashSeed) -> u64 {
        match self {
            Self::V4(key) => Key::hash(key, seed),
            Self::V6(key) => Key::hash(key, seed),
        }
    }
}

/// The fragments of a datagram find its flow by this.
impl Key for FragmentId {
    #[inline]
    fn hash(&self, seed: &HashSeed) -> u64 {
        hash_words(&self.words(), seed)
    }
}

/// The seed for hashing keys, mixed once for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashSeed {
    masks: [u64; 2],
    /// Always odd.
    multiplier: u64,
}

impl HashSeed {
    /// A seed from any number: each bit of it changes about half of the bits of every hash.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        let first = fold(seed ^ MULTIPLIERS[0], MULTIPLIERS[1]);
        let second = fold(first ^ MULTIPLIERS[1], seed ^ MULTIPLIERS[0]);
        let multiplier = fold(second ^ MULTIPLIERS[0], first ^ MULTIPLIERS[1]) | 1;
        Self { masks: [first, second], multiplier }
    }
}

/// Odd constants with about equal numbers of ones and zeroes: the fractions of the square roots of
/// 2 and 3.
const MULTIPLIERS: [u64; 2] = [0x6a09_e667_f3bc_c909, 0xbb67_ae85_84ca_a73b];

/// Hashes `words` with seeded multiplications, two words each; the halves of each product are
/// folded together.
///
/// For tables: fast, and unpredictable without the seed, but not a cryptographic hash.
#[inline]
pub fn hash_words(words: &[u64], seed: &HashSeed) -> u64 {
    let [mut state, mask] = seed.masks;
    let (pairs, rest) = words.as_chunks::<2>();
    for [first, second] in pairs {
        state = fold(first ^ state, second ^ mask);
    }
    if let [word] = rest {
        // Different from a pair with 0 as the second word.
        state = fold(word ^ state, mask ^ MULTIPLIERS[0]);
    }
    // Without this round, consecutive keys share tags and groups several times as often.
    fold(state, seed.multiplier)
}

/// The exclusive or of both halves of the 128-bit product.
#[inline(always)]
const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;
    use hotloop_packet::{build::udp, fragment::FragmentView};

    #[test]
    fn every_bit_of_key_and_seed_counts() {
        let key = [7; 5];
        let plain = key.hash(&HashSeed::new(9));
        for bit in 0..key.len() * 64 {
            let mut other = key;
            other[bit / 64] ^= 1 << (bit % 64);
            let changed_count = (other.hash(&HashSeed::new(9)) ^ plain).count_ones();
            assert!((12..=52).contains(&changed_count), "bit {bit}: {changed_count}");
        }
        for bit in 0..64 {
            let changed_count = (key.hash(&HashSeed::new(9 ^ 1 << bit)) ^ plain).count_ones();
            assert!((12..=52).contains(&changed_count), "seed bit {bit}: {changed_count}");
        }
    }

    #[test]
    fn trailing_zeroes_count() {
        let hashes: Vec<_> =
            (0..6).map(|count| hash_words(&[0; 6][..count], &HashSeed::new(1))).collect();
        for (index, hash) in hashes.iter().enumerate() {
            assert!(!hashes[..index].contains(hash));
        }
    }

    #[test]
    fn keys_in_a_row_fill_buckets_evenly() {
        for shift in [0, 16, 32, 48] {
            let mut counts = [0_u32; 64];
            for number in 0..64_000_u64 {
                counts[[number << shift, 0].hash(&HashSeed::new(3)) as usize % 64] += 1;
            }
            assert!(counts.iter().all(|count| (800..1_200).contains(count)), "{counts:?}");
        }
    }

    #[test]
    fn flow_keys_hash_as_their_words() {
        let seed = &HashSeed::new(5);
        let v4 = FlowKeyV4::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 1_000, 80, 6);
        assert_eq!(Key::hash(&v4, seed), v4.words().hash(seed));
        assert_eq!(Key::hash(&FlowKey::V4(v4), seed), v4.words().hash(seed));
        assert_ne!(Key::hash(&v4.reversed(), seed), Key::hash(&v4, seed));
        let v6 = FlowKeyV6::new(Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED, 1_000, 80, 6);
        assert_eq!(Key::hash(&v6, seed), v6.words().hash(seed));
        assert_eq!(Key::hash(&FlowKey::V6(v6), seed), v6.words().hash(seed));
    }

    #[test]
    fn fragments_of_one_datagram_have_equal_hashes() {
        let seed = &HashSeed::new(5);
        let hashes = |identification| {
            let datagram = udp().identification(identification).payload([7; 300]);
            let frames = datagram.build_fragments(120);
            let ids = frames.iter().map(|frame| FragmentView::of_frame(frame).unwrap().id());
            ids.map(|id| id.hash(seed)).collect::<Vec<_>>()
        };
        let (first, other) = (hashes(7), hashes(8));
        assert!(first.iter().all(|hash| *hash == first[0]));
        assert_ne!(first[0], other[0]);
    }
}
