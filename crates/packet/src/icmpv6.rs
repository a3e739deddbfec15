//! ICMP for IPv6 (RFC 4443).

use std::net::Ipv6Addr;

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    big_endian::{U16, U32},
};

use crate::{
    Header, Malformed, NoRoom, PacketBuf,
    checksum::{self, Change, Sum},
    ip::protocol,
    write,
};

/// Length in bytes of the part that every message of RFC 4443 has.
pub const HEADER_BYTES: usize = 8;

/// Types of message.
pub mod kind {
    /// A packet could not be delivered.
    pub const DESTINATION_UNREACHABLE: u8 = 1;
    /// A packet was too big for a link.
    pub const PACKET_TOO_BIG: u8 = 2;
    /// A packet took too many hops, or its fragments arrived too late.
    pub const TIME_EXCEEDED: u8 = 3;
    /// A packet's header has a wrong field.
    pub const PARAMETER_PROBLEM: u8 = 4;
    /// Asks for a reply with the same data.
    pub const ECHO_REQUEST: u8 = 128;
    /// Answers an echo request.
    pub const ECHO_REPLY: u8 = 129;
    /// Asks for the groups that hosts listen to (RFC 2710, RFC 3810).
    pub const MULTICAST_LISTENER_QUERY: u8 = 130;
    /// Names a group that a host listens to (RFC 2710).
    pub const MULTICAST_LISTENER_REPORT: u8 = 131;
    /// Names a group that a host no longer listens to (RFC 2710).
    pub const MULTICAST_LISTENER_DONE: u8 = 132;
    /// Asks for router advertisements (RFC 4861, section 4.1).
    pub const ROUTER_SOLICITATION: u8 = 133;
    /// Announces a router and its prefixes (RFC 4861, section 4.2).
    pub const ROUTER_ADVERTISEMENT: u8 = 134;
    /// Asks for a neighbour's link-layer address (RFC 4861, section 4.3).
    pub const NEIGHBOUR_SOLICITATION: u8 = 135;
    /// Announces a neighbour's link-layer address (RFC 4861, section 4.4).
    pub const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
    /// There is a better next hop (RFC 4861, section 4.5).
    pub const REDIRECT: u8 = 137;
    /// Names the groups and the sources that a host listens to (RFC 3810).
    pub const MULTICAST_LISTENER_REPORT_V2: u8 = 143;
}

/// Whether messages of this type quote the packet that caused them. IPv6's redirect doesn't count:
/// it is a message of [neighbour discovery](is_neighbour_discovery).
#[inline]
pub const fn is_error(kind: u8) -> bool {
    matches!(kind, 1..=4)
}

/// Whether messages of this type are an echo's request or reply.
#[inline]
pub const fn is_echo(kind: u8) -> bool {
    matches!(kind, kind::ECHO_REQUEST | kind::ECHO_REPLY)
}

/// Whether messages of this type are neighbour discovery's (RFC 4861): solicitations and
/// advertisements of routers and neighbours, and redirects. A router never forwards them.
///
/// ```
/// use hotloop_packet::icmpv6::{is_multicast_listener, is_neighbour_discovery, kind};
///
/// // A link without either has no IPv6.
/// let is_link_local = |kind| is_neighbour_discovery(kind) || is_multicast_listener(kind);
/// assert!(is_link_local(kind::NEIGHBOUR_SOLICITATION));
/// assert!(!is_link_local(kind::ECHO_REQUEST));
/// ```
#[inline]
pub const fn is_neighbour_discovery(kind: u8) -> bool {
    matches!(kind, kind::ROUTER_SOLICITATION..=kind::REDIRECT)
}

/// Whether messages of this type are multicast listener discovery's (RFC 2710, RFC 3810): queries,
/// and reports of either version.
#[inline]
pub const fn is_multicast_listener(kind: u8) -> bool {
    matches!(
        kind,
        kind::MULTICAST_LISTENER_QUERY
            ..=kind::MULTICAST_LISTENER_DONE | kind::MULTICAST_LISTENER_REPORT_V2
    )
}

/// The header of every ICMPv6 message of RFC 4443: 8 bytes; the last four depend on the type.
#[derive(
    Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Icmpv6Header {
    kind: u8,
    code: u8,
    checksum: U16,
    identifier: U16,
    sequence: U16,
}

impl Icmpv6Header {
    /// A header for [`push`]. `rest` is its last four bytes, which depend on the type: an echo has
    /// its identifier in the upper half and its sequence number in the lower.
    #[inline]
    pub const fn new(kind: u8, code: u8, rest: u32) -> Self {
        let (upper, lower) = ((rest >> 16) as u16, rest as u16);
        let (identifier, sequence) = (U16::new(upper), U16::new(lower));
        Self { kind, code, checksum: U16::ZERO, identifier, sequence }
    }

