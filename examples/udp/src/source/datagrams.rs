//! The datagrams to send: a payload that all share, with a stamp and a flow's headers.

use crate::source::flows::Flows;
use crate::stamp::{self, Stamp};
use hotloop::packet::build::udp;
use hotloop::packet::checksum::Change;
use hotloop::packet::ethernet::{self, MacAddress};
use hotloop::packet::{PacketBuf, ipv4, ipv6, udp as udp_header};

/// Offset of the checksum in a UDP header, in bytes.
const CHECKSUM_OFFSET: usize = 6;

/// Ethernet, IPv6 and UDP: the maximum length of a flow's headers, in bytes.
const HEADERS_BYTES_MAX: usize =
    ethernet::HEADER_BYTES + ipv6::HEADER_BYTES + udp_header::HEADER_BYTES;

/// Describes the datagrams to send.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Plan {
    /// Sources and destinations.
    pub flows: Flows,
    /// Source in the Ethernet header.
    pub from_mac: MacAddress,
    /// Destination in the Ethernet header, for each destination of `flows`.
    pub to_macs: Vec<MacAddress>,
    /// Length of each payload in bytes. A frame must fit into a packet of the pool.
    pub payload_bytes: u16,
}

/// The datagrams of one core, which belong to its own flows in turn.
#[derive(Clone, Debug)]
pub struct Datagrams {
    payload: Box<[u8]>,
    headers_bytes: usize,
    flows: Box<[Flow]>,
    next: usize,
    /// The sending time for datagrams written now.
    now_ns: u64,
}

/// A flow's headers, and its next datagram.
#[derive(Clone, Copy, Debug)]
struct Flow {
    index: u32,
    /// The checksum of a datagram with a stamp of all zeros.
    checksum: u16,
    headers: [u8; HEADERS_BYTES_MAX],
    number: u64,
}

impl Datagrams {
    /// The share of core `core_index` of `core_count`.
    ///
    /// # Panics
    /// If there are fewer flows than cores, or if the plan's numbers exceed its fields' limits.
    #[must_use]
    pub fn new(plan: &Plan, core_index: usize, core_count: usize) -> Self {
        let is_stamped = usize::from(plan.payload_bytes) >= stamp::BYTES;
        let byte = |index: u16| {
            if is_stamped && usize::from(index) < stamp::BYTES { 0 } else { index as u8 }
        };
        let payload: Box<[u8]> = (0..plan.payload_bytes).map(byte).collect();
        let l3_bytes =
            if plan.flows.from.is_ipv4() { ipv4::HEADER_BYTES } else { ipv6::HEADER_BYTES };
        let headers_bytes = ethernet::HEADER_BYTES + l3_bytes + udp_header::HEADER_BYTES;
        let flow = |index| Flow::new(plan, index, headers_bytes, &payload);
        let flows: Box<[Flow]> = plan.flows.share(core_index, core_count).map(flow).collect();
        assert!(!flows.is_empty(), "no flow for core {core_index} of {core_count}");
        Self { payload, headers_bytes, flows, next: 0, now_ns: 0 }
    }

    /// Length of each frame in bytes.
    #[must_use]
    pub fn frame_bytes(&self) -> usize {
        self.headers_bytes + self.payload.len()
    }

    /// Sets the sending time for datagrams written from now on, a time of [`crate::stamp::now_ns`].
    #[inline]
    pub const fn set_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Turns an empty packet into the next datagram.
    ///
    /// # Panics
    /// If the packet has no room for [`frame_bytes`](Self::frame_bytes).
    #[inline]
    pub fn write_next<P: PacketBuf>(&mut self, packet: &mut P) {
        let bytes = packet.append(self.frame_bytes()).expect("a blank has room for a frame");
        let (headers, payload) = bytes.split_at_mut(self.headers_bytes);
        let flow = &mut self.flows[self.next];
        headers.copy_from_slice(&flow.headers[..self.headers_bytes]);
        payload.copy_from_slice(&self.payload);
        if let Some(bytes) = payload.first_chunk_mut() {
            let stamp =
                Stamp { flow: flow.index, number: flow.number, sent_ns: self.now_ns }.bytes();
            *bytes = stamp;
            let checksum = Change::of_bytes([0; stamp::BYTES], stamp).apply(flow.checksum);
            set_checksum(headers, checksum);
        }
        flow.number += 1;
        self.next = if self.next + 1 == self.flows.len() { 0 } else { self.next + 1 };
    }
}

