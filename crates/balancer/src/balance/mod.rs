//! The network function: what becomes of each packet.
//!
//! - A packet to a service goes to the backend of its connection, or else to the one that the
//!   service's scheduler chooses, which is remembered: wrapped in IP, out of the backend side's port.
//! - A tunnel packet to one of the balancer's own addresses, from a backend or a peer, is unwrapped.
//!   If what it carries is for a service, it is balanced like any other; if it is from one, it is on
//!   its way to a client, and goes out of the client side's port.
//! - An ICMP error about a packet of a connection goes to the connection's backend.
//! - What can't be delivered is answered by ICMP where its rules allow that.
//! - Everything else is dropped for a named reason: see [`BalanceDrop`].
//!
//! A full connection table costs no packets: what is not remembered goes where the service's table of
//! hashes says each time.
//!
//! Nearly all packets are of known connections: `forward` encapsulates and sends them. All others go on to
//! `dispatch`, which tells them apart. `serve` finds the connections of what clients send, `plain` those of
//! its simplest packets, `encapsulate` sends it to their targets; `return_path` sends what services answer;
//! `marking` finds the exceptions, and `exchange` hands them to control and takes those of other nodes,
//! which `import` enters, all in turns that `spare` finds to have time; `first_aid` drops what an operator has
//! blocked or limited; `probing` sends probes and takes their replies;
//! `answer` sends ICMP.

mod answer;
mod dispatch;
mod encapsulate;
mod exchange;
mod first_aid;
mod forward;
mod fragments;
mod import;
mod marking;
mod plain;
mod probing;
mod query;
mod rate_limit;
mod refusal;
mod return_path;
mod schedule;
mod serve;
mod spare;

pub use crate::hashes::SEED;
pub use crate::route::{Egress, Egresses, Route};
pub use exchange::{Changes, Entry, Exchange, Import, Page, Sharing};
pub use fragments::{WAIT_NS, WAITING_MAX};
pub use probing::{BUFFER_BYTES, BUFFERS_MAX, Buffer, Create, Probing};
pub use query::{
    Filter, Listing, Queries, Query, ROWS_A_PAGE, Reply, SLOTS_A_TURN, TURNS_A_PAGE, TargetSet,
};
pub use refusal::TUNNELS_MAX;
pub use schedule::CLIENTS_MAX;

use crate::arrival::Ports;
use crate::capture_order::InOrder;
use crate::connections::Connections;
use crate::counts::WorkerCounts;
use crate::services::ServiceTable;
use exchange::Exchanges;
use forward::Turn;
use fragments::Fragments;
use hotloop::arena::Obtained;
use hotloop::engine::{Mailbox, Subscriber};
use hotloop::packet::ipip::Identifications;
use hotloop::packet::seed::Seed;
use hotloop::stage::{Error, drop_reasons};
use marking::Marking;
use quanta::Clock;
use rate_limit::{Budget, Window};
use schedule::Schedule;
use spare::SpareTime;
use std::sync::Arc;

