//! The network function of one worker: decides what happens to each packet, and does it. Uses this
//! worker's tables, the service table that control publishes, and mailboxes. It allocates nothing
//! per packet, and waits for no thread except in a replay with shared limits. Every packet is sent,
//! kept as a fragment, or dropped and counted under one reason.
//!
//! - A packet to a service is wrapped in IP and leaves by the backend side's port, to the backend
//!   of its connection. If it has no connection yet, the service's scheduler chooses a backend, and
//!   the choice is remembered.
//! - A tunnel packet to one of the balancer's own addresses, from a backend or a peer, is
//!   unwrapped. An inner packet to a service is balanced like any other; one from a service is on
//!   its way to a client, and leaves by the client side's port.
//! - An ICMP error about a packet of a connection goes to the connection's backend.
//! - A packet that can't be delivered is answered by ICMP if ICMP's rules allow it.
//! - Every other packet is dropped for a named reason: see [`BalanceDrop`].
//!
//! A full connection table costs no packets: a flow that isn't remembered goes to its hash's
//! backend each time.
//!
//! Nearly all packets belong to known connections: `forward` encapsulates and sends them. All
//! others go on to `dispatch`, which classifies them. `serve` finds the connections of packets from
//! clients, `fast_open` those of the simplest packets, and `encapsulate` sends them to their
//! targets; `return_path` sends replies from services. `marking` finds the exceptions; `exchange`
//! reports them to control and takes the exceptions of other nodes, which `import` enters. This
//! work is done in turns that have time for it, according to `time_budget`. `blocklist` drops
//! packets that an operator has blocked, and `admission` those beyond limits or in loops; `probing`
//! sends probes and takes their replies; `answer` sends ICMP.

mod admission;
mod answer;
mod blocklist;
mod dispatch;
mod encapsulate;
mod exchange;
mod fast_open;
mod forward;
mod fragments;
mod import;
mod marking;
mod probing;
mod query;
mod rate_limit;
mod return_path;
mod schedule;
mod serve;
mod time_budget;

pub use crate::hashes::SEED;
pub use crate::route::{Egress, Egresses, Route};
pub use admission::TUNNELS_MAX;
pub use exchange::{Changes, Entry, Exchange, Import, Page, Sharing};
pub use fragments::{WAIT_NS, WAITING_MAX};
pub use probing::{BUFFER_BYTES, BUFFERS_MAX, Buffer, Create, Probing};
pub use query::{Filter, Query, QueryMailbox, QueryPage, Row, TargetSet};
pub use schedule::CLIENTS_MAX;

use crate::capture_order::InOrder;
use crate::classify::ReceivingPorts;
use crate::connections::{Connections, Walk};
use crate::counts::WorkerCounts;
use crate::services::ServiceTable;
use exchange::Exchanges;
use forward::{Tables, Turn};
use fragments::Fragments;
use hotloop::arena::Obtained;
use hotloop::engine::{Lister, Subscriber};
use hotloop::packet::ipip::Identifications;
use hotloop::packet::seed::Seed;
use hotloop::stage::{Error, drop_reasons};
use marking::Marking;
use quanta::Clock;
use rate_limit::{Budget, Window};
use schedule::Schedule;
use std::sync::Arc;
use time_budget::TimeBudget;

