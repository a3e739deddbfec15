//! The network function: the graph, and the stage that translates each packet.

use crate::connections::Connections;
use crate::seen::{Seen, outward_key};
pub use crate::{drops::NatDrop, seen::Side};
use hotloop::flow::{Hint, Hints};
use hotloop::packet::answer::{self, IcmpError};
use hotloop::packet::arp::{self, ArpMessage, Neighbour};
use hotloop::packet::ip::{is_host, protocol};
use hotloop::packet::{flow_key::FlowKeyV4, ipv4::Ipv4Header, seed::Seed};
use hotloop::{
    engine::Shard,
    prelude::*,
    stage::{Counter, Gauge},
};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

/// The seed of the hash that distributes LAN packets to cores. The hash is only computed if there
/// is a choice.
const SEED: Seed = Seed::new(0);

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
    pub gateway: ethernet::MacAddress,
}

impl Settings {
    /// The side that a packet came from.
    fn side<P: PacketBuf>(&self, packet: &P) -> Side {
        if packet.ingress() == Some(self.lan_port) { Side::Lan } else { Side::Wan }
    }

    /// Whether an address is one of the NAT's own.
    fn owns(&self, address: Ipv4Addr) -> bool {
        [self.lan.address, self.wan.address].contains(&address)
    }

    /// Whether a packet may pass: from the LAN, between two hosts; from the WAN, to the NAT.
    fn is_routed(&self, side: Side, ip: &Ipv4Header) -> bool {
        let is_host = |address: Ipv4Addr| is_host(address.into()) && !self.owns(address);
        match side {
            Side::Lan => is_host(ip.source()) && is_host(ip.destination()),
            Side::Wan => ip.destination() == self.wan.address,
        }
    }
}

/// The NAT, from received packets to packets with the side that they leave by.
pub fn nat<P: PacketBuf + Send>(
    chain: impl Chain<Out = P>,
    settings: &Settings,
) -> impl Chain<Out = Routed<P, Side>> {
    chain.stage(classify).shard_by(shard(*settings)).try_burst_stage(nat_of(*settings))
}

// The closure types of a chain's steps include all type parameters of the enclosing function.
// Inside `nat`, each would include the chain before it once more, and programs would grow.

fn classify(_: &Core) -> Classify {
    Classify::outermost()
}

fn shard<P: PacketBuf>(settings: Settings) -> impl Fn(&Classified<P>) -> Shard {
    let port = |key: FlowKeyV4| usize::from(key.source_port());
    move |p| match settings.side(&p.packet) {
        // The core selected by the hash of the addresses. It chooses a port ...
        Side::Lan => Shard::Hash(p.key().map_or(0, |key| SEED.shard(&key))),
        // ... which leads back to it: `port % cores`.
        Side::Wan => Shard::Worker(outward_key(p, Side::Wan).map_or(0, port)),
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
    /// Number of connections, and of ports in use: each has one.
    count: Arc<Counter>,
}

impl Nat {
    /// The NAT of a core, without connections.
    ///
    /// # Errors
    /// There is not enough memory for the connections.
    pub fn new(core: &Core, settings: Settings) -> hotloop::Result<Self> {
        Ok(Self::of(settings, Connections::new(core, Table::new)?))
    }

    /// The NAT of a core with these connections.
    pub fn of(settings: Settings, connections: Connections) -> Self {
        Self { settings, connections, hints: Hints::new(), count: Arc::default() }
    }

    /// Prepares a packet for sending, as an answer or translated. Returns the side that it leaves
    /// by.
    #[inline(always)]
    fn pass<P: PacketBuf>(
        &mut self,
        p: &mut Classified<P>,
        key: Option<FlowKeyV4>,
        hint: Hint,
        now: Instant,
    ) -> Result<Side, NatDrop> {
        let Settings { lan, wan, gateway, .. } = self.settings;
        let side = self.settings.side(&p.packet);
        let own = if side == Side::Lan { lan } else { wan };
        if !ethernet::Station::with(own.mac).takes(p.bytes()) {
            return Err(NatDrop::OtherStation);
        }
        if key.is_none()
            && let Some(message) = ArpMessage::of_frame(p.bytes())
            && message.target().address == own.address
            && arp::reply(&mut p.packet, own.mac)
        {
            return Ok(side);
        }
        let seen = Seen::of(p, key, hint)?;
        let packet = &mut p.packet;
        let is_icmp = seen.ip.protocol() == protocol::ICMP;
        let is_own = self.settings.owns(seen.ip.destination());
        if is_icmp && is_own && answer::echo_reply(packet).is_ok() {
            ethernet::swap_addresses(packet);
            return Ok(side);
        }
        if !self.settings.is_routed(side, &seen.ip) {
            return Err(NatDrop::NotRouted);
        }
        if seen.ip.ttl() <= 1 {
            answer::icmp_error(packet, own.address, IcmpError::TimeExceeded)
                .map_err(|_| NatDrop::TtlExpired)?;
            ethernet::swap_addresses(packet);
            return Ok(side);
        }
        // The only place that decides a forwarded packet's Ethernet addresses.
        let (to, own, next_hop) = if side == Side::Lan {
            let end = SocketAddrV4::new(wan.address, self.connections.port(&seen, now)?);
            nat::rewrite_source(packet, end).map_err(|_| NatDrop::Malformed)?;
            (Side::Wan, wan.mac, gateway)
        } else {
            let (end, station) = self.connections.host(&seen, now).ok_or(NatDrop::NoConnection)?;
            nat::rewrite_destination(packet, end).map_err(|_| NatDrop::Malformed)?;
            (Side::Lan, lan.mac, station)
        };
        Ipv4Header::of_frame_mut(packet.data_mut()).map(Ipv4Header::decrement_ttl);
        ethernet::set_addresses(packet, own, next_hop);
        Ok(to)
    }
}

impl<P: PacketBuf> BurstStage<Classified<P>> for Nat {
    type Out = Routed<P, Side>;
    type Drop = NatDrop;

    fn process(
        &mut self,
        cx: &mut Cx<'_, NatDrop>,
        input: &mut Burst<Classified<P>>,
        out: &mut Output<'_, Self::Out>,
    ) {
        let side = |p: &Classified<P>| self.settings.side(&p.packet);
        let mut keys = [None; BURST_CAPACITY];
        for (key, p) in keys.iter_mut().zip(input.iter_mut()) {
            *key = outward_key(p, side(p));
        }
        let packets = input.as_slice().iter().map(side).zip(keys);
        self.connections.hint_burst(packets, &mut self.hints);
        out.map_indexed(input, |index, mut p| {
            let hint = self.hints.at(index);
            match self.pass(&mut p, keys[index], hint, cx.now()) {
                Ok(route) => Some(Routed { packet: p.packet, route }),
                Err(reason) => cx.drop(p, reason).ok(),
            }
        });
    }

    fn tick(&mut self, cx: &mut Cx<'_, NatDrop>, _: &mut Output<'_, Self::Out>) {
        self.count.set(self.connections.expire(cx.now()) as u64);
    }

    fn gauges(&self) -> Vec<Gauge> {
        vec![Gauge::new("connections", &self.count)]
    }
}
