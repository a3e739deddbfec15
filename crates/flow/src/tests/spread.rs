//! Keys chosen by an attacker.

use super::{Plainly, Random, check};
use crate::group::GROUP_SLOTS;
use crate::{Backend, Config, Full, STEP_NS, Table};

type Keys = Table<[u64; 2], u32>;

const CAPACITY: usize = 2_000;

fn seeded(seed: u64) -> Keys {
    let arena = super::arena(Keys::bytes(CAPACITY).unwrap());
    Table::with_backend(arena, Config::new(CAPACITY, STEP_NS), seed, Backend::best()).unwrap()
}

/// Keys that share both groups in a table with this seed, or only the first one.
fn colliding(seed: u64, count: usize, same_second: bool) -> Vec<[u64; 2]> {
    let table = seeded(seed);
    let view = table.store.view();
    let groups = |key: &[u64; 2]| {
        let hash = view.hash(key);
        let first = view.first(hash);
        (first, if same_second { view.second(hash, first) } else { 0 })
    };
    let wanted = groups(&[0, 0]);
    (0..).map(|number| [number, 0]).filter(|key| groups(key) == wanted).take(count).collect()
}

#[test]
fn keys_chosen_with_the_seed_fill_two_groups_and_no_more() {
    let keys = colliding(1, 40, true);
    let mut table = seeded(1);
    let placed_count = keys.iter().filter(|&&key| table.put(key, 0, 0).is_ok()).count();
    assert_eq!(placed_count, 2 * GROUP_SLOTS);
    check(&table);
    // Other keys still find places, except those of the same two groups.
    let refused_count = (0..1_000).filter(|&number| table.put([number, 1], 0, 0).is_err()).count();
    assert!(refused_count <= 3, "{refused_count}");
    check(&table);
}

#[test]
fn under_another_seed_the_same_keys_spread() {
    let keys = colliding(1, 200, false);
    let mut random = Random::new();
    for _ in 0..20 {
        let mut table = seeded(random.next());
        for (number, &key) in (0..).zip(&keys) {
            table.put(key, number, 0).unwrap();
        }
        // 200 flows in 157 groups: 16 or more in one group never happens by chance.
        assert_eq!(table.stats().overflow_len, 0);
        check(&table);
    }
}

#[test]
fn tables_have_seeds_of_their_own() {
    let seeds = [0; 3].map(|_: u8| {
        let table = Keys::new(super::arena(1 << 20), Config::new(100, 1)).unwrap();
        *table.store.view().seed
    });
    assert!(seeds[0] != seeds[1] && seeds[1] != seeds[2]);
}

/// Groups, tags and samples are chosen by independent bits.
#[test]
fn groups_tags_and_starts_are_even() {
    let table = seeded(3);
    assert_eq!(table.full, Full::Refuse);
    let view = table.store.view();
    let group_count = view.control.len();
    let mut firsts = vec![0_u32; group_count];
    let mut seconds = vec![0_u32; group_count];
    let (mut tags, mut starts) = ([0_u32; 256], [0_u32; GROUP_SLOTS]);
    // Counts for the keys of a single first group.
    let (mut tags_of_one, mut seconds_of_one) = ([0_u32; 256], vec![0_u32; group_count]);
    for number in 0..group_count as u64 * 4_000 {
        let hash = view.hash(&[number, 9]);
        let first = view.first(hash);
        let second = view.second(hash, first);
        assert_ne!(first, second);
        firsts[first] += 1;
        seconds[second] += 1;
        tags[usize::from(hash.tag())] += 1;
        starts[hash.start()] += 1;
        if first < 8 {
            tags_of_one[usize::from(hash.tag())] += 1;
            seconds_of_one[second] += 1;
        }
    }
    let is_even = |counts: &[u32], percent: u32| {
        let (low, high) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        (high - low) * 100 < low * percent
    };
    assert!(is_even(&firsts, 20) && is_even(&seconds, 20) && is_even(&starts, 5));
    assert_eq!(tags[0], 0, "0 is no tag");
    // The next tag comes from two byte values.
    assert!(is_even(&tags[2..], 20) && tags[1] > tags[2] * 3 / 2);
    assert!(is_even(&tags_of_one[2..], 120) && is_even(&seconds_of_one, 120));
}
