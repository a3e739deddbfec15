//! One fragment, as its own packet shows it.

use std::net::IpAddr;

use crate::{
    ethernet::{self, ETHERTYPE_IPV4, ETHERTYPE_IPV6},
    fragment::split::UNIT_BYTES,
    icmp,
    ip_fields::{Fragment, protocol},
    ipv4::Ipv4View,
    ipv6::{self, Ipv6View},
    tcp::{self, TcpView},
    udp,
};

/// Length in bytes of the longest datagram: of all of it in IPv4, of the payload in IPv6.
const DATAGRAM_BYTES_MAX: usize = 0xffff;

/// The fields that the fragments of one datagram share, and no other's: addresses and
/// identification; in IPv4 the protocol too (RFC 791, section 3.2; RFC 8200, section 4.5).
///
/// Senders use an identification again after 65,536 datagrams in IPv4, so an entry for it must not
/// live longer than the fragments do: Linux waits 30 s for them.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct FragmentId {
    source: IpAddr,
    destination: IpAddr,
    protocol: Option<u8>,
    identification: u32,
}

impl FragmentId {
    /// The fields of a datagram's header. The protocol counts in IPv4 only, as
    /// [`protocol`](Self::protocol) describes.
    #[inline]
    pub const fn new(
        source: IpAddr,
        destination: IpAddr,
        protocol: u8,
        identification: u32,
    ) -> Self {
        let protocol = if source.is_ipv4() { Some(protocol) } else { None };
        Self { source, destination, protocol, identification }
    }

    /// The datagram's source.
    pub const fn source(&self) -> IpAddr {
        self.source
    }

    /// The datagram's destination.
    pub const fn destination(&self) -> IpAddr {
        self.destination
    }

    /// The datagram's protocol. `None` in IPv6: later fragments may name another protocol than the
    /// first, and do not count (RFC 8200, section 4.5).
    pub const fn protocol(&self) -> Option<u8> {
        self.protocol
    }

    /// The identification: 16 bits in IPv4, 32 in IPv6.
    pub const fn identification(&self) -> u32 {
        self.identification
    }

    /// The fields as whole words, for a table to hash or compare: different for any two values.
    pub fn words(&self) -> [u64; 5] {
        let [source, destination] = [self.source, self.destination].map(|address| match address {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        });
        // The bit above the protocol tells IPv4 from IPv6.
        let rest = self.protocol.map_or(0, |protocol| 1 << 40 | u64::from(protocol) << 32);
        let halves = |bits: u128| ((bits >> 64) as u64, bits as u64);
        let ((a, b), (c, d)) = (halves(source), halves(destination));
        [a, b, c, d, rest | u64::from(self.identification)]
    }
}

/// Why a fragment should be dropped. None of these is sent by a host that follows the rules.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadFragment {
    /// The fragment carries nothing.
    #[error("a fragment without payload")]
    Empty,
    /// More fragments follow, but the next could not begin where this one ends (RFC 791, section
    /// 3.2; RFC 8200, section 4.5).
    #[error("{len_bytes} bytes in a fragment before others: no multiple of 8")]
    Unaligned {
        /// The fragment's length in bytes.
        len_bytes: usize,
    },
    /// The datagram would be longer than its length field can say (RFC 791, section 3.1; RFC 8200,
    /// section 4.5), as in the "ping of death".
    #[error("a datagram of {datagram_bytes} bytes or more, for 65535 at most")]
    TooLong {
        /// Length in bytes of the datagram up to the fragment's end.
        datagram_bytes: usize,
    },
    /// The first fragment ends before the headers that filters read: TCP's (RFC 1858, section 3), or
    /// in IPv6 the whole chain with the header of TCP, UDP or ICMPv6 (RFC 7112; RFC 8200, section
    /// 4.5). Or these headers are malformed, or beyond the packet's first segment.
    #[error("a first fragment without all headers")]
    HeadersCut,
    /// A later fragment begins where the first must still have TCP's header, and would overwrite
    /// part of it (RFC 1858, section 4; RFC 3128).
    #[error("a fragment at offset {offset_bytes} overlaps the headers in the first")]
    OverlapsHeaders {
        /// The fragment's offset in its datagram, in bytes.
        offset_bytes: usize,
    },
}

/// A fragment of an IPv4 or IPv6 packet. A whole datagram is none, with or without a fragment header
/// (RFC 6946).
///
/// ```
/// use hotloop_packet::{build::udp, fragment::{BadFragment, FragmentView}};
///
/// let frames = udp().identification(7).payload([1; 1000]).build_fragments(620);
/// let [first, second] = [0, 1].map(|index| FragmentView::of_frame(&frames[index]).unwrap());
/// assert_eq!((first.id(), first.id().identification()), (second.id(), 7));
/// assert_eq!((first.offset_bytes(), first.len_bytes(), first.more_fragments()), (0, 600, true));
/// assert_eq!((second.offset_bytes(), second.len_bytes()), (600, 408));
/// assert_eq!((first.check(), second.check()), (Ok(()), Ok(())));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct FragmentView<'a> {
    id: FragmentId,
    /// IPv4's protocol, or the first header of IPv6's fragmented part.
    protocol: u8,
    offset_bytes: usize,
    len_bytes: usize,
    more_fragments: bool,
    /// Length in bytes of the headers before the fragmented part that count as the datagram's.
    front_bytes: usize,
    /// The fragmented part, as far as it lies in the first segment.
    part: &'a [u8],
}

