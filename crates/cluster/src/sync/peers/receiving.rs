//! Changes from peers, on their way to the workers of this node.

use super::{Peer, Peers, refused};
use crate::sync::owners::Owner;
use crate::sync::transport::lock;
use crate::sync::wire::{Changes, Frame, Message};
use crate::sync::{PeerId, Sync, in_order};
use hotloop::packet::flow_key::FlowKey;
use hotloop_balancer::exceptions::{Change, Record};
use std::collections::{HashMap, VecDeque};

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

/// Maximum number of waiting ends. Other connections stay until their idle timeouts, or until the
/// next snapshot.
const HELD_MAX: usize = 1 << 16;

/// Ends that wait for a configuration, by connection: the epoch that each was sent under, and the
/// peer that sent it.
///
/// A connection on the backend that the configuration chooses is no exception any more, and its
/// owner reports that as an end. A peer with an older configuration still needs the connection,
/// until it has the newer configuration.
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

impl Sync {
    /// Appends up to `count_max` changes of peers to `imports`, for this node to enter. The changes
    /// of the previous call count as entered, and are acknowledged: call this even if there is
    /// nothing to take.
    pub fn take_imports(&self, imports: &mut Vec<Change>, count_max: usize) {
        if lock(&self.shared.peers).take_imports(imports, count_max) {
            self.wake();
        }
    }

    /// Sets the revision of the configuration that all workers use: ends that waited for it are
    /// released. A worker with an older configuration still needs the connections that they end.
    pub fn enter_epoch(&self, epoch: u64) {
        lock(&self.shared.peers).enter_epoch(epoch);
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
        self.peers[peer.0].epoch = frame.epoch;
        match &frame.message {
            Message::Hello(_) => return Err("greeted twice".into()),
            Message::Refusal(reason) => return Err(refused(reason)),
            Message::State(state) => {
                self.peers[peer.0].state = Some(*state);
                return Ok(());
            }
            Message::Ack => {
                let session = self.peers[peer.0].session.as_mut();
                let done = session.map_or(Ok(()), |session| session.acknowledge(frame.sequence));
                return done.map_err(Into::into);
            }
            _ => self.peers[peer.0].check_order(frame.sequence)?,
        }
        match &frame.message {
            Message::SnapshotBegin => {
                let owner = self.peers[peer.0].owner(peer);
                self.owners.begin_snapshot(owner);
                self.peers[peer.0].is_in_snapshot = true;
            }
            Message::SnapshotEnd => self.end_snapshot(peer, frame.epoch)?,
            Message::Changes(changes) => self.changes(peer, *changes, frame.epoch, now_ms),
            Message::Relayed { owner, incarnation, claims } => {
                self.relayed(peer, owner, *incarnation, *claims, now_ms);
            }
            // These messages have no sequence: see above.
            Message::Hello(_) | Message::Refusal(_) | Message::State(_) | Message::Ack => {}
        }
        let ends_snapshot = matches!(frame.message, Message::SnapshotEnd);
        self.peers[peer.0].receive(frame.sequence, ends_snapshot);
        Ok(())
    }

    /// Connections that the peer claimed before and did not list in its snapshot ended while there
    /// was no contact.
    fn end_snapshot(&mut self, id: PeerId, epoch: u64) -> Result<(), String> {
        let peer = &mut self.peers[id.0];
        if !std::mem::take(&mut peer.is_in_snapshot) {
            return Err("ended a snapshot that had not begun".into());
        }
        peer.has_received_snapshot = true;
        peer.counts.snapshots_received += 1;
        let (owner, is_newer) = (peer.owner(id), epoch > self.entered_epoch);
        let mut ended = Vec::new();
        let owner_of = |id: PeerId| self.peers[id.0].owner(id);
        self.owners.end_snapshot(owner, owner_of, |key| {
            let is_ended = !(is_newer && self.held.hold(key, epoch, id));
            if is_ended {
                ended.push(key);
            }
            is_ended
        });
        ended.sort_unstable_by_key(in_order);
        ended.into_iter().for_each(|key| self.import(id, Change::End(key)));
        Ok(())
    }

