//! TCP headers and options, written.

use zerocopy::{
    IntoBytes,
    big_endian::{U16, U32},
};

use crate::{
    Header, Malformed, PacketBuf, WriteError,
    checksum::Change,
    ethernet::{self, ETHERTYPE_IPV4, ETHERTYPE_IPV6},
    ip_fields::{Fragment, protocol},
    ipv4::{Ipv4Header, Ipv4View},
    ipv6::{self, Ipv6Header, Ipv6View},
    tcp::{HEADER_BYTES, OPTION_BYTES_MAX, TcpHeader, TcpView},
    write,
};

impl TcpHeader {
    /// A header for [`push`] with these [`flags`](super::flags). The IP header's `push` completes the
    /// checksum. The window is 65,535; both numbers are 0.
    #[inline]
    pub const fn new(source_port: u16, destination_port: u16, flags: u8) -> Self {
        Self {
            source_port: U16::new(source_port),
            destination_port: U16::new(destination_port),
            sequence_number: U32::ZERO,
            acknowledgment_number: U32::ZERO,
            data_offset: (HEADER_BYTES as u8 / 4) << 4,
            flags,
            window: U16::MAX_VALUE,
            checksum: U16::ZERO,
            urgent_pointer: U16::ZERO,
        }
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

    /// Writes the number of the first byte sent, and corrects the checksum.
    #[inline]
    pub fn set_sequence_number(&mut self, number: u32) {
        let number = U32::new(number);
        let change = Change::of_bytes(self.sequence_number.to_bytes(), number.to_bytes());
        self.sequence_number = number;
        self.update_checksum(change);
    }

    /// Writes the number of the byte expected next, and corrects the checksum.
    #[inline]
    pub fn set_acknowledgment_number(&mut self, number: u32) {
        let number = U32::new(number);
        let change = Change::of_bytes(self.acknowledgment_number.to_bytes(), number.to_bytes());
        self.acknowledgment_number = number;
        self.update_checksum(change);
    }

    /// Writes the [`flags`](super::flags) and corrects the checksum.
    #[inline]
    pub fn set_flags(&mut self, flags: u8) {
        self.set_offset_flags(self.data_offset, flags);
    }

    #[inline]
    fn set_offset_flags(&mut self, data_offset: u8, flags: u8) {
        let change = Change::of_bytes([self.data_offset, self.flags], [data_offset, flags]);
        (self.data_offset, self.flags) = (data_offset, flags);
        self.update_checksum(change);
    }

    /// Writes the number of bytes that the sender is ready to receive, unscaled, and corrects the
    /// checksum.
    #[inline]
    pub fn set_window(&mut self, window: u16) {
        let change = Change::of_word(self.window.get(), window);
        self.window.set(window);
        self.update_checksum(change);
    }

    /// Writes the end of urgent data and corrects the checksum.
    #[inline]
    pub fn set_urgent_pointer(&mut self, urgent_pointer: u16) {
        let change = Change::of_word(self.urgent_pointer.get(), urgent_pointer);
        self.urgent_pointer.set(urgent_pointer);
        self.update_checksum(change);
    }

    /// Corrects the checksum for a change to bytes that it covers: the addresses or the payload.
    #[inline]
    pub fn update_checksum(&mut self, change: Change) {
        self.checksum.set(change.apply(self.checksum.get()));
    }
}

/// Puts a header with these options in front of the packet, which is its payload, and fills in the
/// data offset. Options are padded with zeroes to whole words. The IP header's `push` then completes
/// the checksum: see [`ipv4::push`](crate::ipv4::push) and [`ipv6::push`](crate::ipv6::push).
///
/// # Errors
/// [`WriteError`]: there are more than 40 bytes of options, or there is no headroom. The packet is
/// unchanged.
#[inline]
pub fn push<P: PacketBuf>(
    packet: &mut P,
    mut header: TcpHeader,
    options: &[u8],
) -> Result<(), WriteError> {
    let options = Options::new(options)?;
    header.data_offset = options.data_offset();
    let bytes = packet.prepend(HEADER_BYTES + options.len_bytes)?;
    bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
    options.write(&mut bytes[HEADER_BYTES..]);
    Ok(())
}

/// Replaces the options of the TCP segment in a frame: the packet grows or shrinks after the fixed
/// header. Options are padded with zeroes to whole words. The data offset, the IP header's length and
/// both checksums are corrected; a checksum that was wrong stays wrong. VLAN tags and IPv6 extension
/// headers are skipped.
///
/// ```
/// use hotloop_packet::{PacketBuf, build::tcp, memory::MemPacket, tcp::set_options};
///
/// let mut packet = MemPacket::new(&tcp().tcp_options(&[2, 4, 0x05, 0xb4]).build());
/// set_options(&mut packet, &[2, 4, 0x05, 0xb4, 1, 3, 3, 7])?;
/// assert_eq!(packet.data(), tcp().tcp_options(&[2, 4, 0x05, 0xb4, 1, 3, 3, 7]).build());
/// set_options(&mut packet, &[])?;
/// assert_eq!(packet.data(), tcp().build());
/// # Ok::<(), hotloop_packet::WriteError>(())
/// ```
///
/// # Errors
/// [`WriteError`]: the frame has no whole TCP segment or a malformed header, there are more than 40
/// bytes of options, the packet would be too long, or there is no headroom. The packet is unchanged.
pub fn set_options<P: PacketBuf>(packet: &mut P, options: &[u8]) -> Result<(), WriteError> {
    let new = Options::new(options)?;
    let Segment { l3_offset, l4_offset, ip, length, options: old } = Segment::of(packet.data())?;
    // The length counts the old options: they lie within the packet.
    let length = write::length(ip, usize::from(length) - old.len_bytes + new.len_bytes)?;
    let options_offset = l4_offset + HEADER_BYTES;
    match new.len_bytes.checked_sub(old.len_bytes) {
        Some(count) => {
            packet.insert(options_offset, count)?;
        }
        None => packet.remove(options_offset, old.len_bytes - new.len_bytes)?,
    }

    let frame = packet.data_mut();
    new.write(&mut frame[options_offset..]);
    // Both headers were parsed above.
    let change = match ip {
        Header::Ipv4 => Ipv4Header::parse_mut(&mut frame[l3_offset..])?.set_total_length(length),
        _ => Ipv6Header::parse_mut(&mut frame[l3_offset..])?.set_payload_length(length),
    };
    let header = TcpHeader::parse_mut(&mut frame[l4_offset..])?;
    header.update_checksum(change + Change::of_bytes(old.bytes, new.bytes));
    header.set_offset_flags(new.data_offset() | header.data_offset & 0xf, header.flags);
    Ok(())
}

/// Options with their padding.
struct Options {
    /// Zeroes follow the first `len_bytes`.
    bytes: [u8; OPTION_BYTES_MAX],
    /// A multiple of four.
    len_bytes: usize,
}

impl Options {
    fn new(options: &[u8]) -> Result<Self, WriteError> {
        let mut bytes = [0; OPTION_BYTES_MAX];
        let error = WriteError::Options { option_bytes: options.len() };
        bytes.get_mut(..options.len()).ok_or(error)?.copy_from_slice(options);
        Ok(Self { bytes, len_bytes: options.len().next_multiple_of(4) })
    }