impl Flow {
    fn new(plan: &Plan, index: u32, headers_bytes: usize, payload: &[u8]) -> Self {
        let to_mac = plan.to_macs[plan.flows.destination_index(index)];
        let (from, to) = (plan.flows.source(index), plan.flows.destination(index));
        let frame = udp().from(from).to(to).macs(plan.from_mac, to_mac).payload(payload).build();
        let mut headers = [0; HEADERS_BYTES_MAX];
        headers[..headers_bytes].copy_from_slice(&frame[..headers_bytes]);
        let at = headers_bytes - udp_header::HEADER_BYTES + CHECKSUM_OFFSET;
        let checksum = u16::from_be_bytes([frame[at], frame[at + 1]]);
        Self { index, checksum, headers, number: 0 }
    }
}

/// Writes UDP's checksum at the end of a frame's headers.
#[inline]
fn set_checksum(headers: &mut [u8], checksum: u16) {
    // 0 would mean "no checksum" (RFC 768).
    let checksum = if checksum == 0 { 0xffff } else { checksum };
    if let Some(bytes) = headers.last_chunk_mut() {
        *bytes = checksum.to_be_bytes();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use hotloop::packet::memory::MemPacket;
    use std::collections::BTreeMap;

    pub(crate) fn plan(from: &str, to: &[&str], count: u32) -> Plan {
        let flows = Flows {
            from: from.parse().unwrap(),
            first_port: 1000,
            to: to.iter().map(|address| address.parse().unwrap()).collect(),
            count,
        };
        let to_macs = (0..to.len()).map(|index| MacAddress::new([2, 0, 0, 0, 1, index as u8]));
        Plan {
            to_macs: to_macs.collect(),
            flows,
            from_mac: MacAddress::new([2, 0, 0, 0, 0, 1]),
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
        for (from, to, frame_bytes) in [
            ("10.0.0.1", ["192.0.2.1:4321", "192.0.2.2:53"], 74),
            ("2001:db8::1", ["[2001:db8::2]:4321", "[2001:db8::3]:53"], 94),
        ] {
            // Every source port, so that every checksum occurs, including 0.
            let count = u32::from(u16::MAX) - 999;
            let plan = plan(from, &to, count);
            let mut datagrams = Datagrams::new(&plan, 0, 1);
            assert_eq!(datagrams.frame_bytes(), frame_bytes);
            for turn in 0..=u64::from(count) {
                let (index, number) = (turn as u32 % count, turn / u64::from(count));
                datagrams.set_time(turn << 20);
                let stamp = Stamp { flow: index, number, sent_ns: turn << 20 };
                let payload: Vec<u8> = stamp.bytes().into_iter().chain(24..32).collect();
                let at = index as usize % 2;
                let builder = udp().from(plan.flows.source(index)).to(to[at]).payload(payload);
                let expected = builder.macs(plan.from_mac, plan.to_macs[at]).build();
                assert_eq!(next(&mut datagrams), expected, "flow {index}");
            }
        }
    }

    #[test]
    fn a_short_payload_has_no_stamp() {
        for payload_bytes in [0, stamp::BYTES as u16 - 1] {
            let plan = Plan { payload_bytes, ..plan("10.0.0.1", &["192.0.2.1:4321"], 1) };
            let payload: Vec<u8> = (0..payload_bytes as u8).collect();
            let frame = udp().from("10.0.0.1:1000").to("192.0.2.1:4321").payload(payload);
            let expected = frame.macs(plan.from_mac, plan.to_macs[0]).build();
            assert_eq!(next(&mut Datagrams::new(&plan, 0, 1)), expected);
        }
    }

    #[test]
    fn cores_share_the_flows() {
        let plan = plan("10.0.0.1", &["192.0.2.1:4321"], 7);
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
