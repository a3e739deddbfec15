//! One packet becomes several.

use crate::{
    Header, Malformed, PacketBuf, ethernet,
    ethernet::ETHERTYPE_IPV4,
    ipv4::{self, Ipv4View},
};

/// Fragments begin at multiples of this.
pub(super) const UNIT_BYTES: usize = 8;

/// The highest end of a datagram, without its header: offsets are counted in 13 bits.
const DATAGRAM_BYTES_MAX: usize = 0xffff;

/// The bit in an option's type that copies the option to every fragment.
const COPIED: u8 = 0x80;

/// Why a packet was not split. The packet is unchanged.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FragmentError {
    /// The frame carries something other than IPv4.
    #[error(
        "EtherType {ethertype:#06x} is not IPv4, and only packets of IPv4 are fragmented on their way"
    )]
    NotIpv4 {
        /// The frame's EtherType, after VLAN tags.
        ethertype: u16,
    },
    /// The packet's header or its options are cut or inconsistent.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The header's checksum is wrong; the fragments would hide that.
    #[error("the header's checksum is wrong")]
    Checksum,
    /// The packet does not fit, and its sender forbids fragments.
    #[error(
        "a packet of {packet_bytes} bytes that must not be fragmented, for an MTU of {mtu_bytes}"
    )]
    Forbidden {
        /// The packet's length in bytes, without its Ethernet header.
        packet_bytes: usize,
        /// The largest packet that fits.
        mtu_bytes: usize,
    },
    /// The MTU leaves no room for a header and eight bytes.
    #[error("an MTU of {mtu_bytes} bytes, of which a fragment takes {wanted_bytes} or more")]
    MtuTooSmall {
        /// The largest packet that fits.
        mtu_bytes: usize,
        /// Length in bytes of the shortest first fragment.
        wanted_bytes: usize,
    },
    /// No memory for a fragment, or no piece of memory that holds its headers.
    #[error("no memory for a fragment (give the mempool more mbufs)")]
    NoMemory,
}

/// Splits the IPv4 packet of a frame into fragments of at most `mtu_bytes` bytes each, not counting
/// the Ethernet header, which every fragment keeps. A packet that fits, padding excluded, is
/// emitted unchanged.
///
/// Fragments are emitted first to last. Each has the packet's header; fragments after the first
/// have only the options with the copy bit. A fragment may be split again. Each fragment except the
/// last is [copied](PacketBuf::copied), so it has the packet's metadata. The last reuses the
/// packet's own memory, or is another copy if it begins after the packet's first segment.
///
/// ```
/// use hotloop_packet::{PacketBuf, build::udp, fragment, memory::MemPacket};
///
/// let packet = udp().payload([7; 2000]).packet_in_memory();
/// let mut lengths = Vec::new();
/// fragment::split(packet, 1480, |piece| lengths.push(piece.len_bytes())).unwrap();
/// assert_eq!(lengths, [14 + 20 + 1456, 14 + 20 + 8 + 2000 - 1456]);
/// ```
///
/// # Errors
/// [`FragmentError`]; the packet is unchanged. With [`FragmentError::NoMemory`] some fragments may
/// have been emitted already; the receiver discards them after a timeout.
pub fn split<P: PacketBuf>(
    packet: P,
    mtu_bytes: usize,
    mut emit: impl FnMut(P),
) -> Result<(), (P, FragmentError)> {
    match Whole::read(&packet, mtu_bytes) {
        Ok(Some(whole)) => whole.split(packet, mtu_bytes, emit),
        Ok(None) => {
            emit(packet);
            Ok(())
        }
        Err(error) => Err((packet, error)),
    }
}

