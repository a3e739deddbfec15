//! The network function: what becomes of each packet.
//!
//! - A packet to a service goes to the backend of its connection, or else to the one that Maglev
//!   chooses by the hash of its five fields, which is remembered: wrapped in IP, out of the backend
//!   side's port. Fragments but the first, which have no ports, are dropped.
//! - A tunnel packet to one of the balancer's own addresses, from a backend or a peer, is unwrapped.
//!   If what it carries is for a service, it is balanced like any other; else it is on its way to a
//!   client, and goes out of the client side's port.
//! - An ICMP error about a packet of a connection goes to the connection's backend.
//! - Everything else is dropped for a named reason: see [`BalanceDrop`].
//!
//! A full connection table costs no packets: what is not remembered goes where Maglev says each
//! time.

use crate::connections::Connections;
use crate::counts::WorkerCounts;
use crate::directory::{Directory, TargetIndex};
use crate::own_header::OwnHeader;
use hotloop::engine::Routed;
use hotloop::packet::PacketBuf;
use hotloop::packet::classify::{Kind, Layout};
use hotloop::packet::ethernet::MacAddress;
use hotloop::packet::ethernet::{self, ETHERTYPE_IPV4};
use hotloop::packet::flow_key::FlowKey;
use hotloop::packet::ip::{Fragment, protocol};
use hotloop::packet::ipip::{self, DecapsulateError, EncapsulateError};
use hotloop::packet::ipv4::Ipv4Header;
use hotloop::packet::ipv6::Ipv6Header;
use hotloop::stage::{Classified, Cx, Error, Stage, Verdict, drop_reasons};
use std::sync::Arc;

drop_reasons! {
    /// Why the balancer drops packets.
    pub enum BalanceDrop {
        /// The frame is neither IPv4 nor IPv6.
        NotIp = "not_ip",
        /// A header is cut, or contradicts itself or what is around it.
        Malformed = "malformed",
        /// A later fragment of a datagram to a service, or a fragment of a tunnel packet.
        Fragment = "fragment",
        /// A tunnel packet to an own address, from neither a backend nor a peer.
        UnknownTunnelSource = "unknown_tunnel_source",
        /// The outer header of a tunnel packet has a wrong checksum.
        BadChecksum = "bad_checksum",
        /// A tunnel packet met congestion which its inner packet can't show (RFC 6040, section 4.2).
        Congestion = "congestion",
        /// There is no service of this address, protocol and port.
        NoService = "no_service",
        /// No backend of the service has a weight above 0.
        NoBackend = "no_backend",
        /// The packet may not be forwarded once more.
        TtlExpired = "ttl_expired",
        /// Once wrapped, the packet would exceed the MTU of the path to the backends.
        TooBig = "too_big",
        /// The packet's buffer has no room for the outer header.
        NoHeadroom = "no_headroom",
    }
}

/// A port to leave by: the engine's route.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct Route(pub u16);

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "port {}", self.0)
    }
}

/// How packets leave by a port.
#[derive(Clone, Copy, Debug)]
pub struct Egress {
    /// The port.
    pub route: Route,
    /// The port's own MAC address.
    pub source: MacAddress,
    /// The next hop's.
    pub destination: MacAddress,
}

/// How packets leave, by whom they are for.
#[derive(Clone, Copy, Debug)]
pub struct Egresses {
    /// Towards clients.
    pub clients: Egress,
    /// Towards backends.
    pub backends: Egress,
}

/// The balancer of one worker.
#[derive(Debug)]
pub struct Balance {
    directory: Arc<Directory>,
    egresses: Egresses,
    connections: Connections,
    counts: Arc<[WorkerCounts]>,
    /// Which of the counts are this worker's.
    worker: usize,
}

/// Whom a packet is for.
#[derive(Clone, Copy)]
enum Recipient {
    Backend(TargetIndex),
    Client,
}

impl Balance {
    /// The balancer of the worker numbered `worker`, with its connections in memory of `node` where
    /// that is known. It counts in its place of `counts`.
    ///
    /// # Errors
    /// There is no memory for the connections.
    ///
    /// # Panics
    /// When there is no such place in `counts`.
    pub fn new(
        directory: Arc<Directory>,
        egresses: Egresses,
        counts: Arc<[WorkerCounts]>,
        worker: usize,
        node: Option<u32>,
    ) -> Result<Self, Error> {
        assert!(worker < counts.len(), "counts for {} workers, not for {worker}", counts.len());
        let connections = Connections::new(directory.connections_max(), node)?;
        Ok(Self { directory, egresses, connections, counts, worker })
    }

    /// The connections that this worker remembers.
    #[must_use]
    pub const fn connections(&self) -> &Connections {
        &self.connections
    }

    #[inline]
    fn counts(&self) -> &WorkerCounts {
        &self.counts[self.worker]
    }

