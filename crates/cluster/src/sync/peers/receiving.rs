//! Changes from peers, on their way to the workers of this node.

use super::{Peer, Peers, refused};
use crate::sync::transport::lock;
use crate::sync::wire::{Frame, Message};
use crate::sync::{PeerId, Sync};
use hotloop_balancer::exceptions::Change;
use std::collections::VecDeque;

/// The imports that wait for this node to enter them: changes with their peers, in order of arrival.
pub type Imports = VecDeque<(PeerId, Change)>;

impl Sync {
    /// Appends up to `count_max` changes of peers to `imports`, for this node to enter. The changes
    /// of the previous call count as entered, and are acknowledged: call this even if there is
    /// nothing to take.
    pub fn take_imports(&self, imports: &mut Vec<Change>, count_max: usize) {
        if lock(&self.shared.peers).take_imports(imports, count_max) {
            self.wake();
        }
    }
}

impl Peers {
    /// Whether there is room for the contents of another frame of this peer. If not, leave the
    /// frame in the socket.
    pub fn can_receive(&self, peer: PeerId) -> bool {
        self.peers[peer.0].can_receive()
    }

    /// Counts a frame of a peer with this many bytes.
    pub fn count_received(&mut self, peer: PeerId, frame_bytes: usize) {
        self.peers[peer.0].counts.received_bytes += frame_bytes as u64;
    }

    /// Processes a frame.
    ///
    /// # Errors
    /// The reason that the session must end.
    pub fn input(&mut self, peer: PeerId, frame: &Frame<'_>, now_ms: u64) -> Result<(), String> {
        self.peers[peer.0].revision = frame.revision;
        match &frame.message {
            Message::Hello(_) => return Err("greeted twice".into()),
            Message::Refusal(reason) => return Err(refused(reason)),
            Message::State(state) => {
                self.peers[peer.0].state = Some(*state);
                return Ok(());
            }
            Message::Drains(drains) => {
                self.peers[peer.0].drains = drains.clone();
                return Ok(());
            }
            Message::Reference(part) => {
                return self.peers[peer.0].references.add(part).map_err(Into::into);
            }
            Message::Unknown if frame.sequence == 0 => return Ok(()),
            Message::Ack => {
                let session = self.peers[peer.0].session.as_mut();
                let done = session.map_or(Ok(()), |session| session.acknowledge(frame.sequence));
                return done.map_err(Into::into);
            }
            _ => self.peers[peer.0].check_order(frame.sequence)?,
        }
        match &frame.message {
            Message::SnapshotBegin => self.peers[peer.0].is_in_snapshot = true,
            Message::SnapshotEnd => {
                let peer = &mut self.peers[peer.0];
                if !std::mem::take(&mut peer.is_in_snapshot) {
                    return Err("ended a snapshot that had not begun".into());
                }
                peer.counts.snapshots_received += 1;
            }
            Message::Claims(claims) => {
                for record in claims.iter() {
                    let its = &mut self.peers[peer.0];
                    its.counts.received += 1;
                    // Those of a snapshot, too: changes come between its pages.
                    its.note_recent(record.key, now_ms);
                    self.import(peer, Change::Claim(record));
                }
            }
            // Of a later version, or one of those above, which have no sequence.
            _ => {}
        }
        let ends_snapshot = matches!(frame.message, Message::SnapshotEnd);
        self.peers[peer.0].receive(frame.sequence, ends_snapshot);
        Ok(())
    }

    /// Queues a change of a peer for this node to enter.
    pub(super) fn import(&mut self, from: PeerId, change: Change) {
        self.imports.push_back((from, change));
        self.peers[from.0].imported();
    }

