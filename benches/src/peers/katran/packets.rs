//! The frames that both sides get, and the packets that Katran makes from them.

use crate::buffer::Buffer;
use crate::configuration::{BACKENDS, NEXT_HOP};
use crate::traffic::{ACK, Writer};
use hotloop::packet::PacketBuf;
use hotloop::packet::ip::protocol;
use hotloop::packet::ipv4::Ipv4View;

/// Bytes of a frame.
pub const FRAME_BYTES: usize = 64;

/// Bytes of an Ethernet header, and of an IPv4 header without options.
const ETHERNET_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;

/// The frame of a flow, as written by our source.
pub fn frame(service_count: u32, flow: u32) -> [u8; FRAME_BYTES] {
    let mut buffer = Buffer::new();
    Writer::new(service_count).write(&mut buffer, flow, ACK);
    *buffer.data().first_chunk().expect("a frame of 64 bytes")
}

/// Checks that a packet is the frame in an outer IPv4 header to one of `backend_count` backends.
pub fn check_wrapped(frame: &[u8], packet: &[u8], backend_count: u32) -> Result<(), String> {
    let fail = |what: &str| Err(format!("{what}: {packet:02x?}"));
    if packet.len() != frame.len() + IPV4_BYTES {
        return fail("not as long as the frame and an IPv4 header");
    }
    if packet[..6] != NEXT_HOP.bytes() || packet[12..14] != [0x08, 0x00] {
        return fail("not IPv4 to the next hop");
    }
    if packet[ETHERNET_BYTES + IPV4_BYTES..] != frame[ETHERNET_BYTES..] {
        return fail("the inner packet has changed");
    }
    let Ok(outer) = Ipv4View::parse(&packet[ETHERNET_BYTES..]) else {
        return fail("no outer header");
    };
    let is_whole = usize::from(outer.total_length()) == packet.len() - ETHERNET_BYTES;
    if !is_whole || !outer.is_checksum_right() || outer.protocol() != protocol::IPV4 {
        return fail("an outer header that is not right, or not of IP in IP");
    }
    let number = outer.destination().to_bits().wrapping_sub(BACKENDS.to_bits());
    if !(1..=backend_count).contains(&number) { fail("to no backend") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop::packet::checksum::checksum;

    /// The frame wrapped in Katran's way.
    fn wrapped(frame: &[u8]) -> Vec<u8> {
        let mut packet = frame[..ETHERNET_BYTES].to_vec();
        packet[..6].copy_from_slice(&NEXT_HOP.bytes());
        packet.extend([0x45, 0, 0, 70, 0, 0, 0, 0, 64, 4, 0, 0, 172, 16, 1, 2, 10, 100, 0, 3]);
        let sum = checksum(&packet[ETHERNET_BYTES..]);
        packet[24..26].copy_from_slice(&sum.to_be_bytes());
        packet.extend(&frame[ETHERNET_BYTES..]);
        packet
    }

    #[test]
    fn a_wrapped_packet_passes_and_any_changed_byte_fails() {
        let frame = frame(1, 511);
        let packet = wrapped(&frame);
        assert_eq!(check_wrapped(&frame, &packet, 10), Ok(()));
        assert!(check_wrapped(&frame, &packet, 2).unwrap_err().starts_with("to no backend"));
        assert!(check_wrapped(&frame, &packet[..83], 10).is_err());
        // The source of the Ethernet header doesn't matter.
        for at in (0..packet.len()).filter(|at| !(6..12).contains(at)) {
            let mut changed = packet.clone();
            changed[at] ^= 1;
            assert!(check_wrapped(&frame, &changed, 10).is_err(), "byte {at}");
        }
    }
}
