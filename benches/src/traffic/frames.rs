//! The frames of many flows, cheaply.
//!
//! Writing a frame copies 64 bytes and sets a few numbers. The fields that identify the flow are
//! balanced with the IPv4 identification and the TCP sequence number, so that all frames have the
//! same, correct checksums.

use crate::buffer::Buffer;
use hotloop::packet::checksum::{checksum, transport_v4};
use hotloop::packet::ip::protocol;
use std::net::Ipv4Addr;

/// A service's address is this plus its number, on [`SERVICE_PORT`].
pub const SERVICES: Ipv4Addr = Ipv4Addr::new(10, 200, 0, 0);

/// The TCP port of every service.
pub const SERVICE_PORT: u16 = 80;

/// Clients are in this network of 65,536 addresses, and in the one below.
const CLIENTS: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 0);

/// The lowest port of clients.
const CLIENT_PORT_MIN: u16 = 1024;

/// Flows have numbers below this.
pub const FLOWS_MAX: u32 = (u16::MAX - CLIENT_PORT_MIN) as u32 * 65_536;

/// TCP flags of a packet in the middle of a connection.
pub const ACK: u8 = 0x10;

/// TCP flags of a connection's first packet.
pub const SYN: u8 = 0x02;

/// Length of a frame: the smallest, with 10 bytes of payload. Without the frame check sequence, as
/// network functions see it.
const FRAME_BYTES: usize = 64;

/// Writes the frames of flows.
#[derive(Debug)]
pub struct Writer {
    /// The frame of flow 0.
    first: [u8; FRAME_BYTES],
    service_count: u32,
}

impl Writer {
    /// Frames of flows to `service_count` services, at most 131,072.
    #[must_use]
    pub fn new(service_count: u32) -> Self {
        Self { first: first(), service_count }
    }

    /// Writes a frame into `buffer`, for the flow with this number.
    #[inline(always)]
    pub fn write(&self, buffer: &mut Buffer, flow: u32, flags: u8) {
        let bytes = buffer.begin::<FRAME_BYTES>(FRAME_BYTES);
        *bytes = self.first;
        put_flow(bytes, flow, service(flow, self.service_count));
        put_flags(bytes, flags);
    }
}

/// The service of a flow: arbitrary, but always the same.
#[inline(always)]
const fn service(flow: u32, service_count: u32) -> u32 {
    ((flow.wrapping_mul(0x9e37_79b1) as u64 * service_count as u64) >> 32) as u32
}

/// Writes the fields that differ between flows.
#[inline(always)]
fn put_flow(bytes: &mut [u8; FRAME_BYTES], flow: u32, service: u32) {
    // Clients of services above the first 65,536 are in the other network: the increase of one
    // address is the decrease of the other.
    let client = CLIENTS.to_bits() - (service & 0xffff_0000) + (flow & 0xffff);
    let service = SERVICES.to_bits() + service;
    let port = CLIENT_PORT_MIN + (flow >> 16) as u16;
    let (sum, has_carry) = (flow as u16).overflowing_add(service as u16);
    let balance = !(sum + u16::from(has_carry));
    let sequence = u32::from(!port) << 16 | u32::from(balance);
    bytes[18..20].copy_from_slice(&balance.to_be_bytes());
    bytes[26..30].copy_from_slice(&client.to_be_bytes());
    bytes[30..34].copy_from_slice(&service.to_be_bytes());
    bytes[34..36].copy_from_slice(&port.to_be_bytes());
    bytes[38..42].copy_from_slice(&sequence.to_be_bytes());
}

/// Writes TCP's flags, balanced with the urgent pointer, which is ignored without its flag.
#[inline(always)]
fn put_flags(bytes: &mut [u8; FRAME_BYTES], flags: u8) {
    bytes[47] = flags;
    bytes[52..54].copy_from_slice(&(!u16::from(flags)).to_be_bytes());
}

/// The frame of flow 0.
fn first() -> [u8; FRAME_BYTES] {
    let mut bytes = [0; FRAME_BYTES];
    bytes[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    bytes[12..14].copy_from_slice(&[0x08, 0x00]);
    bytes[14] = 0x45;
    bytes[17] = (FRAME_BYTES - 14) as u8;
    // Don't fragment.
    bytes[20] = 0x40;
    (bytes[22], bytes[23]) = (64, protocol::TCP);
    bytes[26..30].copy_from_slice(&CLIENTS.octets());
    bytes[30..34].copy_from_slice(&SERVICES.octets());
    bytes[36..38].copy_from_slice(&SERVICE_PORT.to_be_bytes());
    // Five words of header, a window, and the fields that balance the flow and the flags.
    bytes[46] = 0x50;
    bytes[48..50].copy_from_slice(&[0xff, 0xff]);
    put_flow(&mut bytes, 0, 0);
    put_flags(&mut bytes, ACK);
    let sum = checksum(&bytes[14..34]);
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    let sum = transport_v4(CLIENTS, SERVICES, protocol::TCP, &bytes[34..]);
    bytes[50..52].copy_from_slice(&sum.to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop::packet::PacketBuf;
    use hotloop::packet::ipv4::Ipv4View;
    use hotloop::packet::tcp::TcpView;
    use std::collections::HashSet;

    #[test]
    fn frames_are_whole_and_their_checksums_right() {
        for service_count in [10, 131_072] {
            let writer = Writer::new(service_count);
            let flows = [0, 1, 65_535, 65_536, 7_999_999, FLOWS_MAX - 1];
            let mut keys = HashSet::new();
            for flow in flows.into_iter().chain(10..40) {
                for flags in [ACK, SYN] {
                    let mut buffer = Buffer::new();
                    writer.write(&mut buffer, flow, flags);
                    let ip = Ipv4View::parse(&buffer.data()[14..]).unwrap();
                    assert_eq!(usize::from(ip.total_length()) + 14, buffer.len_bytes());
                    assert!(ip.is_checksum_right() && ip.dont_fragment());
                    let (client, service) = (ip.source(), ip.destination());
                    let tcp = TcpView::parse(ip.payload()).unwrap();
                    assert_eq!(transport_v4(client, service, protocol::TCP, ip.payload()), 0);
                    assert_eq!((tcp.flags(), tcp.destination_port()), (flags, SERVICE_PORT));
                    assert!(service.to_bits() - SERVICES.to_bits() < service_count);
                    keys.insert((client, tcp.source_port(), service));
                }
            }
            assert_eq!(keys.len(), flows.len() + 30);
        }
    }
}
