//! A table beside a hash map that predicts its results.

mod times;

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use super::super::{Chosen, at, check, table_with};
use crate::group::{GROUP_SLOTS, Native};
use crate::{
    BURST_KEYS_MAX, Backend, CLASS_COUNT, Class, Classes, Config, Eviction, Full, Handle, HashSeed,
    Hint, Hints, Refused, STEP_NS, Stats, Table, Vacancy, hash_words,
};
use hotloop_packet::Instant;

/// Initial idle timeouts of each class in steps; the last one is forever.
const IDLE_STEPS: [u64; CLASS_COUNT] = [8, 20, 0, 50, 8, 8, 8, u32::MAX as u64];

/// Number of steps after which `find_hinted` skips flows.
const RECENT_STEPS: u64 = 15;

/// The eviction order of classes when inserting with ranks; one class must stay.
fn rank_of(class: Class) -> Option<u8> {
    (class.index() != 2).then_some(class.index() as u8 % 3)
}

/// Parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub capacity: usize,
    /// Number of different keys.
    pub key_count: u64,
    pub full: Full,
    /// Number of bits of keys that their hashes depend on.
    pub hash_bits: u32,
}

/// A value that counts its live instances.
struct Counted {
    number: u64,
    alive: Rc<Cell<usize>>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.alive.set(self.alive.get() - 1);
    }
}

/// The model's state of a flow.
#[derive(Clone, Copy, Debug)]
struct Flow {
    number: u64,
    seen_step: u64,
    class: Class,
    handle: Handle,
}

/// Ranks flows by their classes, and checks what it is asked.
struct Ranking<'a> {
    flows: &'a HashMap<Chosen, Flow>,
    now_step: u64,
    /// The class of the new flow.
    class: Class,
    left: Option<(Chosen, u64)>,
}

impl Eviction<Chosen, Counted> for Ranking<'_> {
    fn class(&self, _: &Counted) -> Class {
        self.class
    }

    fn rank(&mut self, value: &Counted, class: Class, silent_ns: u64) -> Option<u8> {
        let flow = self.flows.values().find(|flow| flow.number == value.number).unwrap();
        assert_eq!(flow.class, class);
        assert_eq!(silent_ns, (self.now_step - flow.seen_step).saturating_sub(1) * STEP_NS);
        rank_of(class)
    }

    fn leaves(&mut self, key: Chosen, value: Counted) {
        assert_eq!(self.left, None);
        self.left = Some((key, value.number));
    }
}

pub struct Model {
    shape: Shape,
    table: Table<Chosen, Counted>,
    flows: HashMap<Chosen, Flow>,
    /// The latest handles of flows that have left or moved.
    stale: Vec<Handle>,
    /// The latest hints, and their keys.
    hints: Hints,
    hinted: Vec<Chosen>,
    /// The result of the latest search that found nothing, however long ago that was.
    vacancy: Option<Vacancy<Chosen>>,
    alive: Rc<Cell<usize>>,
    idle_steps: [u64; CLASS_COUNT],
    now_ns: u64,
    next_number: u64,
    stats: Stats,
    /// All results so far.
    trace: DefaultHasher,
}

impl Model {
    pub fn new(shape: Shape, backend: Backend) -> Self {
        let idle_ns = IDLE_STEPS.map(|steps| steps.saturating_mul(STEP_NS));
        let recent_ns = RECENT_STEPS * STEP_NS;
        let config = Config { capacity: shape.capacity, idle_ns, recent_ns, full: shape.full };
        Self {
            shape,
            table: table_with(config, backend),
            flows: HashMap::new(),
            stale: Vec::new(),
            hints: Hints::new(),
            hinted: Vec::new(),
            vacancy: None,
            alive: Rc::default(),
            idle_steps: IDLE_STEPS,
            // Close to the point at which steps no longer fit 32 bits.
            now_ns: STEP_NS * ((1 << 32) - 100),
            next_number: 0,
            stats: Stats::default(),
            trace: DefaultHasher::new(),
        }
    }