drop_reasons! {
    /// Why the balancer drops packets.
    pub enum BalanceDrop {
        /// Not for the balancer: ARP, other addresses, foreign tunnels. A port with a
        /// `kernel_interface` hands it to the kernel instead.
        Punt = "punt",
        /// A header is cut, or contradicts itself or what is around it.
        Malformed = "malformed",
        /// The frame ends before its packet does: a device may have cut it.
        Truncated = "truncated",
        /// A fragment of a tunnel packet to an own address.
        TunnelFragment = "tunnel_fragment",
        /// A later fragment, of which the first did not come in time, or had nowhere to go.
        FragmentOrphan = "fragment_orphan",
        /// A tunnel packet to an own address, from neither a backend nor a peer.
        UnknownTunnelSource = "unknown_tunnel_source",
        /// A checksum is wrong: of a tunnel packet's outer header, of a reply's on its way to a client, of an
        /// echo request, or of a header that would have been fragmented.
        BadChecksum = "bad_checksum",
        /// A tunnel packet met congestion which its inner packet can't show (RFC 6040, section 4.2).
        Congestion = "congestion",
        /// The address is a service's, but none of its services takes this protocol and port.
        NoService = "no_service",
        /// The service has no backend for new connections.
        NoBackend = "no_backend",
        /// The packet may not be forwarded once more.
        TtlExpired = "ttl_expired",
        /// Once wrapped, the packet would exceed the MTU of the path to the backends.
        TooBig = "too_big",
        /// The packet's buffer has no room for the outer header.
        NoHeadroom = "no_headroom",
        /// There was no buffer for a piece of the packet.
        NoMbuf = "no_mbuf",
        /// An echo request to a service's address, answered or not.
        IcmpEcho = "icmp_echo",
        /// Its backend was taken out, and its TCP connection with it.
        Flushed = "flushed",
        /// To be wrapped, though it comes from a tunnel of this balancer or from the backend that it
        /// would go to, or is in too many tunnels already (RFC 2003, section 3).
        TunnelLoop = "tunnel_loop",
        /// It states that it may enter no further tunnel (RFC 2473, section 4.1.1).
        EncapsulationLimit = "encapsulation_limit",
        /// Its source is no address of a host.
        MartianSource = "martian_source",
        /// Its destination is no address of a host.
        MartianDestination = "martian_destination",
        /// The frame is addressed to another station than the port that received it.
        NotForUs = "not_for_us",
        /// A tunnel packet to an own address, by a port that faces clients alone.
        TunnelFromClients = "tunnel_from_clients",
        /// A packet to a service from a prefix that an operator has blocked.
        Blocked = "blocked",
        /// It would begin a connection, and too many begin from where it comes.
        SourceLimit = "source_limit",
        /// It would begin a connection, and too many begin to its service.
        ServiceLimit = "service_limit",
        /// For the balancer's own probes, which it was handed to.
        ProbeReply = "probe_reply",
        /// For the balancer's own probes, which have no room for it: more comes than they ask for.
        ProbeReplyLost = "probe_reply_lost",
    }
}

/// What a worker's balancer is made with.
#[derive(Debug)]
pub struct BalancerConfig {
    /// The service table, with its updates.
    pub services: Subscriber<ServiceTable>,
    /// How packets are sent.
    pub egresses: Egresses,
    /// The counts of all workers: it counts in its place of them.
    pub counts: Arc<[WorkerCounts]>,
    /// Which worker it is of.
    pub worker: usize,
    /// How many connections it remembers of each IP version.
    pub connections_max: usize,
    /// How many targets there may be at once: [`Builder::slot_capacity`].
    ///
    /// [`Builder::slot_capacity`]: crate::services::Builder::slot_capacity
    pub slot_capacity: usize,
    /// The NUMA node of its memory, where that is known.
    pub node: Option<u32>,
    /// By which control asks it, where anybody does.
    pub mailbox: Option<Mailbox<Query, Reply>>,
    /// By which it shares its exceptions with other nodes, where there are any.
    pub sharing: Option<Sharing>,
    /// By which its tables hash, for tests that are to go alike each time; else each has a random one, as an attacker
    /// who knows it can fill the places of a connection.
    pub table_seed: Option<u64>,
}

/// The balancer of one worker.
#[derive(Debug)]
pub struct Balance<P> {
    services: Subscriber<ServiceTable>,
    counts: Arc<[WorkerCounts]>,
    worker: usize,
    queries: Queries,
    exchanges: Exchanges,
    spare: SpareTime,
    /// Whether packets come without their layouts.
    classifies: bool,
    /// Its place in a capture that is replayed, where workers share limits.
    order: Option<InOrder>,
    state: Worker<P>,
}

