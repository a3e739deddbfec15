//! All peers of a node, with the messages to and from them. No sockets and no clocks: bytes and
//! times come from outside, so that a simulation runs the same code as [`Sync`](super::Sync).

mod receiving;
pub(super) mod sending;
mod watermark;

use super::PeerId;
use super::peer::{Peer, PeerStatus};
use super::reference::Reference;
use super::wire::{
    DRAINS_MAX, Drains, Frame, Hello, Message, NodeState, VERSION, VERSION_MIN, is_adjacent,
};
use hotloop_balancer::exceptions::Change;
use receiving::Imports;
use sending::QUEUE_MAX;
pub use watermark::{Entered, Watermark};

/// A node's identity for its peers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Local {
    /// The node's name.
    pub node: String,
    /// A digest of the settings that must be equal in all nodes.
    pub digest: [u8; 16],
}

/// The walk for a snapshot that is due to a peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Walk {
    /// The peer.
    pub peer: PeerId,
    /// A number that differs from the last page's means that the walk begins at the beginning.
    pub number: u64,
}

/// A connection to a peer, after the greetings.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SessionId {
    /// The peer.
    pub peer: PeerId,
    number: u64,
}

/// All peers of a node.
#[derive(Debug)]
pub struct Peers {
    local: Local,
    peers: Vec<Peer>,
    /// This node's state, and its reference tables.
    state: NodeState,
    references: Vec<Reference>,
    drains: Drains,
    revision: u64,
    walk_count: u64,
    /// The number of the walk for each peer.
    walks: Vec<u64>,
    imports: Imports,
    queue_max: usize,
}

impl Peers {
    /// A node with peers, each with its name and its address for display.
    pub fn new(local: Local, peers: impl IntoIterator<Item = (String, String)>) -> Self {
        let peers: Vec<_> =
            peers.into_iter().map(|(name, address)| Peer::new(name, address)).collect();
        Self {
            local,
            walks: vec![0; peers.len()],
            peers,
            state: NodeState::default(),
            references: Vec::new(),
            drains: Drains::default(),
            revision: 0,
            walk_count: 0,
            imports: Imports::default(),
            queue_max: QUEUE_MAX,
        }
    }

    /// Limits the number of items that wait for each peer, from its next session on: at first it is
    /// [`QUEUE_MAX`].
    pub const fn limit_queues(&mut self, queue_max: usize) {
        self.queue_max = queue_max;
    }

    /// Appends the frame that begins a connection.
    pub fn hello(&self, out: &mut Vec<u8>) {
        let Local { node, digest } = self.local.clone();
        let hello = Hello { version: VERSION, digest, node };
        let message = Message::Hello(hello);
        Frame { revision: self.revision, sequence: 0, message }.encode(out);
    }

    /// Begins a session with the node that sent this greeting. `expected` is the peer that this
    /// node connected to; without one, the peer connected. An earlier session with the peer ends.
    ///
    /// # Errors
    /// The reason for a refusal, to report to both sides.
    pub fn greet(
        &mut self,
        hello: &Hello,
        expected: Option<PeerId>,
        now_ms: u64,
    ) -> Result<SessionId, String> {
        let own = &self.local.node;
        if !is_adjacent(hello.version) {
            let theirs = hello.version;
            return Err(format!(
                "node {own} speaks version {VERSION} of the protocol between nodes, and its peer \
                 version {theirs}: install releases on both that are at most one version apart, \
                 from version {VERSION_MIN} on"
            ));
        }
        let peer = self.identify(&hello.node, expected)?;
        if hello.digest != self.local.digest {
            let theirs = &hello.node;
            return Err(format!(
                "nodes {own} and {theirs} would choose backends differently: write the same \
                 balancer.hash_key and balancer.maglev_slots in both configurations"
            ));
        }
        self.begin(peer, now_ms);
        Ok(SessionId { peer, number: self.peers[peer.0].session_number })
    }

