//! Messages to peers, and their acknowledgements, from the greeting of a connection to its end.
//!
//! Everything for a peer goes through one bounded queue, in order: the pages of a snapshot, and
//! changes that happen meanwhile. When the queue overflows, it is emptied and a new snapshot is due,
//! which covers its contents. A window of frames that have left the queue waits for acknowledgement.

use super::{Peer, Peers, Walk};
use crate::sync::transport::lock;
use crate::sync::wire::{Frame, Gathered, Message, NodeState};
use crate::sync::{PeerId, Sync};
use hotloop::packet::flow_key::FlowKey;
use hotloop_balancer::exceptions::{Change, Record};
use std::collections::VecDeque;

/// Maximum number of changes and snapshot claims that wait for one peer: about 5 MB.
pub const QUEUE_MAX: usize = 1 << 16;

/// Maximum number of items that a snapshot may fill the queue to. The rest is for changes.
const SNAPSHOT_QUEUE_MAX: usize = QUEUE_MAX / 2;

/// Maximum number of frames that wait for acknowledgement.
const WINDOW_FRAMES: usize = 16;

/// Interval of [`Message::State`] without news, in milliseconds.
const STATE_MS: u64 = 1_000;

/// An item that waits to be sent.
#[derive(Clone, Copy, Debug)]
enum Item {
    SnapshotBegin,
    SnapshotEnd,
    Change(Change),
    /// A claim of the node with this number and incarnation.
    Relayed(usize, u64, Record),
}

/// The state of a snapshot for the peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SnapshotStage {
    /// A snapshot is due.
    Due,
    /// Pages are being gathered.
    Begun,
    /// All its pages have been gathered, and maybe sent.
    Gathered,
}

/// Frames of an acknowledged kind.
#[derive(Clone, Copy, Debug)]
struct Sent {
    sequence: u64,
    /// Number of items queued up to its last one, since the session began.
    item_count: u64,
    record_count: usize,
    /// When the first record of these frames began to wait.
    since_ms: u64,
}

/// A connection with a peer that has identified itself.
#[derive(Debug)]
pub struct Session {
    queue: VecDeque<(u64, Item)>,
    snapshot: SnapshotStage,
    /// Number of items queued since the session began, including those that an overflow removed.
    queued_count: u64,
    /// The number of the item that ended the last snapshot.
    snapshot_end: u64,
    /// The number of the item up to which the peer has entered everything.
    entered_count: u64,
    in_flight: VecDeque<Sent>,
    in_flight_records: usize,
    sequence: u64,
    /// The state to report, the last reported state, and the time of that report.
    state: NodeState,
    said: Option<NodeState>,
    said_ms: u64,
    gathered: Gathered,
    /// Changes and claims sent.
    pub sent_count: u64,
}

impl Session {
    /// A session that begins with a snapshot.
    pub fn new(now_ms: u64) -> Self {
        Self {
            queue: VecDeque::new(),
            snapshot: SnapshotStage::Due,
            queued_count: 0,
            snapshot_end: 0,
            entered_count: 0,
            in_flight: VecDeque::new(),
            in_flight_records: 0,
            sequence: 0,
            state: NodeState::default(),
            said: None,
            said_ms: now_ms,
            gathered: Gathered::default(),
            sent_count: 0,
        }
    }

    /// Queues a change. Returns false if the queue overflows: then a new snapshot is due.
    pub fn offer(&mut self, change: Change, now_ms: u64) -> bool {
        // If a snapshot is due, its walk has not begun yet, and will cover the change.
        self.snapshot == SnapshotStage::Due || self.push(Item::Change(change), now_ms)
    }

    fn push(&mut self, item: Item, now_ms: u64) -> bool {
        let has_room = self.queue.len() < QUEUE_MAX;
        if has_room {
            self.queue.push_back((now_ms, item));
            self.queued_count += 1;
        } else {
            self.restart();
        }
        has_room
    }

    /// Begins a new snapshot, because changes were lost. Like an overflow, it replaces all waiting
    /// items.
    pub fn restart(&mut self) {
        self.queue.clear();
        self.snapshot = SnapshotStage::Due;
    }

