//! What goes to one peer, and what of it has been entered there, from the greeting of a connection to its end.
//!
//! All goes through one bounded queue, in its order: the pages of a snapshot, and changes that happen
//! meanwhile. When it overflows, it is emptied and a new snapshot is due, which says all that was in it. Of what
//! left the queue, a window of frames waits for acknowledgement.

use super::wire::{Frame, Gathered, Message, NodeState};
use hotloop_balancer::exceptions::{Change, Record};
use std::collections::VecDeque;

/// How many changes and claims of snapshots wait for one peer: about 5 MB.
pub const QUEUE_MAX: usize = 1 << 16;

/// Up to how many a snapshot fills the queue. The rest is for changes.
const SNAPSHOT_QUEUE_MAX: usize = QUEUE_MAX / 2;

/// How many frames wait for acknowledgement.
const WINDOW_FRAMES: usize = 16;

/// How often a [`Message::State`] is sent that says nothing new, in milliseconds.
const STATE_MS: u64 = 1_000;

/// What waits to be sent.
#[derive(Clone, Copy, Debug)]
enum Item {
    SnapshotBegin,
    SnapshotEnd,
    Change(Change),
    /// A claim of the node with this number and incarnation.
    Relayed(usize, u64, Record),
}

/// Where a snapshot for the peer stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Snapshot {
    /// One is due.
    Due,
    /// Pages are being gathered.
    Begun,
    /// All its pages have been gathered, and maybe sent.
    Gathered,
}

/// Frames of a kind that are acknowledged.
#[derive(Clone, Copy, Debug)]
struct Sent {
    sequence: u64,
    /// How many items were queued up to its last one, since the session began.
    item_count: u64,
    record_count: usize,
    /// Since when its first record waits.
    since_ms: u64,
}

/// A connection with a peer that has said who it is.
#[derive(Debug)]
pub struct Session {
    queue: VecDeque<(u64, Item)>,
    snapshot: Snapshot,
    /// How many items were queued since the session began, those among them that an overflow removed.
    queued_count: u64,
    /// Which of them ended the last snapshot.
    snapshot_end: u64,
    /// Up to which of them the peer has entered all.
    entered_count: u64,
    in_flight: VecDeque<Sent>,
    in_flight_records: usize,
    sequence: u64,
    /// What this node is to say of itself, what it has said, and when.
    state: NodeState,
    said: Option<NodeState>,
    said_ms: u64,
    gathered: Gathered,
    /// Changes and claims sent.
    pub sent_count: u64,
}

impl Session {
    /// One that begins with a snapshot.
    pub fn new(now_ms: u64) -> Self {
        Self {
            queue: VecDeque::new(),
            snapshot: Snapshot::Due,
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

    /// Queues a change. False if the queue overflows: then a new snapshot is due.
    pub fn offer(&mut self, change: Change, now_ms: u64) -> bool {
        // Of a snapshot that is due, a walk that has not begun yet says it.
        self.snapshot == Snapshot::Due || self.push(Item::Change(change), now_ms)
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

    /// Has a new snapshot begin, for lack of what has changed. Like an overflow, it replaces all that waits.
    pub fn restart(&mut self) {
        self.queue.clear();
        self.snapshot = Snapshot::Due;
    }

    /// Where the snapshot for this peer stands.
    pub const fn snapshot(&self) -> Snapshot {
        self.snapshot
    }

    /// Whether there is room for the next page of a snapshot.
    pub fn has_room_for_page(&self) -> bool {
        self.snapshot != Snapshot::Gathered && self.queue.len() < SNAPSHOT_QUEUE_MAX
    }

    /// Begins the snapshot: changes from now on follow it.
    pub fn begin_snapshot(&mut self, now_ms: u64) {
        if self.push(Item::SnapshotBegin, now_ms) {
            self.snapshot = Snapshot::Begun;
        }
    }

    /// Adds a claim to the snapshot: this node's, or that of another node, with its number and incarnation.
    /// False if the queue overflows.
    pub fn add(&mut self, record: Record, owner: Option<(usize, u64)>, now_ms: u64) -> bool {
        let item = match owner {
            None => Item::Change(Change::Claim(record)),
            Some((number, incarnation)) => Item::Relayed(number, incarnation, record),
        };
        self.push(item, now_ms)
    }

    /// Ends the snapshot. False if the queue overflows.
    pub fn end_snapshot(&mut self, now_ms: u64) -> bool {
        let is_queued = self.push(Item::SnapshotEnd, now_ms);
        if is_queued {
            self.snapshot = Snapshot::Gathered;
            self.snapshot_end = self.queued_count;
        }
        is_queued
    }

    /// The peer has entered all frames up to this sequence number.
    ///
    /// # Errors
    /// No such frame was sent.
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

    /// How many changes and claims the peer has not entered yet, as far as they are gathered.
    pub fn lag_records(&self) -> usize {
        self.queue.len() + self.in_flight_records
    }

    /// For how long the first of them has been waiting, in milliseconds.
    pub fn lag_ms(&self, now_ms: u64) -> u64 {
        let sent = self.in_flight.front().map(|sent| sent.since_ms);
        let since = sent.or_else(|| self.queue.front().map(|&(since_ms, _)| since_ms));
        since.map_or(0, |since| now_ms.saturating_sub(since))
    }

    /// How many items were queued since the session began.
    pub const fn queued_count(&self) -> u64 {
        self.queued_count
    }

    /// Whether the peer has entered a snapshot, and all that was queued up to there: what an overflow removed is in
    /// a later snapshot.
    pub fn has_entered(&self, queued_count: u64) -> bool {
        self.snapshot == Snapshot::Gathered
            && self.entered_count >= queued_count.max(self.snapshot_end)
    }

    /// Whether the peer has entered all that this node knows.
    pub fn is_caught_up(&self) -> bool {
        self.snapshot == Snapshot::Gathered && self.queue.is_empty() && self.in_flight.is_empty()
    }

    /// What this node is to say of itself from now on.
    pub const fn say(&mut self, state: NodeState) {
        self.state = state;
    }

    /// Appends the next frame to `out`, if one is due. `names` are those of all peers, by number.
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

    /// Takes from the queue what goes into one frame with the `first`. Returns how many items that are.
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
    /// Whether both go into one frame.
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