/// A packet to be split.
struct Whole {
    /// Offset of the packet in its frame: 14, 18 or 22.
    l3_offset: usize,
    /// Ethernet and IPv4 header of the first fragment.
    first: Front,
    /// Ethernet and IPv4 header of the fragments after it.
    later: Front,
    /// Offset of the payload in the frame, and its end.
    payload_offset: usize,
    end: usize,
    /// Offset of the payload in its datagram's payload, in bytes: more than 0 for a fragment.
    datagram_offset: usize,
    /// Whether fragments follow this packet.
    more: bool,
}

/// The first bytes of a fragment's frame.
struct Front {
    bytes: [u8; ethernet::HEADER_BYTES_MAX + ipv4::HEADER_BYTES_MAX],
    len_bytes: usize,
}

impl Whole {
    /// Reads the packet to be split; `None` if it fits.
    fn read<P: PacketBuf>(packet: &P, mtu_bytes: usize) -> Result<Option<Self>, FragmentError> {
        let frame = packet.data();
        let cut = Malformed::cut(Header::Ethernet, ethernet::HEADER_BYTES, frame.len());
        let (ethertype, l3_offset) = ethernet::network_layer(frame).ok_or(cut)?;
        if ethertype != ETHERTYPE_IPV4 {
            return Err(FragmentError::NotIpv4 { ethertype });
        }
        let view = Ipv4View::parse_cut(&frame[l3_offset..])?;
        let total_bytes = usize::from(view.total_length());
        let available_bytes = packet.len_bytes().saturating_sub(l3_offset);
        if total_bytes > available_bytes {
            return Err(Malformed::cut(Header::Ipv4, total_bytes, available_bytes).into());
        }
        if total_bytes <= mtu_bytes {
            return Ok(None);
        }
        if !view.is_checksum_right() {
            return Err(FragmentError::Checksum);
        }
        if view.dont_fragment() {
            return Err(FragmentError::Forbidden { packet_bytes: total_bytes, mtu_bytes });
        }
        let wanted_bytes = view.header_bytes() + UNIT_BYTES;
        if mtu_bytes < wanted_bytes {
            return Err(FragmentError::MtuTooSmall { mtu_bytes, wanted_bytes });
        }
        let payload_offset = l3_offset + view.header_bytes();
        let datagram_offset = view.fragment_offset_bytes();
        let payload_bytes = total_bytes - view.header_bytes();
        if datagram_offset + payload_bytes > DATAGRAM_BYTES_MAX {
            return Err(Malformed::inconsistent(Header::Ipv4, "fragment offset").into());
        }
        let fixed = &frame[..l3_offset + ipv4::HEADER_BYTES];
        let mut options = [0; ipv4::HEADER_BYTES_MAX - ipv4::HEADER_BYTES];
        let option_bytes = copied_options(view.options(), &mut options)?;
        Ok(Some(Self {
            l3_offset,
            first: Front::new(fixed, view.options()),
            later: Front::new(fixed, &options[..option_bytes]),
            payload_offset,
            end: l3_offset + total_bytes,
            datagram_offset,
            more: view.more_fragments(),
        }))
    }

    fn split<P: PacketBuf>(
        mut self,
        packet: P,
        mtu_bytes: usize,
        mut emit: impl FnMut(P),
    ) -> Result<(), (P, FragmentError)> {
        let mut offset = self.payload_offset;
        loop {
            let front =
                if offset == self.payload_offset { &mut self.first } else { &mut self.later };
            let room_bytes = self.l3_offset + mtu_bytes - front.len_bytes;
            let left_bytes = self.end - offset;
            let is_last = left_bytes <= room_bytes;
            let piece_bytes = if is_last { left_bytes } else { room_bytes & !(UNIT_BYTES - 1) };
            let position = self.datagram_offset + (offset - self.payload_offset);
            front.set(self.l3_offset, piece_bytes, position, self.more || !is_last);
            // The bytes before the piece are at least as long as its headers, which overwrite them.
            let start = offset - front.len_bytes;
            if is_last {
                return last(packet, start, self.end, front, emit);
            }
            match front.piece(&packet, start, front.len_bytes + piece_bytes) {
                Some(piece) => emit(piece),
                None => return Err((packet, FragmentError::NoMemory)),
            }
            offset += piece_bytes;
        }
    }
}

