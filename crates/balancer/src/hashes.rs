//! The hashes that choose a flow's worker and backend, and their optional secret. Pure functions of
//! the flow and the key. Balancers with the same key choose alike.

use crate::address::bits;
use crate::maglev::mixed;
use hotloop::packet::seed::Seed;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The seed of hashes without a key. All balancers use the same seed, so that balancers with one
/// configuration send a flow to the same backend, also after a restart.
pub const SEED: u64 = 0x6970_6970_2D6C_6200;

/// A secret of 128 bits, the same in all balancers of a cluster. Printed only by
/// [`to_hex`](Self::to_hex).
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct HashKey(u128);

/// The text is no key. The text is not shown, as it may be a key with a typing error.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("not a key of 32 hexadecimal digits; write what ipip-lb keygen prints")]
pub struct NoHashKey;

impl HashKey {
    /// The key of these bits.
    #[must_use]
    pub const fn new(bits: u128) -> Self {
        Self(bits)
    }

    /// The key in a configuration's form: 32 hexadecimal digits.
    #[must_use]
    pub fn to_hex(&self) -> String {
        format!("{:032x}", self.0)
    }
}

impl FromStr for HashKey {
    type Err = NoHashKey;

    fn from_str(text: &str) -> Result<Self, NoHashKey> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let key = is_hex.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        key.map(Self).ok_or(NoHashKey)
    }
}

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(..)")
    }
}

/// The hashes that choose a flow's worker and backend.
#[derive(Clone, Copy)]
pub struct Hashes {
    flows: Seed,
    clients: [u64; 2],
}

impl Hashes {
    /// The hashes of a key; without a key, the public ones.
    #[must_use]
    pub fn new(key: Option<HashKey>) -> Self {
        let Some(HashKey(key)) = key else {
            return Self { flows: Seed::new(SEED), clients: [0; 2] };
        };
        let (high, low) = ((key >> 64) as u64, key as u64);
        // Other numbers than those of the seed, so that one hash reveals little of the other.
        let clients = [mixed(mixed(low) ^ high), mixed(mixed(high) ^ low)];
        Self { flows: Seed::from_key(key), clients }
    }

    /// The seed of the hashes of flows.
    #[must_use]
    pub const fn seed(&self) -> Seed {
        self.flows
    }

    /// The hash that scheduler `source` uses: only of the client's address.
    #[must_use]
    pub fn of_client(&self, client: IpAddr) -> u32 {
        let (bits, [first, second]) = (bits(client), self.clients);
        // Mixes the two halves in sequence, each spread over all bits.
        let half = mixed((bits >> 64) as u64 ^ first);
        (mixed(half ^ bits as u64 ^ second) >> 32) as u32
    }
}

impl fmt::Debug for Hashes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hashes(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop::packet::flow_key::FlowKey;
    use hotloop::testing::Rng;
    use std::net::Ipv4Addr;

    #[test]
    fn a_key_is_32_digits_and_never_shown() {
        let key: HashKey = "00112233445566778899aAbBcCdDeEfF".parse().unwrap();
        assert_eq!(key.to_hex(), "00112233445566778899aabbccddeeff");
        assert!(!format!("{key:?}{:?}", Hashes::new(Some(key))).contains("2233"));
        for wrong in ["", "0x112233445566778899aabbccddeeff", "+0112233445566778899aabbccddeeff"] {
            assert_eq!(wrong.parse::<HashKey>(), Err(NoHashKey));
        }
        assert_eq!("0".repeat(31).parse::<HashKey>(), Err(NoHashKey));
        assert_eq!("0".repeat(33).parse::<HashKey>(), Err(NoHashKey));
        let small = HashKey::new(7);
        assert_ne!(small, key);
        assert_eq!(small.to_hex().parse(), Ok(small));
    }

    /// Flows that were chosen to share a backend by the public hashes share none by the hashes of a
    /// key, and a key that differs in one bit leads to other hashes: by chance, one in 64 is in
    /// this 64th.
    #[test]
    fn without_the_key_the_hashes_are_not_known() {
        let public = Hashes::new(None);
        let client = |number: u32| IpAddr::from(Ipv4Addr::from_bits(0x0A00_0000 + number));
        let flow = |number: u32| {
            let vip = "203.0.113.10:80".parse().unwrap();
            FlowKey::new((client(number), 4000).into(), vip, 6).unwrap()
        };
        type Hash = fn(&Hashes, (IpAddr, FlowKey)) -> u32;
        let kinds: [Hash; 3] = [
            |hashes, (_, flow)| hashes.seed().hash(&flow),
            |hashes, (_, flow)| hashes.seed().shard(&flow),
            |hashes, (client, _)| hashes.of_client(client),
        ];
        let mut rng = Rng::seeded(7);
        for hash in kinds {
            let aimed = (0..200_000).map(|index| (client(index), flow(index)));
            let aimed: Vec<_> = aimed.filter(|pair| hash(&public, *pair) >> 26 == 5).collect();
            assert!(aimed.len() > 2_000, "{}", aimed.len());
            for bit in 0..128 {
                let key = u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64());
                let keyed = [key, key ^ 1 << bit].map(|key| Hashes::new(Some(HashKey(key))));
                let hit = |pair: &&(IpAddr, FlowKey)| hash(&keyed[0], **pair) >> 26 == 5;
                let share = aimed.iter().filter(hit).count() as f64 / aimed.len() as f64;
                assert!((0.004..0.03).contains(&share), "{share}");
                let same = |pair: &&(IpAddr, FlowKey)| {
                    hash(&keyed[0], **pair) >> 26 == hash(&keyed[1], **pair) >> 26
                };
                let share = aimed.iter().filter(same).count() as f64 / aimed.len() as f64;
                assert!((0.004..0.03).contains(&share), "bit {bit}: {share}");
            }
        }
    }
}
