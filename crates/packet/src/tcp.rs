//! TCP (RFC 9293).

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    big_endian::{U16, U32},
};

use crate::{Header, Malformed};

/// Length in bytes of a header without options.
pub const HEADER_BYTES: usize = 20;

/// The flags of a TCP segment, to be joined by `|`.
pub mod flags {
    /// The sender has no more to send.
    pub const FIN: u8 = 0x01;
    /// Opens a connection.
    pub const SYN: u8 = 0x02;
    /// Ends a connection at once.
    pub const RST: u8 = 0x04;
    /// To be handed to the application now.
    pub const PSH: u8 = 0x08;
    /// The acknowledgement number counts.
    pub const ACK: u8 = 0x10;
    /// The urgent pointer counts.
    pub const URG: u8 = 0x20;
}

/// The fixed part of a TCP header: 20 bytes.
#[derive(
    Clone, Copy, Debug, Eq, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct TcpHeader {
    source_port: U16,
    destination_port: U16,
    sequence_number: U32,
    acknowledgment_number: U32,
    data_offset: u8,
    flags: u8,
    window: U16,
    checksum: U16,
    urgent_pointer: U16,
}

impl TcpHeader {
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

    /// The number of the first byte sent.
    #[inline]
    pub const fn sequence_number(&self) -> u32 {
        self.sequence_number.get()
    }

    /// The number of the byte expected next, where [`flags::ACK`] is set.
    #[inline]
    pub const fn acknowledgment_number(&self) -> u32 {
        self.acknowledgment_number.get()
    }

    /// Length in bytes, options included: 20 to 60 in every checked header.
    #[inline]
    pub const fn header_bytes(&self) -> usize {
        (self.data_offset >> 4) as usize * 4
    }

    /// The [`flags`].
    #[inline]
    pub const fn flags(&self) -> u8 {
        self.flags
    }

    /// How many bytes the sender is ready to take, unscaled.
    #[inline]
    pub const fn window(&self) -> u16 {
        self.window.get()
    }

    /// The checksum, as sent.
    #[inline]
    pub const fn checksum(&self) -> u16 {
        self.checksum.get()
    }

    /// Where urgent data ends, where [`flags::URG`] is set.
    #[inline]
    pub const fn urgent_pointer(&self) -> u16 {
        self.urgent_pointer.get()
    }
}

/// A checked view of a TCP segment.
#[derive(Clone, Copy, Debug)]
pub struct TcpView<'a> {
    header: &'a TcpHeader,
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> TcpView<'a> {
    /// The view of the segment in `bytes`, an IP packet's payload.
    ///
    /// # Errors
    /// [`Malformed`] where the bytes end within the header (options included), or its length is
    /// below 20.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let cut = |wanted| Malformed::cut(Header::Tcp, wanted, bytes.len());
        let Ok((header, rest)) = TcpHeader::ref_from_prefix(bytes) else {
            return Err(cut(HEADER_BYTES));
        };
        let Some(option_bytes) = header.header_bytes().checked_sub(HEADER_BYTES) else {
            return Err(Malformed::inconsistent(Header::Tcp, "data offset"));
        };
        let Some((options, payload)) = rest.split_at_checked(option_bytes) else {
            return Err(cut(header.header_bytes()));
        };
        Ok(Self { header, options, payload })
    }

    /// The header's options: up to 40 bytes.
    #[inline]
    pub const fn options(&self) -> &'a [u8] {
        self.options
    }

    /// The segment's data.
    #[inline]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

impl std::ops::Deref for TcpView<'_> {
    type Target = TcpHeader;

    #[inline]
    fn deref(&self) -> &TcpHeader {
        self.header
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::{build::tcp, checksum};

    #[test]
    fn fields() {
        let frame = tcp()
            .from("10.0.0.1:1000")
            .to("192.0.2.1:80")
            .tcp_flags(flags::SYN | flags::ACK)
            .sequence(7, 9)
            .tcp_options(&[2, 4, 5, 0xb4])
            .payload(b"hello")
            .build();
        let view = TcpView::parse(&frame[34..]).unwrap();
        assert_eq!((view.source_port(), view.destination_port()), (1000, 80));
        assert_eq!((view.sequence_number(), view.acknowledgment_number()), (7, 9));
        assert_eq!((view.header_bytes(), view.flags()), (24, 0x12));
        assert_eq!((view.window(), view.urgent_pointer()), (65_535, 0));
        assert_eq!((view.options(), view.payload()), (&[2, 4, 5, 0xb4][..], &b"hello"[..]));
        let (source, destination) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 0, 2, 1));
        assert_eq!(checksum::transport_v4(source, destination, 6, &frame[34..]), 0);
    }

    #[test]
    fn impossible_headers_are_refused() {
        let frame = tcp().tcp_options(&[1; 4]).build();
        for length in 0..24 {
            let error = TcpView::parse(&frame[34..34 + length]).unwrap_err();
            assert!(matches!(error, Malformed::Cut { header: Header::Tcp, .. }));
        }
        let mut bytes = frame[34..].to_vec();
        bytes[12] = 0x40;
        let expected = Malformed::inconsistent(Header::Tcp, "data offset");
        assert_eq!(TcpView::parse(&bytes).unwrap_err(), expected);
    }
}
