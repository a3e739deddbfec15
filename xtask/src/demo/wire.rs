//! Just enough of the wire format to say who talks to whom in a packet.
//!
//! It stands apart from the library's own parsers on purpose: the demo judges what they made.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: u16 = 0x8100;
const ETHERTYPE_QINQ: u16 = 0x88a8;

const PROTOCOL_IPV4: u8 = 4;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_IPV6: u8 = 41;

/// Hop-by-hop, routing and destination options: next header, then length in 8 bytes beyond the
/// first 8 (RFC 8200, 4).
const EXTENSIONS: [u8; 3] = [0, 43, 60];
const EXTENSION_FRAGMENT: u8 = 44;

/// One direction of a conversation: the five fields, ports only where the packet shows them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    /// The IP source.
    pub source: IpAddr,
    /// The IP destination.
    pub destination: IpAddr,
    /// The protocol above IP, extension headers passed over.
    pub protocol: u8,
    /// Source and destination port of TCP and UDP.
    pub ports: Option<(u16, u16)>,
}

/// What a packet says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addressed {
    /// The innermost flow.
    pub flow: Flow,
    /// The outer destination, where the packet is IP in IP.
    pub tunnel: Option<IpAddr>,
}

struct Ip<'a> {
    flow: Flow,
    payload: &'a [u8],
    is_later_fragment: bool,
}

/// Reads an Ethernet frame; `None` where it holds no whole IP header.
pub fn read(frame: &[u8]) -> Option<Addressed> {
    let outer = ip(network_layer(frame)?)?;
    let mut innermost = &outer;
    let mut inner;
    let mut tunnel = None;
    while is_tunnel(innermost) {
        let Some(next) = ip(innermost.payload) else { break };
        tunnel.get_or_insert(outer.flow.destination);
        inner = next;
        innermost = &inner;
    }
    let mut flow = innermost.flow.clone();
    if !innermost.is_later_fragment && [PROTOCOL_TCP, PROTOCOL_UDP].contains(&flow.protocol) {
        flow.ports = number(innermost.payload, 0).zip(number(innermost.payload, 2));
    }
    Some(Addressed { flow, tunnel })
}

fn is_tunnel(ip: &Ip<'_>) -> bool {
    [PROTOCOL_IPV4, PROTOCOL_IPV6].contains(&ip.flow.protocol) && !ip.is_later_fragment
}

fn network_layer(frame: &[u8]) -> Option<&[u8]> {
    let mut at = 12;
    loop {
        match number(frame, at)? {
            ETHERTYPE_VLAN | ETHERTYPE_QINQ => at += 4,
            ETHERTYPE_IPV4 | ETHERTYPE_IPV6 => return frame.get(at + 2..),
            _ => return None,
        }
    }
}

fn ip(packet: &[u8]) -> Option<Ip<'_>> {
    match packet.first()? >> 4 {
        4 => ipv4(packet),
        6 => ipv6(packet),
        _ => None,
    }
}

/// RFC 791, 3.1.
fn ipv4(packet: &[u8]) -> Option<Ip<'_>> {
    let header_bytes = usize::from(packet[0] & 0xf) * 4;
    let flow = Flow {
        source: Ipv4Addr::from(array::<4>(packet, 12)?).into(),
        destination: Ipv4Addr::from(array::<4>(packet, 16)?).into(),
        protocol: packet[9],
        ports: None,
    };
    let is_later_fragment = number(packet, 6)? & 0x1fff != 0;
    Some(Ip { flow, payload: packet.get(header_bytes..)?, is_later_fragment })
}

