//! The parties with which a worker shares its exceptions: control on the other core, and a peer at
//! the end of a TCP connection.

use core_affinity::CoreId;
use hotloop::engine::{Asker, Publisher};
use hotloop_balancer::balance::Exchange;
use hotloop_balancer::exception_mover::ExceptionMover;
use hotloop_balancer::exceptions::Change;
use hotloop_balancer::services::ServiceTable;
use hotloop_balancer::spec::Balancer;
use hotloop_cluster::settings::{Cluster, ClusterPeer, Security};
use hotloop_cluster::sync::Sync;
use hotloop_measure::cpu_time::Thread;
use hotloop_ops::TURN;
use ipip_lb::config::Config;
use ipip_lb::control;
use std::net::{SocketAddr, TcpListener};
use std::process;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};

/// Number of the node's changes that a peer takes in a turn: the same as in a node.
const IMPORTS_MAX: usize = 4096;

/// A number that stands for no table: the first table's is 0.
pub const NONE: u64 = u64::MAX;

/// The names: the smaller one connects to the other, at once.
const NODE: &str = "b";
const PEER: &str = "a";

/// The two ends of a pair of nodes.
#[derive(Clone)]
pub struct Nodes {
    node: Cluster,
    peer: Cluster,
}

impl Nodes {
    /// A pair of nodes at free ports of this machine. Workers walk through all connections within
    /// `prepare_ms_max`.
    pub fn new(prepare_ms_max: u32) -> Result<Self, String> {
        let free = || TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let addresses = free().and_then(|node| Ok([node, free()?]));
        let [node, peer] = addresses.map_err(|error| format!("127.0.0.1: {error}"))?;
        let cluster = |(name, listen): (&str, SocketAddr), (other, address)| Cluster {
            node: name.to_owned(),
            listen,
            peers: vec![ClusterPeer { name: String::from(other), address }],
            security: Security::TrustedNetwork,
            ready_timeout_s: 30,
            prepare_ms_max,
            settle_s: 60,
        };
        let (node, peer) = ((NODE, node), (PEER, peer));
        Ok(Self { node: cluster(node, peer), peer: cluster(peer, node) })
    }

    /// The configuration of the node with the measured worker.
    pub fn of_node(&self, config: Config) -> Config {
        Config { cluster: Some(self.node.clone()), ..config }
    }
}

/// State shared by control and the worker's thread.
struct Shared {
    /// The table to publish.
    table: Mutex<Arc<ServiceTable>>,
    /// The number of the table whose exceptions were all found and taken.
    marked: AtomicU64,
    /// The number of the table whose exceptions the peer has all entered.
    entered: AtomicU64,
    is_over: AtomicBool,
}

/// Control, on a core of its own. Ends when dropped.
pub struct Control {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Control's thread, and the one that talks to the peer.
    threads: [Thread; 2],
}

impl Control {
    /// Starts control for the only worker of `config`, which runs on another thread.
    pub fn start(
        core: CoreId,
        config: &Config,
        (publisher, asker): (Publisher<ServiceTable>, Asker<Exchange, Exchange>),
        table: Arc<ServiceTable>,
    ) -> Result<Self, String> {
        let shared = Arc::new(Shared {
            table: Mutex::new(table),
            marked: AtomicU64::new(NONE),
            entered: AtomicU64::new(NONE),
            is_over: AtomicBool::new(false),
        });
        let (started, starts) = mpsc::channel();
        let config = config.clone();
        let work = {
            let shared = Arc::clone(&shared);
            move || {
                core_affinity::set_for_current(core);
                let cluster = config.cluster.as_ref().expect("it is one of a cluster");
                let node = control::Node::start(cluster, &config, ExceptionMover::new(asker, 1));
                let node = node.map_err(|error| error.to_string());
                let _ = started.send(node.as_ref().map(|_| ()).map_err(Clone::clone));
                if let Ok(node) = node {
                    turn_after_turn(node, publisher, &shared);
                }
            }
        };
        let thread = named("control", work)?;
        starts.recv().map_err(|_| "control has panicked")??;
        let find = |name| Thread::find(process::id(), name);
        Ok(Self { shared, thread: Some(thread), threads: [find("control")?, find("sync")?] })
    }

