//! Hashes of random keys and of keys in patterns: tags, first groups and pairs of groups agree no
//! more often than by chance.

use std::hash::{DefaultHasher, Hasher};
use std::net::Ipv4Addr;

use hotloop_packet::flow_key::FlowKeyV4;

use super::arena;
use crate::group::GROUP_SLOTS;
use crate::store_view::{Hash, StoreView};
use crate::{Config, Table, hash_words};

type Words = [u64; 2];

/// A name, and the key of each number.
type Pattern = (String, Box<dyn Fn(u64) -> Words>);

/// Hashes a key with a table's memory, or with the number that its seed is made from.
type Hashing<'a> = &'a dyn Fn(&Words, StoreView<'_, Words, u8>, u64) -> u64;

const KEY_COUNT: u64 = 20_000;

const SEEDS: [u64; 8] = [0, 1, 2, 1 << 63, u64::MAX, 0x1234_5678, 42, 7];

/// Agreements in a table that these keys fill.
#[derive(Clone, Copy, Debug, Default)]
struct Agreeing {
    /// Pairs of keys with the same first group and tag, which make a search read an entry for
    /// nothing.
    tags: f64,
    /// Keys that find their first group full.
    full: f64,
    /// Pairs of keys with both groups in common.
    groups: f64,
}

impl Agreeing {
    fn add(&mut self, view: StoreView<'_, Words, u8>, hashes: impl Iterator<Item = Hash>) {
        let group_count = view.control.len();
        let mut fill = vec![0; group_count];
        let mut tags = vec![0; group_count << 8];
        let mut pairs = Vec::new();
        for hash in hashes {
            let first = view.first(hash);
            let tag = &mut tags[first << 8 | usize::from(hash.tag())];
            self.tags += f64::from(*tag);
            *tag += 1;
            self.full += f64::from(fill[first] >= GROUP_SLOTS);
            fill[first] += 1;
            pairs.push((first, view.second(hash, first)));
        }
        pairs.sort_unstable();
        for equal in pairs.chunk_by(|one, other| one == other) {
            self.groups += (equal.len() * (equal.len() - 1) / 2) as f64;
        }
    }

    /// The worst ratio to chance.
    fn worst(self, chance: Self) -> f64 {
        let ratios =
            [self.tags / chance.tags, self.full / chance.full, self.groups / chance.groups];
        ratios.into_iter().fold(0.0, f64::max)
    }
}

/// Sets of 20,000 keys each.
fn patterns() -> Vec<(String, Vec<Words>)> {
    let flow = |client: u64, port: u64| {
        let client = Ipv4Addr::from_bits(0x0a01_0000 + client as u32);
        FlowKeyV4::new(client, [192, 0, 2, 1].into(), 1024 + port as u16, 443, 6).words()
    };
    let mut patterns: Vec<Pattern> = vec![
        ("clients in a row, one port".into(), Box::new(move |n| flow(n, 0))),
        ("one client, ports in a row".into(), Box::new(move |n| flow(0, n))),
        ("20 clients, ports in a row".into(), Box::new(move |n| flow(n % 20, n / 20))),
        ("1,000 clients, few ports".into(), Box::new(move |n| flow(n / 20, n % 20))),
        ("both words in a row".into(), Box::new(|n| [n, n])),
        ("words that mirror each other".into(), Box::new(|n| [n, n.reverse_bits()])),
        ("turned bits".into(), Box::new(|n| [(n / 64 * 2 + 1).rotate_left(n as u32 % 64), 0])),
        ("turned ones".into(), Box::new(|n| [0, (n / 64 * 2 + 1).rotate_right(n as u32 % 64)])),
    ];
    // From differences in only the low bits to differences in only the highest.
    for shift in [0, 1, 4, 8, 12, 16, 24, 32, 40, 48, 49] {
        patterns.push((format!("first word << {shift}"), Box::new(move |n| [n << shift, 5])));
        patterns.push((format!("second word << {shift}"), Box::new(move |n| [5, n << shift])));
    }
    let keys = |key: Box<dyn Fn(u64) -> Words>| (0..KEY_COUNT).map(key).collect();
    patterns.into_iter().map(|(name, key)| (name, keys(key))).collect()
}

/// For each pattern, the worst ratio to chance under a hash of words and seed.
fn worst(hash: Hashing<'_>) -> Vec<(String, f64)> {
    let tables = SEEDS.map(|seed| {
        let config = Config::new(KEY_COUNT as usize, 0);
        let arena = arena(Table::<Words, u8>::bytes(config.capacity).unwrap());
        (seed, Table::<Words, u8>::with_seed(arena, config, seed).unwrap())
    });
    let count = |keys: &[Words], hash: Hashing<'_>| {
        let mut agreeing = Agreeing::default();
        for (seed, table) in &tables {
            let view = table.store.view();
            agreeing.add(view, keys.iter().map(|key| Hash(hash(key, view, *seed))));
        }
        agreeing
    };
    let patterns = patterns();
    let chance = count(&patterns[0].1, &|key, _, seed| by_sip(key, seed));
    let worst = patterns.into_iter().map(|(name, keys)| (name, count(&keys, hash).worst(chance)));
    worst.collect()
}

/// A hash that is as good as random.
fn by_sip(key: &Words, seed: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    [seed, key[0], key[1]].into_iter().for_each(|word| hasher.write_u64(word));
    hasher.finish()
}

/// A hash of one multiplication, which is not good enough.
fn by_one_multiplication(key: &Words, seed: u64) -> u64 {
    let masks = [1, 2].map(|number| by_sip(&[number, 0], seed));
    let product = u128::from(key[0] ^ masks[0]) * u128::from(key[1] ^ masks[1]);
    product as u64 ^ (product >> 64) as u64
}

const LIMIT: f64 = 1.2;

#[test]
#[cfg_attr(miri, ignore = "millions of hashes")]
fn no_pattern_of_keys_agrees_more_often_than_chance() {
    for (name, worst) in worst(&|key, view, _| hash_words(key, view.seed)) {
        assert!(worst < LIMIT, "{name}: {worst:.2} times as often");
    }
}

/// Checks that the test above can fail.
#[test]
#[cfg_attr(miri, ignore = "millions of hashes")]
fn one_multiplication_is_not_enough() {
    let found = worst(&|key, _, seed| by_one_multiplication(key, seed));
    let bad: Vec<_> = found.iter().filter(|(_, worst)| *worst >= LIMIT).collect();
    println!("{bad:?}");
    for name in ["one client, ports in a row", "first word << 0", "second word << 4"] {
        assert!(bad.iter().any(|case| case.0 == name), "{name} is not among {bad:?}");
    }
}
