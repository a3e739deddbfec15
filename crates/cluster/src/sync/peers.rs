//! All peers of a node, with the messages to and from them. No sockets and no clocks: bytes and
//! times come from outside, so that a simulation runs the same code as [`Sync`](super::Sync).

mod imports;
mod watermark;

use super::held::Held;
use super::owners::{Owner, Owners};
use super::peer::{Peer, PeerStatus};
use super::session::{Session, Snapshot};
use super::wire::{Changes, Frame, Hello, Message, NodeState, VERSION};
use super::{PeerId, in_order};
use hotloop::packet::flow_key::FlowKey;
use hotloop_balancer::exceptions::{Change, Record};
use imports::Imports;
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
    /// If there is none, if it differs from `expected`, or if this node connects to that peer
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

    /// Notes the reason that there is no session with a peer, if there is none. Returns whether the
    /// reason is new.
    pub fn fail(&mut self, peer: PeerId, why: &str) -> bool {
        let Peer { session, last_error: last, .. } = &mut self.peers[peer.0];
        let is_news = session.is_none() && last.as_deref() != Some(why);
        if is_news {
            *last = Some(why.to_owned());
        }
        is_news
    }

    /// Whether there is room for the contents of another frame of this peer. If not, leave the
    /// frame in the socket.
    pub fn can_receive(&self, peer: PeerId) -> bool {
        self.peers[peer.0].can_receive()
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
                let done = session.map_or(Ok(()), |it| it.acknowledge(frame.sequence));
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
                self.relayed(peer, (owner, *incarnation), *claims, now_ms);
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
                    self.claim(id, (owner, true), Record { wins_ties, ..record }, now_ms);
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

    fn claim(&mut self, from: PeerId, owner: (Owner, bool), record: Record, now_ms: u64) {
        let peers = &self.peers;
        let is_gone = |owner: Owner| is_gone(peers, owner);
        if self.owners.claimed(&record, owner, now_ms, is_gone) {
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

    fn owner(&self, id: PeerId) -> Owner {
        self.peers[id.0].owner(id)
    }

    /// Claims of a node that the sender couldn't reach. If this node is in contact with it, this
    /// node's knowledge is better.
    fn relayed(
        &mut self,
        from: PeerId,
        (name, incarnation): (&str, u64),
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
                    .is_some_and(|(it, is_named)| is_named && !is_gone(&self.peers, it))
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
            self.claim(from, (owner, false), record, now_ms);
        }
    }

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

    /// Counts a frame of a peer with this many bytes.
    pub fn count_received(&mut self, peer: PeerId, frame_bytes: usize) {
        self.peers[peer.0].counts.received_bytes += frame_bytes as u64;
    }

    /// Sets the state that this node reports from now on. Returns whether it is new.
    pub fn say(&mut self, state: NodeState) -> bool {
        std::mem::replace(&mut self.state, state) != state
    }

    /// Sets the revision of the configuration for everything [offered](Self::offer) from now on.
    pub fn set_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
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
        let wants = |peer: &Peer| peer.session.as_ref().is_some_and(|it| it.has_room_for_page());
        let peer = PeerId(self.peers.iter().position(wants)?);
        let session = self.peers[peer.0].session.as_mut()?;
        if session.snapshot() == Snapshot::Due {
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
        (is_current && session.snapshot() == Snapshot::Begun).then(|| session.has_room_for_page())
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
        (own, entered): (&[Record], &[Record]),
        is_last: bool,
        now_ms: u64,
    ) {
        let Walk { peer: id, number } = walk;
        let is_current = self.walks[id.0] == number;
        let Some(mut session) = self.peers[id.0].session.take() else { return };
        if is_current && session.snapshot() == Snapshot::Begun {
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
    fn relayed_for(&self, peer: PeerId, key: &FlowKey) -> Option<(usize, u64)> {
        let (owner, _) = self.owners.of(key)?;
        let its = &self.peers[owner.peer.0];
        if owner.lifetime != its.lifetime {
            return Some((owner.peer.0, 0));
        }
        let is_sent = owner.peer == peer || its.is_heard();
        (!is_sent).then(|| (owner.peer.0, its.incarnation.unwrap_or(0)))
    }

    /// The status of all peers.
    pub fn status(&self, now_ms: u64) -> Vec<PeerStatus> {
        self.peers.iter().map(|peer| peer.status(now_ms)).collect()
    }
}

/// Whether a node is out of contact, or has restarted since.
fn is_gone(peers: &[Peer], owner: Owner) -> bool {
    let peer = &peers[owner.peer.0];
    owner.lifetime != peer.lifetime || !peer.is_heard()
}

/// The text for a refusal in the status.
pub fn refused(reason: &str) -> String {
    format!("refused by the peer: {reason}")
}