    fn changes(&mut self, id: PeerId, changes: Changes<'_>, epoch: u64, now_ms: u64) {
        let owner = self.peers[id.0].owner(id);
        for change in changes.iter() {
            self.peers[id.0].counts.received += 1;
            match change {
                Change::Claim(record) => {
                    let wins_ties = self.peers[id.0].name < self.local.node;
                    self.claim(id, owner, true, Record { wins_ties, ..record }, now_ms);
                }
                Change::End(key) if epoch > self.entered_epoch => {
                    if !self.held.hold(key, epoch, id) {
                        self.peers[id.0].counts.superseded += 1;
                    }
                }
                Change::End(key) => self.end_claim(id, key),
            }
        }
    }

    fn claim(&mut self, from: PeerId, owner: Owner, is_named: bool, record: Record, now_ms: u64) {
        let peers = &self.peers;
        let is_gone = |owner: Owner| is_gone(peers, owner);
        if self.owners.claimed(&record, owner, is_named, now_ms, is_gone) {
            self.import(from, Change::End(record.key));
        }
        self.held.forget(&record.key);
        self.import(from, Change::Claim(record));
        self.owners.enters(&record.key, self.imports.count());
    }

    /// Ends a peer's claim and, unless another node claims it, the connection.
    fn end_claim(&mut self, from: PeerId, key: FlowKey) {
        let peers = &self.peers;
        let owner_of = |id: PeerId| peers[id.0].owner(id);
        let is_gone = |owner: Owner| is_gone(peers, owner);
        if self.owners.withdraw(owner_of(from), &key, owner_of, is_gone) {
            self.owners.forget(&key);
            self.import(from, Change::End(key));
        } else {
            self.peers[from.0].counts.superseded += 1;
        }
    }

    /// Claims of a node that the sender couldn't reach. If this node is in contact with it, this
    /// node's knowledge is better.
    fn relayed(
        &mut self,
        from: PeerId,
        name: &str,
        incarnation: u64,
        claims: Changes<'_>,
        now_ms: u64,
    ) {
        let is_own = name == self.local.node && incarnation == self.local.incarnation;
        let owner = self.named(name);
        let is_living = |id: &PeerId| self.peers[id.0].incarnation == Some(incarnation);
        let living = owner.filter(is_living);
        let is_known_better =
            is_own || living.is_some_and(|id| self.peers[id.0].has_received_snapshot);
        for change in claims.iter() {
            self.peers[from.0].counts.received += 1;
            let Change::Claim(record) = change else { continue };
            let is_claimed = || {
                self.owners
                    .of(&record.key)
                    .is_some_and(|(owner, is_named)| is_named && !is_gone(&self.peers, owner))
            };
            if is_known_better || is_claimed() {
                self.peers[from.0].counts.superseded += 1;
                continue;
            }
            let owner = match living {
                Some(id) => self.owner(id),
                None => Owner { lifetime: 0, ..self.owner(owner.unwrap_or(from)) },
            };
            let record = Record { wins_ties: *name < *self.local.node, ..record };
            // The owner's next snapshot, which may have begun, lists the connection or ends it.
            self.claim(from, owner, false, record, now_ms);
        }
    }

    /// Sets the revision of the configuration that all workers use: ends that waited for it are
    /// released.
    pub fn enter_epoch(&mut self, epoch: u64) {
        if epoch == self.entered_epoch {
            return;
        }
        self.entered_epoch = epoch;
        for (key, from) in self.held.release(epoch) {
            self.end_claim(from, key);
        }
    }

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

/// Whether a node is out of contact, or has restarted since.
fn is_gone(peers: &[Peer], owner: Owner) -> bool {
    let peer = &peers[owner.peer.0];
    owner.lifetime != peer.lifetime || !peer.is_heard()
}

#[cfg(test)]
mod tests {
    use crate::sync::QUEUE_MAX;
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
