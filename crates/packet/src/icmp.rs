//! ICMP for IPv4 (RFC 792).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian::U16};

use crate::{
    Header, Malformed, NoRoom, PacketBuf,
    checksum::{self, Change, Sum},
    write,
};

/// Length in bytes of the part that every message has.
pub const HEADER_BYTES: usize = 8;

/// Types of message.
pub mod kind {
    /// Answers an echo request.
    pub const ECHO_REPLY: u8 = 0;
    /// A packet could not be delivered; code 4: it is too big, and must not be fragmented.
    pub const DESTINATION_UNREACHABLE: u8 = 3;
    /// A router was congested (no longer sent: RFC 6633).
    pub const SOURCE_QUENCH: u8 = 4;
    /// There is a better next hop.
    pub const REDIRECT: u8 = 5;
    /// Asks for a reply with the same data.
    pub const ECHO_REQUEST: u8 = 8;
    /// Announces a router (RFC 1256).
    pub const ROUTER_ADVERTISEMENT: u8 = 9;
    /// Asks for router advertisements (RFC 1256).
    pub const ROUTER_SOLICITATION: u8 = 10;
    /// A packet took too many hops, or its fragments arrived too late.
    pub const TIME_EXCEEDED: u8 = 11;
    /// A packet's header has a wrong field.
    pub const PARAMETER_PROBLEM: u8 = 12;
    /// Asks for the time of day.
    pub const TIMESTAMP_REQUEST: u8 = 13;
    /// Answers a timestamp request.
    pub const TIMESTAMP_REPLY: u8 = 14;
}

/// The code of [`kind::DESTINATION_UNREACHABLE`] for a packet that is too big and must not be
/// fragmented.
pub const CODE_FRAGMENTATION_NEEDED: u8 = 4;

/// Whether messages of this type quote the packet that caused them: the errors of RFC 1122, section
/// 3.2.2. Redirects and source quenches are among them, which no middlebox should pass to a host:
/// see [`OwnHeader::is_hop_by_hop`](crate::own_header::OwnHeader::is_hop_by_hop).
#[inline]
pub const fn is_error(kind: u8) -> bool {
    matches!(kind, 3 | 4 | 5 | 11 | 12)
}

/// Whether messages of this type are an echo's request or reply.
#[inline]
pub const fn is_echo(kind: u8) -> bool {
    matches!(kind, kind::ECHO_REQUEST | kind::ECHO_REPLY)
}

/// The header of every ICMP message: 8 bytes; the last four depend on the type.
#[derive(
    Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct IcmpHeader {
    kind: u8,
    code: u8,
    checksum: U16,
    identifier: U16,
    sequence: U16,
}

impl IcmpHeader {
    /// A header for [`push`]. `rest` is its last four bytes, which depend on the type: an echo has
    /// its identifier in the upper half and its sequence number in the lower.
    #[inline]
    pub const fn new(kind: u8, code: u8, rest: u32) -> Self {
        let (upper, lower) = ((rest >> 16) as u16, rest as u16);
        let (identifier, sequence) = (U16::new(upper), U16::new(lower));
        Self { kind, code, checksum: U16::ZERO, identifier, sequence }
    }

    /// The header with the checksum that a payload with this sum needs.
    pub(crate) fn completed(mut self, payload: Sum) -> Self {
        self.checksum.set(0);
        self.checksum.set(payload.bytes(self.as_bytes()).checksum());
        self
    }

    /// The header at the start of `bytes`, to be changed in place.
    ///
    /// # Errors
    /// [`Malformed::Cut`] if there are fewer than 8 bytes.
    #[inline]
    pub fn parse_mut(bytes: &mut [u8]) -> Result<&mut Self, Malformed> {
        let available_bytes = bytes.len();
        match Self::mut_from_prefix(bytes) {
            Ok((header, _)) => Ok(header),
            Err(_) => Err(Malformed::cut(Header::Icmp, HEADER_BYTES, available_bytes)),
        }
    }

    /// The message's type: see [`kind`].
    #[inline]
    pub const fn kind(&self) -> u8 {
        self.kind
    }

    /// The message's code, which distinguishes messages of one type.
    #[inline]
    pub const fn code(&self) -> u8 {
        self.code
    }

    /// The checksum, as sent.
    #[inline]
    pub const fn checksum(&self) -> u16 {
        self.checksum.get()
    }

    /// An echo's identifier, which its reply repeats.
    pub const fn echo_identifier(&self) -> Option<u16> {
        if is_echo(self.kind) { Some(self.identifier.get()) } else { None }
    }

    /// An echo's sequence number, which its reply repeats.
    pub const fn echo_sequence(&self) -> Option<u16> {
        if is_echo(self.kind) { Some(self.sequence.get()) } else { None }
    }

    /// The largest size in bytes that fits, if the message reports a packet that was too big (RFC
    /// 1191; 0 from routers older than that).
    pub const fn mtu_bytes(&self) -> Option<u16> {
        match (self.kind, self.code) {
            (kind::DESTINATION_UNREACHABLE, CODE_FRAGMENTATION_NEEDED) => Some(self.sequence.get()),
            _ => None,
        }
    }

    /// Writes an echo's identifier and corrects the checksum. Returns whether the message is an
    /// echo; any other message is left unchanged.
    #[inline]
    pub fn set_echo_identifier(&mut self, identifier: u16) -> bool {
        let is_echo = is_echo(self.kind);
        if is_echo {
            let change = Change::of_word(self.identifier.get(), identifier);
            self.identifier.set(identifier);
            self.update_checksum(change);
        }
        is_echo
    }

