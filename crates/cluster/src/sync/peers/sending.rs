//! Messages to peers, and their acknowledgements, from the greeting of a connection to its end.
//!
//! Everything for a peer goes through one bounded queue, in order: the pages of a snapshot, and
//! changes that happen meanwhile. When the queue overflows, it is emptied and a new snapshot is due,
//! which covers its contents. A window of frames that have left the queue waits for acknowledgement.

use super::{Peer, Peers, Walk};
use crate::sync::reference::{Departing, Reference};
use crate::sync::transport::lock;
use crate::sync::wire::{Drains, Frame, Gathered, Message, NodeState};
use crate::sync::{PeerId, Sync};
use hotloop_balancer::exceptions::Record;
use std::collections::VecDeque;

/// Maximum number of changes and snapshot claims that wait for one peer: about 5 MB.
pub const QUEUE_MAX: usize = 1 << 16;

/// Maximum number of frames that wait for acknowledgement.
const WINDOW_FRAMES: usize = 16;

/// Interval of [`Message::State`] without news, in milliseconds.
const STATE_MS: u64 = 1_000;

/// An item that waits to be sent.
#[derive(Clone, Copy, Debug)]
enum Item {
    SnapshotBegin,
    SnapshotEnd,
    Claim(Record),
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
    /// See [`Peers::limit_queues`].
    queue_max: usize,
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
    /// The reference tables to send.
    references: Departing,
    /// The drains to report, and the last reported ones.
    drains: Drains,
    said_drains: Drains,
    gathered: Gathered,
    /// Changes and claims sent.
    pub sent_count: u64,
}

