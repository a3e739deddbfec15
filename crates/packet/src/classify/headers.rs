//! The headers of a frame, one by one.
//!
//! Offsets are counted from the frame's start. `end` is the end of a packet according to the header
//! around it, and may lie after the first segment. Only the first segment is read.

use zerocopy::FromBytes;

use crate::{
    Header,
    flow_key::{FlowKeyV4, FlowKeyV6},
    icmp, icmpv6,
    ip::{Fragment, protocol},
    ipv4,
    ipv6::{self, Ipv6Header},
    tcp::TcpHeader,
    udp::UdpHeader,
};

/// An IP header and the position of its payload.
#[derive(Clone, Copy)]
pub(super) struct Ip {
    pub is_v6: bool,
    pub protocol: u8,
    pub fragment: Fragment,
    pub l3_offset: usize,
    /// Offset of the payload, after options and extension headers.
    pub payload_offset: usize,
    /// End of the packet according to its own header.
    pub end: usize,
}

impl Ip {
    /// The part of the payload that lies in the first segment.
    fn payload<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame.get(self.payload_offset..self.end.min(frame.len())).unwrap_or_default()
    }

    /// The payload's length in bytes, over all segments.
    fn payload_bytes(&self) -> usize {
        self.end.saturating_sub(self.payload_offset)
    }

    fn is_icmp(&self) -> bool {
        self.protocol == if self.is_v6 { protocol::ICMPV6 } else { protocol::ICMP }
    }
}

#[inline]
pub(super) fn ipv4(frame: &[u8], l3_offset: usize, end: usize) -> Result<Ip, Header> {
    let ip = ipv4_cut(frame, l3_offset, end)?;
    if ip.end > end { Err(Header::Ipv4) } else { Ok(ip) }
}

#[inline]
pub(super) fn ipv6(frame: &[u8], l3_offset: usize, end: usize) -> Result<Ip, Header> {
    let header = ipv6_fixed(frame, l3_offset, end)?;
    let payload_offset = l3_offset + ipv6::HEADER_BYTES;
    let packet_end = payload_offset + usize::from(header.payload_length());
    if packet_end > end {
        return Err(Header::Ipv6);
    }
    ipv6_chain(frame, header, l3_offset, packet_end)
}

/// The inner packet if `outer` is an IP-in-IP packet and not a fragment of one.
#[inline]
pub(super) fn tunnelled(frame: &[u8], outer: &Ip) -> Result<Option<Ip>, Header> {
    match (outer.fragment, outer.protocol) {
        (Fragment::None, protocol::IPV4) => ipv4(frame, outer.payload_offset, outer.end).map(Some),
        (Fragment::None, protocol::IPV6) => ipv6(frame, outer.payload_offset, outer.end).map(Some),
        _ => Ok(None),
    }
}

/// The packet that `ip` quotes, with its payload's offset, if `ip` is an ICMP error and not a
/// fragment of one.
// Always inlined: for other protocols than ICMP, a call would cost most of its instructions.
#[inline(always)]
pub(super) fn quoted(frame: &[u8], ip: &Ip) -> Result<Option<(Ip, usize)>, Header> {
    if !ip.is_icmp() || ip.fragment != Fragment::None {
        return Ok(None);
    }
    let Some(kind) = ip.payload(frame).first() else { return Ok(None) };
    let offset = ip.payload_offset + icmp::HEADER_BYTES;
    let quoted = match ip.is_v6 {
        true if icmpv6::is_error(*kind) => ipv6_cut(frame, offset, ip.end)?,
        false if icmp::is_error(*kind) => ipv4_cut(frame, offset, ip.end)?,
        _ => return Ok(None),
    };
    // Eight bytes after the quoted IP header are enough to find the flow (RFC 792).
    let end = quoted.end.min(ip.end).min(frame.len());
    let shown_bytes = end.saturating_sub(quoted.payload_offset);
    let has_ports = quoted.fragment != Fragment::Later && shown_bytes >= 8;
    Ok(Some((quoted, if has_ports { quoted.payload_offset } else { 0 })))
}

/// Checks the transport header and returns its offset: 0 in a later fragment.
#[inline]
pub(super) fn transport(frame: &[u8], ip: &Ip) -> Result<usize, Header> {
    if ip.fragment == Fragment::Later {
        return Ok(0);
    }
    let bytes = ip.payload(frame);
    match ip.protocol {
        protocol::TCP => {
            let (header, _) = TcpHeader::ref_from_prefix(bytes).map_err(|_| Header::Tcp)?;
            if !(20..=ip.payload_bytes()).contains(&header.header_bytes()) {
                return Err(Header::Tcp);
            }
        }
        protocol::UDP => {
            let (header, _) = UdpHeader::ref_from_prefix(bytes).map_err(|_| Header::Udp)?;
            // A first fragment holds only a part of the datagram.
            let is_first = ip.fragment == Fragment::First;
            let bytes_max = if is_first { usize::MAX } else { ip.payload_bytes() };
            if !(8..=bytes_max).contains(&usize::from(header.length())) {
                return Err(Header::Udp);
            }
        }
        _ if ip.is_icmp() && bytes.len() < icmp::HEADER_BYTES => {
            return Err(if ip.is_v6 { Header::Icmpv6 } else { Header::Icmp });
        }
        _ => {}
    }
    Ok(ip.payload_offset)
}

/// An IPv4 header of a packet that may go on after `end`.
#[inline]
fn ipv4_cut(frame: &[u8], l3_offset: usize, end: usize) -> Result<Ip, Header> {
    let bytes = frame.get(l3_offset..end.min(frame.len())).unwrap_or_default();
    let view = ipv4::Ipv4View::parse_cut(bytes).map_err(|error| error.header())?;
    Ok(Ip {
        is_v6: false,
        protocol: view.protocol(),
        fragment: view.fragment(),
        l3_offset,
        payload_offset: l3_offset + view.header_bytes(),
        end: l3_offset + usize::from(view.total_length()),
    })
}

