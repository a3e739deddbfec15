//! UDP (RFC 768).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian::U16};

use crate::{Header, Malformed, PacketBuf, WriteError, checksum::Change, write};

/// Length in bytes of the header.
pub const HEADER_BYTES: usize = 8;

/// The UDP header: 8 bytes.
#[derive(
    Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct UdpHeader {
    source_port: U16,
    destination_port: U16,
    length: U16,
    checksum: U16,
}

impl UdpHeader {
    /// A header for [`push`], which fills in the length. The IP header's `push` completes the
    /// checksum; until then it is 0xffff.
    #[inline]
    pub const fn new(source_port: u16, destination_port: u16) -> Self {
        Self {
            source_port: U16::new(source_port),
            destination_port: U16::new(destination_port),
            length: U16::new(HEADER_BYTES as u16),
            checksum: U16::MAX_VALUE,
        }
    }

    /// The header with a checksum of 0, which means "no checksum": in IPv4, and in IPv6 for tunnels
    /// only (RFC 6935, RFC 6936).
    #[inline]
    #[must_use]
    pub const fn without_checksum(self) -> Self {
        Self { checksum: U16::ZERO, ..self }
    }

    /// The header at the start of `bytes`, to be changed in place.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes end within the header, or if its length is below 8.
    #[inline]
    pub fn parse_mut(bytes: &mut [u8]) -> Result<&mut Self, Malformed> {
        let available_bytes = bytes.len();
        let Ok((header, _)) = Self::mut_from_prefix(bytes) else {
            return Err(Malformed::cut(Header::Udp, HEADER_BYTES, available_bytes));
        };
        if usize::from(header.length()) < HEADER_BYTES {
            return Err(Malformed::inconsistent(Header::Udp, "length"));
        }
        Ok(header)
    }

    /// The source's port.
    #[inline]
    pub const fn source_port(&self) -> u16 {
        self.source_port.get()
    }

    /// The destination's port.
    #[inline]
    pub const fn destination_port(&self) -> u16 {
        self.destination_port.get()
    }

    /// Length in bytes of header and payload together.
    #[inline]
    pub const fn length(&self) -> u16 {
        self.length.get()
    }

    /// The checksum, as sent: 0 if the sender made none (IPv4 only).
    #[inline]
    pub const fn checksum(&self) -> u16 {
        self.checksum.get()
    }

    /// Writes the source's port and corrects the checksum.
    #[inline]
    pub fn set_source_port(&mut self, port: u16) {
        let change = Change::of_word(self.source_port.get(), port);
        self.source_port.set(port);
        self.update_checksum(change);
    }

    /// Writes the destination's port and corrects the checksum.
    #[inline]
    pub fn set_destination_port(&mut self, port: u16) {
        let change = Change::of_word(self.destination_port.get(), port);
        self.destination_port.set(port);
        self.update_checksum(change);
    }

    /// Writes the length of header and payload together, and corrects the checksum, which covers it
    /// twice: in the header and in the pseudo-header.
    #[inline]
    pub fn set_length(&mut self, length: u16) {
        let change = Change::of_word(self.length.get(), length);
        self.length.set(length);
        self.update_checksum(change + change);
    }

    /// Corrects the checksum for a change to bytes that it covers: the addresses or the payload. A
    /// checksum of 0 means "no checksum" and stays; one that becomes 0 is written as 0xffff (RFC
    /// 768).
    #[inline]
    pub fn update_checksum(&mut self, change: Change) {
        self.checksum.set(update_checksum(self.checksum.get(), change));
    }
}

/// The checksum after a change. 0 means "no checksum" and stays; a result of 0 is sent as 0xffff,
/// the same number in one's complement.
#[inline]
const fn update_checksum(checksum: u16, change: Change) -> u16 {
    match (checksum, change.apply(checksum)) {
        (0, _) => 0,
        (_, 0) => 0xffff,
        (_, updated) => updated,
    }
}

/// Puts a header in front of the packet, which is its payload, and fills in the length. The IP
/// header's `push` then completes the checksum: see [`ipv4::push`](crate::ipv4::push) and
/// [`ipv6::push`](crate::ipv6::push).
///
/// # Errors
/// [`WriteError`]: there are no 8 bytes of headroom, or the datagram would have more than 65,535
/// bytes. The packet is unchanged.
#[inline]
pub fn push<P: PacketBuf>(packet: &mut P, mut header: UdpHeader) -> Result<(), WriteError> {
    header.length.set(write::length(Header::Udp, HEADER_BYTES + packet.len_bytes())?);
    write::put(packet, header)?;
    Ok(())
}

/// A checked view of a UDP datagram.
#[derive(Clone, Copy, Debug)]
pub struct UdpView<'a> {
    header: &'a UdpHeader,
    payload: &'a [u8],
}

impl<'a> UdpView<'a> {
    /// The view of the datagram at the start of `bytes`, an IP packet's payload.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes end within the header or before the stated length, or if that
    /// length is below 8.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let view = Self::parse_cut(bytes)?;
        let length = usize::from(view.length());
        if length > bytes.len() {
            return Err(Malformed::cut(Header::Udp, length, bytes.len()));
        }
        Ok(view)
    }

    /// The view of a datagram with a payload that may go on after `bytes`: in the first segment of
    /// several, in a first fragment, or quoted by an ICMP error.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes end within the header, or if its length is below 8.
    #[inline]
    pub fn parse_cut(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let Ok((header, rest)) = UdpHeader::ref_from_prefix(bytes) else {
            return Err(Malformed::cut(Header::Udp, HEADER_BYTES, bytes.len()));
        };
        let Some(payload_bytes) = usize::from(header.length()).checked_sub(HEADER_BYTES) else {
            return Err(Malformed::inconsistent(Header::Udp, "length"));
        };
        Ok(Self { header, payload: rest.get(..payload_bytes).unwrap_or(rest) })
    }

    /// The datagram's payload.
    #[inline]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

impl std::ops::Deref for UdpView<'_> {
    type Target = UdpHeader;

    #[inline]
    fn deref(&self) -> &UdpHeader {
        self.header
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::{build::udp, checksum};

    #[test]
    fn fields() {
        let frame = udp().from("10.0.0.1:1000").to("192.0.2.1:53").payload(b"hello").build();
        let view = UdpView::parse(&frame[34..]).unwrap();
        assert_eq!((view.source_port(), view.destination_port(), view.length()), (1000, 53, 13));
        assert_eq!(view.payload(), b"hello");
        let (source, destination) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 0, 2, 1));
        assert_eq!(checksum::transport_v4(source, destination, 17, &frame[34..]), 0);
    }

    #[test]
    fn impossible_lengths_are_refused() {
        let frame = udp().payload(b"hello").build();
        for length in 0..13 {
            let error = UdpView::parse(&frame[34..34 + length]).unwrap_err();
            assert!(matches!(error, Malformed::Cut { header: Header::Udp, .. }));
        }
        assert_eq!(UdpView::parse_cut(&frame[34..44]).unwrap().payload(), b"he");
        let mut bytes = frame[34..].to_vec();
        bytes[5] = 7;
        let expected = Malformed::inconsistent(Header::Udp, "length");
        assert_eq!(UdpView::parse_cut(&bytes).unwrap_err(), expected);
    }
}
