//! Ends that wait for a configuration.
//!
//! A connection on the backend that the configuration chooses is no exception any more, and its
//! owner reports that as an end. A peer with an older configuration still needs the connection,
//! until it has the newer configuration.

use super::{PeerId, in_order};
use hotloop::packet::flow_key::FlowKey;
use std::collections::HashMap;

/// Maximum number of waiting ends. Other connections stay until their idle timeouts, or until the
/// next snapshot.
const HELD_MAX: usize = 1 << 16;

/// Waiting ends, by connection: the epoch that each was sent under, and the peer that sent it.
#[derive(Debug, Default)]
pub struct Held(HashMap<FlowKey, (u64, PeerId)>);

impl Held {
    /// Holds an end. Returns false if there are too many.
    pub fn hold(&mut self, key: FlowKey, epoch: u64, from: PeerId) -> bool {
        let has_room = self.0.len() < HELD_MAX || self.0.contains_key(&key);
        if has_room {
            self.0.insert(key, (epoch, from));
        }
        has_room
    }

    /// Forgets the end of a connection that is claimed again.
    pub fn forget(&mut self, key: &FlowKey) {
        if !self.0.is_empty() {
            self.0.remove(key);
        }
    }

    /// Removes and returns the ends of this epoch and older ones.
    pub fn release(&mut self, epoch: u64) -> Vec<(FlowKey, PeerId)> {
        let released = self.0.extract_if(|_, (its_epoch, _)| *its_epoch <= epoch);
        let mut released: Vec<_> = released.map(|(key, (_, from))| (key, from)).collect();
        released.sort_unstable_by_key(|(key, _)| in_order(key));
        released
    }
}