/// An IPv6 header, quoted: its packet, and even its extension headers, may go on after `end`.
fn ipv6_cut(frame: &[u8], l3_offset: usize, end: usize) -> Result<Ip, Header> {
    let header = ipv6_fixed(frame, l3_offset, end)?;
    let packet_end = l3_offset + ipv6::HEADER_BYTES + usize::from(header.payload_length());
    let shown_end = packet_end.min(end);
    let ip = ipv6_chain(frame, header, l3_offset, shown_end);
    let shows_transport = |ip: &Ip| {
        ip.fragment == Fragment::Later || shown_end.min(frame.len()) >= ip.payload_offset + 8
    };
    // A quote that ends within its extension headers is known by its addresses only.
    let unknown = Ip {
        is_v6: true,
        protocol: header.next_header(),
        fragment: Fragment::None,
        l3_offset,
        payload_offset: shown_end,
        end: shown_end,
    };
    Ok(ip.ok().filter(shows_transport).unwrap_or(unknown))
}

#[inline]
fn ipv6_fixed(frame: &[u8], l3_offset: usize, end: usize) -> Result<&Ipv6Header, Header> {
    let bytes = frame.get(l3_offset..end.min(frame.len())).unwrap_or_default();
    let (header, _) = Ipv6Header::ref_from_prefix(bytes).map_err(|_| Header::Ipv6)?;
    if header.version() == 6 { Ok(header) } else { Err(Header::Ipv6) }
}

#[inline]
fn ipv6_chain(
    frame: &[u8],
    header: &Ipv6Header,
    l3_offset: usize,
    end: usize,
) -> Result<Ip, Header> {
    let offset = l3_offset + ipv6::HEADER_BYTES;
    let payload = frame.get(offset..end.min(frame.len())).unwrap_or_default();
    let chain = ipv6::walk(header.next_header(), payload).map_err(|error| error.header())?;
    Ok(Ip {
        is_v6: true,
        protocol: chain.protocol,
        fragment: chain.fragment,
        l3_offset,
        payload_offset: offset + chain.offset_bytes,
        end,
    })
}

/// Reads the key at these offsets without further checks. `None` if the frame ends before.
#[inline]
pub(super) fn key_v4(frame: &[u8], l3_offset: usize, l4_offset: usize) -> Option<FlowKeyV4> {
    let header = frame.get(l3_offset..)?.first_chunk::<20>()?;
    let protocol = header[9];
    let ports = ports(frame, l4_offset, protocol, protocol::ICMP)?;
    Some(FlowKeyV4::from_wire(*header[12..].first_chunk()?, ports, protocol))
}

/// Reads the key at these offsets without further checks. `None` if the frame ends before.
#[inline]
pub(super) fn key_v6(
    frame: &[u8],
    l3_offset: usize,
    l4_offset: usize,
    is_later_fragment: bool,
) -> Option<FlowKeyV6> {
    let rest = frame.get(l3_offset..)?;
    let header = rest.first_chunk::<40>()?;
    let next_header = header[6];
    // A packet that is not a fragment but has no transport header is a cut quote: nothing more is
    // known.
    let is_cut = l4_offset == 0 && !is_later_fragment;
    let protocol = if is_cut || l4_offset == l3_offset + ipv6::HEADER_BYTES {
        next_header
    } else {
        ipv6::walk(next_header, rest.get(40..)?).ok()?.protocol
    };
    let ports = ports(frame, l4_offset, protocol, protocol::ICMPV6)?;
    Some(FlowKeyV6::from_wire(*header[8..].first_chunk()?, ports, protocol))
}

/// Both ports; the identifier of an echo, twice; zeroes if there are no ports.
#[inline]
fn ports(frame: &[u8], l4_offset: usize, protocol: u8, icmp_protocol: u8) -> Option<[u8; 4]> {
    match protocol {
        _ if l4_offset == 0 => Some([0; 4]),
        protocol::TCP | protocol::UDP => frame.get(l4_offset..)?.first_chunk().copied(),
        _ if protocol == icmp_protocol => {
            let [kind, _, _, _, high, low] = *frame.get(l4_offset..)?.first_chunk::<6>()?;
            let is_echo = match icmp_protocol {
                protocol::ICMP => icmp::is_echo(kind),
                _ => icmpv6::is_echo(kind),
            };
            Some(if is_echo { [high, low, high, low] } else { [0; 4] })
        }
        _ => Some([0; 4]),
    }
}

/// The payload's offset for the IPv4 header at this offset. `None` if the frame ends before.
#[inline]
pub(super) fn payload_v4(frame: &[u8], l3_offset: usize) -> Option<usize> {
    let first = frame.get(l3_offset)?;
    Some(l3_offset + usize::from(first & 0xf) * 4)
}

/// The payload's offset for the IPv6 header at this offset, after extension headers. `None` if the
/// frame ends before.
#[inline]
pub(super) fn payload_v6(frame: &[u8], l3_offset: usize) -> Option<usize> {
    let rest = frame.get(l3_offset..)?;
    let next_header = rest.first_chunk::<{ ipv6::HEADER_BYTES }>()?[6];
    let offset = l3_offset + ipv6::HEADER_BYTES;
    match next_header {
        protocol::TCP | protocol::UDP | protocol::ICMPV6 => Some(offset),
        _ => {
            let chain = ipv6::walk(next_header, rest.get(ipv6::HEADER_BYTES..)?).ok()?;
            Some(offset + chain.offset_bytes)
        }
    }
}