    /// The state of the snapshot for this peer.
    pub const fn snapshot(&self) -> SnapshotStage {
        self.snapshot
    }

    /// Whether there is room for the next page of a snapshot.
    pub fn has_room_for_page(&self) -> bool {
        self.snapshot != SnapshotStage::Gathered && self.queue.len() < SNAPSHOT_QUEUE_MAX
    }

    /// Begins the snapshot: changes from now on follow it.
    pub fn begin_snapshot(&mut self, now_ms: u64) {
        if self.push(Item::SnapshotBegin, now_ms) {
            self.snapshot = SnapshotStage::Begun;
        }
    }

    /// Adds a claim to the snapshot: this node's, or another node's with its number and
    /// incarnation. Returns false if the queue overflows.
    pub fn add(&mut self, record: Record, owner: Option<(usize, u64)>, now_ms: u64) -> bool {
        let item = match owner {
            None => Item::Change(Change::Claim(record)),
            Some((number, incarnation)) => Item::Relayed(number, incarnation, record),
        };
        self.push(item, now_ms)
    }

    /// Ends the snapshot. Returns false if the queue overflows.
    pub fn end_snapshot(&mut self, now_ms: u64) -> bool {
        let is_queued = self.push(Item::SnapshotEnd, now_ms);
        if is_queued {
            self.snapshot = SnapshotStage::Gathered;
            self.snapshot_end = self.queued_count;
        }
        is_queued
    }

    /// Notes that the peer has entered all frames up to this sequence number.
    ///
    /// # Errors
    /// If no such frame was sent.
    pub fn acknowledge(&mut self, sequence: u64) -> Result<(), &'static str> {
        if sequence > self.sequence {
            return Err("acknowledged what was never sent");
        }
        while let Some(sent) = self.in_flight.pop_front_if(|sent| sent.sequence <= sequence) {
            self.in_flight_records -= sent.record_count;
            self.entered_count = sent.item_count;
        }
        Ok(())
    }

    /// Number of gathered changes and claims that the peer has not entered yet.
    pub fn lag_records(&self) -> usize {
        self.queue.len() + self.in_flight_records
    }

    /// The age of the oldest of them, in milliseconds.
    pub fn lag_ms(&self, now_ms: u64) -> u64 {
        let sent = self.in_flight.front().map(|sent| sent.since_ms);
        let since = sent.or_else(|| self.queue.front().map(|&(since_ms, _)| since_ms));
        since.map_or(0, |since| now_ms.saturating_sub(since))
    }

    /// Number of items queued since the session began.
    pub const fn queued_count(&self) -> u64 {
        self.queued_count
    }

    /// Whether the peer has entered a snapshot, and everything queued up to that item: a later
    /// snapshot covers items that an overflow removed.
    pub fn has_entered(&self, queued_count: u64) -> bool {
        self.snapshot == SnapshotStage::Gathered
            && self.entered_count >= queued_count.max(self.snapshot_end)
    }

    /// Whether the peer has entered everything that this node knows.
    pub fn is_caught_up(&self) -> bool {
        self.snapshot == SnapshotStage::Gathered
            && self.queue.is_empty()
            && self.in_flight.is_empty()
    }

    /// Sets the state to report from now on.
    pub const fn say(&mut self, state: NodeState) {
        self.state = state;
    }

    /// Appends the next frame to `out`, if one is due. `names` are the names of all peers, by
    /// number.
    pub fn next_frame<'a>(
        &mut self,
        out: &mut Vec<u8>,
        epoch: u64,
        names: impl Fn(usize) -> &'a str,
        now_ms: u64,
    ) -> bool {
        if self.said != Some(self.state) || now_ms.saturating_sub(self.said_ms) >= STATE_MS {
            Frame { epoch, sequence: 0, message: Message::State(self.state) }.encode(out);
            (self.said, self.said_ms) = (Some(self.state), now_ms);
            return true;
        }
        if self.in_flight.len() < WINDOW_FRAMES
            && let Some(&(since_ms, first)) = self.queue.front()
        {
            self.sequence += 1;
            let (sequence, record_count) = (self.sequence, self.gather(first, now_ms));
            let changes = self.gathered.changes();
            let message = match first {
                Item::SnapshotBegin => Message::SnapshotBegin,
                Item::SnapshotEnd => Message::SnapshotEnd,
                Item::Change(_) => Message::Changes(changes),
                Item::Relayed(number, incarnation, _) => {
                    Message::Relayed { owner: names(number), incarnation, claims: changes }
                }
            };
            Frame { epoch, sequence, message }.encode(out);
            let item_count = self.queued_count - self.queue.len() as u64;
            self.in_flight.push_back(Sent { sequence, item_count, record_count, since_ms });
            self.in_flight_records += record_count;
            return true;
        }
        false
    }

    /// Takes the items from the queue that go into one frame with `first`. Returns their number.
    fn gather(&mut self, first: Item, now_ms: u64) -> usize {
        self.gathered.clear();
        let mut count = 0;
        while let Some((since_ms, item)) =
            self.queue.pop_front_if(|(_, item)| item.goes_with(&first))
        {
            count += 1;
            let waited_ms = now_ms.saturating_sub(since_ms);
            match item {
                Item::SnapshotBegin | Item::SnapshotEnd => break,
                Item::Change(Change::Claim(record)) | Item::Relayed(_, _, record) => {
                    self.gathered.push(&Change::Claim(record.later(waited_ms)));
                }
                Item::Change(end) => self.gathered.push(&end),
            }
            self.sent_count += 1;
            if !self.gathered.has_room() {
                break;
            }
        }
        count
    }
}

