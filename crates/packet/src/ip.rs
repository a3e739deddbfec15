//! Definitions that IPv4 and IPv6 share: protocol numbers, fragments, congestion marks.

pub use crate::ip_fields::{Ecn, Fragment, is_host, protocol};
use crate::{
    PacketBuf,
    ethernet::{self, ETHERTYPE_IPV4, ETHERTYPE_IPV6},
    ipv4::Ipv4View,
    ipv6::{self, Ipv6View},
};

/// Whether a frame ends before its IP packet does, by the length in the packet's own header: the
/// frame was cut on its way, or its sender wrote a wrong length. `frame` is the first segment,
/// `len_bytes` the length over all segments.
///
/// ```
/// use hotloop_packet::{build::udp, ip::is_truncated};
///
/// let frame = udp().payload([7; 100]).build();
/// assert!(!is_truncated(&frame, frame.len()));
/// assert!(is_truncated(&frame[..100], 100));
/// ```
#[cold]
pub fn is_truncated(frame: &[u8], len_bytes: usize) -> bool {
    frame_bytes(frame).is_some_and(|bytes| bytes > len_bytes)
}

/// Cuts off the bytes after a frame's IP packet, such as the padding of a short Ethernet frame: a
/// header that is pushed in front of the packet would count them. A frame without them, or without
/// an IP packet, is unchanged.
///
/// ```
/// use hotloop_packet::{PacketBuf, build::udp, ip::cut_padding, memory::MemPacket};
///
/// let mut packet = MemPacket::new(&udp().padded().build());
/// assert_eq!(packet.len_bytes(), 60);
/// cut_padding(&mut packet);
/// assert_eq!(packet.len_bytes(), 14 + 20 + 8);
/// ```
pub fn cut_padding<P: PacketBuf>(packet: &mut P) {
    if let Some(bytes) = frame_bytes(packet.data()) {
        packet.truncate(bytes);
    }
}

/// Length in bytes of a frame up to the end of its IP packet. `None` if it has none, or if the
/// packet's header is malformed.
fn frame_bytes(frame: &[u8]) -> Option<usize> {
    let (ethertype, offset) = ethernet::network_layer(frame)?;
    let packet = frame.get(offset..).unwrap_or_default();
    let packet_bytes = match ethertype {
        ETHERTYPE_IPV4 => usize::from(Ipv4View::parse_cut(packet).ok()?.total_length()),
        ETHERTYPE_IPV6 => {
            ipv6::HEADER_BYTES + usize::from(Ipv6View::parse_cut(packet).ok()?.payload_length())
        }
        _ => return None,
    };
    Some(offset + packet_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        build::{arp_request, tcp, udp},
        memory::MemPacket,
    };

    #[test]
    fn a_frame_that_ends_within_its_packet_is_truncated() {
        for (frame, header_bytes) in [
            (udp().payload([7; 40]).build(), 14 + 20),
            (tcp().vlan(7).ipv4_options(&[1; 4]).build(), 18 + 24),
            (udp().to("[2001:db8::1]:53").qinq(7, 8).build(), 22 + 40),
            (udp().to("[2001:db8::1]:53").extension(60, &[0; 14]).build(), 14 + 40),
        ] {
            for len in 0..frame.len() {
                assert_eq!(is_truncated(&frame[..len], len), len >= header_bytes, "{len}");
            }
            // The rest is in other segments, or is padding.
            assert!(!is_truncated(&frame[..header_bytes], frame.len()));
            assert!(!is_truncated(&frame, frame.len() + 9));
        }
        let mut contradictory = udp().build();
        contradictory[17] = 19;
        assert!(!is_truncated(&contradictory, contradictory.len()));
        let arp = arp_request([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        assert!(!is_truncated(&arp[..20], 20));
    }
    #[test]
    fn bytes_after_the_packet_are_cut_off() {
        for frame in [
            udp().build(),
            tcp().vlan(7).ipv4_options(&[1; 4]).build(),
            udp().to("[2001:db8::1]:53").qinq(7, 8).payload([7; 9]).build(),
        ] {
            for padding_bytes in [0, 1, 20] {
                let mut padded = frame.clone();
                padded.resize(frame.len() + padding_bytes, 7);
                let mut packet = MemPacket::new(&padded);
                cut_padding(&mut packet);
                assert_eq!(packet.data(), frame);
            }
        }
        let mut arp = MemPacket::new(&arp_request([10, 0, 0, 1].into(), [10, 0, 0, 2].into()));
        let mut cut = MemPacket::new(&udp().payload([7; 9]).build()[..45]);
        cut_padding(&mut arp);
        cut_padding(&mut cut);
        assert_eq!((arp.len_bytes(), cut.len_bytes()), (42, 45));
    }
}
