//! The compared tables, each filled with the same flows and on the same pages.

use super::keys::{BURST, Key, key};
use hashbrown::HashTable;
use hotloop::arena::{Arena, Obtained, Pages, Request};
use hotloop::dpdk::Eal;
use hotloop::flow::{Config, HashSeed, Hints, Table, hash_words};
use hotloop::packet::Instant;
use hotloop_benches::peers::floor::Floor;
use hotloop_benches::peers::rte_hash::Hash;

/// A flow's data beside its key; the first word is 1 in every flow.
pub type Value = [u64; 5];

/// The time of insertions, in nanoseconds.
pub const START_NS: u64 = 1 << 40;

/// The time of insertions.
pub const START: Instant = Instant::from_ns(START_NS);

/// Maximum number of attempts to fill a table, if it refuses flows.
const FILLS_MAX: usize = 8;

/// The load of our table when it is full.
const LOAD: f64 = 0.85;

/// The seed of the hash for hashbrown's table; ours has a random one of its own.
const SEED: HashSeed = HashSeed::new(0x5851_f42d_4c95_7f2d);

/// The flow table.
pub struct Ours(pub Table<Key, Value>);

/// An entry of hashbrown's table, on a line of its own like ours.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Entry {
    pub key: Key,
    pub value: Value,
    pub seen_ns: u64,
}

/// hashbrown's table with the flow table's hash, so that only the tables differ.
pub struct Hashbrown(pub HashTable<Entry, Arena>);

/// Memory on only these pages.
pub fn arena(bytes: usize, pages: Pages) -> (Arena, Obtained) {
    let request = Request { pages: vec![pages], ..Request::new(bytes) };
    Arena::new(request).unwrap_or_else(|error| panic!("{error}"))
}

impl Ours {
    /// A table with the flows of the numbers below `flow_count`.
    ///
    /// When filling it to its capacity, the last few flows may find both groups full; with another
    /// seed, other flows do.
    pub fn new(config: Config, flow_count: u64, pages: Pages) -> Self {
        let bytes = Table::<Key, Value>::bytes(config.capacity).expect("can be addressed");
        for _ in 0..FILLS_MAX {
            let table = Table::new(arena(bytes, pages).0, config);
            let mut table = table.unwrap_or_else(|error| panic!("{error}"));
            let put = |number| table.insert(key(number), [1; 5], START, &mut |_, _| ()).is_ok();
            if (0..flow_count).all(put) {
                return Self(table);
            }
            eprintln!("a flow table refused one of {flow_count} flows: filled again");
        }
        panic!("{FILLS_MAX} flow tables refused one of {flow_count} flows");
    }

    /// Looks up bursts of keys. Returns the sum of the first words found. Time advances by
    /// `step_ns` from burst to burst.
    pub fn find(&mut self, keys: &[Key], now_ns: &mut u64, step_ns: u64) -> u64 {
        let mut hints = Hints::new();
        let mut sum = 0;
        for burst in keys.chunks(BURST) {
            self.0.hint_burst(burst.iter().copied(), &mut hints);
            let seen_at = self.0.seen_at(Instant::from_ns(*now_ns));
            for (index, key) in burst.iter().enumerate() {
                if let Some((_, value)) = self.0.find_hinted(key, hints.at(index), seen_at) {
                    sum += value[0];
                }
            }
            *now_ns += step_ns;
        }
        sum
    }
}

impl Hashbrown {
    /// A table for `capacity` flows with those of the numbers below `flow_count`.
    pub fn new(capacity: usize, flow_count: u64, pages: Pages) -> Self {
        Self::filled(capacity, flow_count, arena(Self::bytes(capacity), pages).0)
    }

    /// [`new`](Self::new) with additional memory for a table of twice the size, to grow into.
    pub fn with_spare(capacity: usize, flow_count: u64, pages: Pages) -> Self {
        let bytes = Self::bytes(capacity) + Self::bytes(2 * capacity);
        Self::filled(capacity, flow_count, arena(bytes, pages).0)
    }

    fn filled(capacity: usize, flow_count: u64, arena: Arena) -> Self {
        let mut table = Self(HashTable::with_capacity_in(capacity, arena));
        (0..flow_count).for_each(|number| table.insert(key(number)));
        table
    }

    /// The number of slots is a power of two, each has a control byte, and at most 7/8 of them are
    /// used.
    fn bytes(capacity: usize) -> usize {
        let slots = (capacity * 8).div_ceil(7).next_power_of_two();
        slots * (size_of::<Entry>() + 1) + (64 << 10)
    }

    /// Inserts a key, or replaces its value, as our table's `insert` does.
    #[inline]
    pub fn insert(&mut self, key: Key) {
        let new = Entry { key, value: [1; 5], seen_ns: START_NS };
        let place = self.0.entry(hash(&key), |entry| entry.key == key, |entry| hash(&entry.key));
        place.insert(new);
    }

    /// Removes a key, which must be there.
    #[inline]
    pub fn remove(&mut self, key: &Key) {
        let entry = self.0.find_entry(hash(key), |entry| entry.key == *key);
        entry.unwrap_or_else(|_| panic!("the key is there")).remove();
    }

    /// Looks up keys one by one, as its interface requires. Returns the sum of the first words
    /// found.
    pub fn find(&self, keys: &[Key]) -> u64 {
        let found = keys.iter().filter_map(|key| self.0.find(hash(key), |entry| entry.key == *key));
        found.map(|entry| entry.value[0]).sum()
    }

    /// [`find`](Self::find) that also writes the time into each entry found.
    pub fn find_at(&mut self, keys: &[Key], mut now_ns: u64, step_ns: u64) -> u64 {
        let mut sum = 0;
        for burst in keys.chunks(BURST) {
            for key in burst {
                if let Some(entry) = self.0.find_mut(hash(key), |entry| entry.key == *key) {
                    sum += entry.value[0];
                    entry.seen_ns = now_ns;
                }
            }
            now_ns += step_ns;
        }
        sum
    }
}

/// A hash table of DPDK with the flows below `flow_count`.
pub fn rte_hash(eal: Eal, flow_count: u64, pages: Pages) -> Hash {
    let bytes = Hash::bytes(flow_count as usize) + (4 << 20);
    let table = Hash::new(eal, flow_count as u32, arena(bytes, pages));
    let mut table = table.unwrap_or_else(|error| panic!("{error}"));
    for number in 0..flow_count {
        table.add(&key(number), 1).unwrap_or_else(|error| panic!("{error}"));
    }
    table
}

/// Bare control bytes and lines, of the size of a full table of `flow_count` flows.
pub fn floor(flow_count: u64, pages: Pages) -> Floor {
    let slot_count = (flow_count as f64 / LOAD) as usize;
    let floor = Floor::new(&arena(Floor::bytes(slot_count), pages).0, slot_count);
    floor.unwrap_or_else(|error| panic!("{error}"))
}

fn hash(key: &Key) -> u64 {
    hash_words(key, &SEED)
}
