//! Selects packets that are datagrams to the requested ports.

use crate::sink::delivery::Arrived;
use crate::sink::ports::Ports;
use hotloop::packet::classify::{Depth, Kind, PlainDatagram, Summary};
use hotloop::packet::ip::{Fragment, is_truncated, protocol};
use hotloop::packet::udp::{self, UdpView};
use hotloop::prelude::*;

/// A UDP datagram to one of the requested ports. The tag is the payload's offset in the frame and
/// its length, in bytes.
pub type Datagram<P> = Tagged<P, [u16; 2]>;

impl<P: PacketBuf> Arrived for Datagram<P> {
    #[inline]
    fn payload_bytes(&self) -> u64 {
        let [_, bytes] = self.tag();
        u64::from(bytes)
    }

    #[inline]
    fn payload(&self) -> &[u8] {
        let [offset, bytes] = self.tag().map(usize::from);
        let data = self.packet.data().get(offset..).unwrap_or_default();
        &data[..bytes.min(data.len())]
    }
}

drop_reasons! {
    /// Why a packet is not counted.
    pub enum FilterDrop {
        /// A header is cut, or contradicts itself.
        Malformed = "malformed",
        /// The frame ends before its packet does.
        Truncated = "truncated",
        /// Not a plain UDP datagram: another protocol, a tunnel, an ICMP error.
        NotUdp = "not_udp",
        /// A fragment of a datagram; fragments are not reassembled.
        Fragment = "fragment",
        /// For a port that was not requested.
        OtherPort = "other_port",
    }
}

/// Lets datagrams to a set of ports through, over IPv4 and IPv6.
#[derive(Clone, Debug)]
pub struct ToPorts {
    ports: Ports,
}

impl ToPorts {
    /// Lets datagrams to these ports through.
    #[must_use]
    pub const fn new(ports: Ports) -> Self {
        Self { ports }
    }

    /// The payload's offset and length in bytes, or the reason to drop the packet.
    #[inline]
    fn payload<P: PacketBuf>(&self, packet: &P) -> Result<[u16; 2], FilterDrop> {
        match PlainDatagram::of(packet.data(), packet.len_bytes()) {
            Some(datagram) if self.ports.contains(datagram.destination_port) => {
                Ok([datagram.payload_offset, datagram.payload_bytes])
            }
            _ => self.payload_of_any(packet),
        }
    }

    /// [`Self::payload`] for a frame of any kind; separate, to keep its instructions out of the
    /// path of plain frames.
    #[inline(never)]
    fn payload_of_any<P: PacketBuf>(&self, packet: &P) -> Result<[u16; 2], FilterDrop> {
        let found = Summary::of(packet.data(), packet.len_bytes(), Depth::Outermost);
        let is_ip = matches!(found.kind, Kind::Ipv4 | Kind::Ipv6);
        if let Kind::Malformed(_) = found.kind {
            let is_truncated = is_truncated(packet.data(), packet.len_bytes());
            return Err(if is_truncated { FilterDrop::Truncated } else { FilterDrop::Malformed });
        }
        if !is_ip || found.protocol != protocol::UDP || found.is_icmp_error {
            return Err(FilterDrop::NotUdp);
        }
        if found.fragment != Fragment::None {
            return Err(FilterDrop::Fragment);
        }
        let message = packet.data().get(found.l4_offset..).unwrap_or_default();
        let datagram = UdpView::parse_cut(message).map_err(|_| FilterDrop::Malformed)?;
        if !self.ports.contains(datagram.destination_port()) {
            return Err(FilterDrop::OtherPort);
        }
        let offset = found.l4_offset + udp::HEADER_BYTES;
        Ok([offset as u16, datagram.length() - udp::HEADER_BYTES as u16])
    }
}

impl<P: PacketBuf> Stage<P> for ToPorts {
    type Out = Datagram<P>;
    type Drop = FilterDrop;

    #[inline]
    fn packet(&mut self, cx: &mut Cx<'_, FilterDrop>, packet: P) -> Verdict<Datagram<P>> {
        match self.payload(&packet) {
            Ok(payload) => Ok(Tagged::new(packet, payload)),
            Err(reason) => cx.drop(packet, reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop::packet::build::{tcp, unreachable};

    fn filter() -> ToPorts {
        ToPorts::new("53,8000-8099".parse().unwrap())
    }

    #[test]
    fn datagrams_to_our_ports_pass_with_the_length_of_their_payload() {
        let ours = [
            udp().to("192.0.2.1:53").payload([7; 32]).build(),
            udp().to("[2001:db8::1]:8099").payload([7; 100]).build(),
            udp().to("192.0.2.1:8000").vlan(7).ipv4_options(&[1; 4]).build(),
        ];
        let out = bench(filter()).feed(ours);
        let payloads: Vec<_> = out.packets().iter().map(Arrived::payload).collect();
        assert_eq!(payloads, [&[7; 32][..], &[7; 100], &[]]);
    }

    #[test]
    fn padding_is_no_payload() {
        let mut padded = udp().to("192.0.2.1:53").payload([7; 3]).build();
        padded.resize(60, 0);
        let out = bench(filter()).feed([padded]);
        assert_eq!(out.packets()[0].payload(), [7; 3]);
    }

    #[test]
    fn all_else_is_dropped_by_reason() {
        let to_us = udp().to("192.0.2.1:53").payload([7; 100]);
        let mut frames = to_us.clone().build_fragments(60);
        assert_eq!(frames.len(), 3);
        frames.extend([
            tcp().to("192.0.2.1:53").build(),
            unreachable(&to_us.clone().build()).build(),
            to_us.clone().tunnelled("10.0.0.1", "10.0.0.2").build(),
            vec![0; 60],
            udp().to("192.0.2.1:54").build(),
            to_us.clone().build()[..30].to_vec(),
            to_us.build()[..100].to_vec(),
        ]);
        let out = bench(filter()).feed(frames);
        assert!(out.packets().is_empty());
        let counted = [
            FilterDrop::Fragment,
            FilterDrop::NotUdp,
            FilterDrop::OtherPort,
            FilterDrop::Malformed,
            FilterDrop::Truncated,
        ]
        .map(|reason| out.dropped(reason));
        assert_eq!(counted, [3, 4, 1, 1, 1]);
    }
}
