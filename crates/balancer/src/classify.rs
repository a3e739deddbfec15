//! Properties of the receiving ports: the frames that are for the balancer, and the ports where
//! tunnels may end. Also classifies packets and computes their shards. Uses only the frame, its
//! port's settings and the hash seed. Both directions of a flow, its fragments and ICMP errors
//! about it get the same shard.

use crate::hashes::Hashes;
use crate::route::Route;
use crate::spec::Side;
use hotloop::engine::Shard;
use hotloop::packet::classify::{Depth, Layout};
use hotloop::packet::ethernet::Station;
use hotloop::packet::flow_key::{FlowKey, FlowKeyV4};
use hotloop::packet::seed::Seed;
use hotloop::packet::{PacketBuf, PortId};
use hotloop::stage::{Burst, BurstStage, Classified, Cx, NoDrops, Output, Tagged};

/// Number of ports that are distinguished: more than DPDK has.
const PORTS_MAX: usize = 256;

/// The settings of the ports, indexed by the low byte of their numbers. By default all frames of a
/// port are for the balancer, and tunnels may end there.
#[derive(Clone, Debug)]
pub struct ReceivingPorts {
    stations: Box<[Station; PORTS_MAX]>,
    has_backends: Box<[bool; PORTS_MAX]>,
    /// Route for a port's packets that are not for the balancer.
    punted: Box<[Option<Route>; PORTS_MAX]>,
    vlans: Box<[Option<u16>; PORTS_MAX]>,
    /// Length in bytes to which the port's device cuts frames; 0 if the device cuts none.
    cuts: Box<[u16; PORTS_MAX]>,
}

impl Default for ReceivingPorts {
    fn default() -> Self {
        Self {
            stations: Box::new([Station::ANY; PORTS_MAX]),
            has_backends: Box::new([true; PORTS_MAX]),
            punted: Box::new([None; PORTS_MAX]),
            vlans: Box::new([None; PORTS_MAX]),
            cuts: Box::new([0; PORTS_MAX]),
        }
    }
}

impl ReceivingPorts {
    /// Sets the station that a port is, and the side that it faces.
    ///
    /// # Panics
    /// If the port's number is above 254, which no port has.
    pub fn set(&mut self, port: PortId, station: Station, side: Side) {
        let number = usize::from(port.number());
        assert!(number < PORTS_MAX - 1, "port number {number}");
        self.stations[number] = station;
        self.has_backends[number] = side.has_backends();
    }

    /// Sets the route for packets from this port that are not for the balancer; without a route,
    /// they are dropped.
    ///
    /// # Panics
    /// If the port's number is above 254, which no port has.
    pub fn set_punted(&mut self, port: PortId, route: Route) {
        let number = usize::from(port.number());
        assert!(number < PORTS_MAX - 1, "port number {number}");
        self.punted[number] = Some(route);
    }

    /// Sets the VLAN of a port: only frames with its tag are for the balancer. Without a VLAN, all
    /// frames are, whatever tags they have.
    ///
    /// # Panics
    /// If the port's number is above 254, which no port has.
    pub fn set_vlan(&mut self, port: PortId, vlan: u16) {
        let number = usize::from(port.number());
        assert!(number < PORTS_MAX - 1, "port number {number}");
        self.vlans[number] = Some(vlan);
    }

    /// Sets the length in bytes to which a port's device cuts longer frames.
    ///
    /// # Panics
    /// If the port's number is above 254, which no port has.
    pub fn set_cut(&mut self, port: PortId, bytes: u16) {
        let number = usize::from(port.number());
        assert!(number < PORTS_MAX - 1, "port number {number}");
        self.cuts[number] = bytes;
    }

    /// The number of the port that received a packet and the length to which its device cuts frames, if the device cut
    /// this frame. A short frame with a wrong length, which any host can send, isn't taken for a cut.
    pub(crate) fn cut_of<P: PacketBuf>(&self, packet: &P) -> Option<(u16, u16)> {
        let bytes = self.cuts[ingress_index(packet)];
        let port = packet.ingress().map_or(u16::MAX, PortId::number);
        (bytes != 0 && packet.len_bytes() >= bytes.into()).then_some((port, bytes))
    }

    /// Classifies a packet at the station that received it, [without hashes](Layout::at): only new
    /// connections need a hash, and shards if there are several workers. A frame for another
    /// station is [foreign](Layout::is_foreign).
    #[inline(always)]
    pub(crate) fn layout_of<P: PacketBuf>(&self, packet: &P) -> Layout {
        let station = &self.stations[ingress_index(packet)];
        Layout::at(packet.data(), packet.len_bytes(), Depth::Innermost, station)
    }