    /// Appends up to `count_max` changes of peers to `imports`. The changes of the previous call
    /// count as entered, and are acknowledged. Returns whether there is an acknowledgement to send,
    /// or room for more.
    pub fn take_imports(&mut self, imports: &mut Vec<Change>, count_max: usize) -> bool {
        self.peers.iter_mut().for_each(Peer::entered);
        let count = self.imports.len().min(count_max);
        for (from, change) in self.imports.drain(..count) {
            self.peers[from.0].taken();
            imports.push(change);
        }
        count > 0 || self.peers.iter().any(Peer::owes_acknowledgement)
    }
}

#[cfg(test)]
mod tests {
    use crate::sync::QUEUE_MAX;
    use crate::sync::wire::{FRAME_BYTES_MAX, Frame, Gathered, Message, decode};
    use crate::sync::{Local, PeerId, Peers, SessionId};
    use hotloop::packet::flow_key::FlowKey;
    use hotloop_agreement::Birth;
    use hotloop_balancer::connection::State;
    use hotloop_balancer::exceptions::{Change, Record};

    const PEER: PeerId = PeerId(0);

    fn record(port: u16) -> Record {
        let client = format!("198.51.100.7:{port}").parse().unwrap();
        Record {
            key: FlowKey::new(client, "203.0.113.10:80".parse().unwrap(), 6).unwrap(),
            backend: [10, 0, 0, 4].into(),
            state: State::Established,
            birth: Birth::new(5),
            left_ms: 900_000,
        }
    }

    /// A node with a peer, which has sent its snapshot.
    fn node() -> Peers {
        let local = Local { node: "n0".into(), digest: [0; 16] };
        let mut node = Peers::new(local, [("n1".into(), String::new())]);
        node.begin(PEER, 0);
        hears(&mut node, 1, Message::SnapshotBegin);
        hears(&mut node, 2, Message::SnapshotEnd);
        node
    }

    fn hears(node: &mut Peers, sequence: u64, message: Message<'_>) {
        node.input(PEER, &Frame { revision: 0, sequence, message }, 0).unwrap();
    }

    fn hears_claim(node: &mut Peers, sequence: u64, claim: Record) {
        let mut gathered = Gathered::default();
        gathered.push(&claim);
        hears(node, sequence, Message::Claims(gathered.claims()));
    }

    /// Takes the waiting imports; those taken before count as entered.
    fn take(node: &mut Peers) -> Vec<Change> {
        let mut imports = Vec::new();
        node.take_imports(&mut imports, QUEUE_MAX);
        imports
    }

    /// Perhaps others have not had its last claims.
    #[test]
    fn the_late_claims_of_a_peer_that_goes_are_claimed_again() {
        let mut node = node();
        for (sequence, port, at_ms) in [(3, 1, 1_000), (4, 2, 9_000), (6, 3, 12_000)] {
            if sequence == 6 {
                hears(&mut node, 5, Message::SnapshotBegin);
            }
            let mut gathered = Gathered::default();
            gathered.push(&record(port));
            let message = Message::Claims(gathered.claims());
            node.input(PEER, &Frame { revision: 0, sequence, message }, at_ms).unwrap();
        }
        assert_eq!(take(&mut node).len(), 3);
        let session = SessionId { peer: PEER, number: node.peers[0].session_number };
        node.end(session, "gone", 15_000);
        let inherited = [2, 3].map(|port| Change::Inherit(record(port).key));
        assert_eq!(take(&mut node), inherited);
        node.begin(PEER, 16_000);
        assert_eq!(take(&mut node), []);
    }

    #[test]
    fn frames_of_a_later_version_are_acknowledged_and_passed_over() {
        let mut node = node();
        hears(&mut node, 0, Message::Unknown);
        hears(&mut node, 3, Message::Unknown);
        hears_claim(&mut node, 4, record(1));
        assert_eq!(take(&mut node).len(), 1);
        take(&mut node);
        let mut out = Vec::new();
        node.output(PEER, &mut out, QUEUE_MAX, 0);
        let (frame, _) = decode(&out, FRAME_BYTES_MAX).unwrap().unwrap();
        assert_eq!((frame.message, frame.sequence), (Message::Ack, 4));
    }
}
