//! Sessions that all nodes of a cluster know: those that the configuration alone does not tell.
//!
//! Several balancers of one configuration choose backends alike, so a node needs to know of another's
//! connections only the *exceptions*: those that are on another backend than the configuration in force says. Each
//! node names its exceptions to all its peers, over one TCP connection for each pair, which the node with the lesser name
//! opens, with TLS on both sides unless the network is trusted.
//!
//! [`Sync`] is the thread that talks to peers. Its owner, the control thread, hands it the [`Change`]s of this
//! node's exceptions, enters those of peers, and gives pages of a walk over all exceptions when a peer needs a
//! snapshot: when it is new, when it comes back, and when more changes waited for it than the queue for it
//! holds. So nothing is dropped silently, and a peer that stops reading delays nobody.
//!
//! # What the owner has to do
//! - Offer changes, and give pages, in the order in which a worker said them.
//! - When a packet makes a connection of a peer this node's own: offer a [`Claim`](Change::Claim) if it is an exception
//!   here, else an [`End`](Change::End); in both cases it has moved once more: add 1 to [`Record::moves`], modulo
//!   [`MOVES`]. So all nodes agree on which of them owns it, whatever their clocks say and however late messages
//!   are. A connection ends when no node claims it any more: so a claim must come before the end of a connection that
//!   was a peer's.
//! - Claim again when it becomes established or is closing, and where the last packet that peers know of came a third of
//!   its idle timeout ago, and another one has come since.
//! - Offer an end when a connection of its own was an exception, and is forgotten, or is none any more; not when it only
//!   timed out, as it does everywhere. One that is [closing](hotloop_balancer::connection::State::Closing) need not end at
//!   once: claimed so, with the time that is left of it, it goes on as long as its client has only closed its half.
//! - Name in the pages of a walk all of its own exceptions, and all that it entered for peers. Those of nodes that are
//!   away, or have restarted, are then sent to the peer.
//! - Enter an end only where what is there is remote, and decide on claims by [`merge`]. What is closing is no exception to
//!   that: the end of a node from which it has moved says nothing of its last packets. Remote connections stay when the
//!   configuration says the same: their owners end them.
//! - Where a SYN begins a connection in the place of a peer's, and it is no exception, offer a claim before the end: other
//!   nodes may have that one, too, also as closing.
//! - Take no packets, once started, as long as a peer [goes by](Sync::is_behind) a newer configuration.
//! - Call [`Sync::set_epoch`] before any worker goes by a configuration, and [`Sync::enter_epoch`] once all do.
//!
//! # Epochs
//! A frame carries the revision of the configuration that the first of its sender's workers goes by. Claims count whatever
//! it is. An end under a newer one waits until all workers of this node go by that configuration too: the
//! connection may only have become what the newer configuration says, and must be known as long as the older one
//! holds here. Where nodes have no revision in common, it is 0 everywhere, and nothing waits.
//!
//! # Changes of the configuration
//! A connection that begins at a node with the newer configuration, or one that is being prepared, is an exception
//! for peers with the older one. So workers compare connections with two tables as long as there may be two
//! ([`ServiceTable::other`](hotloop_balancer::services::ServiceTable::other)). A change is prepared once workers have looked through all
//! connections with both, and each peer has entered what was [offered](Sync::watermark) up to then.
//!
//! # What is promised
//! A packet of a connection goes to its backend by whichever node it comes, if all nodes had entered
//! each other's snapshots and changes ([`PeerStatus::is_caught_up`]) before the change that moved it. Not so a
//! connection that moves to another node and is silent until the table changes: nobody there knows that it exists. And
//! a client that uses a port again, while a node that knows the connection before it has not heard that it has
//! ended, may be taken for that connection: so where that connection moved, and not all nodes were in sync when it
//! ended, as an earlier owner's claim may arrive after the end; where it ended while some nodes went by an older
//! configuration, which hold the end; where nodes lose each other before all have heard of the new connection; and
//! where a packet of it came to a node that did not know it and that compared connections with two tables: it may have
//! claimed in error what nobody ends.

mod channel;
mod connection;
mod held;
mod owners;
mod peer;
mod peers;
mod session;
mod tls;
mod transport;
pub mod wire;

