//! Sessions that all nodes of a cluster know: those that don't follow from the configuration.
//!
//! Several balancers with one configuration choose backends alike, so a node must know only the
//! *exceptions* among another node's connections: those on another backend than the current
//! configuration chooses. Each node sends its exceptions to all its peers, over one TCP connection
//! for each pair. The node with the lesser name opens the connection, with TLS on both sides unless
//! the network is trusted.
//!
//! [`Sync`] is the thread that talks to peers. Its owner, the control thread, passes it the
//! [`Change`]s of this node's exceptions and enters those of peers. When a peer needs a snapshot,
//! the owner supplies pages of a walk over all exceptions: for a new peer, for one that comes back,
//! and after more changes waited for it than its queue holds. So nothing is dropped silently, and a
//! peer that stops reading delays no other peer.
//!
//! # What the owner has to do
//! - Offer changes, and supply pages, in the order in which a worker reported them.
//! - When a packet makes a peer's connection this node's own: offer a [`Claim`] if
//!   the connection is an exception here, else an [`End`]. In both cases the
//!   connection has moved once more: add 1 to [`Record::moves`], modulo
//!   [`MOVES`](hotloop_balancer::exceptions::MOVES). So all nodes agree on its owner, whatever
//!   their clocks show and however late messages are. A connection ends when no node claims it any
//!   more, so a claim must come before the end of a connection that was a peer's.
//! - Claim a connection again when it becomes established or is closing, and when the last packet
//!   that peers know of came a third of its idle timeout ago and another one has come since.
//! - Offer an end when one of this node's own connections was an exception, and is forgotten or is
//!   no exception any more; but not after a mere timeout, because it times out everywhere. A
//!   [closing](hotloop_balancer::connection::State::Closing) connection need not end at once: if it
//!   is claimed as closing, with its remaining time, it continues while its client has closed only
//!   its half.
//! - List in the pages of a walk all of this node's own exceptions, and all connections that it
//!   entered for peers. Those of nodes that are away, or have restarted, are then sent to the peer.
//! - Enter an end only if the local entry is remote, and decide on claims by
//!   [`merge`](hotloop_balancer::exceptions::merge). The same holds for a closing entry: the
//!   node that sends the end has not seen the last packets of a connection that has left it. Remote
//!   connections stay when the configuration chooses the same backend: their owners end them.
//! - If a SYN begins a connection in the place of a peer's, and the new one is no exception, offer
//!   a claim before the end: other nodes may have the peer's connection, too, possibly as closing.
//! - Take no packets, once started, while a peer [uses](Sync::is_behind) a newer configuration.
//! - Call [`Sync::set_epoch`] before any worker uses a configuration, and [`Sync::enter_epoch`]
//!   once all do.
//!
//! # Epochs
//! A frame carries the revision of the configuration used by the most advanced of its sender's
//! workers. Claims count under any revision. An end under a newer one waits until all workers of
//! this node use that configuration, too: the connection may only have become the newer
//! configuration's choice, and must be known while the older one is in use here. If nodes have no
//! revision in common, it is 0 everywhere, and nothing waits.
//!
//! # Changes of the configuration
//! A connection that begins at a node with the newer configuration, or with one that is being
//! prepared, is an exception for peers with the older one. So workers compare connections with two
//! tables while there may be two
//! ([`ServiceTable::other`](hotloop_balancer::services::ServiceTable::other)). A change is prepared
//! once workers have examined all connections with both tables, and each peer has entered
//! everything that was [offered](Sync::watermark) until then.
//!
//! # What is promised
//! A packet of a connection goes to its backend through any node, if all nodes had entered each
//! other's snapshots and changes ([`PeerStatus::is_caught_up`]) before the change that moved it.
//! This promise has two gaps.
//!
//! A connection that moves to another node and is silent until the table changes is not known
//! there.
//!
//! A client may use a port again while a node that knows the previous connection has not learned of
//! its end. The new connection may then be taken for the previous one in four cases:
//!
//! - The previous connection had moved, and not all nodes were in sync when it ended: an earlier
//!   owner's claim may arrive after the end.
//! - It ended while some nodes used an older configuration, and those hold the end.
//! - Nodes lose contact before all of them have learned of the new connection.
//! - A packet of it came to a node that did not know it and compared connections with two tables:
//!   that node may have made a wrong claim that no node ends.
//!
//! [`Change`]: hotloop_balancer::exceptions::Change
//! [`Claim`]: hotloop_balancer::exceptions::Change::Claim
//! [`End`]: hotloop_balancer::exceptions::Change::End
//! [`Record::moves`]: hotloop_balancer::exceptions::Record::moves