    /// Runs the operation with this number, and compares results.
    pub fn apply(&mut self, operation: u64) {
        let (kind, rest) = (operation % 32, operation / 32);
        let key = self.key(rest);
        match kind {
            0..2 => self.hint(rest),
            2..4 => self.find_hinted(),
            4..6 => {
                self.find(key);
            }
            6 => self.peek(key),
            7..11 => {
                let vacancy = self.vacancy.filter(|_| rest.is_multiple_of(2));
                self.insert(vacancy.unwrap_or(key.into()));
            }
            11..14 => {
                let vacancy = self.vacancy.filter(|_| rest.is_multiple_of(2));
                let class = Class::new(rest as usize / 3 % CLASS_COUNT);
                self.insert_ranked(vacancy.unwrap_or(key.into()), class);
            }
            14..18 if self.find(key).is_none() => self.insert(key.into()),
            18..21 => self.insert_burst(rest),
            21..23 => self.write(key),
            23..25 => self.set_class(key, Class::new(rest as usize / 7 % CLASS_COUNT)),
            25..28 => self.remove(key),
            28..30 => self.expire(rest as usize % (2 * self.shape.capacity)),
            30 if rest.is_multiple_of(16) => self.set_idle(rest / 16),
            _ => self.now_ns += rest % (3 * STEP_NS),
        }
        self.stats.len_max = self.stats.len_max.max(self.flows.len());
        self.stale.drain(..self.stale.len().saturating_sub(100));
    }

    fn key(&self, rest: u64) -> Chosen {
        let number = hash_words(&[rest], &HashSeed::new(5)) % self.shape.key_count;
        let shown =
            if self.shape.hash_bits == 64 { number } else { number % (1 << self.shape.hash_bits) };
        Chosen { number: number as u32, hash: hash_words(&[shown], &HashSeed::new(3)) }
    }

    fn value(&mut self) -> Counted {
        self.next_number += 1;
        self.alive.set(self.alive.get() + 1);
        Counted { number: self.next_number, alive: self.alive.clone() }
    }

    fn now(&self) -> Instant {
        at(self.now_ns)
    }

    /// The expected result of a lookup, which marks the flow as seen.
    fn expect_found(&mut self, key: Chosen) -> Option<Handle> {
        let flow = *self.flows.get(&key)?;
        if self.is_expired(&flow) {
            return None;
        }
        self.flows.insert(key, Flow { seen_step: self.now_step(), ..flow });
        Some(flow.handle)
    }

    /// Makes hints for a burst, in the way of a small or a large table.
    fn hint(&mut self, rest: u64) {
        let count = rest % (BURST_KEYS_MAX as u64 + 1);
        self.hinted = (0..count).map(|at| self.key(rest + at)).collect();
        self.table.is_cached = rest.is_multiple_of(3);
        self.hints = Hints::new();
        let is_shown = |index: usize| !(rest as usize + index).is_multiple_of(9);
        let keys = self.hinted.iter().enumerate();
        let keys = keys.map(|(index, key)| is_shown(index).then_some(*key));
        self.table.hint_burst(keys, &mut self.hints);
        for (index, key) in self.hinted.iter().enumerate() {
            if is_shown(index) && self.flows.contains_key(key) {
                assert!(!self.hints.at(index).is_absent(), "{key:?} is there");
            }
        }
    }

    /// Finds the flow of a key, with a hint or none.
    fn find(&mut self, key: Chosen) -> Option<Handle> {
        let (hint, now) = (self.hint_of(key), self.now());
        let found = self.table.find(&key, hint, now).map(|(handle, value)| (handle, value.number));
        let handle = self.expect_found(key);
        assert_eq!(found, handle.map(|handle| (handle, self.flows[&key].number)), "{hint:?}");
        handle.hash(&mut self.trace);
        handle
    }

    /// Finds the flows of the latest hints, however old these are.
    fn find_hinted(&mut self) {
        let seen_at = self.table.seen_at(self.now());
        for (index, key) in self.hinted.clone().into_iter().enumerate() {
            if index % 3 == 0 {
                let was_absent = self.hints.at(index).is_absent();
                self.table.prefetch_insert(&key, &mut self.hints, index);
                let is_absent = self.hints.at(index).is_absent();
                assert!(is_absent >= was_absent);
                assert!(is_absent == was_absent || !self.flows.contains_key(&key));
            }
            let hint = self.hints.at(index);
            let expected = if hint.is_absent() { None } else { self.expect_recent(key) };
            let found = self.table.find_hinted(&key, hint, seen_at);
            let found = found.map(|(handle, value)| (handle, value.number));
            let found = found.map(|(handle, number)| {
                assert_eq!(self.table[handle].number, number, "the handle is of the value");
                number
            });
            assert_eq!(found, expected, "{key:?} {hint:?}");
            found.hash(&mut self.trace);
        }
    }