drop_reasons! {
    /// The balancer's reasons to drop a packet.
    pub enum BalanceDrop {
        /// Not for the balancer: ARP, other addresses, foreign tunnels. A port with a
        /// `kernel_interface` hands it to the kernel instead.
        Punt = "punt",
        /// A header is cut short, or contradicts itself or the header around it.
        Malformed = "malformed",
        /// The frame ends before its packet does: a device may have cut it.
        Truncated = "truncated",
        /// A fragment of a tunnel packet to an own address.
        TunnelFragment = "tunnel_fragment",
        /// A later fragment without its first, which did not come in time or had no destination.
        FragmentOrphan = "fragment_orphan",
        /// A tunnel packet to an own address, from neither a backend nor a peer.
        UnknownTunnelSource = "unknown_tunnel_source",
        /// A wrong checksum: of a tunnel packet's outer header, of a reply on its way to a client,
        /// of an echo request, or of a header that would have been fragmented.
        BadChecksum = "bad_checksum",
        /// A tunnel packet met congestion that its inner packet can't show (RFC 6040, section 4.2).
        Congestion = "congestion",
        /// The address is a service's, but none of its services takes this protocol and port.
        NoService = "no_service",
        /// The service has no backend for new connections.
        NoBackend = "no_backend",
        /// The packet's hop limit doesn't allow another hop.
        TtlExpired = "ttl_expired",
        /// Once wrapped, the packet would exceed the MTU of the path to the backends.
        TooBig = "too_big",
        /// The packet's buffer has no room for the outer header.
        NoHeadroom = "no_headroom",
        /// There was no buffer for a fragment of the packet.
        NoMbuf = "no_mbuf",
        /// An echo request to a service's address, answered or not.
        IcmpEcho = "icmp_echo",
        /// A packet of a TCP connection that ended when its backend was taken out.
        Flushed = "flushed",
        /// The packet comes from a tunnel of this balancer or from the backend that it would go to,
        /// or is in too many tunnels already (RFC 2003, section 3).
        TunnelLoop = "tunnel_loop",
        /// The packet states that it may enter no further tunnel (RFC 2473, section 4.1.1).
        EncapsulationLimit = "encapsulation_limit",
        /// The source is not a host's address.
        MartianSource = "martian_source",
        /// The destination is not a host's address.
        MartianDestination = "martian_destination",
        /// The frame is addressed to another station than the port that received it.
        NotForUs = "not_for_us",
        /// A tunnel packet to an own address, on a port that faces only clients.
        TunnelFromClients = "tunnel_from_clients",
        /// A packet to a service from a prefix that an operator has blocked.
        Blocked = "blocked",
        /// The packet would begin a connection, and too many begin from its source network.
        SourceLimit = "source_limit",
        /// The packet would begin a connection, and too many begin to its service.
        ServiceLimit = "service_limit",
        /// A reply to one of the balancer's own probes, passed to control.
        ProbeReply = "probe_reply",
        /// A reply to the balancer's own probes that they had no room for: more replies came than
        /// the probes asked for.
        ProbeReplyLost = "probe_reply_lost",
    }
}

/// Configuration of a worker's balancer.
#[derive(Debug)]
pub struct BalancerConfig {
    /// The subscription to the service table.
    pub services: Subscriber<ServiceTable>,
    /// The ports to send by.
    pub egresses: Egresses,
    /// Counters of all workers; this one writes `counts[worker]`.
    pub counts: Arc<[WorkerCounts]>,
    /// Index of the worker.
    pub worker: usize,
    /// Maximum number of connections to remember per IP version.
    pub connections_max: usize,
    /// Maximum number of targets at once: [`Builder::slot_capacity`].
    ///
    /// [`Builder::slot_capacity`]: crate::services::Builder::slot_capacity
    pub slot_capacity: usize,
    /// Maximum number of clients for which the worker remembers the backend, for services with persistence:
    /// for example [`CLIENTS_MAX`].
    pub clients_max: usize,
    /// The NUMA node for the tables' memory, if known.
    pub node: Option<u32>,
    /// Control's queries, if there are any.
    pub mailbox: Option<QueryMailbox>,
    /// Sharing of exceptions with other nodes, if there are any.
    pub sharing: Option<Sharing>,
    /// Hash seed of the tables, for tests that must be repeatable. Otherwise each table has a
    /// random seed, because an attacker that knows the seed can fill the slots of a connection.
    pub table_seed: Option<u64>,
}

/// The balancer of one worker.
#[derive(Debug)]
pub struct Balance<P> {
    services: Subscriber<ServiceTable>,
    counts: Arc<[WorkerCounts]>,
    worker: usize,
    queries: Option<Lister<Query, Walk, Row>>,
    exchanges: Exchanges,
    time_budget: TimeBudget,
    /// Whether packets come without their layouts.
    classifies: bool,
    /// This worker's position in a replayed capture, if workers share limits.
    order: Option<InOrder>,
    state: Worker<P>,
}