impl Item {
    /// Whether both may go into one frame.
    fn goes_with(&self, first: &Self) -> bool {
        match (first, self) {
            (Self::Relayed(number, incarnation, _), Self::Relayed(its_number, its, _)) => {
                (number, incarnation) == (its_number, its)
            }
            (Self::Change(_), Self::Change(_))
            | (Self::SnapshotBegin, Self::SnapshotBegin)
            | (Self::SnapshotEnd, Self::SnapshotEnd) => true,
            _ => false,
        }
    }
}

impl Sync {
    /// Queues changes of this node's own exceptions for all peers. Never waits: a peer with more
    /// waiting changes than the queue holds gets a new snapshot.
    pub fn offer(&self, changes: &[Change]) {
        let now_ms = self.shared.now_ms();
        lock(&self.shared.peers).offer(changes, now_ms);
        self.wake();
    }

    /// The walk that a peer needs the next page of now, if any. A walk with a new number begins at
    /// the beginning, with changes that workers report from now on.
    #[must_use]
    pub fn snapshot_wanted(&self) -> Option<Walk> {
        let now_ms = self.shared.now_ms();
        lock(&self.shared.peers).snapshot_wanted(now_ms)
    }

    /// Whether the peer has room for the next page of a walk: if not, wait. `None` if the walk is
    /// over, because its connection is over or its queue overflowed.
    #[must_use]
    pub fn has_room_for(&self, walk: Walk) -> Option<bool> {
        lock(&self.shared.peers).has_room_for(walk)
    }

    /// Begins a new snapshot for each peer: call this if changes of this node's own exceptions were
    /// lost.
    pub fn resync(&self) {
        lock(&self.shared.peers).resync();
    }

    /// Supplies the next page of a walk: this node's exceptions (`own`), and all remote connections
    /// that it has `entered` for peers, exceptions or not. Does nothing if the walk is no longer
    /// wanted.
    pub fn give_page(&self, walk: Walk, own: &[Record], entered: &[Record], is_last: bool) {
        let now_ms = self.shared.now_ms();
        lock(&self.shared.peers).give_page(walk, own, entered, is_last, now_ms);
        self.wake();
    }
}