    /// The latest hint for a key, or an empty one.
    fn hint_of(&self, key: Chosen) -> Hint {
        let index = self.hinted.iter().position(|hinted| *hinted == key);
        index.map_or(Hint::default(), |index| self.hints.at(index))
    }

    fn insert(&mut self, vacancy: Vacancy<Chosen>) {
        let (value, now) = (self.value(), self.now());
        let number = value.number;
        let mut left = None;
        let result = self.table.insert(vacancy, value, now, &mut |key, value: Counted| {
            left = Some((key, value.number));
        });
        self.expect_inserted(vacancy.key, Class::default(), result, number, left.as_slice());
    }

    fn insert_ranked(&mut self, vacancy: Vacancy<Chosen>, class: Class) {
        let (key, value, now) = (vacancy.key, self.value(), self.now());
        let number = value.number;
        let now_step = self.now_step();
        let mut ranking = Ranking { flows: &self.flows, now_step, class, left: None };
        let result = self.table.insert(vacancy, value, now, &mut ranking);
        let left = ranking.left;
        if let Some((key, _)) = left {
            let flow = &self.flows[&key];
            assert!(self.is_expired(flow) || rank_of(flow.class).is_some(), "{flow:?} left");
        }
        if result.is_ok() {
            self.expect_inserted(key, class, result, number, left.as_slice());
        } else {
            (result.ok(), left).hash(&mut self.trace);
            assert!(!self.flows.contains_key(&key) && left.is_none());
            self.stats.refused_count += 1;
            self.expect_no_place(key, |class| rank_of(class).is_some());
        }
    }

