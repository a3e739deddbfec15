//! The two hashes that spread flows, seeded from the configuration.

use crate::flow_key::{FlowKey, FlowKeyV4, FlowKeyV6};

/// The seed of the hashes that spread flows over workers and backends.
///
/// Both hashes are symmetric: the two directions of a flow have the same value. All 32 bits are
/// well mixed, so `(u64::from(hash) * count) >> 32` spreads evenly over `count`. They are the same
/// on every machine with the same seed.
///
/// Don't use either for a flow table, which needs a secret seed of its own: all flows of a worker
/// share a part of their shard's range.
///
/// ```
/// use hotloop_packet::{flow_key::FlowKey, seed::Seed};
///
/// let seed = Seed::new(42);
/// let key = FlowKey::new("10.0.0.1:1000".parse()?, "192.0.2.1:80".parse()?, 6).unwrap();
/// let other = FlowKey::new("10.0.0.1:1001".parse()?, "192.0.2.1:80".parse()?, 6).unwrap();
/// assert_eq!(seed.hash(&key), seed.hash(&key.reversed()));
/// assert_ne!(seed.hash(&key), seed.hash(&other));
/// assert_eq!(seed.shard(&key), seed.shard(&other));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Seed {
    /// Random numbers. Those used as sole multipliers are odd.
    words: [u64; 7],
}

impl Seed {
    /// A seed from any number.
    pub const fn new(seed: u64) -> Self {
        let mut words = [0; 7];
        let mut state = seed;
        let mut index = 0;
        while index < words.len() {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            words[index] = split_mix(state) | 1;
            index += 1;
        }
        Self { words }
    }

    /// A seed from a secret of 128 random bits. Without the secret, flows that share a hash can't
    /// be computed in advance. The hashes are not message authentication codes.
    pub const fn from_key(key: u128) -> Self {
        let (high, low) = ((key >> 64) as u64, key as u64);
        let mut words = [0; 7];
        let mut state = 0u64;
        let mut index = 0;
        while index < words.len() {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            // Each word takes in both halves.
            let first = split_mix(low.wrapping_add(state));
            words[index] = split_mix(first ^ high.wrapping_add(state)) | 1;
            index += 1;
        }
        Self { words }
    }

    /// The hash of the two addresses only. It decides which worker owns a flow: fragments, which
    /// have no ports, and quoted packets meet the rest of the flow there.
    #[inline]
    pub fn shard(&self, key: &FlowKey) -> u32 {
        match key {
            FlowKey::V4(key) => self.shard_v4(key),
            FlowKey::V6(key) => self.shard_v6(key),
        }
    }

    /// The hash of all five fields. It decides a flow's backend.
    #[inline]
    pub fn hash(&self, key: &FlowKey) -> u32 {
        match key {
            FlowKey::V4(key) => self.hash_v4(key),
            FlowKey::V6(key) => self.hash_v6(key),
        }
    }

    /// [`shard`](Self::shard) of an IPv4 flow.
    #[inline]
    pub(crate) fn shard_v4(&self, key: &FlowKeyV4) -> u32 {
        let (a, b) = (key.source().to_bits(), key.destination().to_bits());
        let [k0, k1, ..] = self.words;
        self.finish(fold_multiply(pair_v4(a.min(b), a.max(b)) ^ k0, k1))
    }

    /// [`hash`](Self::hash) of an IPv4 flow.
    #[inline]
    pub fn hash_v4(&self, key: &FlowKeyV4) -> u32 {
        // An address and its port as one number each: 48 bits.
        let a = u64::from(key.source().to_bits()) << 16 | u64::from(key.source_port());
        let b = u64::from(key.destination().to_bits()) << 16 | u64::from(key.destination_port());
        let [k0, k1, ..] = self.words;
        let low = a.min(b) | u64::from(key.protocol()) << 56;
        self.finish(fold_multiply(low ^ k0, a.max(b) ^ k1))
    }

    /// [`shard`](Self::shard) of an IPv6 flow.
    #[inline]
    pub(crate) fn shard_v6(&self, key: &FlowKeyV6) -> u32 {
        let (a, b) = (key.source().to_bits(), key.destination().to_bits());
        self.finish(self.addresses_v6(a.min(b), a.max(b)))
    }

    /// [`hash`](Self::hash) of an IPv6 flow.
    #[inline]
    pub(crate) fn hash_v6(&self, key: &FlowKeyV6) -> u32 {
        let a = (key.source().to_bits(), key.source_port());
        let b = (key.destination().to_bits(), key.destination_port());
        let (low, high) = if a <= b { (a, b) } else { (b, a) };
        let rest = u64::from(low.1) << 32 | u64::from(high.1) << 16 | u64::from(key.protocol());
        let [k0, ..] = self.words;
        self.finish(fold_multiply(self.addresses_v6(low.0, high.0) ^ rest, k0))
    }

    #[inline]
    fn addresses_v6(&self, low: u128, high: u128) -> u64 {
        let [k0, k1, k2, k3, k4, ..] = self.words;
        let a = fold_multiply((low >> 64) as u64 ^ k0, low as u64 ^ k1);
        let b = fold_multiply((high >> 64) as u64 ^ k2, high as u64 ^ k3);
        // Rotated: without that, the two would cancel out if both addresses are equal and the words
        // alike.
        fold_multiply(a ^ b.rotate_left(23), k4)
    }

    /// A second round, because after one the product's outer bits are poorly mixed.
    #[inline]
    fn finish(&self, hash: u64) -> u32 {
        let [.., k5, k6] = self.words;
        (fold_multiply(hash ^ k5, k6) >> 32) as u32
    }
}

impl From<u64> for Seed {
    fn from(seed: u64) -> Self {
        Self::new(seed)
    }
}

#[inline]
fn pair_v4(low: u32, high: u32) -> u64 {
    u64::from(low) << 32 | u64::from(high)
}

/// Both halves of the 128-bit product, joined.
#[inline]
const fn fold_multiply(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

/// SplitMix64's output function.
const fn split_mix(state: u64) -> u64 {
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}