impl<'a> FragmentView<'a> {
    /// The fragment that a frame carries after its VLAN tags; in a tunnel, the outer packet counts.
    /// `frame` may be the first segment of several. `None` for anything else than a fragment, and if
    /// the headers before the fragmented part are malformed.
    pub fn of_frame(frame: &'a [u8]) -> Option<Self> {
        let (ethertype, l3_offset) = ethernet::network_layer(frame)?;
        let packet = frame.get(l3_offset..)?;
        let view = match ethertype {
            ETHERTYPE_IPV4 => Self::of_v4(Ipv4View::parse_cut(packet).ok()?),
            ETHERTYPE_IPV6 => Self::of_v6(Ipv6View::parse_cut(packet).ok()?)?,
            _ => return None,
        };
        let is_fragment = view.more_fragments || view.offset_bytes > 0;
        is_fragment.then_some(view)
    }

    fn of_v4(view: Ipv4View<'a>) -> Self {
        let ends = (view.source().into(), view.destination().into());
        let identification = view.identification().into();
        Self {
            id: FragmentId::new(ends.0, ends.1, view.protocol(), identification),
            protocol: view.protocol(),
            offset_bytes: view.fragment_offset_bytes(),
            len_bytes: usize::from(view.total_length()) - view.header_bytes(),
            more_fragments: view.more_fragments(),
            front_bytes: view.header_bytes(),
            part: view.payload(),
        }
    }

    fn of_v6(view: Ipv6View<'a>) -> Option<Self> {
        let (header, offset) = ipv6::fragment_header(view.next_header(), view.payload())?;
        let ends = (view.source().into(), view.destination().into());
        let protocol = header.next_header();
        Some(Self {
            id: FragmentId::new(ends.0, ends.1, protocol, header.identification()),
            protocol,
            offset_bytes: header.offset_bytes(),
            len_bytes: usize::from(view.payload_length()).checked_sub(offset)?,
            more_fragments: header.more_fragments(),
            front_bytes: offset.saturating_sub(size_of_val(&header)),
            part: view.payload().get(offset..)?,
        })
    }

    /// The fields that the fragments of the same datagram share.
    pub const fn id(&self) -> FragmentId {
        self.id
    }

    /// Offset of the fragment in its datagram, in bytes: 0 for the first.
    pub const fn offset_bytes(&self) -> usize {
        self.offset_bytes
    }

    /// Length in bytes of the part of the datagram that the fragment carries, by its header.
    pub const fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Whether more fragments follow this one.
    pub const fn more_fragments(&self) -> bool {
        self.more_fragments
    }

    /// Checks all that the fragment alone can show to be wrong. Use it before fragments pass a
    /// filter that reads ports or flags in the first of them only. After classification, a first
    /// fragment with a cut header of TCP, UDP or ICMP doesn't get here: it is
    /// [`Kind::Malformed`](crate::classify::Kind::Malformed).
    ///
    /// Fragments that overlap each other in other places show only together. In IPv6 their receiver
    /// discards the datagram (RFC 5722; RFC 8200, section 4.5), so a filter needs no state for them.
    /// A receiver of IPv4 may use either of the two: a filter that cares keeps the
    /// [`Pieces`](crate::fragment::Pieces) of each [`id`](Self::id).
    ///
    /// # Errors
    /// [`BadFragment`].
    pub fn check(&self) -> Result<(), BadFragment> {
        let Self { offset_bytes, len_bytes, .. } = *self;
        if len_bytes == 0 {
            return Err(BadFragment::Empty);
        }
        if self.more_fragments && !len_bytes.is_multiple_of(UNIT_BYTES) {
            return Err(BadFragment::Unaligned { len_bytes });
        }
        let datagram_bytes = self.front_bytes + offset_bytes + len_bytes;
        if datagram_bytes > DATAGRAM_BYTES_MAX {
            return Err(BadFragment::TooLong { datagram_bytes });
        }
        if offset_bytes == 0 {
            return if self.has_headers() { Ok(()) } else { Err(BadFragment::HeadersCut) };
        }
        // In IPv6, the protocol in a later fragment proves nothing, and a first fragment always has
        // room for TCP's header: no link's MTU is below 1,280 bytes.
        let may_be_tcp = self.id.protocol.is_none_or(|protocol| protocol == protocol::TCP);
        if may_be_tcp && offset_bytes < tcp::HEADER_BYTES {
            return Err(BadFragment::OverlapsHeaders { offset_bytes });
        }
        Ok(())
    }

    /// Whether a first fragment has its headers up to TCP's, UDP's or ICMP's.
    fn has_headers(&self) -> bool {
        let (protocol, message) = match self.id.source {
            IpAddr::V4(_) => (self.protocol, Some(self.part)),
            IpAddr::V6(_) => match ipv6::walk(self.protocol, self.part) {
                Ok(chain) if chain.fragment != Fragment::Later => {
                    (chain.protocol, self.part.get(chain.offset_bytes..))
                }
                _ => return false,
            },
        };
        let message = message.unwrap_or_default();
        match protocol {
            protocol::TCP => TcpView::parse(message).is_ok(),
            protocol::UDP => message.len() >= udp::HEADER_BYTES,
            protocol::ICMP | protocol::ICMPV6 => message.len() >= icmp::HEADER_BYTES,
            _ => true,
        }
    }
}
