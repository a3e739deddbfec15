//! A frame's kind, and the offsets of its headers.

use crate::{
    Header,
    classify::{
        Depth,
        fast::{HeadersV4, HeadersV6},
        headers::{self, Ip},
    },
    ethernet,
    flow_key::FlowKey,
    ip::Fragment,
};

/// The kind of a frame.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Kind {
    /// Neither IP nor ARP.
    Other,
    /// ARP.
    Arp,
    /// The keyed header is IPv4.
    Ipv4,
    /// The keyed header is IPv6.
    Ipv6,
    /// A header is cut, or is inconsistent in itself or with the headers around it. A first fragment
    /// that ends within TCP's, UDP's or ICMP's header is malformed too, so a tiny one never gets as
    /// far as [`FragmentView::check`](crate::fragment::FragmentView::check).
    Malformed(Header),
}

/// The result of one pass over a frame.
///
/// The keyed header is the one that the flow is read from: see [`crate::classify`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Summary {
    /// The kind of frame.
    pub kind: Kind,
    /// The protocol after the keyed header: see [`crate::ip::protocol`]; 0 if there is no keyed
    /// header.
    pub protocol: u8,
    /// The part of a datagram that follows the keyed header.
    pub fragment: Fragment,
    /// Whether the keyed header is inside an IP-in-IP tunnel, which only [`Depth::Innermost`] looks
    /// into.
    pub is_tunnel: bool,
    /// Whether the keyed header is quoted by an ICMP or ICMPv6 error.
    pub is_icmp_error: bool,
    /// Offset of the frame's own (outermost) IP header in bytes; 0 if there is none.
    pub outer_l3_offset: usize,
    /// Offset of the keyed header in bytes: 14 to 255; 0 if there is none.
    pub l3_offset: usize,
    /// Offset of the keyed header's payload in bytes; 0 for later fragments, for quotes that end
    /// before, and for frames without a keyed header.
    pub l4_offset: usize,
}

impl Summary {
    /// Reads the headers of a frame. `frame` is its first segment, which holds all headers,
    /// `len_bytes` its length over all segments, and `depth` selects the keyed header.
    ///
    /// Checks versions, lengths and bounds of each header, including TCP, UDP and ICMP, but no
    /// checksums.
    #[inline]
    pub fn of(frame: &[u8], len_bytes: usize, depth: Depth) -> Self {
        match HeadersV4::find(frame, len_bytes) {
            Some(headers) => headers.summary(),
            None => match depth {
                Depth::Outermost => Self::of_any::<false>(frame, len_bytes),
                Depth::Innermost => Self::of_any::<true>(frame, len_bytes),
            },
        }
    }

    /// [`of`](Self::of) for any frame. Not inlined, to keep the callers of `of` small.
    #[inline(never)]
    fn of_any<const INNERMOST: bool>(frame: &[u8], len_bytes: usize) -> Self {
        match HeadersV6::find(frame, len_bytes) {
            Some(headers) => headers.summary(),
            None => Self::walk::<INNERMOST>(frame, len_bytes),
        }
    }

    /// The summary of a frame without a keyed header.
    pub(super) const fn without_header(kind: Kind) -> Self {
        Self {
            kind,
            protocol: 0,
            fragment: Fragment::None,
            is_tunnel: false,
            is_icmp_error: false,
            outer_l3_offset: 0,
            l3_offset: 0,
            l4_offset: 0,
        }
    }

    /// [`of`](Self::of), header by header. The depth is a constant of its own, so that a walk
    /// spends no instruction on the choice.
    pub(super) fn walk<const INNERMOST: bool>(frame: &[u8], len_bytes: usize) -> Self {
        let Some((ethertype, offset)) = ethernet::network_layer(frame) else {
            return Self::without_header(Kind::Malformed(Header::Ethernet));
        };
        let ip = match ethertype {
            ethernet::ETHERTYPE_IPV4 => headers::ipv4(frame, offset, len_bytes),
            ethernet::ETHERTYPE_IPV6 => headers::ipv6(frame, offset, len_bytes),
            ethernet::ETHERTYPE_ARP => return Self::without_header(Kind::Arp),
            _ => return Self::without_header(Kind::Other),
        };
        match ip.and_then(|ip| Self::from_ip::<INNERMOST>(frame, ip)) {
            Ok(summary) => summary,
            Err(header) => Self::without_header(Kind::Malformed(header)),
        }
    }

    /// Looks into a tunnel, for the innermost header only, and at the quote of an ICMP error.
    fn from_ip<const INNERMOST: bool>(frame: &[u8], outer: Ip) -> Result<Self, Header> {
        let inner = if INNERMOST { headers::tunnelled(frame, &outer)? } else { None };
        let (ip, is_tunnel) = inner.map_or((outer, false), |inner| (inner, true));
        let own_l4_offset = headers::transport(frame, &ip)?;
        let quoted = headers::quoted(frame, &ip)?;
        let is_icmp_error = quoted.is_some();
        let (ip, l4_offset) = quoted.unwrap_or((ip, own_l4_offset));
        if ip.l3_offset > usize::from(u8::MAX) {
            // Only extension headers get this far.
            return Err(Header::Ipv6Extension);
        }
        Ok(Self {
            kind: if ip.is_v6 { Kind::Ipv6 } else { Kind::Ipv4 },
            protocol: ip.protocol,
            fragment: ip.fragment,
            is_tunnel,
            is_icmp_error,
            outer_l3_offset: outer.l3_offset,
            l3_offset: ip.l3_offset,
            l4_offset,
        })
    }

    /// The key of the packet's flow, read from the summarised frame. `None` if the packet is not
    /// IP.
    #[inline]
    pub fn key(&self, frame: &[u8]) -> Option<FlowKey> {
        let later = self.fragment == Fragment::Later;
        match self.kind {
            Kind::Ipv4 => headers::key_v4(frame, self.l3_offset, self.l4_offset).map(FlowKey::V4),
            Kind::Ipv6 => {
                headers::key_v6(frame, self.l3_offset, self.l4_offset, later).map(FlowKey::V6)
            }
            _ => None,
        }
    }
}