/// Makes the packet its last fragment, which begins at `start`, headers included, and ends at `end`.
fn last<P: PacketBuf>(
    mut packet: P,
    start: usize,
    end: usize,
    front: &Front,
    mut emit: impl FnMut(P),
) -> Result<(), (P, FragmentError)> {
    let headers_fit = start + front.len_bytes <= packet.data().len();
    if headers_fit && packet.trim_front(start).is_ok() {
        front.write(packet.data_mut());
        packet.truncate(end - start);
        emit(packet);
        return Ok(());
    }
    match front.piece(&packet, start, end - start) {
        Some(piece) => emit(piece),
        None => return Err((packet, FragmentError::NoMemory)),
    }
    Ok(())
}

impl Front {
    /// The front of a frame: the fixed IPv4 header is followed by these options.
    fn new(fixed: &[u8], options: &[u8]) -> Self {
        let mut bytes = [0; ethernet::HEADER_BYTES_MAX + ipv4::HEADER_BYTES_MAX];
        let len_bytes = fixed.len() + options.len();
        bytes[..fixed.len()].copy_from_slice(fixed);
        bytes[fixed.len()..len_bytes].copy_from_slice(options);
        Self { bytes, len_bytes }
    }

    /// Sets the header's fields for a fragment of `piece_bytes` at `position` in its datagram.
    fn set(&mut self, l3_offset: usize, piece_bytes: usize, position: usize, more: bool) {
        let header = &mut self.bytes[l3_offset..self.len_bytes];
        let header_bytes = header.len();
        header[0] = 0x40 | (header_bytes / 4) as u8;
        let total = (header_bytes + piece_bytes) as u16;
        header[2..4].copy_from_slice(&total.to_be_bytes());
        let flags_fragment = u16::from(more) << 13 | (position / UNIT_BYTES) as u16;
        header[6..8].copy_from_slice(&flags_fragment.to_be_bytes());
        // The header is whole: its length field was set from its own length.
        let _ = ipv4::fill_checksum(header);
    }

    /// Writes the front over the first bytes of `frame`. Returns whether it fits.
    fn write(&self, frame: &mut [u8]) -> bool {
        let Some(front) = frame.get_mut(..self.len_bytes) else { return false };
        front.copy_from_slice(&self.bytes[..self.len_bytes]);
        true
    }

    /// A copy of `len_bytes` bytes of a packet, with this front.
    fn piece<P: PacketBuf>(&self, packet: &P, start: usize, len_bytes: usize) -> Option<P> {
        let mut piece = packet.copied(start, len_bytes)?;
        self.write(piece.data_mut()).then_some(piece)
    }
}

/// Copies the options that every fragment needs, pads them with end-of-list options to a multiple
/// of four bytes, and returns their length in bytes.
fn copied_options(options: &[u8], copies: &mut [u8; 40]) -> Result<usize, Malformed> {
    const END: u8 = 0;
    const NO_OPERATION: u8 = 1;
    let (mut rest, mut len_bytes) = (options, 0);
    while let [kind, tail @ ..] = rest {
        let option_bytes = match *kind {
            END => break,
            NO_OPERATION => 1,
            _ => tail.first().map_or(0, |length| usize::from(*length)),
        };
        let whole = rest.split_at_checked(option_bytes);
        let Some((option, next)) = whole.filter(|_| *kind == NO_OPERATION || option_bytes >= 2)
        else {
            return Err(Malformed::inconsistent(Header::Ipv4, "option length"));
        };
        if kind & COPIED != 0 {
            copies[len_bytes..len_bytes + option_bytes].copy_from_slice(option);
            len_bytes += option_bytes;
        }
        rest = next;
    }
    Ok(len_bytes.next_multiple_of(4))
}