    /// Unwraps what must be, and says whom the packet is for.
    #[inline]
    fn admit<P: PacketBuf>(
        &mut self,
        packet: &mut P,
        layout: Layout,
        cx: &Cx<'_, BalanceDrop>,
    ) -> Result<Recipient, BalanceDrop> {
        let key = match layout.kind() {
            Kind::Ipv4 | Kind::Ipv6 => self.connections.key(cx.index()),
            Kind::Malformed(_) => None,
            Kind::Arp | Kind::Other => return Err(BalanceDrop::NotIp),
        };
        let key = key.ok_or(BalanceDrop::Malformed)?;
        if layout.is_tunnel() || layout.is_icmp_error() || layout.fragment() != Fragment::None {
            return self.admit_unusual(packet, layout, &key, cx);
        }
        match self.connections.found(cx.index()) {
            Some(backend) => Ok(Recipient::Backend(backend)),
            None => self.admit_new(&key, layout.hash(), cx).map(Recipient::Backend),
        }
    }

    /// The backend of a connection that was not there when the burst was looked up.
    fn admit_new(
        &mut self,
        key: &FlowKey,
        hash: u32,
        cx: &Cx<'_, BalanceDrop>,
    ) -> Result<TargetIndex, BalanceDrop> {
        // A packet ahead in the burst may be of the same connection.
        if let Some(backend) = self.connections.backend(key, cx.now()) {
            return Ok(backend);
        }
        let backend = self.choose(key, hash)?;
        self.counts().admitted.add(1);
        if !self.connections.insert(key, backend, cx.now()) {
            self.counts().stateless.add(1);
        }
        Ok(backend)
    }

    /// The backend that the service of this flow has for it.
    fn choose(&self, key: &FlowKey, hash: u32) -> Result<TargetIndex, BalanceDrop> {
        let service = self.service(key).ok_or(BalanceDrop::NoService)?;
        self.directory.backend(service, hash).ok_or(BalanceDrop::NoBackend)
    }

    fn service(&self, key: &FlowKey) -> Option<usize> {
        self.directory.service(key.destination(), key.protocol(), key.destination_port())
    }

    /// [`admit`](Self::admit) for tunnel packets, ICMP errors and fragments.
    #[cold]
    fn admit_unusual<P: PacketBuf>(
        &mut self,
        packet: &mut P,
        layout: Layout,
        key: &FlowKey,
        cx: &Cx<'_, BalanceDrop>,
    ) -> Result<Recipient, BalanceDrop> {
        let outer = OwnHeader::of(packet.data()).ok_or(BalanceDrop::Malformed)?;
        let is_tunnelled = matches!(outer.protocol, protocol::IPV4 | protocol::IPV6);
        let is_unwrapped = layout.is_tunnel() && self.directory.is_own(outer.destination);
        if !is_unwrapped {
            if is_tunnelled && self.directory.is_own(outer.destination) {
                // A fragment: what it carries is not to be seen.
                return Err(BalanceDrop::Fragment);
            }
            if layout.is_tunnel() {
                return self.admit_foreign_tunnel(&outer, layout.hash());
            }
            return match layout.fragment() {
                Fragment::Later => Err(BalanceDrop::Fragment),
                _ => self.admit_bare(&outer, layout, key, cx).map(Recipient::Backend),
            };
        }
        if !self.directory.may_tunnel(outer.source) {
            return Err(BalanceDrop::UnknownTunnelSource);
        }
        ipip::decapsulate(packet).map_err(drop_of_decapsulation)?;
        let inner = OwnHeader::of(packet.data()).ok_or(BalanceDrop::Malformed)?;
        match self.admit_bare(&inner, layout, key, cx) {
            Ok(backend) => Ok(Recipient::Backend(backend)),
            Err(BalanceDrop::NoService) => {
                // On its way to a client. A reply keeps its connection alive.
                let is_known = self.connections.backend(&key.reversed(), cx.now()).is_some();
                self.counts().replies_known.add(u64::from(is_known));
                Ok(Recipient::Client)
            }
            Err(reason) => Err(reason),
        }
    }

    /// A tunnel packet to nobody's tunnel address: to a service of every protocol, it is a packet
    /// like any other. It goes by the flow inside it, and is not remembered.
    fn admit_foreign_tunnel(&self, outer: &OwnHeader, hash: u32) -> Result<Recipient, BalanceDrop> {
        let service = self.directory.service(outer.destination, outer.protocol, 0);
        let service = service.ok_or(BalanceDrop::NoService)?;
        let backend = self.directory.backend(service, hash).ok_or(BalanceDrop::NoBackend)?;
        Ok(Recipient::Backend(backend))
    }

