//! The network function: the graph, and the stage that translates each packet.

use crate::connections::Connections;
use crate::fragments::{Fragments, Keyed, SEED};
use crate::ports::{block_of, end};
use crate::seen::Seen;
pub use crate::{connections::Policy, drops::NatDrop, fragments::Side};
use hotloop::flow::{Hint, Hints};
use hotloop::packet::answer::{IcmpError, echo_reply, icmp_error};
use hotloop::packet::arp::{self, ArpMessage, Neighbour};
use hotloop::packet::ip::{is_host, protocol};
use hotloop::packet::{ethernet::MacAddress, ipv4::Ipv4Header};
use hotloop::stage::{Counter, Gauge, TokenBucket, TokenRate};
use hotloop::{engine::Shard, prelude::*};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

/// The rate of ICMP errors of the NAT itself on one core (RFC 1812, section 4.3.2.8).
const ERROR_RATE: TokenRate = TokenRate::per_second(1000, 1000);

/// The operator's settings.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The port towards the LAN.
    pub lan_port: PortId,
    /// The NAT's addresses in the LAN.
    pub lan: Neighbour,
    /// The NAT's addresses in the WAN. All connections share the IP address.
    pub wan: Neighbour,
    /// The station that packets to the WAN are sent to.
    pub gateway: MacAddress,
    /// The packets that are let in, and limits.
    pub policy: Policy,
}

impl Settings {
    /// Whether an address is one of the NAT's own.
    fn owns(&self, address: Ipv4Addr) -> bool {
        [self.lan.address, self.wan.address].contains(&address)
    }

    /// Whether a packet may pass: from the LAN, between two hosts, or to the WAN address, which is
    /// another host's; from the WAN, to the NAT.
    fn is_routed(&self, side: Side, ip: &Ipv4Header) -> bool {
        let is_host = |address: Ipv4Addr| is_host(address.into()) && !self.owns(address);
        let is_own = ip.destination() == self.wan.address;
        let is_outward = || is_host(ip.source()) && (is_own || is_host(ip.destination()));
        if side == Side::Lan { is_outward() } else { is_own }
    }
}

/// The NAT, from received packets to packets with the side that they leave by. Packets that leave
/// by [`Side::Hairpin`] must be received again.
pub fn nat<P: PacketBuf>(
    chain: impl Chain<Out = P>,
    settings: &Settings,
) -> impl Chain<Out = Routed<P, Side>> {
    let chain = chain.stage(classify).try_stage(fragments_of(settings.lan_port));
    chain.shard_by(shard).try_burst_stage(nat_of(*settings))
}

// The closure types of a chain's steps include all type parameters of the enclosing function.
// Inside `nat`, each would include the chain before it once more, and programs would grow.

fn classify(_: &Core) -> Classify {
    Classify::outermost()
}

fn fragments_of(lan_port: PortId) -> impl Fn(&Core) -> hotloop::Result<Fragments> {
    move |core| Fragments::new(core, lan_port)
}

/// The core for a packet: the host's.
pub fn shard<P>(p: &Keyed<P>) -> Shard {
    match p.route {
        // The core of the host. It takes a port from its own blocks ...
        (Side::Lan, Some(key)) => Shard::Hash(SEED.hash_v4(&end(key.source(), 0, 0))),
        // ... which all lead back to it.
        (_, key) => Shard::Worker(key.map_or(0, |key| block_of(key.source_port()))),
    }
}

fn nat_of(settings: Settings) -> impl Fn(&Core) -> hotloop::Result<Nat> {
    move |core| Nat::new(core, settings)
}

/// The stage that translates each packet, on the core that owns its connection.
pub struct Nat {
    settings: Settings,
    connections: Connections,
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
    /// There is not enough memory for the connections.
    pub fn new(core: &Core, settings: Settings) -> hotloop::Result<Self> {
        Ok(Self::of(settings, Connections::new(core, settings.policy, Table::new)?))
    }

    /// The NAT of a core with these connections.
    pub fn of(settings: Settings, connections: Connections) -> Self {
        let (hints, errors) = (Hints::new(), TokenBucket::default());
        Self { settings, connections, hints, errors, count: Arc::default() }
    }

    /// Prepares a packet for sending, as an answer or translated. Returns the side that it leaves
    /// by.
    #[inline(always)]
    fn pass<P: PacketBuf>(&mut self, p: &mut Keyed<P>, hint: Hint) -> Result<Side, NatDrop> {
        let (side, key) = p.route;
        let own = if side == Side::Lan { self.settings.lan } else { self.settings.wan };
        if !ethernet::Station::with(own.mac).takes(p.bytes()) {
            return Err(NatDrop::OtherStation);
        }
        if key.is_none()
            && let Some(message) = ArpMessage::of_frame(p.bytes())
            && message.target().address == own.address
            && arp::reply(&mut p.packet.packet, own.mac)
        {
            return Ok(side);
        }
        let seen = Seen::of(p, hint)?;
        let packet = &mut p.packet.packet;
        let is_icmp = seen.ip.protocol() == protocol::ICMP;
        let is_own = self.settings.owns(seen.ip.destination());
        if is_icmp && is_own && echo_reply(packet).is_ok() {
            ethernet::swap_addresses(packet);
            return Ok(side);
        }
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
    #[inline(always)]
    fn translate<P: PacketBuf>(&mut self, p: &mut P, seen: &Seen) -> Result<Side, NatDrop> {
        let Settings { lan, wan, gateway, .. } = self.settings;
        let (to, own, next_hop) = if seen.side == Side::Lan {
            let end = SocketAddrV4::new(wan.address, self.connections.port(seen)?);
            nat::rewrite_source(p, end).map_err(|_| NatDrop::Malformed)?;
            if seen.ip.destination() == wan.address {
                // The other host's core delivers it, and counts the hop.
                ethernet::set_addresses(p, wan.mac, wan.mac);
                return Ok(Side::Hairpin);
            }
            (Side::Wan, wan.mac, gateway)
        } else {
            let (end, station) = self.connections.host(seen)?;
            nat::rewrite_destination(p, end).map_err(|_| NatDrop::Malformed)?;
            (Side::Lan, lan.mac, station)
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
        let packets = input.iter_mut().map(|p| p.route);
        self.connections.hint_burst(packets, &mut self.hints);
        out.map_indexed(input, |index, mut p| match self.pass(&mut p, self.hints.at(index)) {
            Ok(route) => Some(Routed { packet: p.packet.packet, route }),
            Err(reason) => cx.drop(p, reason).ok(),
        });
    }

    fn tick(&mut self, cx: &mut Cx<'_, NatDrop>, _: &mut Output<'_, Self::Out>) {
        self.connections.now = cx.now();
        self.count.set(self.connections.expire() as u64);
    }

    fn gauges(&self) -> Vec<Gauge> {
        vec![Gauge::new("connections", &self.count)]
    }
}