/// RFC 8200, 3 and 4.
fn ipv6(packet: &[u8]) -> Option<Ip<'_>> {
    let mut flow = Flow {
        source: Ipv6Addr::from(array::<16>(packet, 8)?).into(),
        destination: Ipv6Addr::from(array::<16>(packet, 24)?).into(),
        protocol: packet[6],
        ports: None,
    };
    let mut payload = packet.get(40..)?;
    let mut is_later_fragment = false;
    while !is_later_fragment {
        let bytes = match flow.protocol {
            EXTENSION_FRAGMENT => {
                is_later_fragment = number(payload, 2)? >> 3 != 0;
                8
            }
            extension if EXTENSIONS.contains(&extension) => (usize::from(*payload.get(1)?) + 1) * 8,
            _ => break,
        };
        flow.protocol = *payload.first()?;
        payload = payload.get(bytes..)?;
    }
    Some(Ip { flow, payload, is_later_fragment })
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn number(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_be_bytes)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// An Ethernet frame with a UDP datagram over IPv4.
    pub fn udp_frame(source: [u8; 4], destination: [u8; 4], port: u16, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend(ETHERTYPE_IPV4.to_be_bytes());
        frame.extend(ipv4_packet(source, destination, PROTOCOL_UDP, &udp(port, payload)));
        frame
    }

    /// The same in a tunnel to 10.0.0.9.
    pub fn tunnelled(frame: &[u8]) -> Vec<u8> {
        let mut outer = frame[..14].to_vec();
        outer.extend(ipv4_packet([192, 0, 2, 1], [10, 0, 0, 9], PROTOCOL_IPV4, &frame[14..]));
        outer
    }

    fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
        let mut datagram = port.to_be_bytes().to_vec();
        datagram.extend([0, 53, 0, 0, 0, 0]);
        datagram.extend(payload);
        datagram
    }

    fn ipv4_packet(source: [u8; 4], destination: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0];
        packet.extend(source);
        packet.extend(destination);
        packet.extend(payload);
        packet
    }

    #[test]
    fn a_tunnel_s_end_and_its_inner_flow_are_read() {
        let plain = udp_frame([198, 51, 100, 7], [203, 0, 113, 20], 4000, b"?");
        let read_plain = read(&plain).unwrap();
        assert_eq!(read_plain.tunnel, None);
        assert_eq!(read_plain.flow.ports, Some((4000, 53)));
        let read_tunnelled = read(&tunnelled(&plain)).unwrap();
        assert_eq!(read_tunnelled.tunnel, Some(IpAddr::from([10, 0, 0, 9])));
        assert_eq!(read_tunnelled.flow, read_plain.flow);
    }

    #[test]
    fn a_later_fragment_shows_no_ports() {
        let mut frame = udp_frame([198, 51, 100, 7], [203, 0, 113, 20], 4000, b"later");
        frame[14 + 7] = 185;
        assert_eq!(read(&frame).unwrap().flow.ports, None);
    }

    #[test]
    fn ipv6_extension_headers_are_passed_over() {
        let mut frame = vec![2; 12];
        frame.extend(ETHERTYPE_VLAN.to_be_bytes());
        frame.extend([0, 7]);
        frame.extend(ETHERTYPE_IPV6.to_be_bytes());
        frame.extend([0x60, 0, 0, 0, 0, 24, 0, 64]);
        frame.extend(Ipv6Addr::LOCALHOST.octets());
        frame.extend(Ipv6Addr::UNSPECIFIED.octets());
        frame.extend([EXTENSION_FRAGMENT, 0, 1, 4, 0, 0, 0, 0]);
        frame.extend([PROTOCOL_UDP, 0, 0, 1, 0, 0, 0, 9]);
        frame.extend(udp(4000, b""));
        let flow = read(&frame).unwrap().flow;
        assert_eq!((flow.protocol, flow.ports), (PROTOCOL_UDP, Some((4000, 53))));
    }

    #[test]
    fn no_cut_of_a_frame_panics() {
        let frame = tunnelled(&udp_frame([1; 4], [2; 4], 9, b"payload"));
        for length in 0..frame.len() {
            read(&frame[..length]);
        }
        assert_eq!(read(&frame[..20]), None);
    }
}
