//! A frame's own IP header: the outermost one.

use hotloop::packet::ethernet::{self, ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use hotloop::packet::ipv4::Ipv4View;
use hotloop::packet::ipv6::{self, Ipv6View};
use std::net::IpAddr;

/// What a frame's outermost IP header says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OwnHeader {
    /// Who sent the packet.
    pub source: IpAddr,
    /// Whom it is for.
    pub destination: IpAddr,
    /// What it carries, behind options and extension headers.
    pub protocol: u8,
}

impl OwnHeader {
    /// That of `frame`; none where it has no sound one.
    #[must_use]
    pub fn of(frame: &[u8]) -> Option<Self> {
        let (ethertype, l3_offset) = ethernet::network_layer(frame)?;
        match ethertype {
            ETHERTYPE_IPV4 => {
                let view = Ipv4View::parse_cut(&frame[l3_offset..]).ok()?;
                let (source, destination) = (view.source().into(), view.destination().into());
                Some(Self { source, destination, protocol: view.protocol() })
            }
            ETHERTYPE_IPV6 => {
                let view = Ipv6View::parse_cut(&frame[l3_offset..]).ok()?;
                let (source, destination) = (view.source().into(), view.destination().into());
                Some(Self { source, destination, protocol: view.chain().ok()?.protocol })
            }
            _ => None,
        }
    }

    /// Length of the packet of `frame` in bytes, by its own account: padding apart, header included.
    /// None where there is no header.
    #[inline]
    #[must_use]
    pub fn total_bytes(frame: &[u8]) -> Option<usize> {
        let (ethertype, l3_offset) = ethernet::network_layer(frame)?;
        let header = frame.get(l3_offset..)?.first_chunk::<6>()?;
        match ethertype {
            ETHERTYPE_IPV4 => Some(usize::from(u16::from_be_bytes([header[2], header[3]]))),
            ETHERTYPE_IPV6 => {
                let payload_bytes = usize::from(u16::from_be_bytes([header[4], header[5]]));
                Some(ipv6::HEADER_BYTES + payload_bytes)
            }
            _ => None,
        }
    }
}