    /// The data offset of a header with these options, in the upper half of its byte.
    const fn data_offset(&self) -> u8 {
        ((HEADER_BYTES + self.len_bytes) as u8 / 4) << 4
    }

    fn write(&self, to: &mut [u8]) {
        to[..self.len_bytes].copy_from_slice(&self.bytes[..self.len_bytes]);
    }
}

/// The whole TCP segment of a frame.
struct Segment {
    l3_offset: usize,
    l4_offset: usize,
    /// [`Header::Ipv4`] or [`Header::Ipv6`].
    ip: Header,
    /// The length in the IP header.
    length: u16,
    options: Options,
}

impl Segment {
    fn of(frame: &[u8]) -> Result<Self, WriteError> {
        let cut = Malformed::cut(Header::Ethernet, ethernet::HEADER_BYTES, frame.len());
        let (ethertype, l3_offset) = ethernet::network_layer(frame).ok_or(cut)?;
        let packet = frame.get(l3_offset..).unwrap_or_default();
        let (ip, length, header_bytes, found, payload) = match ethertype {
            ETHERTYPE_IPV4 => {
                let view = Ipv4View::parse_cut(packet)?;
                let found = (view.protocol(), view.fragment());
                (Header::Ipv4, view.total_length(), view.header_bytes(), found, view.payload())
            }
            ETHERTYPE_IPV6 => {
                let view = Ipv6View::parse_cut(packet)?;
                let chain = view.chain()?;
                let header_bytes = ipv6::HEADER_BYTES + chain.offset_bytes;
                let payload = view.payload().get(chain.offset_bytes..).unwrap_or_default();
                let found = (chain.protocol, chain.fragment);
                (Header::Ipv6, view.payload_length(), header_bytes, found, payload)
            }
            _ => return Err(WriteError::NotTcp),
        };
        if found != (protocol::TCP, Fragment::None) {
            return Err(WriteError::NotTcp);
        }
        let options = Options::new(TcpView::parse(payload)?.options())?;
        Ok(Self { l3_offset, l4_offset: l3_offset + header_bytes, ip, length, options })
    }
}