    /// Inserts a burst of flows, each with a vacancy from before the first insertion, from just
    /// before its own, or with its key.
    fn insert_burst(&mut self, rest: u64) {
        // Often two flows of the same key.
        let count = rest % 40;
        let keys: Vec<Chosen> = (0..count).map(|at| self.key(rest + at % 30)).collect();
        self.table.hint_burst(keys.iter().copied(), &mut self.hints);
        self.hinted.clone_from(&keys);
        let mut vacancies = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            self.table.prefetch_insert(key, &mut self.hints, index);
            let found = self.table.peek(key, self.hints.at(index), self.now());
            vacancies.push(found.err());
        }
        for (index, (key, early)) in keys.into_iter().zip(vacancies).enumerate() {
            let late = || self.table.peek(&key, self.hints.at(index), self.now()).err();
            let vacancy = match index % 3 {
                0 => early,
                1 => late(),
                _ => None,
            };
            self.insert(vacancy.unwrap_or(key.into()));
        }
    }

    /// The expected result of inserting `key`, if the value is new.
    fn expect_inserted(
        &mut self,
        key: Chosen,
        class: Class,
        result: Result<Handle, Refused>,
        number: u64,
        left: &[(Chosen, u64)],
    ) {
        (result.ok(), left).hash(&mut self.trace);
        let old = self.flows.get(&key).copied();
        let Ok(handle) = result else {
            assert!(old.is_none() && left.is_empty());
            self.stats.refused_count += 1;
            self.expect_no_place(key, |_| true);
            return;
        };
        for &(key, number) in left {
            let flow = self.flows.remove(&key).unwrap();
            assert_eq!(flow.number, number);
            self.expect_may_leave(&flow);
        }
        let is_live = old.filter(|flow| !self.is_expired(flow));
        let class = is_live.map_or(class, |flow| flow.class);
        if let Some(flow) = is_live {
            assert_eq!(flow.handle, handle);
            assert!(left.is_empty());
        } else {
            self.stats.inserted_count += 1;
        }
        self.flows.insert(key, Flow { number, seen_step: self.now_step(), class, handle });
        self.follow_moves();
    }

    fn expect_may_leave(&mut self, flow: &Flow) {
        self.stale.push(flow.handle);
        if self.is_expired(flow) {
            self.stats.expired_count += 1;
            return;
        }
        self.stats.evicted_count += 1;
        let Full::Evict(classes) = self.shape.full else { panic!("{flow:?} left") };
        assert!(classes.contains(flow.class), "{flow:?} left");
    }

    /// Checks that a new flow was refused for a reason.
    fn expect_no_place(&self, key: Chosen, has_rank: impl Fn(Class) -> bool) {
        let view = self.table.store.view();
        let hash = view.hash(&key);
        let first = view.first(hash);
        let groups = [first, view.second(hash, first)];
        let is_full = self.flows.len() == self.shape.capacity;
        let residents = self
            .flows
            .values()
            .filter(|flow| groups.contains(&(flow.handle.slot as usize / GROUP_SLOTS)));
        let slot_count = if groups[0] == groups[1] { GROUP_SLOTS } else { 2 * GROUP_SLOTS };
        assert!(is_full || residents.clone().count() == slot_count);
        if let Full::Evict(classes) = self.shape.full {
            for flow in residents.filter(|_| classes != Classes::NONE) {
                // If all tags are alike, no line may be left for other groups: one flow may stay
                // for that reason.
                let is_asked = classes.contains(flow.class) && has_rank(flow.class);
                let may_leave = is_asked || self.is_expired(flow);
                assert!(!may_leave || self.shape.hash_bits < 64, "{flow:?} could leave");
            }
        }
    }

    /// Updates the handles of flows that were moved.
    fn follow_moves(&mut self) {
        let moved_count = self.table.stats().moved_count;
        if moved_count == self.stats.moved_count {
            return;
        }
        let is_stale = |flow: &Flow| self.table.value(flow.handle).is_none();
        let moved = self.flows.iter().filter(|(_, flow)| is_stale(flow)).map(|(key, _)| *key);
        for key in moved.collect::<Vec<_>>() {
            let handle = self.present(key).unwrap();
            let flow = self.flows.get_mut(&key).unwrap();
            self.stale.push(std::mem::replace(&mut flow.handle, handle));
        }
        self.stats.moved_count = moved_count;
    }

    fn present(&self, key: Chosen) -> Option<Handle> {
        let view = self.table.store.view();
        let (slot, _) = view.find::<Native>(&key, view.hash(&key))?;
        Some(self.table.handle(slot))
    }

    fn write(&mut self, key: Chosen) {
        self.next_number += 1;
        if let Some(flow) = self.flows.get_mut(&key) {
            assert_eq!(self.table[flow.handle].number, flow.number);
            flow.number = self.next_number;
            self.table[flow.handle].number = self.next_number;
        }
    }

    fn set_class(&mut self, key: Chosen, class: Class) {
        if let Some(flow) = self.flows.get_mut(&key) {
            assert_eq!(self.table.class(flow.handle), Some(flow.class));
            assert!(self.table.set_class(flow.handle, class));
            flow.class = class;
        }
        if let Some(&handle) = self.stale.last() {
            assert!(!self.table.set_class(handle, class));
        }
    }

    fn remove(&mut self, key: Chosen) {
        let removed = self.table.remove(&key).map(|value| value.number);
        let flow = self.flows.remove(&key);
        assert_eq!(removed, flow.map(|flow| flow.number));
        self.stats.removed_count += u64::from(flow.is_some());
        self.stale.extend(flow.map(|flow| flow.handle));
    }

    fn expire(&mut self, budget: usize) {
        let mut expired = Vec::new();
        let count =
            self.table.expire(self.now(), budget, |key, value| expired.push((key, value.number)));
        assert_eq!(count, expired.len());
        assert!(count <= budget);
        for (key, number) in expired {
            let flow = self.flows.remove(&key).unwrap();
            assert!(number == flow.number && self.is_expired(&flow));
            self.stale.push(flow.handle);
            self.stats.expired_count += 1;
        }
        if budget >= self.table.slot_count() {
            assert!(!self.flows.values().any(|flow| self.is_expired(flow)));
        }
    }

    pub fn check(&self) {
        check(&self.table);
        assert_eq!((self.table.len(), self.alive.get()), (self.flows.len(), self.flows.len()));
        for flow in self.flows.values() {
            assert_eq!(self.table.value(flow.handle).map(|value| value.number), Some(flow.number));
            assert_eq!(self.table.class(flow.handle), Some(flow.class));
        }
        for &handle in &self.stale {
            assert!(self.table.value(handle).is_none(), "{handle:?} is stale");
        }
        assert_eq!(self.table.iter().count(), self.flows.len());
        for (key, value) in self.table.iter() {
            assert_eq!(self.flows[key].number, value.number);
        }
        let overflow_len = self.table.stats().overflow_len;
        let expected = Stats { len: self.flows.len(), overflow_len, ..self.stats };
        assert_eq!(self.table.stats(), Stats { len_max: self.table.stats().len_max, ..expected });
    }

    /// A digest of all results.
    pub fn finish(self) -> u64 {
        self.check();
        let Self { table, alive, trace, .. } = self;
        drop(table);
        assert_eq!(alive.get(), 0, "values left in a table are dropped with it");
        trace.finish()
    }
}
