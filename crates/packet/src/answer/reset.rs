//! TCP: the reset that refuses a segment.

use crate::{
    PacketBuf,
    answer::{AnswerError, about::About},
    ethernet,
    ip::protocol,
    tcp::{
        HEADER_BYTES, TcpView,
        flags::{ACK, FIN, RST, SYN},
    },
};

/// Turns a TCP segment into the reset that refuses it, from its destination to its source, as if
/// nothing listened there (RFC 9293, sections 3.5.2 and 3.10.7.1).
///
/// A segment with ACK gets a reset with the number that it acknowledges. Any other gets a reset with
/// the number 0 that acknowledges the segment, SYN and FIN included. Resets get no answer.
///
/// The frame's addresses, the packet's and the ports are swapped, VLAN tags stay. The answer keeps
/// what [`udp`](super::udp) keeps, and needs no room. The segment's checksum is verified first (RFC
/// 9293, section 3.1), over all segments of the packet. All except the first are freed.
///
/// ```
/// use hotloop_packet::{PacketBuf, answer, build::tcp, tcp::flags, memory::MemPacket};
///
/// let syn = tcp().from("198.51.100.7:4000").to("203.0.113.10:80").tcp_flags(flags::SYN);
/// let mut packet = syn.sequence(700, 0).packet_in_memory();
/// answer::tcp_reset(&mut packet)?;
/// let header = hotloop_packet::tcp::TcpView::parse(&packet.data()[34..])?;
/// assert_eq!((header.flags(), header.destination_port()), (flags::RST | flags::ACK, 4000));
/// assert_eq!((header.sequence_number(), header.acknowledgment_number()), (0, 701));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`AnswerError`]; the packet is unchanged.
pub fn tcp_reset<P: PacketBuf>(packet: &mut P) -> Result<(), AnswerError> {
    let about = About::read(packet)?;
    let segment = TcpView::parse(about.whole_message(packet.data(), protocol::TCP)?)?;
    if segment.flags() & RST != 0 {
        return Err(AnswerError::AboutReset);
    }
    let segment_bytes = about.total_bytes - about.header_bytes;
    if !about.is_sum_right(packet, segment_bytes) {
        return Err(AnswerError::Checksum);
    }
    let (sequence, acknowledgment, flags) = if segment.flags() & ACK != 0 {
        (segment.acknowledgment_number(), 0, RST)
    } else {
        let has = |flag: u8| u32::from(segment.flags() & flag != 0);
        let data_bytes = (segment_bytes - segment.header_bytes()) as u32;
        let count = data_bytes + has(SYN) + has(FIN);
        (0, segment.sequence_number().wrapping_add(count), RST | ACK)
    };

    let answer = about.turn(packet, HEADER_BYTES)?;
    if let Some(header) = answer.first_chunk_mut::<HEADER_BYTES>() {
        let (source, destination) = header[..4].split_at_mut(2);
        source.swap_with_slice(destination);
        header[4..8].copy_from_slice(&u32::to_be_bytes(sequence));
        header[8..12].copy_from_slice(&u32::to_be_bytes(acknowledgment));
        // No options, no window, no urgent data.
        header[12..].copy_from_slice(&[(HEADER_BYTES as u8 / 4) << 4, flags, 0, 0, 0, 0, 0, 0]);
        let pseudo = about.ends.pseudo_header(protocol::TCP, HEADER_BYTES);
        let sum = pseudo.bytes(header).checksum();
        header[16..18].copy_from_slice(&sum.to_be_bytes());
    }
    ethernet::swap_addresses(packet);
    Ok(())
}