    /// CPU time of control's thread and of the one that talks to the peer, in nanoseconds.
    pub fn cpu_ns(&self) -> Result<[u64; 2], String> {
        let [control, sync] = &self.threads;
        Ok([control.cpu_ns()?, sync.cpu_ns()?])
    }

    /// Publishes this table to the worker.
    pub fn publish(&self, table: Arc<ServiceTable>) {
        *locked(&self.shared.table) = table;
    }

    /// The number of the table whose exceptions were all found and taken.
    #[inline]
    pub fn marked(&self) -> u64 {
        self.shared.marked.load(Relaxed)
    }

    /// The number of the table whose exceptions the peer has all entered; [`NONE`] if there is no
    /// peer.
    pub fn entered(&self) -> u64 {
        self.shared.entered.load(Relaxed)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Release);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The part of control's work that concerns sessions.
fn turn_after_turn(
    mut node: control::Node,
    mut publisher: Publisher<ServiceTable>,
    shared: &Shared,
) {
    let mut published = NONE;
    while !shared.is_over.load(Acquire) {
        let table = Arc::clone(&locked(&shared.table));
        if published != table.serial() {
            published = table.serial();
            publisher.publish(Arc::clone(&table));
        }
        publisher.collect();
        node.turn(&table, None);
        let (is_marked, is_entered) = (node.is_marked(&table), node.has_handed_over(&table));
        for (said, is_so) in [(&shared.marked, is_marked), (&shared.entered, is_entered)] {
            let serial = if is_so { published } else { NONE };
            // Another core reads this after each burst.
            if said.load(Relaxed) != serial {
                said.store(serial, Release);
            }
        }
        thread::sleep(TURN);
    }
}

/// The other node: it receives changes, and counts them.
pub struct Peer {
    is_over: Arc<AtomicBool>,
    heard: Arc<Mutex<Heard>>,
    thread: JoinHandle<Result<(), String>>,
}

/// The changes that a peer has received.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heard {
    pub claim_count: u64,
    pub bytes: u64,
}

impl Peer {
    /// Connects to the node.
    pub fn start(core: CoreId, nodes: &Nodes, balancer: &Balancer) -> Result<Self, String> {
        let (is_over, heard) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let work = {
            let (is_over, heard) = (Arc::clone(&is_over), Arc::clone(&heard));
            let (cluster, balancer) = (nodes.peer.clone(), balancer.clone());
            move || {
                core_affinity::set_for_current(core);
                let sync = Sync::start(&cluster, &balancer).map_err(|error| error.to_string())?;
                listen(&sync, &is_over, &heard);
                Ok(())
            }
        };
        Ok(Self { is_over, heard, thread: named("peer", work)? })
    }

    /// The changes received up to now.
    pub fn heard(&self) -> Heard {
        *locked(&self.heard)
    }

    /// Disconnects.
    pub fn finish(self) -> Result<Heard, String> {
        self.is_over.store(true, Release);
        self.thread.join().map_err(|_| "the peer has panicked")??;
        Ok(*locked(&self.heard))
    }
}

fn listen(sync: &Sync, is_over: &AtomicBool, heard: &Mutex<Heard>) {
    let mut imports = Vec::with_capacity(IMPORTS_MAX);
    while !is_over.load(Acquire) {
        sync.take_imports(&mut imports, IMPORTS_MAX);
        let claims = imports.iter().filter(|change| matches!(change, Change::Claim(_)));
        let mut heard = locked(heard);
        heard.claim_count += claims.count() as u64;
        heard.bytes = sync.status()[0].counts.received_bytes;
        drop(heard);
        imports.clear();
        // The peer has no connections.
        if let Some(walk) = sync.snapshot_wanted() {
            sync.give_page(walk, &[], true);
        }
        thread::sleep(TURN);
    }
}

fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

fn named<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, String> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map_err(|error| error.to_string())
}
