//! Sessions that all nodes of a cluster know: those that don't follow from the reference table.
//!
//! All nodes share a reference table, so a node must know only the *exceptions* among another node's
//! connections: those on another backend than in that table. Each node claims its exceptions to all
//! its peers, over one TCP connection for each pair. The node with the lesser name opens the
//! connection, with TLS on both sides unless the network is trusted.
//!
//! [`Sync`] is the thread that talks to peers. Its owner, the control thread, passes it this node's
//! claims and enters those of peers. When a peer needs a snapshot,
//! the owner supplies pages of a walk over all connections that peers know or have to know: for a new
//! peer, for one that comes back, and after more claims waited for it than its queue holds. So nothing
//! is dropped silently, and a peer that stops reading delays no other peer.
//!
//! [`Agreement`] is the node's part in moves of the reference table.
//!
//! # What the owner has to do
//! - Offer claims, and supply pages, in the order in which a worker reported them.
//! - Decide on claims by [`Known::after_claim`], and claim what it returns. Claim a connection that
//!   [becomes an exception](hotloop_agreement::Choice::is_exception), one that begins in the place of a
//!   connection that peers know, and each change of the state or the birth of one that they know. A
//!   closing connection is claimed as such, with its remaining time.
//! - Claim an exception again when the last packet that peers know of came a third of its idle timeout
//!   ago, and another one has come since.
//! - Claim a connection again for each [`Change::Inherit`].
//! - List in the pages of a walk all exceptions, and all connections that peers know, of whichever node.
//! - Take births from a clock that is at least as late as [`Sync::clock`].
//! - Take no packets, once started, before there is a reference table.
//! - Call [`Sync::set_references`] once all workers use other reference tables, and only then report
//!   the [`Agreement::standing`] with them.
//!
//! # What is promised
//! A packet of a connection goes to its backend through any node, if the connection is where the
//! reference table has it, or all nodes have [entered](PeerStatus::is_caught_up) its claim.
//!
//! [`Change::Inherit`]: hotloop_balancer::exceptions::Change::Inherit
//! [`Known::after_claim`]: hotloop_agreement::Known::after_claim

mod agreement;
mod connection;
mod peer;
mod peers;
mod reference;
mod tls;
mod transport;
pub mod wire;

use crate::random::random_bytes;
use crate::settings::Cluster;
pub use agreement::{Agreement, Turn};
use hotloop_balancer::hashes::HashKey;
use hotloop_balancer::spec::Balancer;
use mio::Waker;
pub use peer::{Counts, PeerState, PeerStatus};
pub use peers::sending::QUEUE_MAX;
pub use peers::{Entered, Local, Peers, SessionId, Walk, Watermark};
pub use reference::Reference;
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Instant;
pub use tls::Tls;
use transport::{Shared, Transport, lock};
use wire::{Drains, NodeState};

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
    incarnation: u64,
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
        let incarnation = incarnation().map_err(failed)?;
        let local = Local { node: cluster.node.clone(), digest: digest(balancer) };
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
            rejoins: AtomicBool::new(false),
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
        let thread = Some(thread.map_err(failed)?);
        Ok(Self { shared, waker, thread, local_address, incarnation, tls })
    }

    /// The address that the node listens at.
    #[must_use]
    pub const fn local_address(&self) -> SocketAddr {
        self.local_address
    }

    /// The number of this run, which differs from those of all other runs.
    #[must_use]
    pub const fn incarnation(&self) -> u64 {
        self.incarnation
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

    /// Has all peers send their snapshots again, by new connections: call this if this node can enter
    /// claims that it had to refuse.
    pub fn rejoin(&self) {
        self.shared.rejoins.store(true, Relaxed);
        self.wake();
    }

    /// Reports this state of the node to all peers.
    pub fn say(&self, state: NodeState) {
        if lock(&self.shared.peers).say(state) {
            self.wake();
        }
    }

    /// The latest time that peers have reported, by the cluster's
    /// [clock](hotloop_balancer::clock), in steps.
    #[must_use]
    pub fn clock(&self) -> u64 {
        lock(&self.shared.peers).clock()
    }

    /// Sets the reference tables that all peers get, before any later state.
    pub fn set_references(&self, references: Vec<Reference>) {
        lock(&self.shared.peers).set_references(references);
    }

    /// Sets the backends that this node drains, and its answers about those of peers.
    pub fn set_drains(&self, drains: Drains) {
        lock(&self.shared.peers).set_drains(drains);
        self.wake();
    }

    /// Sets the revision of the configuration in force, or 0 without a store, for display at peers.
    pub fn set_revision(&self, revision: u64) {
        lock(&self.shared.peers).set_revision(revision);
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
