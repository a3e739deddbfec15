//! The limit on how often a packet may be wrapped again.

use crate::{
    ip::protocol,
    ipv6::{self, EXTENSION_HEADERS_MAX},
};

/// Type of the option, which has one byte of data.
const OPTION: u8 = 4;

/// Type of the option that is one byte of padding.
const PAD_1: u8 = 0;

/// A Tunnel Encapsulation Limit from the destination options of an IPv6 packet (RFC 2473, section
/// 4.1.1).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EncapsulationLimit {
    /// Number of further tunnels that the packet may enter.
    pub limit: u8,
    /// Offset of the limit in bytes from the packet's IPv6 header: the pointer of an ICMPv6
    /// parameter problem.
    pub pointer: u32,
}

/// The encapsulation limit of the packet that begins with this IPv6 header, or `None`. The search
/// ends at a fragment header: the headers of tunnels come before that.
///
/// ```
/// use hotloop_packet::{build::udp, ipip};
///
/// let frame = udp().to("[2001:db8::2]:53").extension(60, &[4, 1, 7, 1, 1, 0]).build();
/// let found = ipip::encapsulation_limit(&frame[14..]).unwrap();
/// assert_eq!((found.limit, found.pointer), (7, 44));
/// ```
pub fn encapsulation_limit(packet: &[u8]) -> Option<EncapsulationLimit> {
    let mut next_header = *packet.get(6)?;
    let mut offset = ipv6::HEADER_BYTES;
    for _ in 0..EXTENSION_HEADERS_MAX {
        if next_header == protocol::FRAGMENT || !ipv6::is_extension(next_header) {
            return None;
        }
        let rest = packet.get(offset..)?;
        let [next, length, ..] = *rest.first_chunk::<8>()?;
        let header_bytes = match next_header {
            protocol::AUTHENTICATION => (usize::from(length) + 2) * 4,
            _ => (usize::from(length) + 1) * 8,
        };
        if next_header == protocol::DESTINATION_OPTIONS
            && let Some(at) = find_option(rest.get(..header_bytes)?)
        {
            return Some(EncapsulationLimit { limit: rest[at], pointer: (offset + at) as u32 });
        }
        (next_header, offset) = (next, offset + header_bytes);
    }
    None
}

/// The offset of the limit in an options header.
fn find_option(header: &[u8]) -> Option<usize> {
    let mut at = 2;
    while let Some(kind) = header.get(at) {
        if *kind == PAD_1 {
            at += 1;
            continue;
        }
        let length = usize::from(*header.get(at + 1)?);
        if *kind == OPTION && length == 1 && at + 2 < header.len() {
            return Some(at + 2);
        }
        at += 2 + length;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{PacketBuilder, udp};

    fn found(builder: PacketBuilder) -> Option<(u8, u32)> {
        let frame = builder.build();
        encapsulation_limit(&frame[14..]).map(|found| (found.limit, found.pointer))
    }

    #[test]
    fn the_option_is_found_wherever_it_may_be() {
        let packet = || udp().to("[2001:db8::2]:53").payload([9; 40]);
        assert_eq!(found(packet()), None);
        assert_eq!(found(packet().extension(60, &[4, 1, 0, 1, 1, 0])), Some((0, 44)));
        assert_eq!(found(packet().extension(60, &[0, 0, 0, 4, 1, 255])), Some((255, 47)));
        // After other headers and options; with a wrong length it is another option.
        let second = packet().extension(0, &[1, 4, 0, 0, 0, 0]).extension(43, &[0; 14]);
        assert_eq!(found(second.extension(60, &[1, 1, 0, 4, 1, 3])), Some((3, 40 + 8 + 16 + 7)));
        assert_eq!(found(packet().extension(60, &[4, 2, 0, 0, 1, 0])), None);
        assert_eq!(found(packet().extension(60, &[1, 4, 4, 1, 0, 0])), None);
        assert_eq!(found(packet().extension(0, &[4, 1, 0, 1, 1, 0])), None);
    }

    #[test]
    fn what_is_cut_has_none_and_panics_nowhere() {
        let frame = udp().to("[2001:db8::2]:53").extension(60, &[1, 1, 0, 4, 1, 3]).build();
        for length in 0..frame.len() - 14 {
            let found = encapsulation_limit(&frame[14..14 + length]);
            assert_eq!(found.is_some(), length >= 48, "{length}");
        }
        for at in 40..48 {
            for value in 0..=255 {
                let mut packet = frame[14..].to_vec();
                packet[at] = value;
                let _ = encapsulation_limit(&packet);
            }
        }
    }
}