use crate::random::random_bytes;
use crate::settings::Cluster;
use hotloop::packet::flow_key::FlowKey;
use hotloop_balancer::exceptions::{Change, Record};
use hotloop_balancer::hashes::HashKey;
use hotloop_balancer::spec::Balancer;
use mio::Waker;
pub use peer::{Counts, PeerState, PeerStatus};
pub use peers::{Entered, Local, Peers, SessionId, Walk, Watermark};
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
pub use session::QUEUE_MAX;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Instant;
pub use tls::Tls;
use transport::{Shared, Transport, lock};
use wire::NodeState;

/// One of the peers, by its place in the configuration.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct PeerId(usize);

/// Why a node can't talk to its peers.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum StartError {
    /// The settings name something that can't be used, with what to write instead.
    #[error("{0}")]
    Settings(String),
    /// The system grants no thread or file.
    #[error("{0}")]
    System(String),
}

/// The thread that talks to the peers of a node. Dropping this ends it, and all connections.
#[derive(Debug)]
pub struct Sync {
    shared: Arc<Shared>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
    local_address: SocketAddr,
    tls: Option<Tls>,
}

impl Sync {
    /// Listens, and begins to connect to peers.
    ///
    /// It runs where the calling thread may: call this from one that isn't bound to a core that polls.
    ///
    /// # Errors
    /// A file of `cluster` can't be used, or its address can't be listened at; or the kernel allows no more threads
    /// or files.
    pub fn start(cluster: &Cluster, balancer: &Balancer) -> Result<Self, StartError> {
        let failed = |error: std::io::Error| StartError::System(format!("cluster: {error}"));
        let tls = Tls::load(&cluster.security)
            .map_err(|error| StartError::Settings(format!("cluster: {error}")))?;
        let local = Local {
            node: cluster.node.clone(),
            incarnation: incarnation().map_err(failed)?,
            digest: digest(balancer),
        };
        let shown = cluster.peers.iter().map(|peer| (peer.name.clone(), peer.address.to_string()));
        let peers = Peers::new(local, shown);
        let addresses: Vec<_> =
            cluster.peers.iter().map(|peer| (peer.name.clone(), peer.address)).collect();
        let listen = cluster.listen;
        let transport = Transport::new(listen, tls.clone(), &addresses, |peer| {
            peers.connects_to(peer)
        })
        .map_err(|error| {
            StartError::Settings(format!(
                "cluster.listen: {listen}: {error}; write an address of this host and a free port"
            ))
        })?;
        let waker = transport.waker().map_err(failed)?;
        let local_address = transport.local_address().map_err(failed)?;
        let shared = Arc::new(Shared {
            peers: Mutex::new(peers),
            renewed: Mutex::new(None),
            is_over: AtomicBool::new(false),
            started: Instant::now(),
        });
        let thread = thread::Builder::new().name("sync".into()).spawn({
            let shared = Arc::clone(&shared);
            move || {
                hotloop_privileges::keep(hotloop_privileges::Capabilities::empty());
                transport.work(&shared);
            }
        });
        Ok(Self { shared, waker, thread: Some(thread.map_err(failed)?), local_address, tls })
    }

    /// Where it listens.
    #[must_use]
    pub const fn local_address(&self) -> SocketAddr {
        self.local_address
    }

    /// What secures its connections; none where the network is trusted.
    #[must_use]
    pub const fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// Secures connections by this from now on. Those that there are end, and are made anew at once: a certificate that
    /// counts no more would otherwise do so for as long as its connection.
    pub fn renew(&mut self, tls: Tls) {
        *lock(&self.shared.renewed) = Some(tls.clone());
        self.tls = Some(tls);
        self.wake();
    }

    /// Says this of the node to all peers.
    pub fn say(&self, state: NodeState) {
        if lock(&self.shared.peers).say(state) {
            self.wake();
        }
    }

    /// Notes the revision of the configuration that what is [offered](Self::offer) from now on follows from, or 0
    /// where nodes have none in common. Call this before any worker goes by it.
    pub fn set_epoch(&self, epoch: u64) {
        lock(&self.shared.peers).set_epoch(epoch);
    }

    /// Notes the revision of the configuration by which all workers go: ends that waited for it count. A worker that goes by
    /// an older one needs the connections still that they end.
    pub fn enter_epoch(&self, epoch: u64) {
        lock(&self.shared.peers).enter_epoch(epoch);
    }

