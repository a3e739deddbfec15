//! The hashes of flows: symmetric, seeded, even in all their bits.

use std::net::SocketAddr;

use hotloop_packet::{flow_key::FlowKey, seed::Seed};
use proptest::prelude::*;

fn key(source: (u64, u16), destination: (u64, u16), is_v6: bool) -> FlowKey {
    let end = |(address, port): (u64, u16)| -> SocketAddr {
        if is_v6 {
            let bits = 0x2001_0db8 << 96 | u128::from(address);
            SocketAddr::new(std::net::Ipv6Addr::from_bits(bits).into(), port)
        } else {
            SocketAddr::new(std::net::Ipv4Addr::from_bits(address as u32).into(), port)
        }
    };
    FlowKey::new(end(source), end(destination), 6).unwrap()
}

/// The largest deviation from an even share, as a fraction of that share.
fn unevenness(hashes: &[u32], worker_count: usize) -> f64 {
    let mut counts = vec![0usize; worker_count];
    for hash in hashes {
        counts[((u64::from(*hash) * worker_count as u64) >> 32) as usize] += 1;
    }
    let share = hashes.len() as f64 / worker_count as f64;
    counts.iter().map(|count| (*count as f64 / share - 1.0).abs()).fold(0.0, f64::max)
}

#[test]
fn sequential_flows_spread_evenly() {
    const CLIENT: u64 = 0x0a00_0000;
    const VIP: (u64, u16) = (0xcb00_710a, 80);
    for seed in [0, 1, 42, u64::MAX].map(Seed::new) {
        for is_v6 in [false, true] {
            let clients = (0..20_000).map(|n| key((CLIENT + n, 1000), VIP, is_v6));
            let shards: Vec<u32> = clients.map(|key| seed.shard(&key)).collect();
            // A /16 of each client's network apart: only high bits of the address differ.
            let sparse = (0..4096).map(|n| key((n << 20, 1000), VIP, is_v6));
            let sparse: Vec<u32> = sparse.map(|key| seed.shard(&key)).collect();
            let ports = (0..20_000).map(|n| key((CLIENT, 1000 + n), VIP, is_v6));
            let hashes: Vec<u32> = ports.map(|key| seed.hash(&key)).collect();
            for worker_count in [2, 3, 6] {
                for (values, limit) in [(&shards, 0.06), (&sparse, 0.13), (&hashes, 0.06)] {
                    let unevenness = unevenness(values, worker_count);
                    assert!(unevenness < limit, "{unevenness} over {worker_count} workers");
                }
            }
        }
    }
}

#[test]
fn each_bit_of_the_flow_moves_each_bit_of_the_hash() {
    const FLOW_COUNT: u64 = 512;
    let seed = Seed::new(7);
    for is_v6 in [false, true] {
        let address_bits = if is_v6 { 64 } else { 32 };
        // Flipped: bits of one address, then of its port.
        for flipped in 0..address_bits + 16 {
            let mut moved = [[0u32; 32]; 2];
            for n in 0..FLOW_COUNT {
                let address = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let (address, port) = (address >> (64 - address_bits), address as u16);
                let before = key((address, port), (0x0808_0808, 53), is_v6);
                let after = match flipped {
                    bit if bit < address_bits => (address ^ 1 << bit, port),
                    bit => (address, port ^ 1 << (bit - address_bits)),
                };
                let after = key(after, (0x0808_0808, 53), is_v6);
                let differences = [
                    seed.hash(&before) ^ seed.hash(&after),
                    seed.shard(&before) ^ seed.shard(&after),
                ];
                for (counts, difference) in moved.iter_mut().zip(differences) {
                    for (bit, count) in counts.iter_mut().enumerate() {
                        *count += difference >> bit & 1;
                    }
                }
            }
            let is_even = |count: &u32| {
                (FLOW_COUNT as u32 * 3 / 8..=FLOW_COUNT as u32 * 5 / 8).contains(count)
            };
            assert!(moved[0].iter().all(is_even), "hash, bit {flipped}: {:?}", moved[0]);
            if flipped < address_bits {
                assert!(moved[1].iter().all(is_even), "shard, bit {flipped}: {:?}", moved[1]);
            } else {
                assert_eq!(moved[1], [0; 32]);
            }
        }
    }
}

#[test]
fn the_protocol_counts_for_the_hash_alone() {
    for ends in [("10.0.0.1:5", "10.0.0.2:5"), ("[::1]:5", "[::2]:5")] {
        let seed = Seed::new(3);
        let key = |protocol| {
            FlowKey::new(ends.0.parse().unwrap(), ends.1.parse().unwrap(), protocol).unwrap()
        };
        assert_ne!(seed.hash(&key(6)), seed.hash(&key(17)));
        assert_eq!(seed.shard(&key(6)), seed.shard(&key(17)));
    }
}

#[test]
fn flows_have_few_hashes_in_common() {
    for is_v6 in [false, true] {
        let seed = Seed::new(3);
        let keys =
            (0..65_536).map(|n| key((0x0a00_0000 + n % 256, n as u16), (n / 256, 80), is_v6));
        let mut hashes: Vec<u32> = keys.map(|key| seed.hash(&key)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        // Among 2^16 random numbers of 32 bits, half a pair is expected to be equal.
        assert!(hashes.len() > 65_536 - 8, "{}", hashes.len());
    }
}

fn any_key() -> impl Strategy<Value = FlowKey> {
    (any::<(u64, u16)>(), any::<(u64, u16)>(), any::<bool>())
        .prop_map(|(source, destination, is_v6)| key(source, destination, is_v6))
}

proptest! {
    #[test]
    fn both_directions_hash_alike(key in any_key(), seed: u64) {
        let seed = Seed::new(seed);
        prop_assert_eq!(seed.hash(&key), seed.hash(&key.reversed()));
        prop_assert_eq!(seed.shard(&key), seed.shard(&key.reversed()));
    }

    #[test]
    fn seeds_make_different_hashes(keys in prop::collection::vec(any_key(), 8), seed: u64) {
        let (one, other) = (Seed::new(seed), Seed::new(seed.wrapping_add(1)));
        prop_assert!(keys.iter().any(|key| one.hash(key) != other.hash(key)));
        prop_assert!(keys.iter().any(|key| one.shard(key) != other.shard(key)));
        prop_assert!(keys.iter().any(|key| one.hash(key) != one.shard(key)));
    }
}