impl Session {
    /// A session that begins with a snapshot, with a queue of this size.
    pub fn new(now_ms: u64, queue_max: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            queue_max,
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
            references: Departing::default(),
            drains: Drains::default(),
            said_drains: Drains::default(),
            gathered: Gathered::default(),
            sent_count: 0,
        }
    }

    /// Queues a claim. Returns false if the queue overflows: then a new snapshot is due.
    pub fn offer(&mut self, record: Record, now_ms: u64) -> bool {
        // If a snapshot is due, its walk has not begun yet, and will cover the claim.
        self.snapshot == SnapshotStage::Due || self.push(Item::Claim(record), now_ms)
    }

    fn push(&mut self, item: Item, now_ms: u64) -> bool {
        let has_room = self.queue.len() < self.queue_max;
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
        // Half of the queue is for changes.
        self.snapshot != SnapshotStage::Gathered && self.queue.len() < self.queue_max / 2
    }

    /// Begins the snapshot: changes from now on follow it.
    pub fn begin_snapshot(&mut self, now_ms: u64) {
        if self.push(Item::SnapshotBegin, now_ms) {
            self.snapshot = SnapshotStage::Begun;
        }
    }

    /// Adds a claim to the snapshot. Returns false if the queue overflows.
    pub fn add(&mut self, record: Record, now_ms: u64) -> bool {
        self.push(Item::Claim(record), now_ms)
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

    /// Sets the reference tables to send, and the state and drains to report after them.
    pub fn say(&mut self, references: &[Reference], state: NodeState, drains: &Drains) {
        self.references.set(references);
        self.state = state;
        self.drains.clone_from(drains);
    }

    /// Appends the next frame to `out`, if one is due.
    pub fn next_frame(&mut self, out: &mut Vec<u8>, revision: u64, now_ms: u64) -> bool {
        if let Some(part) = self.references.next() {
            Frame { revision, sequence: 0, message: Message::Reference(part) }.encode(out);
            return true;
        }
        let is_news = self.said.is_none_or(|said| said.is_news_to(&self.state));
        if is_news || now_ms.saturating_sub(self.said_ms) >= STATE_MS {
            Frame { revision, sequence: 0, message: Message::State(self.state) }.encode(out);
            (self.said, self.said_ms) = (Some(self.state), now_ms);
            return true;
        }
        if self.said_drains != self.drains {
            let message = Message::Drains(self.drains.clone());
            Frame { revision, sequence: 0, message }.encode(out);
            self.said_drains.clone_from(&self.drains);
            return true;
        }
        if self.in_flight.len() < WINDOW_FRAMES
            && let Some(&(since_ms, first)) = self.queue.front()
        {
            self.sequence += 1;
            let (sequence, record_count) = (self.sequence, self.gather(first, now_ms));
            let message = match first {
                Item::SnapshotBegin => Message::SnapshotBegin,
                Item::SnapshotEnd => Message::SnapshotEnd,
                Item::Claim(_) => Message::Claims(self.gathered.claims()),
            };
            Frame { revision, sequence, message }.encode(out);
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
        let goes_with = |(_, item): &mut (u64, Item)| item.is_like(&first);
        while let Some((since_ms, item)) = self.queue.pop_front_if(goes_with) {
            count += 1;
            let Item::Claim(record) = item else { break };
            self.gathered.push(&record.later(now_ms.saturating_sub(since_ms)));
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
    fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl Sync {
    /// Queues claims for all peers. Never waits: a peer with more waiting claims than the queue holds
    /// gets a new snapshot.
    pub fn offer(&self, claims: &[Record]) {
        let now_ms = self.shared.now_ms();
        lock(&self.shared.peers).offer(claims, now_ms);
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

    /// Begins a new snapshot for each peer: call this if claims of this node were lost.
    pub fn resync(&self) {
        lock(&self.shared.peers).resync();
    }

    /// Supplies the next page of a walk. Does nothing if the walk is no longer wanted.
    pub fn give_page(&self, walk: Walk, claims: &[Record], is_last: bool) {
        let now_ms = self.shared.now_ms();
        lock(&self.shared.peers).give_page(walk, claims, is_last, now_ms);
        self.wake();
    }
}

impl Peers {
    /// Appends the messages due to a peer, up to `bytes_max` bytes plus one frame.
    pub fn output(&mut self, peer: PeerId, out: &mut Vec<u8>, bytes_max: usize, now_ms: u64) {
        let revision = self.revision;
        let before_bytes = out.len();
        let Some(mut session) = self.peers[peer.0].session.take() else { return };
        if let Some(sequence) = self.peers[peer.0].acknowledgement() {
            Frame { revision, sequence, message: Message::Ack }.encode(out);
        }
        session.say(&self.references, self.state, &self.drains);
        while out.len() < bytes_max && session.next_frame(out, revision, now_ms) {}
        let peer = &mut self.peers[peer.0];
        peer.session = Some(session);
        peer.counts.sent_bytes += (out.len() - before_bytes) as u64;
    }

    /// Queues claims for all peers.
    pub fn offer(&mut self, claims: &[Record], now_ms: u64) {
        for peer in &mut self.peers {
            let Some(session) = &mut peer.session else { continue };
            let offered = claims.iter().map(|record| session.offer(*record, now_ms));
            peer.counts.overflows += offered.filter(|is_queued| !is_queued).count() as u64;
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

    /// Begins a new snapshot for each peer: claims of this node were lost.
    pub fn resync(&mut self) {
        let sessions = self.peers.iter_mut().filter_map(|peer| peer.session.as_mut());
        sessions.for_each(Session::restart);
    }

    /// Adds a page to a snapshot. Does nothing if the walk is over, because the connection is over.
    pub fn give_page(&mut self, walk: Walk, claims: &[Record], is_last: bool, now_ms: u64) {
        let Walk { peer: id, number } = walk;
        let is_current = self.walks[id.0] == number;
        let peer = &mut self.peers[id.0];
        let Some(session) = &mut peer.session else { return };
        if is_current && session.snapshot() == SnapshotStage::Begun {
            let is_whole = claims.iter().all(|record| session.add(*record, now_ms))
                && (!is_last || session.end_snapshot(now_ms));
            peer.counts.overflows += u64::from(!is_whole);
            peer.counts.snapshots_sent += u64::from(is_whole && is_last);
        }
    }
}
