//! One of the other nodes: its messages and its state.

use super::peers::sending::{Session, SnapshotStage};
use super::reference::{Arriving, Reference};
use super::wire::{Drains, NodeState};
use hotloop::packet::flow_key::FlowKey;
use serde::{Deserialize, Serialize};
use std::collections::{HashSet, VecDeque};

/// Maximum number of a peer's imports that wait for this node to enter them. Beyond that, this node
/// stops reading from the peer.
pub const IMPORTS_MAX: usize = 1 << 15;

/// How long a claim of a peer counts as one that others may not have had, in milliseconds.
const RECENT_MS: u64 = 10_000;

/// Maximum number of such claims of a peer to remember: about 4 MB.
const RECENT_MAX: usize = 1 << 16;

/// Counts of messages to and from a peer, since this node started.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Counts {
    /// Claims sent.
    pub sent: u64,
    /// Claims received.
    pub received: u64,
    /// Bytes of frames sent, without the overhead of TLS, TCP and IP.
    pub sent_bytes: u64,
    /// Bytes of frames received.
    pub received_bytes: u64,
    /// Snapshots sent, counted when all their pages were gathered.
    pub snapshots_sent: u64,
    /// Snapshots received.
    pub snapshots_received: u64,
    /// Number of times that more changes waited for the peer than the queue holds, so that a new
    /// snapshot became due.
    pub overflows: u64,
}

/// The relation to a peer.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PeerState {
    /// There is no connection: see [`PeerStatus::last_error`].
    Away,
    /// There is a connection, but one of the two has not entered the other's snapshot yet.
    Joining,
    /// Both have entered the other's snapshot, and changes follow.
    InSync,
}

/// The status of a peer. Its members and their names are also those in the answer to `ctl cluster`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct PeerStatus {
    /// The peer's name.
    pub name: String,
    /// The address that the peer listens at, from the configuration.
    pub address: String,
    /// This node's relation to the peer.
    pub state: PeerState,
    /// The revision of the configuration that was in force there when it sent its last frame.
    pub revision: u64,
    /// The peer's last report of its own state since it connected.
    #[serde(skip)]
    pub said: Option<NodeState>,
    /// The reference tables that it has sent since then.
    #[serde(skip)]
    pub references: Vec<Reference>,
    /// The backends that it drains, and its numbers of connections to those of others.
    #[serde(skip)]
    pub drains: Drains,
    /// Whether this node has entered the peer's snapshot.
    pub has_its_snapshot: bool,
    /// Whether the peer has entered everything that this node knows: a snapshot, and all later
    /// changes.
    pub is_caught_up: bool,
    /// Number of gathered changes and claims that the peer has not entered yet.
    pub lag_records: usize,
    /// The age of the oldest of them, in milliseconds.
    pub lag_ms: u64,
    /// Number of the peer's changes and claims that wait for this node to enter them.
    #[serde(rename = "to_enter")]
    pub import_count: usize,
    /// Counts of messages.
    #[serde(flatten)]
    pub counts: Counts,
    /// The reason why no connection exists, or why the last one ended.
    pub last_error: Option<String>,
}

/// A received frame that has not been entered completely.
#[derive(Clone, Copy, Debug)]
struct Received {
    sequence: u64,
    /// The number of the peer's imports up to this frame, since this node started.
    import_count: u64,
    ends_snapshot: bool,
}

/// One of the other nodes.
#[derive(Debug)]
pub struct Peer {
    pub name: String,
    pub address: String,
    pub session: Option<Session>,
    /// Number of sessions, so that a connection that is over can't end its successor's session.
    pub session_number: u64,
    /// Whether a snapshot has begun in this session but not ended.
    pub is_in_snapshot: bool,
    /// Whether this node has entered a snapshot of this session.
    has_its_snapshot: bool,
    /// The connections that it has claimed lately, and when: others may not have had the claims if it
    /// goes.
    recent: VecDeque<(u64, FlowKey)>,
    pub revision: u64,
    /// The peer's report of its own state in this session.
    pub state: Option<NodeState>,
    /// The reference tables that it has sent in this session.
    pub references: Arriving,
    pub drains: Drains,
    pub counts: Counts,
    pub last_error: Option<String>,
    imported_count: u64,
    taken_count: u64,
    entered_count: u64,
    received: VecDeque<Received>,
    received_sequence: u64,
    /// The sequence number to acknowledge.
    entered_sequence: u64,
    acknowledged_sequence: u64,
}

impl Peer {
    pub fn new(name: String, address: String) -> Self {
        Self {
            name,
            address,
            session: None,
            session_number: 0,
            is_in_snapshot: false,
            has_its_snapshot: false,
            recent: VecDeque::new(),
            revision: 0,
            state: None,
            references: Arriving::default(),
            drains: Drains::default(),
            counts: Counts::default(),
            last_error: None,
            imported_count: 0,
            taken_count: 0,
            entered_count: 0,
            received: VecDeque::new(),
            received_sequence: 0,
            entered_sequence: 0,
            acknowledged_sequence: 0,
        }
    }

