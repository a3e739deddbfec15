//! Definitions that IPv4 and IPv6 share: protocol numbers, fragments, congestion marks.

pub use crate::ip_fields::{Ecn, Fragment, is_host, protocol};
use crate::{
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
    let Some((ethertype, offset)) = ethernet::network_layer(frame) else { return false };
    let packet = frame.get(offset..).unwrap_or_default();
    let packet_bytes = match ethertype {
        ETHERTYPE_IPV4 => Ipv4View::parse_cut(packet).map(|view| view.total_length().into()),
        ETHERTYPE_IPV6 => Ipv6View::parse_cut(packet)
            .map(|view| ipv6::HEADER_BYTES + usize::from(view.payload_length())),
        _ => return false,
    };
    packet_bytes.is_ok_and(|bytes: usize| offset + bytes > len_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{arp_request, tcp, udp};

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
}