mod connection;
mod owners;
mod peer;
mod peers;
mod tls;
mod transport;
pub mod wire;

use crate::random::random_bytes;
use crate::settings::Cluster;
use hotloop::packet::flow_key::FlowKey;
use hotloop_balancer::hashes::HashKey;
use hotloop_balancer::spec::Balancer;
use mio::Waker;
pub use peer::{Counts, PeerState, PeerStatus};
pub use peers::sending::QUEUE_MAX;
pub use peers::{Entered, Local, Peers, SessionId, Walk, Watermark};
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Instant;
pub use tls::Tls;
use transport::{Shared, Transport, lock};
use wire::NodeState;

/// One of the peers, by its index in the configuration.
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

/// The thread that talks to the peers of a node. Dropping this value ends the thread and all
/// connections.
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
    /// The thread runs on the calling thread's CPUs: call this from a thread that isn't bound to a
    /// core that polls.
    ///
    /// # Errors
    /// If a file of `cluster` can't be used, if the node can't listen at its address, or if the
    /// kernel allows no more threads or files.
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

    /// The address that the node listens at.
    #[must_use]
    pub const fn local_address(&self) -> SocketAddr {
        self.local_address
    }

    /// The TLS settings of its connections; `None` if the network is trusted.
    #[must_use]
    pub const fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// Secures connections with these settings from now on. Existing connections end, and are made
    /// again at once: a certificate that is no longer valid would otherwise be used for as long as
    /// its connection.
    pub fn renew(&mut self, tls: Tls) {
        *lock(&self.shared.renewed) = Some(tls.clone());
        self.tls = Some(tls);
        self.wake();
    }

    /// Reports this state of the node to all peers.
    pub fn say(&self, state: NodeState) {
        if lock(&self.shared.peers).say(state) {
            self.wake();
        }
    }

    /// Sets the revision of the configuration for everything [offered](Self::offer) from now on, or
    /// 0 if the nodes have no common revision. Call this before any worker uses that configuration.
    pub fn set_epoch(&self, epoch: u64) {
        lock(&self.shared.peers).set_epoch(epoch);
    }

    /// Whether a connected peer uses a newer configuration. A node that has just started must get
    /// no packets then: it would not know which of its connections its peers would place elsewhere.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        lock(&self.shared.peers).is_behind()
    }

    /// A mark after everything offered up to now, for [`entered`](Self::entered).
    #[must_use]
    pub fn watermark(&self) -> Watermark {
        lock(&self.shared.peers).watermark()
    }

    /// The peers that have not entered everything up to the mark. For a peer that came back
    /// meanwhile, a whole snapshot counts.
    #[must_use]
    pub fn entered(&self, watermark: &Watermark) -> Entered {
        lock(&self.shared.peers).entered(watermark)
    }

    /// The state of all peers, in the order of the configuration.
    #[must_use]
    pub fn status(&self) -> Vec<PeerStatus> {
        let now_ms = self.shared.now_ms();
        lock(&self.shared.peers).status(now_ms)
    }

    fn wake(&self) {
        // If this fails, the thread continues a little later.
        let _ = self.waker.wake();
    }
}

impl Drop for Sync {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Relaxed);
        self.wake();
        if let Some(thread) = self.thread.take() {
            // The thread has no result; if it panicked, the message is on stderr.
            let _ = thread.join();
        }
    }
}

/// A number that no other run of the program uses.
fn incarnation() -> std::io::Result<u64> {
    Ok(u64::from_ne_bytes(random_bytes()?).max(1))
}

/// Sort key for the contents of maps, so that simulations are repeatable.
fn in_order(key: &FlowKey) -> (IpAddr, u16, IpAddr, u16, u8) {
    let ports = (key.source_port(), key.destination_port());
    (key.source(), ports.0, key.destination(), ports.1, key.protocol())
}

/// A digest (SHA-256) of the settings that must be equal for nodes to choose alike, whatever
/// services they have. It reveals nothing of the key, which has 128 bits.
fn digest(balancer: &Balancer) -> [u8; 16] {
    let key = balancer.hash_key.as_ref().map_or_else(|| "public".into(), HashKey::to_hex);
    let text = format!("ipip-lb {key} {}", balancer.maglev_slots);
    sha256(&text)
}

/// The first half of a text's SHA-256.
#[must_use]
pub fn sha256(text: &str) -> [u8; 16] {
    let sha256 = TLS13_AES_128_GCM_SHA256.tls13().map(|suite| suite.common.hash_provider);
    let digest = sha256.map(|hash| hash.hash(text.as_bytes()));
    digest.and_then(|digest| digest.as_ref().first_chunk().copied()).unwrap_or_default()
}