    /// The backend for a packet outside any tunnel, whose own IP header is `own`.
    fn admit_bare(
        &mut self,
        own: &OwnHeader,
        layout: Layout,
        key: &FlowKey,
        cx: &Cx<'_, BalanceDrop>,
    ) -> Result<TargetIndex, BalanceDrop> {
        if layout.is_icmp_error() {
            // The key is that of the connection: its VIP must be whom the error was sent to.
            if key.destination() != own.destination {
                return Err(BalanceDrop::NoService);
            }
            // Anybody can send errors: they are followed, not remembered.
            return match self.connections.found(cx.index()) {
                Some(backend) => Ok(backend),
                None => self.choose(key, layout.hash()),
            };
        }
        if layout.fragment() == Fragment::Later {
            let is_vip = self.directory.is_vip(own.destination);
            let reason = if is_vip { BalanceDrop::Fragment } else { BalanceDrop::NoService };
            return Err(reason);
        }
        match self.connections.found(cx.index()) {
            Some(backend) => Ok(backend),
            None => self.admit_new(key, layout.hash(), cx),
        }
    }

    /// Makes the packet ready to leave, and says how.
    #[inline]
    fn forward<P: PacketBuf>(
        &self,
        packet: &mut P,
        recipient: Recipient,
    ) -> Result<Route, BalanceDrop> {
        let egress = match recipient {
            Recipient::Backend(backend) => {
                self.wrap(packet, backend)?;
                self.counts().to_backend(backend).add(1);
                self.egresses.backends
            }
            Recipient::Client => {
                if !spend_hop(packet.data_mut()) {
                    return Err(BalanceDrop::TtlExpired);
                }
                self.counts().to_clients.add(1);
                self.egresses.clients
            }
        };
        ethernet::set_addresses(packet, egress.source, egress.destination);
        Ok(egress.route)
    }

    #[inline]
    fn wrap<P: PacketBuf>(&self, packet: &mut P, backend: TargetIndex) -> Result<(), BalanceDrop> {
        let tunnel = &self.directory.target(backend).tunnel;
        let inner_bytes = OwnHeader::total_bytes(packet.data()).ok_or(BalanceDrop::Malformed)?;
        if inner_bytes + tunnel.outer_header_bytes() > self.directory.mtu_bytes() {
            return Err(BalanceDrop::TooBig);
        }
        tunnel.wrap(packet).map_err(|error| match error {
            EncapsulateError::TtlExpired => BalanceDrop::TtlExpired,
            EncapsulateError::TooBig { .. } => BalanceDrop::TooBig,
            EncapsulateError::NoRoom(_) => BalanceDrop::NoHeadroom,
            EncapsulateError::NotIp { .. } => BalanceDrop::NotIp,
            EncapsulateError::Malformed(_) | EncapsulateError::MixedFamilies { .. } => {
                BalanceDrop::Malformed
            }
        })
    }
}

const fn drop_of_decapsulation(error: DecapsulateError) -> BalanceDrop {
    match error {
        DecapsulateError::Checksum => BalanceDrop::BadChecksum,
        DecapsulateError::Fragment => BalanceDrop::Fragment,
        DecapsulateError::Congestion => BalanceDrop::Congestion,
        DecapsulateError::NotIp { .. } => BalanceDrop::NotIp,
        DecapsulateError::NotTunnel { .. }
        | DecapsulateError::Malformed(_)
        | DecapsulateError::NoRoom(_) => BalanceDrop::Malformed,
    }
}

/// Counts the hop of a packet that is forwarded as it is. Says whether it may be.
fn spend_hop(frame: &mut [u8]) -> bool {
    let Some((ethertype, l3_offset)) = ethernet::network_layer(frame) else { return false };
    let packet = &mut frame[l3_offset..];
    if ethertype == ETHERTYPE_IPV4 {
        Ipv4Header::parse_mut(packet).is_ok_and(|header| header.ttl() > 1 && header.decrement_ttl())
    } else {
        Ipv6Header::parse_mut(packet)
            .is_ok_and(|header| header.hop_limit() > 1 && header.decrement_hop_limit())
    }
}

impl<P: PacketBuf> Stage<Classified<P>> for Balance {
    type Out = Routed<P, Route>;
    type Drop = BalanceDrop;
    const PREPARES: bool = true;

    #[inline]
    fn prepare(&mut self, cx: &mut Cx<'_, BalanceDrop>, burst: &[Classified<P>]) {
        let keys = burst.iter().map(|packet| {
            // An error quotes what the service sent: the connection is the other way round.
            let key = packet.key()?;
            Some(if packet.tag().is_icmp_error() { key.reversed() } else { key })
        });
        self.connections.prepare(keys, cx.now());
    }

    #[inline]
    fn packet(
        &mut self,
        cx: &mut Cx<'_, BalanceDrop>,
        classified: Classified<P>,
    ) -> Verdict<Routed<P, Route>> {
        let layout = classified.tag();
        let mut packet = classified.packet;
        let admitted = self.admit(&mut packet, layout, cx);
        match admitted.and_then(|recipient| self.forward(&mut packet, recipient)) {
            Ok(route) => Ok(Routed { packet, route }),
            Err(reason) => cx.drop(packet, reason),
        }
    }

    #[inline]
    fn tick(&mut self, cx: &mut Cx<'_, BalanceDrop>) {
        self.connections.age(cx.now());
        self.counts().connections.set(self.connections.len() as u64);
    }
}
