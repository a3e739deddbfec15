//! Captures, and the flows that their frames belong to.
//!
//! The reader and the parser are independent of the library, because the demo judges the library's
//! output.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use etherparse::{IpNumber, LaxNetSlice, LaxSlicedPacket, TransportSlice};

use crate::failure::Failure;

/// The first bytes of a pcap file in little-endian order, with microseconds and with nanoseconds.
const MAGICS: [u32; 2] = [0xA1B2_C3D4, 0xA1B2_3C4D];

/// The lengths of a file's header and of a frame's, in bytes.
const FILE_HEADER_BYTES: usize = 24;
const FRAME_HEADER_BYTES: usize = 16;

/// The frames of a little-endian pcap file, in its order.
pub fn read(path: &Path) -> Result<Vec<Vec<u8>>, Failure> {
    let file = fs::read(path).map_err(Failure::file("read", path))?;
    frames(&file).ok_or_else(|| Failure::failed(format!("{} is no whole pcap", path.display())))
}

fn frames(file: &[u8]) -> Option<Vec<Vec<u8>>> {
    let word = |bytes: &[u8], at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    MAGICS.contains(&word(file, 0)?).then_some(())?;
    let mut rest = file.get(FILE_HEADER_BYTES..)?;
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let frame_bytes = word(rest, 8)? as usize;
        let (frame, next) = rest.get(FRAME_HEADER_BYTES..)?.split_at_checked(frame_bytes)?;
        frames.push(frame.to_vec());
        rest = next;
    }
    Some(frames)
}

/// One direction of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// The IP source.
    pub source: IpAddr,
    /// The IP destination.
    pub destination: IpAddr,
    /// The protocol above IP.
    pub protocol: u8,
    /// Source and destination port of TCP and UDP; `None` in fragments.
    pub ports: Option<(u16, u16)>,
}

/// The innermost flow of an Ethernet frame, and the outermost destination if it is IP in IP. `None`
/// if the frame holds no IP packet.
pub fn flow(frame: &[u8]) -> Option<(Flow, Option<IpAddr>)> {
    let mut packet = LaxSlicedPacket::from_ethernet(frame).ok()?;
    let mut tunnel = None;
    loop {
        let (source, destination, payload): (IpAddr, IpAddr, _) = match packet.net.as_ref()? {
            LaxNetSlice::Ipv4(ip) => {
                let header = ip.header();
                (header.source_addr().into(), header.destination_addr().into(), ip.payload())
            }
            LaxNetSlice::Ipv6(ip) => {
                let header = ip.header();
                (header.source_addr().into(), header.destination_addr().into(), ip.payload())
            }
            LaxNetSlice::Arp(_) => return None,
        };
        let is_tunnel = [IpNumber::IPV4, IpNumber::IPV6].contains(&payload.ip_number);
        let inner = (is_tunnel && !payload.fragmented)
            .then(|| LaxSlicedPacket::from_ip(payload.payload).ok())
            .flatten();
        if let Some(inner) = inner {
            tunnel.get_or_insert(destination);
            packet = inner;
            continue;
        }
        let ports = match &packet.transport {
            Some(TransportSlice::Tcp(tcp)) => Some((tcp.source_port(), tcp.destination_port())),
            Some(TransportSlice::Udp(udp)) => Some((udp.source_port(), udp.destination_port())),
            _ => None,
        };
        return Some((Flow { source, destination, protocol: payload.ip_number.0, ports }, tunnel));
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// An Ethernet frame with a UDP datagram to 203.0.113.20, in a tunnel to 10.0.0.9.
    pub fn tunnelled(client: u8, payload: &[u8]) -> Vec<u8> {
        let mut udp = vec![0x0f, 0xa0, 0, 53, 0, 0, 0, 0];
        udp[5] = (8 + payload.len()) as u8;
        udp.extend(payload);
        let inner = ipv4([198, 51, 100, client], [203, 0, 113, 20], 17, &udp);
        let mut frame = vec![2; 12];
        frame.extend([8, 0]);
        frame.extend(ipv4([192, 0, 2, 1], [10, 0, 0, 9], 4, &inner));
        frame
    }

    fn ipv4(source: [u8; 4], destination: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0];
        packet[3] = (20 + payload.len()) as u8;
        packet.extend(source);
        packet.extend(destination);
        packet.extend(payload);
        packet
    }

    #[test]
    fn the_flow_in_a_tunnel_is_read_and_no_cut_panics() {
        let frame = tunnelled(7, b"?");
        let (flow, tunnel) = super::flow(&frame).unwrap();
        assert_eq!(tunnel, Some(IpAddr::from([10, 0, 0, 9])));
        assert_eq!(flow.source, IpAddr::from([198, 51, 100, 7]));
        assert_eq!((flow.protocol, flow.ports), (17, Some((4000, 53))));
        for length in 0..frame.len() {
            super::flow(&frame[..length]);
        }
    }

    #[test]
    fn the_committed_capture_is_large_enough_and_other_files_are_refused() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/captures/clients.pcap");
        let frames = read(&path).unwrap();
        assert!(frames.len() >= 1_000, "{} packets", frames.len());
        let flows = frames.iter().filter_map(|frame| flow(frame)).map(|(flow, _)| flow);
        let flows: BTreeSet<_> = flows.filter(|flow| flow.ports.is_some()).collect();
        assert!(flows.len() >= 120, "{} directions of flows", flows.len());
        assert!(frames.iter().any(|frame| frame.len() == 1_514), "no full-size packet");
        let message = read(&path.with_file_name("demo.toml")).unwrap_err().to_string();
        assert!(message.ends_with("demo.toml is no whole pcap"), "{message}");
    }
}