    /// The peer with this name.
    ///
    /// # Errors
    /// If there is no such peer, if it differs from `expected`, or if this node connects to that peer
    /// itself.
    fn identify(&self, name: &str, expected: Option<PeerId>) -> Result<PeerId, String> {
        let own = &self.local.node;
        let Some(peer) = self.named(name) else {
            return Err(format!("{name} is not in cluster.peers of node {own}"));
        };
        match expected {
            Some(expected) if expected != peer => {
                let expected = &self.peers[expected.0].name;
                Err(format!("the node at the address of {expected} is {name}: mend cluster.peers"))
            }
            None if self.connects_to(peer) => {
                Err(format!("{own} connects to {name}, not the other way round"))
            }
            _ => Ok(peer),
        }
    }

    /// The peer of this name.
    pub fn named(&self, name: &str) -> Option<PeerId> {
        self.peers.iter().position(|peer| peer.name == name).map(PeerId)
    }

    /// A peer's name.
    pub fn name(&self, peer: PeerId) -> &str {
        &self.peers[peer.0].name
    }

    /// Whether this node connects to that peer: the node with the lesser name does.
    pub fn connects_to(&self, peer: PeerId) -> bool {
        self.local.node < self.peers[peer.0].name
    }

    fn begin(&mut self, id: PeerId, now_ms: u64) {
        self.inherit(id, now_ms);
        let peer = &mut self.peers[id.0];
        peer.begin(now_ms, self.queue_max);
        peer.last_error = None;
    }

    /// Whether this session is still the peer's.
    pub fn is_current(&self, session: SessionId) -> bool {
        let peer = &self.peers[session.peer.0];
        peer.session.is_some() && peer.session_number == session.number
    }

    /// Ends a session with this reason, if it has no successor.
    pub fn end(&mut self, session: SessionId, why: &str, now_ms: u64) {
        if self.is_current(session) {
            self.inherit(session.peer, now_ms);
            self.peers[session.peer.0].end();
            self.fail(session.peer, why);
        }
    }

    /// Claims again what a peer has claimed lately: perhaps before others had its claims.
    fn inherit(&mut self, peer: PeerId, now_ms: u64) {
        for key in self.peers[peer.0].take_recent(now_ms) {
            self.import(peer, Change::Inherit(key));
        }
    }

    /// Notes why a peer has no session, unless it has one. Returns whether the
    /// reason is new.
    pub fn fail(&mut self, peer: PeerId, why: &str) -> bool {
        let Peer { session, last_error: last, .. } = &mut self.peers[peer.0];
        let is_news = session.is_none() && last.as_deref() != Some(why);
        if is_news {
            *last = Some(why.to_owned());
        }
        is_news
    }

    /// Sets the state that this node reports from now on. Returns whether it is new.
    pub fn say(&mut self, state: NodeState) -> bool {
        std::mem::replace(&mut self.state, state).is_news_to(&state)
    }

    /// The latest time that peers have reported, by the cluster's clock.
    pub fn clock(&self) -> u64 {
        let clocks = self.peers.iter().filter_map(|peer| Some(peer.state?.clock));
        clocks.max().unwrap_or(0)
    }

    /// Sets the reference tables that this node sends from now on, before any later state.
    pub fn set_references(&mut self, references: Vec<Reference>) {
        self.references = references;
    }

    /// Sets the backends that this node drains, and its answers about those of peers.
    pub fn set_drains(&mut self, mut drains: Drains) {
        drains.asked.truncate(DRAINS_MAX);
        drains.counts.truncate(DRAINS_MAX);
        self.drains = drains;
    }

    /// Sets the revision of the configuration in force, for display at peers.
    pub fn set_revision(&mut self, revision: u64) {
        self.revision = revision;
    }

    /// The status of all peers.
    pub fn status(&self, now_ms: u64) -> Vec<PeerStatus> {
        self.peers.iter().map(|peer| peer.status(now_ms)).collect()
    }
}

/// The text for a refusal in the status.
pub fn refused(reason: &str) -> String {
    format!("refused by the peer: {reason}")
}
