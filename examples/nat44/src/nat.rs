//! The network function: the graph, and the stage that translates each packet.

use crate::connections::{ConnectionLister, Connections};
use crate::fragments::{Fragments, Keyed};
use crate::ports::{block_of, end};
use crate::seen::Seen;
pub use crate::{drops::NatDrop, fragments::Side, settings::Settings};
use hotloop::packet::answer::{IcmpError, as_host, icmp_error};
use hotloop::packet::{ip::protocol, ipv4::Ipv4Header, seed::Seed};
use hotloop::stage::{Counter, Gauge, TokenBucket, TokenRate};
use hotloop::{engine::Shard, flow::Hints, prelude::*};
use std::{net::SocketAddrV4, sync::Arc};

/// The rate of ICMP errors of the NAT itself on one core (RFC 1812, section 4.3.2.8).
const ERROR_RATE: TokenRate = TokenRate::per_second(1000, 1000);

/// The NAT, from received packets to packets with the side that they leave by. Packets that leave
/// by [`Side::Hairpin`] must be received again. Each core makes its end of the listing of
/// connections by `lister`.
pub fn nat<P: PacketBuf>(
    received: impl Chain<Out = P>,
    settings: Settings,
    lister: impl Fn(&Core) -> hotloop::Result<ConnectionLister> + Sync,
) -> impl Chain<Out = Routed<P, Side>> {
    received
        .stage(|_| Classify::outermost())
        .try_stage(move |core| Fragments::new(core, settings.lan_port))
        .shard_by(shard)
        .try_burst_stage(move |core| Nat::new(core, settings, lister(core)?))
}

/// The core for a packet: the host's.
pub fn shard<P>(p: &Keyed<P>) -> Shard {
    match p.route {
        // The core of the host. It takes a port from its own blocks ...
        (Side::Lan, Some(key)) => Shard::Hash(Seed::new(0).hash_v4(&end(key.source(), 0, 0))),
        // ... which all lead back to it.
        (_, key) => Shard::Worker(key.map_or(0, |key| block_of(key.source_port()))),
    }
}

/// The stage that translates each packet, on the core that owns its connection.
pub struct Nat {
    settings: Settings,
    connections: Connections,
    lister: ConnectionLister,
    /// Hints for a burst's connections in their table.
    hints: Hints,
    errors: TokenBucket,
    /// Number of connections.
    count: Arc<Counter>,
}

impl Nat {
    /// The NAT of a core, without connections.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn new(core: &Core, settings: Settings, lister: ConnectionLister) -> hotloop::Result<Self> {
        Ok(Self::of(settings, Connections::new(core, &settings, Table::new)?, lister))
    }

    /// The NAT of a core with these connections.
    pub fn of(settings: Settings, connections: Connections, lister: ConnectionLister) -> Self {
        let (hints, errors) = (Hints::new(), TokenBucket::default());
        Self { settings, connections, lister, hints, errors, count: Arc::default() }
    }

    /// Prepares a packet for sending, as an answer or translated. Returns the side that it leaves
    /// by.
    fn pass<P: PacketBuf>(&mut self, p: &mut Keyed<P>, hint: Hint) -> Result<Side, NatDrop> {
        let (side, key) = p.route;
        let own = if side == Side::Lan { self.settings.lan } else { self.settings.wan };
        if !ethernet::Station::with(own.mac).takes(p.bytes()) {
            return Err(NatDrop::OtherStation);
        }
        // A ping may be to either address, an ARP request only for that of its port.
        let is_own = |ip| ip == own.address || key.is_some() && self.settings.owns(ip);
        let may_be_request = key.is_none_or(|key| key.protocol() == protocol::ICMP);
        if may_be_request && as_host(&mut p.packet.packet, own.mac, is_own) {
            return Ok(side);
        }
        let seen = Seen::of(p, hint)?;
        let packet = &mut p.packet.packet;
        if !self.settings.is_routed(side, &seen.ip) {
            return Err(NatDrop::NotRouted);
        }
        if seen.ip.ttl() <= 1 {
            let may_answer = self.errors.take(&ERROR_RATE, 1, self.connections.now);
            if !may_answer || icmp_error(packet, own.address, IcmpError::TimeExceeded).is_err() {
                return Err(NatDrop::TtlExpired);
            }
            ethernet::swap_addresses(packet);
            return Ok(side);
        }
        self.translate(packet, &seen)
    }

    /// Translates a packet, and sets its Ethernet addresses. Returns the side that it leaves by.
    fn translate<P: PacketBuf>(&mut self, p: &mut P, seen: &Seen) -> Result<Side, NatDrop> {
        let Settings { lan, wan, gateway, .. } = self.settings;
        let (port, mapping) = self.connections.mapping(seen)?;
        let (to, own, next_hop) = if seen.side == Side::Lan {
            mapping.station = seen.station;
            let end = SocketAddrV4::new(wan.address, port);
            nat::rewrite_source(p, end).map_err(|_| NatDrop::Malformed)?;
            if seen.ip.destination() == wan.address {
                // The other host's core delivers it, and counts the hop.
                ethernet::set_addresses(p, wan.mac, wan.mac);
                return Ok(Side::Hairpin);
            }
            (Side::Wan, wan.mac, gateway)
        } else {
            let end = SocketAddrV4::new(mapping.inside.source(), mapping.inside.source_port());
            nat::rewrite_destination(p, end).map_err(|_| NatDrop::Malformed)?;
            (Side::Lan, lan.mac, mapping.station)
        };
        Ipv4Header::of_frame_mut(p.data_mut()).map(Ipv4Header::decrement_ttl);
        ethernet::set_addresses(p, own, next_hop);
        Ok(to)
    }
}

impl<P: PacketBuf> BurstStage<Keyed<P>> for Nat {
    type Out = Routed<P, Side>;
    type Drop = NatDrop;

    fn process(
        &mut self,
        cx: &mut Cx<'_, NatDrop>,
        input: &mut Burst<Keyed<P>>,
        out: &mut Output<'_, Self::Out>,
    ) {
        self.connections.now = cx.now();
        self.connections.hint_burst(input.iter_mut().map(|p| p.route), &mut self.hints);
        out.map_indexed(input, |index, mut p| match self.pass(&mut p, self.hints.at(index)) {
            Ok(route) => Some(Routed { packet: p.packet.packet, route }),
            Err(reason) => cx.drop(p, reason).ok(),
        });
    }

    fn tick(&mut self, cx: &mut Cx<'_, NatDrop>, _: &mut Output<'_, Self::Out>) {
        self.connections.now = cx.now();
        self.count.set(self.connections.expire() as u64);
        self.connections.list(&mut self.lister);
    }

    fn has_work(&self) -> bool {
        self.lister.has_work()
    }

    fn gauges(&self) -> Vec<Gauge> {
        vec![Gauge::new("connections", &self.count)]
    }
}
