//! Any sequence of operations on a table gives what a hash map with times gives.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

use hotloop_arena::{Arena, Pages, Request};
use hotloop_flow::{BURST_KEYS_MAX, Config, Full, Handle, Key, Stats, Table};
use proptest::prelude::*;

/// A key whose hash shows only as much of it as `SHOWN` says: with 0 all keys share one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Blurred<const SHOWN: u64>(u8);

impl<const SHOWN: u64> Key for Blurred<SHOWN> {
    fn hash(&self, seed: u64) -> u64 {
        [u64::from(self.0) & SHOWN].hash(seed)
    }
}

/// A value that counts how many of it there are.
#[derive(Debug)]
struct Counted {
    number: u32,
    alive: Rc<Cell<usize>>,
}

impl Counted {
    fn new(number: u32, alive: &Rc<Cell<usize>>) -> Self {
        alive.set(alive.get() + 1);
        Self { number, alive: alive.clone() }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.alive.set(self.alive.get() - 1);
    }
}

#[derive(Clone, Debug)]
enum Op {
    Lookup(Vec<Option<u8>>),
    Get(u8),
    Insert(u8),
    GetOrInsert(u8),
    Write(prop::sample::Index),
    Remove(u8),
    Age(usize),
    Wait(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let key = || 0..48_u8;
    prop_oneof![
        2 => prop::collection::vec(prop::option::weighted(0.9, key()), 0..=64).prop_map(Op::Lookup),
        2 => key().prop_map(Op::Get),
        6 => key().prop_map(Op::Insert),
        3 => key().prop_map(Op::GetOrInsert),
        2 => any::<prop::sample::Index>().prop_map(Op::Write),
        3 => key().prop_map(Op::Remove),
        1 => (0..50_usize).prop_map(Op::Age),
        2 => (0..60_u64).prop_map(Op::Wait),
    ]
}

const IDLE_NS: u64 = 100;

/// What the oracle knows of a flow.
#[derive(Clone, Copy, Debug)]
struct Flow {
    number: u32,
    seen_ns: u64,
    handle: Handle,
}

struct Run<K> {
    table: Table<K, Counted>,
    oracle: HashMap<K, Flow>,
    /// Handles of flows that have left.
    stale: Vec<Handle>,
    alive: Rc<Cell<usize>>,
    now_ns: u64,
    next_number: u32,
    stats: Stats,
}

impl<K: Key + std::hash::Hash + std::fmt::Debug> Run<K> {
    fn new(capacity: usize) -> Self {
        let pages = vec![Pages::Small];
        let (arena, _) = Arena::new(Request { pages, ..Request::new(16 << 10) }).unwrap();
        Self {
            table: Table::with_seed(arena, Config { capacity, idle_ns: IDLE_NS }, 7).unwrap(),
            oracle: HashMap::new(),
            stale: Vec::new(),
            alive: Rc::default(),
            now_ns: 1_000,
            next_number: 0,
            stats: Stats::default(),
        }
    }

    fn is_expired(&self, flow: &Flow) -> bool {
        self.now_ns - flow.seen_ns > IDLE_NS
    }

    /// What a lookup gives, and that it was seen.
    fn expect_found(&mut self, key: K) -> Option<Handle> {
        let flow = *self.oracle.get(&key)?;
        if self.is_expired(&flow) {
            return None;
        }
        self.oracle.insert(key, Flow { seen_ns: self.now_ns, ..flow });
        Some(flow.handle)
    }

    fn new_value(&mut self) -> Counted {
        self.next_number += 1;
        Counted::new(self.next_number, &self.alive)
    }

    /// What an insertion of `key` gave, where the value is new.
    fn expect_inserted(&mut self, key: K, result: Result<Handle, Full>, number: u32) {
        let old = self.oracle.get(&key).copied();
        if old.is_none() && self.oracle.len() == self.table.capacity() {
            assert_eq!(result, Err(Full));
            self.stats.refused_count += 1;
            return;
        }
        let handle = result.unwrap();
        match old {
            Some(flow) if self.is_expired(&flow) => {
                self.stale.push(flow.handle);
                self.stats.expired_count += 1;
                self.stats.inserted_count += 1;
            }
            Some(flow) => assert_eq!(handle, flow.handle),
            None => self.stats.inserted_count += 1,
        }
        self.oracle.insert(key, Flow { number, seen_ns: self.now_ns, handle });
    }