/// The state that only this worker writes.
#[derive(Debug)]
struct Worker<P> {
    egresses: Egresses,
    /// Both addresses of frames to backends: destination and source.
    link: [u8; 12],
    connections: Connections,
    schedule: Schedule,
    fragments: Fragments<P>,
    seed: Seed,
    ports: ReceivingPorts,
    marking: Marking,
    new_connections: Window,
    /// The budget for packet-too-big errors, which tell hosts the path's MTU.
    too_big_errors: Budget,
    /// The budget for all other errors.
    other_errors: Budget,
    /// Identifications of outer headers that routers may fragment. Each worker counts in steps of
    /// the number of workers, so that no two use the same value.
    identifications: Identifications,
    /// The health checks through tunnels, if there are any.
    probing: Option<Probing<P>>,
}

impl<P> Balance<P> {
    /// Makes a worker's balancer.
    ///
    /// # Errors
    /// If there is no memory for the connections.
    ///
    /// # Panics
    /// If `worker` isn't an index of the counts.
    pub fn new(config: BalancerConfig) -> Result<Self, Error> {
        let BalancerConfig { services, egresses, counts, worker, connections_max, .. } = config;
        let BalancerConfig {
            slot_capacity, clients_max, node, mailbox, sharing, table_seed, ..
        } = config;
        assert!(worker < counts.len(), "counts for {} workers, not for {worker}", counts.len());
        let settings = services.current().settings;
        let mut schedule = Schedule::new(slot_capacity, clients_max, node, table_seed)?;
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
            ports: ReceivingPorts::default(),
            marking: Marking::default(),
            new_connections: Window::default(),
            too_big_errors: Budget::new(),
            other_errors: Budget::new(),
            identifications: Identifications::new(worker as u16, counts.len() as u16),
            probing: None,
        };
        let (queries, exchanges) = (mailbox.map(Lister::new), Exchanges::new(sharing));
        let time_budget = TimeBudget::default();
        let (classifies, order) = (false, None);
        Ok(Self {
            services,
            counts,
            worker,
            queries,
            exchanges,
            time_budget,
            classifies,
            order,
            state,
        })
    }

    /// Sets the properties of the receiving ports.
    #[must_use]
    pub fn receiving(mut self, ports: ReceivingPorts) -> Self {
        self.state.ports = ports;
        self
    }

    /// Sets that packets arrive unclassified.
    #[must_use]
    pub fn classifying(mut self) -> Self {
        self.classifies = true;
        self
    }

    /// Sets the health checks that go through the tunnels.
    #[must_use]
    pub fn probing(mut self, probing: Option<Probing<P>>) -> Self {
        self.state.probing = probing;
        self
    }

    /// Sets the order of a capture that workers share. This worker receives its own part of the
    /// capture, and no other packet.
    #[must_use]
    pub fn in_order(mut self, order: Option<InOrder>) -> Self {
        self.order = order;
        self
    }

    /// Sets a clock of the CPU: deferred work is then done in turns that did not take long. Without
    /// a clock, every turn does some of it.
    #[must_use]
    pub fn timed(mut self, clock: Clock) -> Self {
        self.time_budget = TimeBudget::by(clock);
        self
    }

    /// Whether there is deferred work for a turn that has time, within limits.
    #[inline]
    const fn has_waiting_work(&self) -> bool {
        !self.state.marking.is_complete() || self.exchanges.has_work()
    }

    /// The connections that this worker remembers.
    #[must_use]
    pub const fn connections(&self) -> &Connections {
        &self.state.connections
    }

    /// Whether all exceptions of the service table in use are marked.
    #[must_use]
    pub const fn are_exceptions_marked(&self) -> bool {
        self.state.marking.is_complete()
    }

    /// The kind of memory that this worker's tables got.
    #[must_use]
    pub const fn obtained(&self) -> [(&'static str, Obtained); 2] {
        let Worker { connections, schedule, .. } = &self.state;
        [("connections", connections.obtained()), ("clients", schedule.obtained())]
    }

    /// The service table in use.
    #[must_use]
    pub fn services(&self) -> &ServiceTable {
        self.services.current()
    }
}