impl Peers {
    /// Appends the messages due to a peer, up to `bytes_max` bytes plus one frame.
    pub fn output(&mut self, peer: PeerId, out: &mut Vec<u8>, bytes_max: usize, now_ms: u64) {
        let epoch = self.epoch;
        let before_bytes = out.len();
        let Some(mut session) = self.peers[peer.0].session.take() else { return };
        if let Some(sequence) = self.peers[peer.0].acknowledgement() {
            Frame { epoch, sequence, message: Message::Ack }.encode(out);
        }
        let names = |number: usize| &*self.peers[number].name;
        session.say(self.state);
        while out.len() < bytes_max && session.next_frame(out, epoch, names, now_ms) {}
        let peer = &mut self.peers[peer.0];
        peer.session = Some(session);
        peer.counts.sent_bytes += (out.len() - before_bytes) as u64;
    }

    /// Queues changes of this node's own exceptions for all peers.
    pub fn offer(&mut self, changes: &[Change], now_ms: u64) {
        for change in changes {
            if let Change::Claim(Record { key, .. }) = change
                && self.owners.forget_entered(key, self.imports.entered_count())
            {
                self.held.forget(key);
            }
            for peer in &mut self.peers {
                let Some(session) = &mut peer.session else { continue };
                peer.counts.overflows += u64::from(!session.offer(*change, now_ms));
            }
        }
    }

    /// The walk that a peer needs the next page of now, if any.
    pub fn snapshot_wanted(&mut self, now_ms: u64) -> Option<Walk> {
        let wants =
            |peer: &Peer| peer.session.as_ref().is_some_and(|session| session.has_room_for_page());
        let peer = PeerId(self.peers.iter().position(wants)?);
        let session = self.peers[peer.0].session.as_mut()?;
        if session.snapshot() == SnapshotStage::Due {
            session.begin_snapshot(now_ms);
            self.walk_count += 1;
            self.walks[peer.0] = self.walk_count;
        }
        Some(Walk { peer, number: self.walks[peer.0] })
    }

    /// Whether a peer has room for the next page of a walk; `None` if the walk is over.
    pub fn has_room_for(&self, walk: Walk) -> Option<bool> {
        let session = self.peers[walk.peer.0].session.as_ref()?;
        let is_current = self.walks[walk.peer.0] == walk.number;
        (is_current && session.snapshot() == SnapshotStage::Begun)
            .then(|| session.has_room_for_page())
    }

    /// Begins a new snapshot for each peer: changes of this node's own exceptions were lost.
    pub fn resync(&mut self) {
        let sessions = self.peers.iter_mut().filter_map(|peer| peer.session.as_mut());
        sessions.for_each(Session::restart);
    }

    /// Adds a page to a snapshot: this node's exceptions (`own`), and all connections that it has
    /// `entered` for peers. Does nothing if the walk is over, because the connection is over.
    pub fn give_page(
        &mut self,
        walk: Walk,
        own: &[Record],
        entered: &[Record],
        is_last: bool,
        now_ms: u64,
    ) {
        let Walk { peer: id, number } = walk;
        let is_current = self.walks[id.0] == number;
        let Some(mut session) = self.peers[id.0].session.take() else { return };
        if is_current && session.snapshot() == SnapshotStage::Begun {
            let mut is_whole = own.iter().all(|record| session.add(*record, None, now_ms));
            for record in entered {
                let owner = self.relayed_for(id, &record.key);
                is_whole = is_whole && (owner.is_none() || session.add(*record, owner, now_ms));
            }
            is_whole = is_whole && (!is_last || session.end_snapshot(now_ms));
            let counts = &mut self.peers[id.0].counts;
            counts.overflows += u64::from(!is_whole);
            counts.snapshots_sent += u64::from(is_whole && is_last);
        }
        self.peers[id.0].session = Some(session);
    }

    /// The number and incarnation of the owner for which this node relays an entered connection to
    /// a peer; `None` if the owner is the peer, or sends the connection itself.
    pub(super) fn relayed_for(&self, peer: PeerId, key: &FlowKey) -> Option<(usize, u64)> {
        let (owner, _) = self.owners.of(key)?;
        let its = &self.peers[owner.peer.0];
        if owner.lifetime != its.lifetime {
            return Some((owner.peer.0, 0));
        }
        let is_sent = owner.peer == peer || its.is_heard();
        (!is_sent).then(|| (owner.peer.0, its.incarnation.unwrap_or(0)))
    }
}