    fn apply(&mut self, op: Op, key: impl Fn(u8) -> K) {
        match op {
            Op::Lookup(keys) => self.lookup(keys.into_iter().map(|number| number.map(&key))),
            Op::Get(number) => {
                let found = self.table.get(&key(number), self.now_ns);
                assert_eq!(found, self.expect_found(key(number)));
            }
            Op::Insert(number) => {
                let value = self.new_value();
                let result = self.table.insert(key(number), value, self.now_ns);
                self.expect_inserted(key(number), result, self.next_number);
            }
            Op::GetOrInsert(number) => self.get_or_insert(key(number)),
            Op::Write(which) => self.write(which),
            Op::Remove(number) => {
                let removed = self.table.remove(&key(number)).map(|value| value.number);
                let flow = self.oracle.remove(&key(number));
                assert_eq!(removed, flow.map(|flow| flow.number));
                self.stats.removed_count += u64::from(flow.is_some());
                self.stale.extend(flow.map(|flow| flow.handle));
            }
            Op::Age(budget) => self.age(budget),
            Op::Wait(wait_ns) => self.now_ns += wait_ns,
        }
        self.stats.len_max = self.stats.len_max.max(self.oracle.len());
        self.check();
    }

    fn lookup(&mut self, keys: impl Iterator<Item = Option<K>> + Clone) {
        let past_handle = self.stale.first().copied();
        let mut found = [past_handle; BURST_KEYS_MAX];
        self.table.lookup_burst(keys.clone(), self.now_ns, &mut found);
        let mut expected = [None; BURST_KEYS_MAX];
        for (expected, key) in expected.iter_mut().zip(keys) {
            *expected = key.and_then(|key| self.expect_found(key));
        }
        assert_eq!(found, expected);
    }

    fn get_or_insert(&mut self, key: K) {
        let value = self.new_value();
        let number = value.number;
        let mut value = Some(value);
        let result = self.table.get_or_insert_with(key, self.now_ns, || value.take().unwrap());
        match self.expect_found(key) {
            Some(handle) => {
                assert_eq!(result, Ok(handle));
                assert!(value.is_some(), "no value is made for a flow that is there");
            }
            None => {
                assert_eq!(value.is_some(), result.is_err());
                self.expect_inserted(key, result, number);
            }
        }
    }

    fn write(&mut self, which: prop::sample::Index) {
        if self.oracle.is_empty() {
            return;
        }
        self.next_number += 1;
        let index = which.index(self.oracle.len());
        let flow = self.oracle.values_mut().nth(index).unwrap();
        assert_eq!(self.table[flow.handle].number, flow.number);
        flow.number = self.next_number;
        self.table[flow.handle].number = self.next_number;
    }

    fn age(&mut self, budget: usize) {
        let mut expired = Vec::new();
        let count = self.table.age(self.now_ns, budget, |key, value| {
            expired.push((key, value.number));
        });
        assert_eq!(count, expired.len());
        assert!(count <= budget);
        for (key, number) in expired {
            let flow = self.oracle.remove(&key).unwrap();
            assert!(number == flow.number && self.is_expired(&flow));
            self.stale.push(flow.handle);
            self.stats.expired_count += 1;
        }
        if budget >= self.table.capacity() {
            assert!(!self.oracle.values().any(|flow| self.is_expired(flow)));
        }
    }

    fn check(&self) {
        assert_eq!((self.table.len(), self.alive.get()), (self.oracle.len(), self.oracle.len()));
        assert_eq!(self.table.is_empty(), self.oracle.is_empty());
        for flow in self.oracle.values() {
            assert_eq!(self.table.value(flow.handle).map(|value| value.number), Some(flow.number));
        }
        for &handle in &self.stale {
            assert!(self.table.value(handle).is_none(), "{handle:?} is stale");
        }
        assert_eq!(self.table.iter().count(), self.oracle.len());
        for (key, value) in self.table.iter() {
            assert_eq!(self.oracle[key].number, value.number);
        }
        assert_eq!(self.table.stats(), self.stats);
        let left_count = self.stats.removed_count + self.stats.expired_count;
        assert_eq!(self.stats.inserted_count, left_count + self.oracle.len() as u64);
    }
}

fn run<const SHOWN: u64>(capacity: usize, ops: Vec<Op>) {
    let mut run = Run::<Blurred<SHOWN>>::new(capacity);
    let alive = run.alive.clone();
    for op in ops {
        run.apply(op, Blurred);
    }
    drop(run);
    assert_eq!(alive.get(), 0, "values left in a table are dropped with it");
}

proptest! {
    #[test]
    fn keys_that_spread(capacity in 1..40_usize, ops in prop::collection::vec(op(), 0..200)) {
        run::<0xff>(capacity, ops);
    }

    #[test]
    fn keys_of_few_hashes(capacity in 1..40_usize, ops in prop::collection::vec(op(), 0..200)) {
        run::<3>(capacity, ops);
    }

    #[test]
    fn keys_of_one_bucket(capacity in 1..40_usize, ops in prop::collection::vec(op(), 0..200)) {
        run::<0>(capacity, ops);
    }
}