    /// Stores a packet's layout in the packet, and returns its key if the [fast
    /// path](Layout::is_fast_v4) takes it.
    #[inline(always)]
    pub(crate) fn classify<P: PacketBuf>(&self, packet: &mut P) -> Option<FlowKeyV4> {
        let station = &self.stations[ingress_index(packet)];
        match Layout::fast_at(packet.data(), packet.len_bytes(), station) {
            Some((layout, key)) => {
                packet.set_metadata(layout.to_metadata());
                Some(key)
            }
            None => {
                self.classify_any(packet);
                None
            }
        }
    }

    /// Separate from [`classify`](Self::classify), which must stay small because it is inlined.
    #[cold]
    #[inline(never)]
    fn classify_any<P: PacketBuf>(&self, packet: &mut P) {
        packet.set_metadata(self.layout_of(packet).to_metadata());
    }

    /// Whether any port has a VLAN.
    #[must_use]
    pub fn has_vlans(&self) -> bool {
        self.vlans.iter().any(Option::is_some)
    }

    /// The VLAN of the port that received a packet.
    pub(crate) fn vlan_of<P: PacketBuf>(&self, packet: &P) -> Option<u16> {
        self.vlans[ingress_index(packet)]
    }

    /// Whether any port has a route for packets that are not for the balancer.
    #[must_use]
    pub fn has_punted(&self) -> bool {
        self.punted.iter().any(Option::is_some)
    }

    /// The route for a packet that is not for the balancer.
    pub(crate) fn route_of_punted<P: PacketBuf>(&self, packet: &P) -> Option<Route> {
        self.punted[ingress_index(packet)]
    }

    /// Whether a packet's tunnel may end here: it came by a port that faces backends and peers.
    #[inline]
    pub(crate) fn may_end_tunnel<P: PacketBuf>(&self, packet: &P) -> bool {
        self.has_backends[ingress_index(packet)]
    }
}

/// The index of the port that received a packet: the low byte of its number, or the last index if
/// no port received it.
#[inline(always)]
fn ingress_index<P: PacketBuf>(packet: &P) -> usize {
    usize::from(packet.ingress().map_or(u16::MAX, PortId::number) as u8)
}

/// The shard of a packet, which selects its worker. `frame` and `layout` are the packet's.
#[must_use]
pub fn shard(frame: &[u8], layout: Layout, seed: &Seed) -> u32 {
    layout.key(frame).map_or(0, |key| seed.shard(&key))
}

/// The worker that owns a flow.
#[must_use]
pub fn worker_of(key: &FlowKey, hashes: &Hashes, worker_count: usize) -> usize {
    // Packets carry the upper half of the hash.
    let shard = hashes.seed().shard(key) & 0xFFFF_0000;
    Shard::from(shard).worker(worker_count)
}

/// The hash of a packet's flow, which selects its backend. `frame` and `layout` are the packet's.
#[must_use]
pub fn hash(frame: &[u8], layout: Layout, seed: &Seed) -> u32 {
    layout.key(frame).map_or(0, |key| seed.hash(&key))
}

/// The stage that classifies each packet at the station that received it, [without
/// hashes](Layout::at). It drops no packets. If one core does all the work, the stage leaves
/// classification to the balancer, so that each packet is read once.
#[derive(Debug)]
pub struct Classify {
    /// `None` if the balancer classifies.
    ports: Option<ReceivingPorts>,
}

impl Classify {
    /// Classifies packets from these ports.
    #[must_use]
    pub fn new(ports: &ReceivingPorts) -> Self {
        Self { ports: Some(ports.clone()) }
    }

    /// Leaves classification to the [balancer](crate::balance::Balance::classifying).
    #[must_use]
    pub const fn later() -> Self {
        Self { ports: None }
    }
}

impl<P: PacketBuf> BurstStage<P> for Classify {
    type Out = Classified<P>;
    type Drop = NoDrops;

    /// Not inlined: otherwise the work for each packet would become a function.
    #[inline(never)]
    fn process(
        &mut self,
        _: &mut Cx<'_, NoDrops>,
        input: &mut Burst<P>,
        out: &mut Output<'_, Classified<P>>,
    ) {
        match &self.ports {
            Some(ports) => out.map(input, |packet| {
                let layout = ports.layout_of(&packet);
                Some(Tagged::new(packet, layout))
            }),
            None => out.map(input, |packet| Some(Tagged::assume(packet))),
        }
    }
}