    /// Writes an echo's sequence number and corrects the checksum. Returns whether the message is an
    /// echo; any other message is left unchanged.
    #[inline]
    pub fn set_echo_sequence(&mut self, sequence: u16) -> bool {
        let is_echo = is_echo(self.kind);
        if is_echo {
            self.set_sequence(sequence);
        }
        is_echo
    }

    /// Writes the largest size in bytes that fits, and corrects the checksum. Returns whether the
    /// message reports a packet that was too big; any other message is left unchanged.
    #[inline]
    pub fn set_mtu_bytes(&mut self, mtu_bytes: u16) -> bool {
        let has_mtu = self.mtu_bytes().is_some();
        if has_mtu {
            self.set_sequence(mtu_bytes);
        }
        has_mtu
    }

    #[inline]
    fn set_sequence(&mut self, sequence: u16) {
        let change = Change::of_word(self.sequence.get(), sequence);
        self.sequence.set(sequence);
        self.update_checksum(change);
    }

    /// Writes the message's type and code, and corrects the checksum.
    #[inline]
    pub fn set_kind(&mut self, kind: u8, code: u8) {
        let change = Change::of_bytes([self.kind, self.code], [kind, code]);
        (self.kind, self.code) = (kind, code);
        self.update_checksum(change);
    }

    /// Corrects the checksum for a change to the message. Addresses are not covered.
    #[inline]
    pub fn update_checksum(&mut self, change: Change) {
        let checksum = change.apply(self.checksum.get());
        // Only a message of all zeroes, which may be an echo reply, needs the other zero of one's
        // complement. Any other message with a checksum of 0 may use it, too (RFC 1624, section 3).
        let may_be_zeroes = (self.kind, self.identifier.get()) == (kind::ECHO_REPLY, 0);
        self.checksum.set(if checksum == 0 && may_be_zeroes { 0xffff } else { checksum });
    }
}

/// Puts a header in front of the packet, which is its payload, and fills in the checksum. This reads
/// all bytes of the packet, over all segments.
///
/// # Errors
/// [`NoRoom`] if there are no 8 bytes of headroom; the packet is unchanged.
pub fn push<P: PacketBuf>(packet: &mut P, header: IcmpHeader) -> Result<(), NoRoom> {
    let payload = Sum::default().packet(packet, 0..packet.len_bytes());
    write::put(packet, header.completed(payload)).map(drop)
}

/// A checked view of an ICMP message.
#[derive(Clone, Copy, Debug)]
pub struct IcmpView<'a> {
    header: &'a IcmpHeader,
    message: &'a [u8],
    payload: &'a [u8],
}

impl<'a> IcmpView<'a> {
    /// The view of the message in `bytes`, an IPv4 packet's payload.
    ///
    /// # Errors
    /// [`Malformed::Cut`] if there are fewer than 8 bytes.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let Ok((header, payload)) = IcmpHeader::ref_from_prefix(bytes) else {
            return Err(Malformed::cut(Header::Icmp, HEADER_BYTES, bytes.len()));
        };
        Ok(Self { header, message: bytes, payload })
    }

    /// The bytes after the header: an echo's data, or the packet that an error quotes.
    #[inline]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The IPv4 packet that an error quotes, cut: for
    /// [`Ipv4View::parse_cut`](crate::ipv4::Ipv4View::parse_cut).
    pub const fn quoted(&self) -> Option<&'a [u8]> {
        if is_error(self.header.kind) { Some(self.payload) } else { None }
    }

    /// Whether the message's checksum is right.
    pub fn is_checksum_right(&self) -> bool {
        checksum::checksum(self.message) == 0
    }
}

impl std::ops::Deref for IcmpView<'_> {
    type Target = IcmpHeader;

    #[inline]
    fn deref(&self) -> &IcmpHeader {
        self.header
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        build::{echo_request, too_big, udp},
        ipv4::Ipv4View,
    };

    #[test]
    fn echo() {
        let frame = echo_request(7, 9).payload(b"ping").build();
        let view = IcmpView::parse(&frame[34..]).unwrap();
        assert_eq!((view.kind(), view.code()), (kind::ECHO_REQUEST, 0));
        assert_eq!((view.echo_identifier(), view.echo_sequence()), (Some(7), Some(9)));
        assert_eq!((view.payload(), view.quoted(), view.mtu_bytes()), (&b"ping"[..], None, None));
        assert!(view.is_checksum_right());
    }

    #[test]
    fn an_error_quotes_its_packet() {
        let about = udp().to("198.51.100.7:53").payload([1; 64]).build();
        let frame = too_big(&about, 1400).build();
        let view = IcmpView::parse(&frame[34..]).unwrap();
        assert_eq!((view.kind(), view.mtu_bytes()), (3, Some(1400)));
        assert_eq!((view.echo_identifier(), view.echo_sequence()), (None, None));
        let quoted = Ipv4View::parse_cut(view.quoted().unwrap()).unwrap();
        assert_eq!(quoted.destination().to_string(), "198.51.100.7");
        assert!(view.is_checksum_right());
    }

    #[test]
    fn cut_messages_are_refused() {
        for length in 0..8 {
            assert!(IcmpView::parse(&[0; 8][..length]).is_err());
        }
    }
}