/// What one worker alone writes.
#[derive(Debug)]
struct Worker<P> {
    egresses: Egresses,
    /// Both addresses of frames to backends: destination and source.
    link: [u8; 12],
    connections: Connections,
    schedule: Schedule,
    fragments: Fragments<P>,
    seed: Seed,
    ports: Ports,
    marking: Marking,
    new_connections: Window,
    /// Errors that say that a packet is too big: what hosts learn the path's MTU by.
    too_big_errors: Budget,
    /// All others.
    other_errors: Budget,
    /// Of outer headers that routers may fragment. Workers count in steps of their number, so that no two
    /// have the same.
    identifications: Identifications,
    /// The health checks that go through the tunnels, where there are any.
    probing: Option<Probing<P>>,
}

impl<P> Balance<P> {
    /// A worker's balancer.
    ///
    /// # Errors
    /// There is no memory for the connections.
    ///
    /// # Panics
    /// When there is no place for the worker in the counts.
    pub fn new(config: BalancerConfig) -> Result<Self, Error> {
        let BalancerConfig { services, egresses, counts, worker, connections_max, .. } = config;
        let BalancerConfig { slot_capacity, node, mailbox, sharing, table_seed, .. } = config;
        assert!(worker < counts.len(), "counts for {} workers, not for {worker}", counts.len());
        let settings = services.current().settings;
        let mut schedule = Schedule::new(slot_capacity, node, table_seed)?;
        schedule.set_persistence_ns(settings.persistence_ns_max);
        let journal_max = sharing.as_ref().map_or(0, |sharing| sharing.journal_max);
        let connections = Connections::new(connections_max, settings.idle_ns, node, table_seed)?;
        let state = Worker {
            egresses,
            link: egresses.backends.addresses(),
            connections: connections.journalling(journal_max),
            schedule,
            fragments: Fragments::new(),
            seed: settings.hashes.seed(),
            ports: Ports::default(),
            marking: Marking::default(),
            new_connections: Window::default(),
            too_big_errors: Budget::new(),
            other_errors: Budget::new(),
            identifications: Identifications::new(worker as u16, counts.len() as u16),
            probing: None,
        };
        let (queries, exchanges) = (Queries::new(mailbox), Exchanges::new(sharing));
        let spare = SpareTime::default();
        let (classifies, order) = (false, None);
        Ok(Self { services, counts, worker, queries, exchanges, spare, classifies, order, state })
    }

    /// With what holds for the ports that packets come by.
    #[must_use]
    pub fn receiving(mut self, ports: Ports) -> Self {
        self.state.ports = ports;
        self
    }

    /// With packets that nothing before it has classified.
    #[must_use]
    pub fn classifying(mut self) -> Self {
        self.classifies = true;
        self
    }

    /// With health checks that go through the tunnels.
    #[must_use]
    pub fn probing(mut self, probing: Option<Probing<P>>) -> Self {
        self.state.probing = probing;
        self
    }

    /// With a place in the order of a capture, of which it receives its part, and no other packet.
    #[must_use]
    pub fn in_order(mut self, order: Option<InOrder>) -> Self {
        self.order = order;
        self
    }

    /// With a clock of the CPU: work that can wait is then done in turns that did not take long. Without one, every turn does
    /// some of it.
    #[must_use]
    pub fn timed(mut self, clock: Clock) -> Self {
        self.spare = SpareTime::by(clock);
        self
    }

    /// Whether there is work that can wait for a turn with time, within limits.
    #[inline]
    const fn has_waiting_work(&self) -> bool {
        !self.state.marking.is_complete() || self.exchanges.has_work()
    }

    /// The connections that this worker remembers.
    #[must_use]
    pub const fn connections(&self) -> &Connections {
        &self.state.connections
    }

    /// Whether the exceptions of the service table that this worker goes by are all marked.
    #[must_use]
    pub const fn are_exceptions_marked(&self) -> bool {
        self.state.marking.is_complete()
    }

    /// What memory the tables of this worker got.
    #[must_use]
    pub const fn obtained(&self) -> [(&'static str, Obtained); 2] {
        let Worker { connections, schedule, .. } = &self.state;
        [("connections", connections.obtained()), ("clients", schedule.obtained())]
    }

    /// The service table that this worker goes by.
    #[must_use]
    pub fn services(&self) -> &ServiceTable {
        self.services.current()
    }
}
