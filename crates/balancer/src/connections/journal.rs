//! The journal of changes that the other nodes of a cluster must learn of. Uses memory allocated at
//! the start. A key that finds no room is lost, and the loss is remembered.

use hotloop::packet::flow_key::{FlowKey, FlowKeyV4};
use std::collections::VecDeque;
use std::net::Ipv4Addr;

/// A key that no connection has.
pub(crate) const NO_KEY: FlowKey =
    FlowKey::V4(FlowKeyV4::new(Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED, 0, 0, 0));

/// An empty vector with room for this many values. Its memory is touched here, so that no worker
/// takes a page fault later.
pub(crate) fn room_for<T: Clone>(count_max: usize, value: T) -> Vec<T> {
    let mut room = vec![value; count_max];
    room.clear();
    room
}

/// The keys of connections with exceptions that have begun, changed or ended, or must be claimed
/// again, until control takes them. Their state is looked up then, so a key only means that there
/// is something to report.
///
/// All memory is allocated at the start. A key that finds no room is lost, and the journal
/// remembers the loss: then all exceptions must be walked.
#[derive(Debug, Default)]
pub struct Journal {
    keys: VecDeque<FlowKey>,
    keys_max: usize,
    has_lost: bool,
    has_new: bool,
}

impl Journal {
    /// A journal with room for this many keys; with 0, nothing is kept.
    #[must_use]
    pub fn new(keys_max: usize) -> Self {
        Self { keys: room_for(keys_max, NO_KEY).into(), keys_max, ..Self::default() }
    }

    /// Whether the journal keeps keys.
    #[inline]
    #[must_use]
    pub const fn is_kept(&self) -> bool {
        self.keys_max > 0
    }

    /// Adds a connection. Returns whether there was room.
    #[cold]
    #[inline(never)]
    pub fn note(&mut self, key: FlowKey) -> bool {
        self.has_new = true;
        if self.keys.len() >= self.keys_max {
            self.has_lost = true;
            return false;
        }
        self.keys.push_back(key);
        true
    }

    /// Removes and returns the oldest key.
    pub fn pop(&mut self) -> Option<FlowKey> {
        self.keys.pop_front()
    }

    /// The waiting keys, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &FlowKey> {
        self.keys.iter()
    }

    /// Number of waiting keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether no key waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether a key was lost since the last call.
    pub const fn take_has_lost(&mut self) -> bool {
        std::mem::replace(&mut self.has_lost, false)
    }

    /// Whether a key was added since the last call.
    pub const fn take_has_new(&mut self) -> bool {
        std::mem::replace(&mut self.has_new, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(port: u16) -> FlowKey {
        let client = format!("198.51.100.7:{port}").parse().unwrap();
        FlowKey::new(client, "203.0.113.10:80".parse().unwrap(), 6).unwrap()
    }

    #[test]
    fn what_finds_no_room_is_known_to_be_lost() {
        let mut journal = Journal::new(2);
        assert!(journal.note(key(1)) && journal.note(key(2)));
        assert!(!journal.take_has_lost());
        assert!(!journal.note(key(3)));
        assert!(journal.take_has_lost() && !journal.take_has_lost());
        assert_eq!((journal.len(), journal.pop()), (2, Some(key(1))));
        assert!(journal.note(key(4)) && !journal.take_has_lost());
        assert_eq!(
            [journal.pop(), journal.pop(), journal.pop()],
            [Some(key(2)), Some(key(4)), None]
        );
        assert!(journal.take_has_new() && !journal.take_has_new());
    }

    #[test]
    fn one_with_no_room_takes_no_memory() {
        let mut journal = Journal::default();
        assert!(!journal.is_kept() && !journal.note(key(1)) && journal.is_empty());
        assert_eq!(journal.keys.capacity(), 0);
    }
}
