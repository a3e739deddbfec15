//! Operations on a table in their shortest forms: times in nanoseconds, no hints, and flows that
//! leave are dropped.

#![allow(dead_code, reason = "not every test uses all")]

use super::{Handle, Hint, Key, Refused, Table};
use hotloop_packet::Instant;

pub fn at(ns: u64) -> Instant {
    Instant::from_ns(ns)
}

pub trait Plainly<K, V> {
    /// [`Table::insert`].
    fn put(&mut self, key: K, value: V, now_ns: u64) -> Result<Handle, Refused>;

    /// [`Table::find`].
    fn get(&mut self, key: &K, now_ns: u64) -> Option<Handle>;

    /// [`Table::peek`].
    fn look(&self, key: &K, now_ns: u64) -> Option<(Handle, u64)>;
}

impl<K: Key, V> Plainly<K, V> for Table<K, V> {
    fn put(&mut self, key: K, value: V, now_ns: u64) -> Result<Handle, Refused> {
        self.insert(key, value, at(now_ns), &mut |_, _| ())
    }

    fn get(&mut self, key: &K, now_ns: u64) -> Option<Handle> {
        self.find(key, Hint::NONE, at(now_ns)).map(|(handle, _)| handle)
    }

    fn look(&self, key: &K, now_ns: u64) -> Option<(Handle, u64)> {
        self.peek(key, Hint::NONE, at(now_ns)).ok()
    }
}
