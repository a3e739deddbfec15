//! A frame's own IP header: the outermost one.

use hotloop::packet::classify::Layout;
use hotloop::packet::ethernet::{self, ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use hotloop::packet::ip::{Fragment, protocol};
use hotloop::packet::ipv4::{self, Ipv4Header, Ipv4View};
use hotloop::packet::ipv6::{self, Ipv6Header, Ipv6View};
use hotloop::packet::{icmp, icmpv6};
use std::net::IpAddr;

/// What a frame's outermost IP header says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OwnHeader {
    /// The sender of the packet.
    pub source: IpAddr,
    /// Its receiver.
    pub destination: IpAddr,
    /// What it carries, after options and extension headers.
    pub protocol: u8,
    /// Which part of a datagram it is.
    pub fragment: Fragment,
    /// What the fragments of a datagram have in common; 0 in IPv6 packets that are none.
    pub identification: u32,
    /// TTL or hop limit.
    pub ttl: u8,
    /// Whether routers may not fragment it.
    pub dont_fragment: bool,
    /// Where the header begins in the frame, in bytes.
    pub l3_offset: usize,
    /// Where what it carries begins in the frame, in bytes.
    pub l4_offset: usize,
    /// Length in bytes of the packet, by its own account: padding apart, header included.
    pub total_bytes: usize,
}

impl OwnHeader {
    /// That of `frame`; none where it has no sound one.
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

    /// Whether it carries an IP packet.
    #[must_use]
    pub const fn is_tunnel(&self) -> bool {
        matches!(self.protocol, protocol::IPV4 | protocol::IPV6)
    }

    /// Whether it carries ICMP, or ICMPv6 where it is of IPv6.
    #[must_use]
    pub const fn is_icmp(&self) -> bool {
        match self.source {
            IpAddr::V4(_) => self.protocol == protocol::ICMP,
            IpAddr::V6(_) => self.protocol == protocol::ICMPV6,
        }
    }

    /// The type of its ICMP message; none where it carries none, or begins in another fragment.
    #[must_use]
    pub fn icmp_kind(&self, frame: &[u8]) -> Option<u8> {
        if !self.is_icmp() || self.fragment == Fragment::Later {
            return None;
        }
        frame.get(self.l4_offset).copied()
    }

    /// Whether it is an echo request, or a fragment of ICMP: what else may be fragmented isn't worth
    /// telling apart, and later fragments don't show it.
    #[must_use]
    pub fn is_echo(&self, frame: &[u8]) -> bool {
        let request = match self.source {
            IpAddr::V4(_) => icmp::kind::ECHO_REQUEST,
            IpAddr::V6(_) => icmpv6::kind::ECHO_REQUEST,
        };
        let is_fragment = self.fragment != Fragment::None;
        self.is_icmp() && (is_fragment || self.icmp_kind(frame) == Some(request))
    }

    /// Whether it is a redirect or a source quench: for hosts on the same link, and for the past.
    #[must_use]
    pub fn is_hop_by_hop(&self, frame: &[u8]) -> bool {
        let kind = self.icmp_kind(frame);
        self.source.is_ipv4()
            && matches!(kind, Some(icmp::kind::REDIRECT | icmp::kind::SOURCE_QUENCH))
    }

    /// Whether the header's checksum is right. IPv6 has none.
    #[must_use]
    pub fn is_checksum_right(&self, frame: &[u8]) -> bool {
        self.source.is_ipv6()
            || Ipv4View::of_frame(frame).is_some_and(|view| view.is_checksum_right())
    }

    /// TCP's flags; 0 where it carries none, or they are in another fragment.
    #[inline]
    #[must_use]
    pub fn tcp_flags(&self, frame: &[u8]) -> u8 {
        if self.protocol != protocol::TCP || self.fragment == Fragment::Later {
            return 0;
        }
        frame.get(self.l4_offset + TCP_FLAGS_OFFSET).copied().unwrap_or(0)
    }
}

/// Where TCP's flags are in its header, in bytes.
const TCP_FLAGS_OFFSET: usize = 13;

/// Where TCP's flags are in a packet of which [`Layout::is_fast_v4`] holds, in bytes.
const FAST_FLAGS_OFFSET: usize = ethernet::HEADER_BYTES + ipv4::HEADER_BYTES + TCP_FLAGS_OFFSET;

/// The first bytes of a packet of which [`Layout::is_fast_v4`] holds, up to TCP's flags.
pub type FastFront = [u8; FAST_FLAGS_OFFSET + 1];

/// TCP's flags, were it TCP.
#[inline(always)]
pub const fn fast_flags(front: &FastFront) -> u8 {
    front[FAST_FLAGS_OFFSET]
}

/// TCP's flags in a packet that is keyed by its own header, were it TCP; 0 where there are none.
pub fn plain_flags(frame: &[u8], layout: Layout) -> u8 {
    let flags = layout.l4_offset(frame).and_then(|offset| frame.get(offset + TCP_FLAGS_OFFSET));
    flags.copied().unwrap_or(0)
}

/// Counts the hop of a packet that is forwarded as it is. Says whether it may be.
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
