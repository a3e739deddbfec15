//! The datagrams that are sent: one frame, patched for each flow.

use hotloop::packet::build::udp;
use hotloop::packet::checksum;
use hotloop::packet::ethernet::{self, MacAddress};
use hotloop::packet::{PacketBuf, ipv4, ipv6};
use std::net::SocketAddr;

/// Where the checksum stands in a UDP header, in bytes.
const CHECKSUM_OFFSET: usize = 6;

/// What is to be sent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Plan {
    /// Source address, and the port of the first flow; the others have those that follow.
    pub from: SocketAddr,
    /// Destination.
    pub to: SocketAddr,
    /// Source in the Ethernet header.
    pub from_mac: MacAddress,
    /// Destination in the Ethernet header.
    pub to_mac: MacAddress,
    /// How many flows, from 1; `from`'s port and so many more are ports.
    pub flow_count: u16,
    /// Length of each payload in bytes, such that a frame fits into a packet of the pool.
    pub payload_bytes: u16,
}

/// The datagrams of one core: the flows that are its own, in turn.
#[derive(Clone, Debug)]
pub struct Datagrams {
    /// The first flow's frame.
    frame: Box<[u8]>,
    /// Where its UDP header begins, in bytes.
    udp_offset: usize,
    flows: Box<[Flow]>,
    next: usize,
}

/// In what a flow's frames differ from the first one's.
#[derive(Clone, Copy, Debug)]
struct Flow {
    source_port: [u8; 2],
    checksum: [u8; 2],
}

impl Datagrams {
    /// The share of core `core_index` of `core_count`: flows of its own, so that none is reordered.
    ///
    /// # Panics
    /// When there are fewer flows than cores, or the plan's numbers are none that its fields allow.
    #[must_use]
    pub fn new(plan: &Plan, core_index: usize, core_count: usize) -> Self {
        let payload: Vec<u8> = (0..plan.payload_bytes).map(|index| index as u8).collect();
        let builder = udp().from(plan.from).to(plan.to).macs(plan.from_mac, plan.to_mac);
        let frame = builder.payload(payload).build().into_boxed_slice();
        let l3_bytes = if plan.to.is_ipv4() { ipv4::HEADER_BYTES } else { ipv6::HEADER_BYTES };
        let udp_offset = ethernet::HEADER_BYTES + l3_bytes;
        let at = udp_offset + CHECKSUM_OFFSET;
        let sum = u16::from_be_bytes([frame[at], frame[at + 1]]);
        let flows: Box<[Flow]> = (0..plan.flow_count)
            .skip(core_index)
            .step_by(core_count)
            .map(|index| flow(sum, plan.from.port(), plan.from.port() + index))
            .collect();
        assert!(!flows.is_empty(), "no flow for core {core_index} of {core_count}");
        Self { frame, udp_offset, flows, next: 0 }
    }

    /// Length of each frame in bytes.
    #[must_use]
    pub fn frame_bytes(&self) -> usize {
        self.frame.len()
    }

    /// Makes an empty packet the next datagram.
    ///
    /// # Panics
    /// When the packet has no room for [`frame_bytes`](Self::frame_bytes).
    #[inline]
    pub fn write_next<P: PacketBuf>(&mut self, packet: &mut P) {
        let bytes = packet.append(self.frame.len()).expect("a blank has room for a frame");
        bytes.copy_from_slice(&self.frame);
        let flow = self.flows[self.next];
        let header = &mut bytes[self.udp_offset..];
        header[..2].copy_from_slice(&flow.source_port);
        header[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&flow.checksum);
        self.next = if self.next + 1 == self.flows.len() { 0 } else { self.next + 1 };
    }
}

/// The flow from `port`. The checksum of its frames is `sum`, that of frames from `first`, updated
/// (RFC 1624).
fn flow(sum: u16, first: u16, port: u16) -> Flow {
    // 0 would say that there is no checksum (RFC 768).
    let checksum = match checksum::update(sum, first, port) {
        0 => 0xffff,
        sum => sum,
    };
    Flow { source_port: port.to_be_bytes(), checksum: checksum.to_be_bytes() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop::packet::memory::MemPacket;
    use std::collections::BTreeMap;

    fn plan(from: &str, to: &str, flow_count: u16) -> Plan {
        Plan {
            from: from.parse().unwrap(),
            to: to.parse().unwrap(),
            from_mac: MacAddress::new([2, 0, 0, 0, 0, 1]),
            to_mac: MacAddress::new([2, 0, 0, 0, 0, 2]),
            flow_count,
            payload_bytes: 32,
        }
    }

    fn next(datagrams: &mut Datagrams) -> Vec<u8> {
        let mut packet = MemPacket::with_room(&[], 128, 2048);
        datagrams.write_next(&mut packet);
        packet.data().to_vec()
    }

    #[test]
    fn each_frame_is_what_a_builder_makes_of_its_flow() {
        for (from, to, host, frame_bytes) in [
            ("10.0.0.1:1000", "192.0.2.1:9000", "10.0.0.1", 74),
            ("[2001:db8::1]:1000", "[2001:db8::2]:9000", "[2001:db8::1]", 94),
        ] {
            // Every source port there is, so that every checksum comes, 0 among them.
            let plan = plan(from, to, u16::MAX - 999);
            let mut datagrams = Datagrams::new(&plan, 0, 1);
            assert_eq!(datagrams.frame_bytes(), frame_bytes);
            for port in (1000..=u16::MAX).chain([1000]) {
                let payload: Vec<u8> = (0..32).collect();
                let expected = udp().from(format!("{host}:{port}")).to(to).payload(payload).build();
                assert_eq!(next(&mut datagrams), expected, "from port {port}");
            }
        }
    }

    #[test]
    fn cores_share_the_flows() {
        let plan = plan("10.0.0.1:1000", "192.0.2.1:9000", 7);
        let mut cores = BTreeMap::new();
        for core_index in 0..3 {
            let mut datagrams = Datagrams::new(&plan, core_index, 3);
            for _ in 0..100 {
                let frame = next(&mut datagrams);
                let port = u16::from_be_bytes([frame[34], frame[35]]);
                assert_eq!(*cores.entry(port).or_insert(core_index), core_index);
            }
        }
        let ports: Vec<_> = cores.into_iter().collect();
        assert_eq!(
            ports,
            [(1000, 0), (1001, 1), (1002, 2), (1003, 0), (1004, 1), (1005, 2), (1006, 0)]
        );
    }
}
