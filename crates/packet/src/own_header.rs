//! A frame's own IP header, whatever it carries: the fields that IPv4 and IPv6 share.

use std::net::IpAddr;

use crate::{
    ethernet::{self, ETHERTYPE_IPV4, ETHERTYPE_IPV6},
    fragment::FragmentId,
    icmp, icmpv6,
    ip::{Fragment, protocol},
    ipv4::Ipv4View,
    ipv6::{self, Ipv6View},
    tcp,
};

/// The fields of a frame's outermost IP header.
///
/// The key of a [`Layout`](crate::classify::Layout) is that of the quoted packet if the frame is an
/// ICMP error; this is the header of the error itself.
///
/// ```
/// use hotloop_packet::{build::{udp, unreachable}, flow_key::FlowKey, classify::Depth, own_header::OwnHeader};
///
/// let query = udp().from("10.0.0.7:5000").to("192.0.2.53:53").build();
/// let error = unreachable(&query).from("192.0.2.1").build();
/// let key = FlowKey::of(&error, error.len(), Depth::Outermost).unwrap();
/// let own = OwnHeader::of(&error).unwrap();
/// assert_eq!((key.source(), key.destination()), ("10.0.0.7".parse()?, "192.0.2.53".parse()?));
/// assert_eq!((own.source, own.destination), ("192.0.2.1".parse()?, "10.0.0.7".parse()?));
/// assert_eq!(own.icmp_kind(&error), Some(3));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
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
    /// The header of the IP packet that a frame carries after its VLAN tags. `None` if the frame
    /// carries something else, or if the header (in IPv6, any of its extension headers) is
    /// malformed. `frame` may be the first segment of several; lengths are not compared with it.
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

    /// The fields that the fragments of the packet's datagram share.
    #[must_use]
    pub const fn fragment_id(&self) -> FragmentId {
        FragmentId::new(self.source, self.destination, self.protocol, self.identification)
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

    /// Whether the packet is an ICMP redirect or source quench, for IPv4. Both quote a packet, so
    /// they are ICMP errors (RFC 1122, section 3.2.2), but neither belongs to hosts behind a
    /// middlebox: a redirect is for hosts on the same link, which send their packets elsewhere from
    /// then on (RFC 1812, section 5.2.7.2), and a source quench is obsolete (RFC 6633). IPv6's
    /// redirect is a message of neighbour discovery, and no error.
    #[must_use]
    pub fn is_hop_by_hop(&self, frame: &[u8]) -> bool {
        let kind = self.icmp_kind(frame);
        self.source.is_ipv4()
            && matches!(kind, Some(icmp::kind::REDIRECT | icmp::kind::SOURCE_QUENCH))
    }

    /// Whether the packet is a whole message of IPv6's neighbour discovery or multicast listener
    /// discovery that no router has forwarded, by its hop limit: 255 (RFC 4861, section 6.1) or 1
    /// (RFC 3810, section 5). A link without these messages has no IPv6, so a function in the middle
    /// of a link must let them pass. A host beyond the link can't send one.
    #[must_use]
    pub fn is_between_neighbours(&self, frame: &[u8]) -> bool {
        if self.source.is_ipv4() || self.fragment != Fragment::None {
            return false;
        }
        self.icmp_kind(frame).is_some_and(|kind| match self.ttl {
            255 => icmpv6::is_neighbour_discovery(kind),
            1 => icmpv6::is_multicast_listener(kind),
            _ => false,
        })
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
        frame.get(self.l4_offset + tcp::FLAGS_OFFSET).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{
        arp_request, echo_reply, echo_request, protocol, redirect, source_quench, tcp, udp,
        unreachable,
    };

    fn of(frame: &[u8]) -> OwnHeader {
        OwnHeader::of(frame).unwrap()
    }

    #[test]
    fn the_outermost_header_counts_in_both_families() {
        for (inner, [source, destination], ttl) in [
            (udp(), ["10.9.0.1", "10.9.0.2"], 64),
            (udp().to("[2001:db8::1]:53"), ["2001:db8::9", "2001:db8::10"], 64),
        ] {
            let frame = inner.vlan(7).tunnelled(source, destination).build();
            let header = of(&frame);
            let [source, destination] = [source, destination].map(|text| text.parse().unwrap());
            assert_eq!((header.source, header.destination), (source, destination));
            assert_eq!((header.ttl, header.l3_offset, header.is_tunnel()), (ttl, 18, true));
            assert_eq!(header.l3_offset + header.total_bytes, frame.len());
        }
    }

    #[test]
    fn a_message_is_named_unless_it_is_in_another_fragment() {
        let syn = tcp().tcp_flags(tcp::flags::SYN).build();
        assert_eq!((of(&syn).tcp_flags(&syn), of(&syn).icmp_kind(&syn)), (tcp::flags::SYN, None));
        for to in ["192.0.2.1", "2001:db8::1"] {
            let [request, reply] = [echo_request(7, 1), echo_reply(7, 1)].map(|it| it.to(to));
            let [request, reply] = [request.build(), reply.build()];
            assert!(of(&request).is_echo(&request) && !of(&reply).is_echo(&reply));
            let long = echo_reply(7, 1).to(to).payload([7; 3000]).build_fragments(1280);
            assert!(of(&long[0]).icmp_kind(&long[0]).is_some() && of(&long[1]).is_echo(&long[1]));
            assert_eq!(of(&long[1]).icmp_kind(&long[1]), None);
        }
    }

    #[test]
    fn redirects_and_quenches_are_hop_by_hop_and_no_other_error_is() {
        let about = udp().build();
        for (error, expected) in [
            (redirect(&about, [192, 0, 2, 7].into()), true),
            (source_quench(&about), true),
            (unreachable(&about), false),
            (unreachable(&udp().to("[2001:db8::1]:53").build()), false),
        ] {
            let frame = error.build();
            assert_eq!(of(&frame).is_hop_by_hop(&frame), expected);
        }
    }

    #[test]
    fn neighbours_prove_by_the_hop_limit_that_they_are_near() {
        let message = |kind, ttl| {
            let message = [[kind; 1].as_slice(), &[0; 23]].concat();
            protocol(58).from("fe80::1").to("fe80::2").ttl(ttl).payload(message)
        };
        let (solicitation, report) = (135, 143);
        for (packet, expected) in [
            (message(solicitation, 255), true),
            (message(solicitation, 254), false),
            (message(solicitation, 1), false),
            (message(report, 1), true),
            (message(report, 255), false),
            (message(128, 255), false),
            (protocol(58).ttl(255).payload([135; 24]), false),
            (udp().to("[fe80::2]:53").ttl(255), false),
        ] {
            let frame = packet.clone().build();
            assert_eq!(of(&frame).is_between_neighbours(&frame), expected, "{packet:?}");
        }
        let pieces = message(solicitation, 255).payload([135; 2000]).build_fragments(1280);
        assert!(pieces.iter().all(|frame| !of(frame).is_between_neighbours(frame)));
    }

    #[test]
    fn frames_without_a_whole_header_have_none() {
        assert_eq!(OwnHeader::of(&arp_request([10, 0, 0, 1].into(), [10, 0, 0, 2].into())), None);
        for (frame, header_bytes) in [
            (udp().vlan(7).ipv4_options(&[1; 4]).build(), 18 + 24),
            (udp().to("[2001:db8::1]:53").extension(60, &[0; 14]).build(), 14 + 40 + 16),
        ] {
            for len in 0..frame.len() {
                assert_eq!(OwnHeader::of(&frame[..len]).is_some(), len >= header_bytes, "{len}");
            }
        }
    }
}
