//! Tests that look inside a table: its invariants, its lines, its groups.

mod bounds;
mod full;
mod hashes;
mod oracle;
mod panics;
#[path = "../../tests/plainly/mod.rs"]
mod plainly;
mod ranks;
mod spread;

use std::collections::HashSet;

use hotloop_arena::{Arena, Pages, Request};
use plainly::{Plainly, at};

use crate::group::{GROUP_SLOTS, Mask, Native};
use crate::table::Table;
use crate::{Backend, Config, Handle, HashSeed, Hint, Key, Refused};

/// A key with a hash that the test chooses, whatever the seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Chosen {
    number: u32,
    hash: u64,
}

impl Key for Chosen {
    fn hash(&self, _seed: &HashSeed) -> u64 {
        self.hash
    }
}

/// Random numbers from a seed, which is printed so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn new() -> Self {
        let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), "tests");
        println!("seed {seed:#x}");
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        crate::hash_words(&[self.0], &HashSeed::new(1))
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

fn arena(bytes: usize) -> Arena {
    Arena::new(Request { pages: vec![Pages::Small], ..Request::new(bytes) }).unwrap().0
}

fn table<K: Key, V>(config: Config) -> Table<K, V> {
    table_with(config, Backend::best())
}

fn table_with<K: Key, V>(config: Config, backend: Backend) -> Table<K, V> {
    let arena = arena(Table::<K, V>::bytes(config.capacity).unwrap());
    Table::with_backend(arena, config, 7, backend).unwrap()
}

fn backends() -> impl Iterator<Item = Backend> {
    Backend::ALL.into_iter().filter(|backend| backend.is_available())
}

/// Checks all invariants of a table.
fn check<K: Key + std::hash::Hash + std::fmt::Debug, V>(table: &Table<K, V>) {
    let view = table.store.view();
    let mut overflows = vec![0; view.control.len()];
    let mut overflow_len = 0;
    let mut keys = HashSet::new();
    for (slot, entry) in view.entries.iter().enumerate() {
        let group = slot / GROUP_SLOTS;
        let tag = view.control[group].tag(slot % GROUP_SLOTS);
        assert_eq!(tag.is_some(), entry.key().is_some(), "slot {slot}");
        let is_spared = view.eviction_states[group]
            .get()
            .next(Mask::of_bits(1 << (slot % GROUP_SLOTS)))
            .is_none();
        assert!(tag.is_some() || !is_spared, "slot {slot}");
        let Some(key) = entry.key() else { continue };
        assert!(keys.insert(*key), "{key:?} is there twice");
        let hash = view.hash(key);
        let first = view.first(hash);
        assert_eq!(tag, Some(hash.tag()));
        assert_eq!(entry.is_in_second(), group != first, "slot {slot}");
        if group != first {
            assert_eq!(group, view.second(hash, first), "{key:?} is in neither group of its");
            overflows[first] += 1;
            overflow_len += 1;
        }
        let found = view.find::<Native>(key, hash).map(|(slot, _)| slot);
        assert_eq!(found, Some(slot), "{key:?} is not found");
    }
    for (group, (control, expected)) in view.control.iter().zip(overflows).enumerate() {
        let is_stuck = control.overflow() == u8::MAX;
        assert!(is_stuck || usize::from(control.overflow()) == expected, "group {group}");
    }
    let stats = table.stats();
    assert_eq!(stats.overflow_len, overflow_len);
    assert_eq!(stats.len, keys.len());
    assert!(stats.len <= stats.len_max && stats.len_max <= table.capacity());
    let left_count = stats.removed_count + stats.expired_count + stats.evicted_count;
    assert_eq!(stats.inserted_count, left_count + stats.len as u64);
}
