//! The connections that a worker remembers, with the backend of each.

use crate::directory::TargetIndex;
use hotloop::arena::{Arena, Request};
use hotloop::flow::{BURST_KEYS_MAX, Config, Handle, Table};
use hotloop::packet::flow_key::{FlowKey, FlowKeyV4, FlowKeyV6};
use hotloop::stage::{Error, Tick};

/// How long a connection is remembered after its last packet, in nanoseconds: 15 minutes.
pub const IDLE_NS: u64 = 900_000_000_000;

/// How many places of each table one [`Connections::age`] looks at.
const AGE_BUDGET: usize = 8;

/// A worker's connection tables, one for each IP version: keys are directed from client to VIP.
#[derive(Debug)]
pub struct Connections {
    v4: Table<FlowKeyV4, TargetIndex>,
    v6: Table<FlowKeyV6, TargetIndex>,
    /// How many connections there may be in both together.
    capacity: usize,
    /// What [`prepare`](Self::prepare) was given and found, by place in the burst.
    keys: [Option<FlowKey>; BURST_KEYS_MAX],
    found: [Option<TargetIndex>; BURST_KEYS_MAX],
}

impl Connections {
    /// Tables for `capacity` connections, in memory of `node` where that is known.
    ///
    /// # Errors
    /// There is not so much memory.
    pub fn new(capacity: usize, node: Option<u32>) -> Result<Self, Error> {
        let bytes = Table::<FlowKeyV4, TargetIndex>::bytes(capacity)
            .zip(Table::<FlowKeyV6, TargetIndex>::bytes(capacity))
            .and_then(|(v4, v6)| v4.checked_add(v6))
            .ok_or_else(|| Error::message(format!("{capacity} connections: too many")))?;
        let (arena, _) = Arena::new(Request { node, ..Request::new(bytes) })?;
        let config = Config::new(capacity, IDLE_NS);
        Ok(Self {
            v4: Table::new(arena.clone(), config)?,
            v6: Table::new(arena, config)?,
            capacity,
            keys: [None; BURST_KEYS_MAX],
            found: [None; BURST_KEYS_MAX],
        })
    }

    /// Looks up the keys of a burst, for [`key`](Self::key) and [`found`](Self::found).
    ///
    /// # Panics
    /// With more than 64 keys.
    #[inline]
    pub fn prepare(&mut self, keys: impl Iterator<Item = Option<FlowKey>>, now: Tick) {
        let (mut count, mut v6_count) = (0, 0);
        for (slot, key) in self.keys.iter_mut().zip(keys) {
            *slot = key;
            count += 1;
            v6_count += usize::from(matches!(key, Some(FlowKey::V6(_))));
        }
        let keys = &self.keys[..count];
        let mut handles: [Option<Handle>; BURST_KEYS_MAX] = [None; BURST_KEYS_MAX];
        let v4_keys = keys.iter().map(|key| match key {
            Some(FlowKey::V4(key)) => Some(*key),
            _ => None,
        });
        self.v4.lookup_burst(v4_keys, now.as_ns(), &mut handles);
        for (found, handle) in self.found.iter_mut().zip(&handles[..count]) {
            *found = handle.map(|handle| self.v4[handle]);
        }
        if v6_count == 0 {
            return;
        }
        let v6_keys = keys.iter().map(|key| match key {
            Some(FlowKey::V6(key)) => Some(*key),
            _ => None,
        });
        self.v6.lookup_burst(v6_keys, now.as_ns(), &mut handles);
        for (found, handle) in self.found.iter_mut().zip(&handles[..count]) {
            *found = found.or_else(|| handle.map(|handle| self.v6[handle]));
        }
    }

    /// The key of the packet at `index` of the burst that was prepared.
    #[inline]
    #[must_use]
    pub fn key(&self, index: usize) -> Option<FlowKey> {
        self.keys[index]
    }

    /// The backend of the packet at `index` of the burst that was prepared, as it was then: a packet
    /// ahead of it may have inserted its connection since.
    #[inline]
    #[must_use]
    pub fn found(&self, index: usize) -> Option<TargetIndex> {
        self.found[index]
    }

    /// The backend of a connection, which has a packet now.
    #[inline]
    pub fn backend(&mut self, key: &FlowKey, now: Tick) -> Option<TargetIndex> {
        match key {
            FlowKey::V4(key) => self.v4.get(key, now.as_ns()).map(|handle| self.v4[handle]),
            FlowKey::V6(key) => self.v6.get(key, now.as_ns()).map(|handle| self.v6[handle]),
        }
    }

    /// Remembers a connection, which has a packet now. Says whether there was room for it.
    pub fn insert(&mut self, key: &FlowKey, backend: TargetIndex, now: Tick) -> bool {
        if self.len() >= self.capacity {
            return false;
        }
        match key {
            FlowKey::V4(key) => self.v4.insert(*key, backend, now.as_ns()).is_ok(),
            FlowKey::V6(key) => self.v6.insert(*key, backend, now.as_ns()).is_ok(),
        }
    }

    /// Forgets connections that fell silent, in a bounded step: a few places of each table.
    #[inline]
    pub fn age(&mut self, now: Tick) {
        self.v4.age(now.as_ns(), AGE_BUDGET, |_, _| {});
        self.v6.age(now.as_ns(), AGE_BUDGET, |_, _| {});
    }

    /// How many connections there are, those included that fell silent and were not forgotten yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All connections, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (FlowKey, TargetIndex)> {
        let v4 = self.v4.iter().map(|(key, backend)| (FlowKey::V4(*key), *backend));
        v4.chain(self.v6.iter().map(|(key, backend)| (FlowKey::V6(*key), *backend)))
    }
}
