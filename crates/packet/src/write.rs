//! Headers that are put in front of packets, and the checksums that they complete.

use zerocopy::{Immutable, IntoBytes};

use crate::{Header, Malformed, NoRoom, PacketBuf, checksum::Sum, ip_fields::protocol};

/// Why a header was not written. The packet is unchanged.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum WriteError {
    /// The packet's memory has too little room.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// A header of the packet is cut or inconsistent.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The packet is longer than the header's length field counts.
    #[error("{len_bytes} bytes, more than the length field of {header} counts")]
    TooLong {
        /// The header's protocol.
        header: Header,
        /// The length in bytes that the field must count.
        len_bytes: usize,
    },
    /// There are more than 40 bytes of options.
    #[error("{option_bytes} bytes of options: a TCP header takes up to 40")]
    Options {
        /// Length of the options in bytes.
        option_bytes: usize,
    },
    /// The frame carries something other than a whole TCP segment: another protocol, or a fragment.
    #[error("the frame carries no whole TCP segment")]
    NotTcp,
}

/// The value of a header's length field, which counts `len_bytes`.
pub(crate) fn length(header: Header, len_bytes: usize) -> Result<u16, WriteError> {
    u16::try_from(len_bytes).map_err(|_| WriteError::TooLong { header, len_bytes })
}

/// Puts a header in front of the packet and returns the whole first segment.
#[inline]
pub(crate) fn put<P: PacketBuf>(
    packet: &mut P,
    header: impl IntoBytes + Immutable,
) -> Result<&mut [u8], NoRoom> {
    let header = header.as_bytes();
    let bytes = packet.prepend(header.len())?;
    bytes[..header.len()].copy_from_slice(header);
    Ok(bytes)
}

/// The checksum field of a transport header.
#[derive(Clone, Copy)]
pub(crate) struct Field {
    /// Offset in bytes from the packet's start.
    offset: usize,
    checksum: u16,
}

impl Field {
    /// The checksum of the message of `protocol` that goes from `offset` to the packet's end, with
    /// this pseudo-header. `None` if the protocol has no checksum with a pseudo-header, or if the
    /// message is a UDP datagram without checksum.
    pub(crate) fn of<P: PacketBuf>(
        packet: &P,
        (protocol, offset): (u8, usize),
        pseudo: Sum,
    ) -> Result<Option<Self>, Malformed> {
        let (header, header_bytes, field_offset) = match protocol {
            protocol::TCP => (Header::Tcp, 20, 16),
            protocol::UDP => (Header::Udp, 8, 6),
            protocol::ICMPV6 => (Header::Icmpv6, 8, 2),
            _ => return Ok(None),
        };
        let message = packet.data().get(offset..).unwrap_or_default();
        let cut = || Malformed::cut(header, header_bytes, message.len());
        let fields = message.get(..header_bytes).ok_or_else(cut)?;
        let old = u16::from_be_bytes([fields[field_offset], fields[field_offset + 1]]);
        if protocol == protocol::UDP && old == 0 {
            return Ok(None);
        }
        // A number and its complement add to nothing: the field counts as if it was 0.
        let sum = pseudo.packet(packet, offset..packet.len_bytes()).number(!old);
        let checksum = match sum.checksum() {
            0 if protocol == protocol::UDP => 0xffff,
            checksum => checksum,
        };
        Ok(Some(Self { offset: offset + field_offset, checksum }))
    }

    /// Writes the field of the packet at the start of `bytes`.
    pub(crate) fn write(self, bytes: &mut [u8]) {
        bytes[self.offset..self.offset + 2].copy_from_slice(&self.checksum.to_be_bytes());
    }
}