    /// The header with the checksum that a pseudo-header and a payload with this sum need.
    pub(crate) fn completed(mut self, rest: Sum) -> Self {
        self.checksum.set(0);
        self.checksum.set(rest.bytes(self.as_bytes()).checksum());
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
            Err(_) => Err(Malformed::cut(Header::Icmpv6, HEADER_BYTES, available_bytes)),
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

    /// The largest size in bytes that fits, if the message reports a packet that was too big.
    pub fn mtu_bytes(&self) -> Option<u32> {
        let word: U32 = zerocopy::transmute!([self.identifier, self.sequence]);
        (self.kind == kind::PACKET_TOO_BIG).then_some(word.get())
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
    pub fn set_mtu_bytes(&mut self, mtu_bytes: u32) -> bool {
        let has_mtu = self.mtu_bytes().is_some();
        if has_mtu {
            let change = Change::of_word(self.identifier.get(), (mtu_bytes >> 16) as u16);
            self.identifier.set((mtu_bytes >> 16) as u16);
            self.update_checksum(change);
            self.set_sequence(mtu_bytes as u16);
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

    /// Corrects the checksum for a change to bytes that it covers: the addresses or the payload.
    #[inline]
    pub fn update_checksum(&mut self, change: Change) {
        self.checksum.set(change.apply(self.checksum.get()));
    }
}

/// Puts a header in front of the packet, which is its payload. [`ipv6::push`](crate::ipv6::push) then
/// completes the checksum.
///
/// # Errors
/// [`NoRoom`] if there are no 8 bytes of headroom; the packet is unchanged.
#[inline]
pub fn push<P: PacketBuf>(packet: &mut P, header: Icmpv6Header) -> Result<(), NoRoom> {
    write::put(packet, header).map(drop)
}

/// A checked view of an ICMPv6 message.
#[derive(Clone, Copy, Debug)]
pub struct Icmpv6View<'a> {
    header: &'a Icmpv6Header,
    message: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Icmpv6View<'a> {
    /// The view of the message in `bytes`, an IPv6 packet's payload after its extension headers.
    ///
    /// # Errors
    /// [`Malformed::Cut`] if there are fewer than 8 bytes.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let Ok((header, payload)) = Icmpv6Header::ref_from_prefix(bytes) else {
            return Err(Malformed::cut(Header::Icmpv6, HEADER_BYTES, bytes.len()));
        };
        Ok(Self { header, message: bytes, payload })
    }

    /// The bytes after the header: an echo's data, or the packet that an error quotes.
    #[inline]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The IPv6 packet that an error quotes, cut: for
    /// [`Ipv6View::parse_cut`](crate::ipv6::Ipv6View::parse_cut).
    pub const fn quoted(&self) -> Option<&'a [u8]> {
        if is_error(self.header.kind) { Some(self.payload) } else { None }
    }

    /// Whether the message's checksum, which covers both addresses, is right.
    pub fn is_checksum_right(&self, source: Ipv6Addr, destination: Ipv6Addr) -> bool {
        checksum::transport_v6(source, destination, protocol::ICMPV6, self.message) == 0
    }
}

impl std::ops::Deref for Icmpv6View<'_> {
    type Target = Icmpv6Header;

    #[inline]
    fn deref(&self) -> &Icmpv6Header {
        self.header
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        build::{echo_reply, too_big, udp},
        ipv6::Ipv6View,
    };

    #[test]
    fn echo() {
        let frame = echo_reply(7, 9).to("2001:db8::2").payload(b"pong").build();
        let view = Icmpv6View::parse(&frame[54..]).unwrap();
        assert_eq!((view.kind(), view.code()), (kind::ECHO_REPLY, 0));
        assert_eq!((view.echo_identifier(), view.echo_sequence()), (Some(7), Some(9)));
        assert_eq!((view.payload(), view.quoted(), view.mtu_bytes()), (&b"pong"[..], None, None));
    }

    #[test]
    fn an_error_quotes_its_packet() {
        let about = udp().to("[2001:db8::2]:53").payload([1; 64]).build();
        let frame = too_big(&about, 1_400).build();
        let outer = Ipv6View::parse(&frame[14..]).unwrap();
        let view = Icmpv6View::parse(outer.payload()).unwrap();
        assert_eq!((view.kind(), view.mtu_bytes()), (2, Some(1_400)));
        assert_eq!((view.echo_identifier(), view.echo_sequence()), (None, None));
        let quoted = Ipv6View::parse_cut(view.quoted().unwrap()).unwrap();
        assert_eq!(quoted.destination().to_string(), "2001:db8::2");
        assert!(view.is_checksum_right(outer.source(), outer.destination()));
        assert!(!view.is_checksum_right(outer.source(), Ipv6Addr::LOCALHOST));
    }

    /// The numbers are those of IANA's registry.
    #[test]
    fn messages_of_the_link_are_told_from_others() {
        let of = |is: fn(u8) -> bool| (0..=255).filter(|kind| is(*kind)).collect::<Vec<u8>>();
        assert_eq!(of(is_neighbour_discovery), [133, 134, 135, 136, 137]);
        assert_eq!(of(is_multicast_listener), [130, 131, 132, 143]);
    }

    #[test]
    fn cut_messages_are_refused() {
        for length in 0..8 {
            assert!(Icmpv6View::parse(&[0; 8][..length]).is_err());
        }
    }
}
