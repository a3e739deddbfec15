//! The packet that an answer is about.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{
    Header, Malformed, PacketBuf,
    answer::AnswerError,
    checksum::Sum,
    ethernet::{self, ETHERTYPE_IPV4, ETHERTYPE_IPV6},
    icmp, icmpv6,
    ip::{Fragment, is_host, protocol},
    ipv4::Ipv4View,
    ipv6::{self, Ipv6View},
};

/// ICMPv6 types below this are errors, known or not (RFC 4443, section 2.1).
const INFORMATIONAL_V6: u8 = 128;

/// A packet's own IP header, checked.
pub(super) struct About {
    /// Offset of the packet in its frame: 14, 18 or 22.
    pub l3_offset: usize,
    /// Length in bytes of the header, options or extension headers included.
    pub header_bytes: usize,
    /// Length in bytes of the packet, without padding.
    pub total_bytes: usize,
    pub ends: Ends,
    pub protocol: u8,
    pub fragment: Fragment,
    /// The frame's destination is a group of stations.
    is_link_group: bool,
}

/// A packet's source and destination.
#[derive(Clone, Copy)]
pub(super) enum Ends {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

impl Ends {
    pub(super) fn source(self) -> IpAddr {
        match self {
            Self::V4(source, _) => source.into(),
            Self::V6(source, _) => source.into(),
        }
    }

    pub(super) fn destination(self) -> IpAddr {
        match self {
            Self::V4(_, destination) => destination.into(),
            Self::V6(_, destination) => destination.into(),
        }
    }

    /// The sum of the pseudo-header that covers a message of `len_bytes` bytes: the same in both
    /// directions.
    pub(super) fn pseudo_header(self, protocol: u8, len_bytes: usize) -> Sum {
        let sum = Sum::default();
        match self {
            Self::V4(source, destination) => {
                sum.pseudo_v4(source, destination, protocol, len_bytes as u16)
            }
            Self::V6(source, destination) => {
                sum.pseudo_v6(source, destination, protocol, len_bytes as u32)
            }
        }
    }
}

impl About {
    /// Reads the packet's own header, but nothing inside a tunnel.
    pub(super) fn read<P: PacketBuf>(packet: &P) -> Result<Self, AnswerError> {
        let frame = packet.data();
        let cut = Malformed::cut(Header::Ethernet, ethernet::HEADER_BYTES, frame.len());
        let (ethertype, l3_offset) = ethernet::network_layer(frame).ok_or(cut)?;
        let bytes = frame.get(l3_offset..).unwrap_or_default();
        let (about, header) = match ethertype {
            ETHERTYPE_IPV4 => (Self::v4(bytes)?, Header::Ipv4),
            ETHERTYPE_IPV6 => (Self::v6(bytes)?, Header::Ipv6),
            _ => return Err(AnswerError::NotIp { ethertype }),
        };
        let available_bytes = packet.len_bytes().saturating_sub(l3_offset);
        if about.total_bytes > available_bytes {
            return Err(Malformed::cut(header, about.total_bytes, available_bytes).into());
        }
        let is_link_group = frame.first().is_some_and(|first| first & 1 == 1);
        Ok(Self { l3_offset, is_link_group, ..about })
    }

    fn v4(bytes: &[u8]) -> Result<Self, AnswerError> {
        let view = Ipv4View::parse_cut(bytes)?;
        if !view.is_checksum_right() {
            return Err(AnswerError::Checksum);
        }
        Ok(Self {
            l3_offset: 0,
            header_bytes: view.header_bytes(),
            total_bytes: usize::from(view.total_length()),
            ends: Ends::V4(view.source(), view.destination()),
            protocol: view.protocol(),
            fragment: view.fragment(),
            is_link_group: false,
        })
    }

