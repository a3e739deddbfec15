//! A frame's own IP header: the outermost one. Reads the frame, trusts no length in it, and
//! allocates nothing.

use hotloop::packet::classify::Layout;
use hotloop::packet::ethernet::{self, ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use hotloop::packet::ip::{Fragment, protocol};
use hotloop::packet::ipv4::{self, Ipv4Header, Ipv4View};
use hotloop::packet::ipv6::{self, Ipv6Header, Ipv6View};
use hotloop::packet::{icmp, icmpv6};
use std::net::IpAddr;

/// The fields of a frame's outermost IP header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OwnHeader {
    /// The sender of the packet.
    pub source: IpAddr,
    /// The receiver of the packet.
    pub destination: IpAddr,
    /// The protocol of the payload, after options and extension headers.
    pub protocol: u8,
    /// The packet's part of a datagram.
    pub fragment: Fragment,
    /// The number that the fragments of a datagram have in common; 0 in IPv6 packets that are not
    /// fragments.
    pub identification: u32,
    /// TTL or hop limit.
    pub ttl: u8,
    /// Whether routers may not fragment the packet.
    pub dont_fragment: bool,
    /// Offset of the header in the frame, in bytes.
    pub l3_offset: usize,
    /// Offset of the payload in the frame, in bytes.
    pub l4_offset: usize,
    /// The packet's length in bytes by its own header: header included, padding excluded.
    pub total_bytes: usize,
}

impl OwnHeader {
    /// The header of `frame`; `None` if it has no valid one.
    #[must_use]
    pub fn of(frame: &[u8]) -> Option<Self> {
        let (ethertype, l3_offset) = ethernet::network_layer(frame)?;
        match ethertype {
            ETHERTYPE_IPV4 => Self::v4(frame, l3_offset),
            ETHERTYPE_IPV6 => Self::v6(frame, l3_offset),
            _ => None,
        }
    }

    fn v4(frame: &[u8], l3_offset: usize) -> Option<Self> {
        let view = Ipv4View::parse_cut(&frame[l3_offset..]).ok()?;
        Some(Self {
            source: view.source().into(),
            destination: view.destination().into(),
            protocol: view.protocol(),
            fragment: view.fragment(),
            identification: view.identification().into(),
            ttl: view.ttl(),
            dont_fragment: view.dont_fragment(),
            l3_offset,
            l4_offset: l3_offset + view.header_bytes(),
            total_bytes: usize::from(view.total_length()),
        })
    }

    fn v6(frame: &[u8], l3_offset: usize) -> Option<Self> {
        let view = Ipv6View::parse_cut(&frame[l3_offset..]).ok()?;
        let chain = view.chain().ok()?;
        Some(Self {
            source: view.source().into(),
            destination: view.destination().into(),
            protocol: chain.protocol,
            fragment: chain.fragment,
            identification: chain.identification,
            ttl: view.hop_limit(),
            dont_fragment: true,
            l3_offset,
            l4_offset: l3_offset + ipv6::HEADER_BYTES + chain.offset_bytes,
            total_bytes: ipv6::HEADER_BYTES + usize::from(view.payload_length()),
        })
    }

    /// Whether the packet carries an IP packet.
    #[must_use]
    pub const fn is_tunnel(&self) -> bool {
        matches!(self.protocol, protocol::IPV4 | protocol::IPV6)
    }

    /// Whether the packet carries ICMP, or ICMPv6 in an IPv6 packet.
    #[must_use]
    pub const fn is_icmp(&self) -> bool {
        match self.source {
            IpAddr::V4(_) => self.protocol == protocol::ICMP,
            IpAddr::V6(_) => self.protocol == protocol::ICMPV6,
        }
    }

    /// The type of the ICMP message; `None` if the packet has no ICMP message, or the message begins in another fragment.
    #[must_use]
    pub fn icmp_kind(&self, frame: &[u8]) -> Option<u8> {
        if !self.is_icmp() || self.fragment == Fragment::Later {
            return None;
        }
        frame.get(self.l4_offset).copied()
    }

    /// Whether the packet is an echo request, or a fragment of ICMP: no other ICMP message is worth
    /// distinguishing among fragments, and later ones don't show the type.
    #[must_use]
    pub fn is_echo(&self, frame: &[u8]) -> bool {
        let request = match self.source {
            IpAddr::V4(_) => icmp::kind::ECHO_REQUEST,
            IpAddr::V6(_) => icmpv6::kind::ECHO_REQUEST,
        };
        let is_fragment = self.fragment != Fragment::None;
        self.is_icmp() && (is_fragment || self.icmp_kind(frame) == Some(request))
    }

    /// Whether the packet is a redirect or a source quench: a redirect is for hosts on the same
    /// link, and a source quench is obsolete.
    #[must_use]
    pub fn is_hop_by_hop(&self, frame: &[u8]) -> bool {
        let kind = self.icmp_kind(frame);
        self.source.is_ipv4()
            && matches!(kind, Some(icmp::kind::REDIRECT | icmp::kind::SOURCE_QUENCH))
    }

    /// Whether the header's checksum is right. IPv6 has no checksum.
    #[must_use]
    pub fn is_checksum_right(&self, frame: &[u8]) -> bool {
        self.source.is_ipv6()
            || Ipv4View::of_frame(frame).is_some_and(|view| view.is_checksum_right())
    }

    /// TCP's flags; 0 if the packet has no flags, or they are in another fragment.
    #[inline]
    #[must_use]
    pub fn tcp_flags(&self, frame: &[u8]) -> u8 {
        if self.protocol != protocol::TCP || self.fragment == Fragment::Later {
            return 0;
        }
        frame.get(self.l4_offset + TCP_FLAGS_OFFSET).copied().unwrap_or(0)
    }
}

/// Offset of TCP's flags in its header, in bytes.
const TCP_FLAGS_OFFSET: usize = 13;

/// Offset of TCP's flags in a packet that satisfies [`Layout::is_fast_v4`], in bytes.
const FAST_FLAGS_OFFSET: usize = ethernet::HEADER_BYTES + ipv4::HEADER_BYTES + TCP_FLAGS_OFFSET;

/// The first bytes of a packet that satisfies [`Layout::is_fast_v4`], up to TCP's flags.
pub type FastFront = [u8; FAST_FLAGS_OFFSET + 1];

/// TCP's flags, if the packet is TCP.
#[inline(always)]
pub const fn fast_flags(front: &FastFront) -> u8 {
    front[FAST_FLAGS_OFFSET]
}

/// TCP's flags in a packet that is keyed by its own header, if it is TCP; otherwise 0.
pub fn plain_flags(frame: &[u8], layout: Layout) -> u8 {
    let flags = layout.l4_offset(frame).and_then(|offset| frame.get(offset + TCP_FLAGS_OFFSET));
    flags.copied().unwrap_or(0)
}

/// Counts the hop of a packet that is forwarded unchanged. Returns whether it may be forwarded.
pub fn spend_hop(frame: &mut [u8]) -> bool {
    let Some((ethertype, l3_offset)) = ethernet::network_layer(frame) else { return false };
    let packet = &mut frame[l3_offset..];
    if ethertype == ETHERTYPE_IPV4 {
        Ipv4Header::parse_mut(packet).is_ok_and(|header| header.ttl() > 1 && header.decrement_ttl())
    } else {
        Ipv6Header::parse_mut(packet)
            .is_ok_and(|header| header.hop_limit() > 1 && header.decrement_hop_limit())
    }
}