    /// Whether a peer that is connected goes by a newer configuration. A node that has just started must get no packets
    /// then: it would not know which of its connections its peers would place elsewhere.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        lock(&self.shared.peers).is_behind()
    }

    /// What was offered up to now, for [`entered`](Self::entered).
    #[must_use]
    pub fn watermark(&self) -> Watermark {
        lock(&self.shared.peers).watermark()
    }

    /// Which peers have not entered what was offered up to then. Of one that came back meanwhile, a whole snapshot counts.
    #[must_use]
    pub fn entered(&self, watermark: &Watermark) -> Entered {
        lock(&self.shared.peers).entered(watermark)
    }

    /// Queues changes of this node's own exceptions for all peers. Never waits: a peer for which more waits
    /// than the queue holds gets a new snapshot.
    pub fn offer(&self, changes: &[Change]) {
        let now_ms = self.shared.now_ms();
        lock(&self.shared.peers).offer(changes, now_ms);
        self.wake();
    }

    /// Appends up to `count_max` changes of peers to `imports`, for this node to enter. What the call before this
    /// one appended has been entered, and is acknowledged: call this even when there is nothing to take.
    pub fn take_imports(&self, imports: &mut Vec<Change>, count_max: usize) {
        if lock(&self.shared.peers).take_imports(imports, count_max) {
            self.wake();
        }
    }

    /// The walk of which a peer wants the next page now, if one does. A walk with a number that was not
    /// there before begins at the beginning, with what workers say from now on.
    #[must_use]
    pub fn snapshot_wanted(&self) -> Option<Walk> {
        let now_ms = self.shared.now_ms();
        lock(&self.shared.peers).snapshot_wanted(now_ms)
    }

    /// Whether the peer has room for the next page of a walk: wait with it until it does. `None` where the walk is
    /// over, because its connection is or its queue overflowed.
    #[must_use]
    pub fn has_room_for(&self, walk: Walk) -> Option<bool> {
        lock(&self.shared.peers).has_room_for(walk)
    }

    /// Has a new snapshot begin for each peer: call this where changes of this node's own exceptions were
    /// lost.
    pub fn resync(&self) {
        lock(&self.shared.peers).resync();
    }

    /// Gives the next page of a walk: exceptions of this node's `own`, and all that it has `entered` for peers
    /// and still has as remote, exceptions or not. Does nothing where the walk is no longer wanted.
    pub fn give_page(&self, walk: Walk, own: &[Record], entered: &[Record], is_last: bool) {
        let now_ms = self.shared.now_ms();
        lock(&self.shared.peers).give_page(walk, (own, entered), is_last, now_ms);
        self.wake();
    }

    /// How all peers stand, in the order of the configuration.
    #[must_use]
    pub fn status(&self) -> Vec<PeerStatus> {
        let now_ms = self.shared.now_ms();
        lock(&self.shared.peers).status(now_ms)
    }

    fn wake(&self) {
        // Without it the thread goes on a little later.
        let _ = self.waker.wake();
    }
}

impl Drop for Sync {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Relaxed);
        self.wake();
        if let Some(thread) = self.thread.take() {
            // It has nothing to say; had it panicked, the message would be on stderr.
            let _ = thread.join();
        }
    }
}

/// A number that no other run of the program has.
fn incarnation() -> std::io::Result<u64> {
    Ok(u64::from_ne_bytes(random_bytes()?).max(1))
}

/// By which what a map has kept comes in an order that is the same each time: so simulations go alike again.
fn in_order(key: &FlowKey) -> (IpAddr, u16, IpAddr, u16, u8) {
    let ports = (key.source_port(), key.destination_port());
    (key.source(), ports.0, key.destination(), ports.1, key.protocol())
}

/// A digest (SHA-256) of what must be equal for nodes to choose alike, whatever services they have. It says
/// nothing of the key, which has 128 bits.
fn digest(balancer: &Balancer) -> [u8; 16] {
    let key = balancer.hash_key.as_ref().map_or_else(|| "public".into(), HashKey::to_hex);
    let text = format!("ipip-lb {key} {}", balancer.maglev_slots);
    sha256(&text)
}

/// The first half of a text's SHA-256.
#[must_use]
pub fn sha256(text: &str) -> [u8; 16] {
    let sha256 = TLS13_AES_128_GCM_SHA256.tls13().map(|it| it.common.hash_provider);
    let digest = sha256.map(|it| it.hash(text.as_bytes()));
    digest.and_then(|it| it.as_ref().first_chunk().copied()).unwrap_or_default()
}
