//! All peers of a node, with the messages to and from them. No sockets and no clocks: bytes and
//! times come from outside, so that a simulation runs the same code as [`Sync`](super::Sync).

mod receiving;
pub(super) mod sending;
mod watermark;

use super::PeerId;
use super::owners::{Owner, Owners};
use super::peer::{Peer, PeerStatus};
use super::wire::{Frame, Hello, Message, NodeState, VERSION};
use receiving::{Held, Imports};
pub use watermark::{Entered, Watermark};

/// A node's identity for its peers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Local {
    /// The node's name.
    pub node: String,
    /// The number of this run of the program, which no other run uses. Not 0.
    pub incarnation: u64,
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
    owners: Owners,
    held: Held,
    /// This node's state, with the configuration that its messages follow from.
    state: NodeState,
    epoch: u64,
    /// The configuration that all workers use.
    entered_epoch: u64,
    walk_count: u64,
    /// The number of the walk for each peer.
    walks: Vec<u64>,
    imports: Imports,
}

impl Peers {
    /// A node with peers, each with its name and its address for display.
    pub fn new(local: Local, peers: impl IntoIterator<Item = (String, String)>) -> Self {
        let named: Vec<_> = peers.into_iter().collect();
        let rank = |name: &String| named.iter().filter(|(other, _)| other < name).count() as u8;
        let peers: Vec<_> = named
            .iter()
            .map(|(name, address)| Peer::new(name.clone(), address.clone(), rank(name)))
            .collect();
        Self {
            local,
            walks: vec![0; peers.len()],
            peers,
            owners: Owners::default(),
            held: Held::default(),
            state: NodeState::default(),
            epoch: 0,
            entered_epoch: 0,
            walk_count: 0,
            imports: Imports::default(),
        }
    }

    /// Appends the frame that begins a connection.
    pub fn hello(&self, out: &mut Vec<u8>) {
        let Local { node, incarnation, digest } = self.local.clone();
        let hello = Hello { version: VERSION, incarnation, digest, node };
        Frame { epoch: self.epoch, sequence: 0, message: Message::Hello(hello) }.encode(out);
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
        if hello.version != VERSION {
            let theirs = hello.version;
            return Err(format!(
                "node {own} speaks version {VERSION} of the protocol between nodes, and its peer \
                 version {theirs}: install one release on both"
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
        self.begin(peer, hello.incarnation, now_ms);
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

    fn begin(&mut self, id: PeerId, incarnation: u64, now_ms: u64) {
        let peer = &mut self.peers[id.0];
        if peer.incarnation != Some(incarnation) {
            self.owners.orphan(peer.owner(id));
            // 0 is for orphans.
            peer.lifetime = peer.lifetime.checked_add(1).unwrap_or(1);
            peer.incarnation = Some(incarnation);
        }
        peer.begin(now_ms);
        peer.last_error = None;
    }

    /// Whether this session is still the peer's.
    pub fn is_current(&self, session: SessionId) -> bool {
        let peer = &self.peers[session.peer.0];
        peer.session.is_some() && peer.session_number == session.number
    }

    /// Ends a session with this reason, if it has no successor.
    pub fn end(&mut self, session: SessionId, why: &str) {
        if self.is_current(session) {
            self.peers[session.peer.0].end();
            self.fail(session.peer, why);
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

    fn owner(&self, id: PeerId) -> Owner {
        self.peers[id.0].owner(id)
    }

    /// Sets the state that this node reports from now on. Returns whether it is new.
    pub fn say(&mut self, state: NodeState) -> bool {
        std::mem::replace(&mut self.state, state) != state
    }

    /// Sets the revision of the configuration for everything [offered](Self::offer) from now on.
    pub fn set_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
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
