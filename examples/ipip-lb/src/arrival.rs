//! What arrives by which port: the frames that are for the balancer, and where its tunnels end.

use crate::config::Side;
use hotloop::packet::classify::Layout;
use hotloop::packet::ethernet::Station;
use hotloop::packet::seed::Seed;
use hotloop::packet::{PacketBuf, PortId};
use hotloop::stage::{Classified, Cx, NoDrops, Stage, Tagged, Verdict};

/// The number of ports that are distinguished: more than DPDK has.
const PORTS_MAX: usize = 256;

/// What holds for the ports, by the low byte of their numbers. By default all frames of a port are for
/// the balancer, and tunnels may end there.
#[derive(Clone, Debug)]
pub struct Ports {
    stations: Box<[Station; PORTS_MAX]>,
    has_backends: Box<[bool; PORTS_MAX]>,
}

impl Default for Ports {
    fn default() -> Self {
        Self {
            stations: Box::new([Station::ANY; PORTS_MAX]),
            has_backends: Box::new([true; PORTS_MAX]),
        }
    }
}

impl Ports {
    /// Sets which station a port is, and which side it faces.
    ///
    /// # Panics
    /// With a number above 254, which no port has.
    pub fn set(&mut self, port: PortId, station: Station, side: Side) {
        let number = usize::from(port.number());
        assert!(number < PORTS_MAX - 1, "port number {number}");
        self.stations[number] = station;
        self.has_backends[number] = side.has_backends();
    }

    /// Whether a tunnel that a packet came in may end here: it came from where backends and peers are.
    #[inline]
    pub(crate) fn may_end_tunnel<P: PacketBuf>(&self, packet: &P) -> bool {
        self.has_backends[ingress_index(packet)]
    }
}

/// The index of the port that received a packet: the low byte of its number, and the last index where
/// no port did.
#[inline(always)]
fn ingress_index<P: PacketBuf>(packet: &P) -> usize {
    usize::from(packet.ingress().map_or(u16::MAX, PortId::number) as u8)
}

/// The stage that classifies each packet, at the station that received it. It drops none: a frame for
/// another station is [foreign](Layout::is_foreign).
#[derive(Debug)]
pub struct Classify {
    seed: Seed,
    /// By the low byte of the port's number; in place, which spares each packet a load.
    stations: [Station; PORTS_MAX],
}

impl Classify {
    /// Classifies with hashes of this seed.
    #[must_use]
    pub fn new(seed: Seed, ports: &Ports) -> Self {
        Self { seed, stations: *ports.stations }
    }
}

impl<P: PacketBuf> Stage<P> for Classify {
    type Out = Classified<P>;
    type Drop = NoDrops;

    #[inline]
    fn packet(&mut self, _: &mut Cx<'_, NoDrops>, packet: P) -> Verdict<Classified<P>> {
        let station = &self.stations[ingress_index(&packet)];
        let layout = Layout::at(packet.data(), packet.len_bytes(), &self.seed, station);
        Ok(Tagged::new(packet, layout))
    }
}