    /// Begins a session with a queue of this size.
    pub fn begin(&mut self, now_ms: u64, queue_max: usize) {
        self.end();
        self.session = Some(Session::new(now_ms, queue_max));
        self.session_number += 1;
        (self.received_sequence, self.entered_sequence, self.acknowledged_sequence) = (0, 0, 0);
        self.received.clear();
    }

    /// Ends the session, if there is one. Received changes are still entered.
    pub fn end(&mut self) {
        (self.is_in_snapshot, self.has_its_snapshot, self.state) = (false, false, None);
        (self.references, self.drains) = (Arriving::default(), Drains::default());
        if let Some(session) = self.session.take() {
            self.counts.sent += session.sent_count;
        }
    }

    /// Checks that a frame is the next one, before any of it is imported.
    ///
    /// # Errors
    /// If other frames should have come before.
    pub const fn check_order(&self, sequence: u64) -> Result<(), &'static str> {
        if sequence == self.received_sequence + 1 {
            Ok(())
        } else {
            Err("sent frames out of order")
        }
    }

    /// Notes a frame with all of its contents imported.
    pub fn receive(&mut self, sequence: u64, ends_snapshot: bool) {
        self.received_sequence = sequence;
        let import_count = self.imported_count;
        self.received.push_back(Received { sequence, import_count, ends_snapshot });
    }

    /// Notes a claim of the peer.
    pub fn note_recent(&mut self, key: FlowKey, now_ms: u64) {
        while self.recent.pop_front_if(|(at_ms, _)| *at_ms + RECENT_MS < now_ms).is_some() {}
        if self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((now_ms, key));
    }

    /// The connections that the peer has claimed lately. Forgets them.
    pub fn take_recent(&mut self, now_ms: u64) -> impl Iterator<Item = FlowKey> + use<> {
        let (recent, mut taken) = (std::mem::take(&mut self.recent).into_iter(), HashSet::new());
        let recent = recent.filter(move |(at_ms, _)| at_ms + RECENT_MS >= now_ms);
        recent.map(|(_, key)| key).filter(move |key| taken.insert(*key))
    }

    /// Notes that an import from the peer waits for this node to enter it.
    pub const fn imported(&mut self) {
        self.imported_count += 1;
    }

    /// Notes that this node has taken an import from the peer.
    pub const fn taken(&mut self) {
        self.taken_count += 1;
    }

    /// Notes that the taken imports have been entered.
    pub fn entered(&mut self) {
        self.entered_count = self.taken_count;
        let entered_count = self.entered_count;
        while let Some(frame) =
            self.received.pop_front_if(|frame| frame.import_count <= entered_count)
        {
            self.entered_sequence = frame.sequence;
            self.has_its_snapshot |= frame.ends_snapshot;
        }
    }

    /// Whether there is room for the imports of another frame.
    pub fn can_receive(&self) -> bool {
        self.import_count() < IMPORTS_MAX && self.received.len() < IMPORTS_MAX
    }

    /// Number of the peer's imports that wait to be entered.
    fn import_count(&self) -> usize {
        (self.imported_count - self.entered_count) as usize
    }

    /// Whether there is a sequence number to acknowledge.
    pub const fn owes_acknowledgement(&self) -> bool {
        self.session.is_some() && self.acknowledged_sequence != self.entered_sequence
    }

    /// The sequence number to acknowledge, if there is a new one.
    pub const fn acknowledgement(&mut self) -> Option<u64> {
        if self.acknowledged_sequence == self.entered_sequence {
            return None;
        }
        self.acknowledged_sequence = self.entered_sequence;
        Some(self.entered_sequence)
    }

    pub fn status(&self, now_ms: u64) -> PeerStatus {
        let session = self.session.as_ref();
        let mut counts = self.counts;
        counts.sent += session.map_or(0, |session| session.sent_count);
        let is_caught_up = session.is_some_and(Session::is_caught_up);
        let state = match session {
            None => PeerState::Away,
            Some(session)
                if session.snapshot() == SnapshotStage::Gathered && self.has_its_snapshot =>
            {
                PeerState::InSync
            }
            Some(_) => PeerState::Joining,
        };
        PeerStatus {
            name: self.name.clone(),
            address: self.address.clone(),
            state,
            revision: self.revision,
            said: self.state,
            references: self.references.whole().to_vec(),
            drains: self.drains.clone(),
            has_its_snapshot: self.has_its_snapshot,
            is_caught_up,
            lag_records: session.map_or(0, Session::lag_records),
            lag_ms: session.map_or(0, |session| session.lag_ms(now_ms)),
            import_count: self.import_count(),
            counts,
            last_error: self.last_error.clone(),
        }
    }
}
