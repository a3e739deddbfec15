//! Changes from peers, on their way to the workers of this node.

use super::{Peer, PeerId, Peers};
use hotloop_balancer::exceptions::Change;
use std::collections::VecDeque;

/// The imports that wait for this node to enter them, and their numbers.
#[derive(Debug, Default)]
pub struct Imports {
    /// The changes with their peers, in order of arrival: one peer's change of a connection may
    /// follow from another's.
    waiting: VecDeque<(PeerId, Change)>,
    taken_count: u64,
    entered_count: u64,
}

impl Imports {
    /// Number of imports up to now, which is the number of the last one.
    pub fn count(&self) -> u64 {
        self.taken_count + self.waiting.len() as u64
    }

    /// Number of imports that this node has entered.
    pub const fn entered_count(&self) -> u64 {
        self.entered_count
    }
}

impl Peers {
    /// Queues a change of a peer for this node to enter.
    pub(super) fn import(&mut self, from: PeerId, change: Change) {
        self.imports.waiting.push_back((from, change));
        self.peers[from.0].imported();
    }

    /// Appends up to `count_max` changes of peers to `imports`. The changes of the previous call
    /// count as entered, and are acknowledged. Returns whether there is an acknowledgement to send,
    /// or room for more.
    pub fn take_imports(&mut self, imports: &mut Vec<Change>, count_max: usize) -> bool {
        self.peers.iter_mut().for_each(Peer::entered);
        let Imports { waiting, taken_count, entered_count } = &mut self.imports;
        *entered_count = *taken_count;
        let count = waiting.len().min(count_max);
        for (from, change) in waiting.drain(..count) {
            self.peers[from.0].taken();
            imports.push(change);
        }
        *taken_count += count as u64;
        count > 0 || self.peers.iter().any(Peer::owes_acknowledgement)
    }
}

#[cfg(test)]
mod tests {
    use crate::sync::session::QUEUE_MAX;
    use crate::sync::wire::{Frame, Gathered, Message};
    use crate::sync::{Local, PeerId, Peers};
    use hotloop::packet::flow_key::FlowKey;
    use hotloop_balancer::connection::State;
    use hotloop_balancer::exceptions::{Change, Record};

    const PEER: PeerId = PeerId(0);

    fn record(moves: u8) -> Record {
        let (client, vip) = ("198.51.100.7:4000", "203.0.113.10:80");
        Record {
            key: FlowKey::new(client.parse().unwrap(), vip.parse().unwrap(), 6).unwrap(),
            backend: [10, 0, 0, 4].into(),
            state: State::Established,
            age_ms: 5_000,
            left_ms: 900_000,
            moves,
            wins_ties: false,
        }
    }

    /// A node with a peer, which has sent its snapshot.
    fn node() -> Peers {
        let local = Local { node: "n0".into(), incarnation: 1, digest: [0; 16] };
        let mut node = Peers::new(local, [("n1".into(), String::new())]);
        node.begin(PEER, 2, 0);
        hears(&mut node, 1, Message::SnapshotBegin);
        hears(&mut node, 2, Message::SnapshotEnd);
        node
    }

    fn hears(node: &mut Peers, sequence: u64, message: Message<'_>) {
        node.input(PEER, &Frame { epoch: 0, sequence, message }, 0).unwrap();
    }

    fn hears_claim(node: &mut Peers, sequence: u64, claim: Record) {
        let mut gathered = Gathered::default();
        gathered.push(&Change::Claim(claim));
        hears(node, sequence, Message::Changes(gathered.changes()));
    }

    /// Takes the waiting imports; those taken before count as entered.
    fn take(node: &mut Peers) -> Vec<Change> {
        let mut imports = Vec::new();
        node.take_imports(&mut imports, QUEUE_MAX);
        imports
    }

    /// Whether the peer, which comes back with no entries, gets the connection in a snapshot.
    fn is_given_back(mut node: Peers) -> bool {
        node.begin(PEER, 3, 0);
        node.relayed_for(PEER, &record(0).key).is_some()
    }

    #[test]
    fn what_a_worker_said_before_it_entered_a_claim_does_not_make_the_connection_this_nodes() {
        let mut node = node();
        hears_claim(&mut node, 3, record(2));
        node.offer(&[Change::Claim(record(1))], 0);
        assert_eq!(take(&mut node).len(), 1);
        node.offer(&[Change::Claim(record(1))], 0);
        assert_eq!(take(&mut node), [], "it has been entered");
        assert!(is_given_back(node));
    }

    #[test]
    fn what_a_worker_said_after_it_had_entered_a_claim_does() {
        let mut node = node();
        hears_claim(&mut node, 3, record(2));
        assert_eq!(take(&mut node).len(), 1);
        assert_eq!(take(&mut node), [], "it has been entered");
        node.offer(&[Change::Claim(record(3))], 0);
        assert!(!is_given_back(node));
    }
}