    fn v6(bytes: &[u8]) -> Result<Self, AnswerError> {
        let view = Ipv6View::parse_cut(bytes)?;
        let chain = view.chain()?;
        Ok(Self {
            l3_offset: 0,
            header_bytes: ipv6::HEADER_BYTES + chain.offset_bytes,
            total_bytes: ipv6::HEADER_BYTES + usize::from(view.payload_length()),
            ends: Ends::V6(view.source(), view.destination()),
            protocol: chain.protocol,
            fragment: chain.fragment,
            is_link_group: false,
        })
    }

    /// The type of the packet's ICMP message. `None` if the packet carries another protocol.
    pub(super) fn icmp_kind(&self, frame: &[u8]) -> Result<Option<u8>, Malformed> {
        let (protocol, header) = match self.ends {
            Ends::V4(..) => (protocol::ICMP, Header::Icmp),
            Ends::V6(..) => (protocol::ICMPV6, Header::Icmpv6),
        };
        if self.protocol != protocol || self.fragment == Fragment::Later {
            return Ok(None);
        }
        let message = self.message(frame);
        match message.first_chunk::<{ icmp::HEADER_BYTES }>() {
            Some([kind, ..]) => Ok(Some(*kind)),
            None => Err(Malformed::cut(header, icmp::HEADER_BYTES, message.len())),
        }
    }

    /// The message of a packet that carries `protocol`, is no fragment, and was sent by one host to
    /// one host: the part in the first segment.
    pub(super) fn whole_message<'a>(
        &self,
        frame: &'a [u8],
        protocol: u8,
    ) -> Result<&'a [u8], AnswerError> {
        if self.fragment != Fragment::None {
            return Err(AnswerError::Fragment);
        }
        if self.protocol != protocol {
            return Err(AnswerError::OtherProtocol { protocol: self.protocol });
        }
        self.need_single()?;
        Ok(self.message(frame))
    }

    /// The packet's payload: the part in the first segment.
    fn message<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        let end = frame.len().min(self.l3_offset + self.total_bytes);
        frame.get(self.l3_offset + self.header_bytes..end).unwrap_or_default()
    }

    /// Checks that an error may be sent about the packet. If the packet was sent to many, only a
    /// packet-too-big error of IPv6 is allowed (RFC 4443, section 2.4 (e.3)).
    pub(super) fn allow_error(&self, frame: &[u8], is_too_big: bool) -> Result<(), AnswerError> {
        if self.fragment == Fragment::Later {
            return Err(AnswerError::Fragment);
        }
        let is_error = |kind: u8| match self.ends {
            Ends::V4(..) => icmp::is_error(kind),
            Ends::V6(..) => kind < INFORMATIONAL_V6 || kind == icmpv6::kind::REDIRECT,
        };
        if self.icmp_kind(frame)?.is_some_and(is_error) {
            return Err(AnswerError::AboutError);
        }
        let may_be_group = is_too_big && matches!(self.ends, Ends::V6(..));
        self.need_host(self.ends.source(), false)?;
        if may_be_group { Ok(()) } else { self.need_single() }
    }

    /// Checks that the packet was sent by one host to one host.
    pub(super) fn need_single(&self) -> Result<(), AnswerError> {
        self.need_host(self.ends.source(), self.is_link_group)?;
        self.need_host(self.ends.destination(), false)
    }

    fn need_host(&self, address: IpAddr, is_group: bool) -> Result<(), AnswerError> {
        if is_group || !is_host(address) { Err(AnswerError::Group { address }) } else { Ok(()) }
    }

    /// Checks that an answer may come from `from`, and returns its two ends.
    pub(super) fn back_from(&self, from: IpAddr) -> Result<Ends, AnswerError> {
        match (from, self.ends) {
            (IpAddr::V4(from), Ends::V4(source, _)) => Ok(Ends::V4(from, source)),
            (IpAddr::V6(from), Ends::V6(source, _)) => Ok(Ends::V6(from, source)),
            (from, ends) => Err(AnswerError::MixedFamilies { from, to: ends.source() }),
        }
    }
}
