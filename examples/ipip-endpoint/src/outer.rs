//! A frame's outermost IP header: its destination, and its packet's length.

use hotloop::packet::ethernet::{self, ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use hotloop::packet::ip::is_truncated;
use hotloop::packet::ipv4::Ipv4View;
use hotloop::packet::ipv6::{self, Ipv6View};
use std::net::IpAddr;

/// The fields of a frame's outermost IP header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Outer {
    /// The sender of the packet.
    pub source: IpAddr,
    /// The receiver of the packet.
    pub destination: IpAddr,
    /// The payload's protocol, after options and extension headers.
    pub protocol: u8,
    /// Length of the packet in bytes by its own header, which is included.
    pub total_bytes: usize,
    /// TTL or hop limit.
    pub hops: u8,
    /// Whether routers may fragment the packet.
    pub may_fragment: bool,
}

/// Why a frame has no readable IP header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NoHeader {
    /// The frame carries something else.
    NotIp,
    /// The header is cut, or inconsistent.
    Malformed,
    /// The frame ends before the packet does.
    Truncated,
}

impl Outer {
    /// The header of a frame. `frame` is its first segment, and `len_bytes` its length over all
    /// segments.
    ///
    /// # Errors
    /// [`NoHeader`].
    #[inline]
    pub fn of(frame: &[u8], len_bytes: usize) -> Result<Self, NoHeader> {
        let (ethertype, l3_offset) = ethernet::network_layer(frame).ok_or(NoHeader::Malformed)?;
        let bytes = frame.get(l3_offset..).unwrap_or_default();
        let outer = match ethertype {
            ETHERTYPE_IPV4 => Self::v4(bytes),
            ETHERTYPE_IPV6 => Self::v6(bytes),
            _ => return Err(NoHeader::NotIp),
        };
        match outer {
            Some(outer) if l3_offset + outer.total_bytes <= len_bytes => Ok(outer),
            _ if is_truncated(frame, len_bytes) => Err(NoHeader::Truncated),
            _ => Err(NoHeader::Malformed),
        }
    }

    fn v4(bytes: &[u8]) -> Option<Self> {
        let view = Ipv4View::parse_cut(bytes).ok()?;
        Some(Self {
            source: view.source().into(),
            destination: view.destination().into(),
            protocol: view.protocol(),
            total_bytes: usize::from(view.total_length()),
            hops: view.ttl(),
            may_fragment: !view.dont_fragment(),
        })
    }

    fn v6(bytes: &[u8]) -> Option<Self> {
        let view = Ipv6View::parse_cut(bytes).ok()?;
        Some(Self {
            source: view.source().into(),
            destination: view.destination().into(),
            protocol: view.chain().ok()?.protocol,
            total_bytes: ipv6::HEADER_BYTES + usize::from(view.payload_length()),
            hops: view.hop_limit(),
            may_fragment: false,
        })
    }

    /// Whether the packet is for the stations of one link: routers don't forward it (RFC 3927,
    /// section 2.7; RFC 4291, section 2.5.6), and groups are not tunnelled here.
    #[must_use]
    pub const fn is_on_link(&self) -> bool {
        match self.destination {
            IpAddr::V4(address) => {
                address.is_multicast() || address.is_broadcast() || address.is_link_local()
            }
            IpAddr::V6(address) => address.is_multicast() || address.is_unicast_link_local(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop::packet::build::{arp_request, tcp, udp};
    use hotloop::packet::ip::protocol;

    fn of(frame: &[u8]) -> Result<Outer, NoHeader> {
        Outer::of(frame, frame.len())
    }

    #[test]
    fn the_outermost_header_is_read_in_either_family() {
        let inner = || udp().payload([7; 100]);
        let v4 = of(&inner().tunnelled("192.0.2.1", "10.0.0.1").build()).unwrap();
        assert_eq!(
            (v4.source.to_string(), v4.destination.to_string()),
            ("192.0.2.1".into(), "10.0.0.1".into())
        );
        assert_eq!((v4.protocol, v4.total_bytes), (protocol::IPV4, 148));
        let v6 = of(&inner().tunnelled("2001:db8::1", "2001:db8::2").build()).unwrap();
        assert_eq!((v6.protocol, v6.total_bytes, v6.may_fragment), (protocol::IPV4, 168, false));
        assert!(of(&tcp().build()).unwrap().may_fragment);
        assert!(!of(&tcp().dont_fragment().build()).unwrap().may_fragment);
    }

    #[test]
    fn what_shows_no_header_is_distinguished() {
        let arp = arp_request("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        assert_eq!(of(&arp), Err(NoHeader::NotIp));
        for (frame, header_end) in
            [(udp().payload([7; 40]).build(), 34), (udp().to("[2001:db8::1]:53").build(), 54)]
        {
            for len in 0..frame.len() {
                let expected =
                    if len < header_end { NoHeader::Malformed } else { NoHeader::Truncated };
                assert_eq!(of(&frame[..len]), Err(expected), "{len}");
            }
        }
    }

    #[test]
    fn neighbours_are_not_forwarded_to() {
        for (address, is_on_link) in [
            ("224.0.0.251:5353", true),
            ("255.255.255.255:67", true),
            ("169.254.1.1:80", true),
            ("198.51.100.7:80", false),
            ("[ff02::2]:80", true),
            ("[fe80::1]:80", true),
            ("[2001:db8::1]:80", false),
        ] {
            assert_eq!(
                of(&udp().to(address).build()).unwrap().is_on_link(),
                is_on_link,
                "{address}"
            );
        }
    }
}
