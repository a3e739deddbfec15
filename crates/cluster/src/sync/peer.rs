//! One of the other nodes: its messages and its state.

use super::PeerId;
use super::owners::Owner;
use super::peers::sending::{Session, SnapshotStage};
use super::wire::NodeState;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Maximum number of a peer's imports that wait for this node to enter them. Beyond that, this node
/// stops reading from the peer.
pub const IMPORTS_MAX: usize = 1 << 15;

/// Counts of messages to and from a peer, since this node started.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Counts {
    /// Changes and claims sent.
    pub sent: u64,
    /// Changes and claims received.
    pub received: u64,
    /// The part of `received` without effect: relayed claims of a node that this one hears itself,
    /// and ends of connections that another node has claimed since.
    pub superseded: u64,
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
    #[serde(rename = "revision")]
    pub epoch: u64,
    /// The peer's last report of its own state since it connected.
    #[serde(skip)]
    pub said: Option<NodeState>,
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
    /// The rank of the peer's name among the names of all peers.
    rank: u8,
    /// The number of the peer's run in the last session.
    pub incarnation: Option<u64>,
    pub lifetime: u16,
    pub session: Option<Session>,
    /// Number of sessions, so that a connection that is over can't end its successor's session.
    pub session_number: u64,
    /// Whether a snapshot has begun in this session but not ended.
    pub is_in_snapshot: bool,
    /// Whether a snapshot has ended in this session.
    pub has_received_snapshot: bool,
    /// Whether this node has also entered the snapshot.
    has_its_snapshot: bool,
    pub epoch: u64,
    /// The peer's report of its own state in this session.
    pub state: Option<NodeState>,
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
    pub fn new(name: String, address: String, rank: u8) -> Self {
        Self {
            name,
            address,
            rank,
            incarnation: None,
            lifetime: 0,
            session: None,
            session_number: 0,
            is_in_snapshot: false,
            has_received_snapshot: false,
            has_its_snapshot: false,
            epoch: 0,
            state: None,
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

    /// Begins a session.
    pub fn begin(&mut self, now_ms: u64) {
        self.end();
        self.session = Some(Session::new(now_ms));
        self.session_number += 1;
        (self.received_sequence, self.entered_sequence, self.acknowledged_sequence) = (0, 0, 0);
        self.received.clear();
    }

    /// Ends the session, if there is one. Received changes are still entered.
    pub fn end(&mut self) {
        (self.is_in_snapshot, self.has_received_snapshot) = (false, false);
        (self.has_its_snapshot, self.state) = (false, None);
        if let Some(session) = self.session.take() {
            self.counts.sent += session.sent_count;
        }
    }

    /// The peer as an owner of connections.
    pub const fn owner(&self, peer: PeerId) -> Owner {
        Owner { peer, lifetime: self.lifetime, rank: self.rank }
    }

    /// Whether this node receives the peer's changes.
    pub const fn is_heard(&self) -> bool {
        self.session.is_some() && (self.is_in_snapshot || self.has_received_snapshot)
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
            epoch: self.epoch,
            said: self.state,
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
