//! UDP: the datagram, turned round with another payload.

use crate::{
    Header, Malformed, NoRoom, PacketBuf, Room,
    answer::{
        AnswerError,
        about::{About, Ends},
    },
    ethernet,
    ip::protocol,
    ipv4,
    udp::{HEADER_BYTES, UdpView},
};

/// Turns a UDP datagram into the reply to it, from its destination to its source (RFC 768; RFC 1122,
/// section 4.1.3). `write` puts the reply's payload where the request's is, and returns its length.
///
/// `write` gets at least `room_bytes` bytes, which begin with the request's payload, and the length
/// of that payload. The bytes after it are 0. A returned length above the room's counts as the whole
/// room.
///
/// The frame's addresses, the packet's and the ports are swapped, VLAN tags stay. The reply keeps
/// the request's differentiated services, IPv4 identification and don't-fragment flag, but not its
/// congestion mark. IPv4 options and IPv6 extension headers are left out. The request's checksum is
/// verified first (RFC 1122, section 4.1.3.4), over all segments; only IPv4 requests may have none
/// (RFC 8200, section 8.1). The reply always has one.
///
/// The reply lies in one segment. If the request has more, they are freed: `write` gets the part in
/// the first, and there is no room after it.
///
/// ```
/// use hotloop_packet::{PacketBuf, answer, build::udp, memory::MemPacket};
///
/// let request = udp().from("198.51.100.7:4000").to("203.0.113.10:7").payload(b"hello");
/// let mut packet = request.packet_in_memory();
/// answer::udp(&mut packet, 100, |room, request_bytes| {
///     room[..request_bytes].make_ascii_uppercase();
///     room[request_bytes] = b'!';
///     request_bytes + 1
/// })?;
/// let reply = udp().from("203.0.113.10:7").to("198.51.100.7:4000").payload(b"HELLO!").build();
/// assert_eq!(packet.data()[14..], reply[14..]);
/// # Ok::<(), answer::AnswerError>(())
/// ```
///
/// # Errors
/// [`AnswerError`]; the packet is unchanged, and `write` was not called.
pub fn udp<P: PacketBuf>(
    packet: &mut P,
    room_bytes: usize,
    write: impl FnOnce(&mut [u8], usize) -> usize,
) -> Result<(), AnswerError> {
    let about = About::read(packet)?;
    let (ports, payload_bytes) = request(packet, &about)?;
    let offset = about.l3_offset + about.header_bytes + HEADER_BYTES;
    let request_bytes = payload_bytes.min(packet.data().len().saturating_sub(offset));
    let room_bytes = room_bytes.max(request_bytes);
    make_room(packet, &about, offset, room_bytes)?;

    let room = packet.data_mut().get_mut(offset..offset + room_bytes).unwrap_or_default();
    room.get_mut(request_bytes..).unwrap_or_default().fill(0);
    let reply_bytes = write(room, request_bytes).min(room_bytes);
    let datagram_bytes = HEADER_BYTES + reply_bytes;
    let datagram = about.turn(packet, datagram_bytes)?;
    if let Some(header) = datagram.first_chunk_mut::<HEADER_BYTES>() {
        let [a, b, c, d] = ports;
        let [high, low] = (datagram_bytes as u16).to_be_bytes();
        *header = [c, d, a, b, high, low, 0, 0];
        let pseudo = about.ends.pseudo_header(protocol::UDP, datagram_bytes);
        let sum = match pseudo.bytes(datagram).checksum() {
            0 => 0xffff,
            sum => sum,
        };
        datagram[6..HEADER_BYTES].copy_from_slice(&sum.to_be_bytes());
    }
    ethernet::swap_addresses(packet);
    Ok(())
}

/// The ports of a datagram that may be answered, as sent, and the length of its payload in bytes.
fn request<P: PacketBuf>(packet: &P, about: &About) -> Result<([u8; 4], usize), AnswerError> {
    let message = about.whole_message(packet.data(), protocol::UDP)?;
    let view = UdpView::parse_cut(message)?;
    let (datagram_bytes, bytes_max) =
        (usize::from(view.length()), about.total_bytes - about.header_bytes);
    if datagram_bytes > bytes_max {
        return Err(Malformed::cut(Header::Udp, datagram_bytes, bytes_max).into());
    }
    if view.source_port() == 0 {
        return Err(AnswerError::NoPort);
    }
    let has_no_sum = view.checksum() == 0 && matches!(about.ends, Ends::V4(..));
    let may_be_right = view.checksum() != 0 && about.is_sum_right(packet, datagram_bytes);
    if !has_no_sum && !may_be_right {
        return Err(AnswerError::Checksum);
    }
    let ports = *message.first_chunk().unwrap_or(&[0; 4]);
    Ok((ports, datagram_bytes - HEADER_BYTES))
}

/// Makes the first segment long enough for `room_bytes` bytes from `offset` on.
fn make_room<P: PacketBuf>(
    packet: &mut P,
    about: &About,
    offset: usize,
    room_bytes: usize,
) -> Result<(), NoRoom> {
    let bytes_max = match about.ends {
        Ends::V4(..) => usize::from(u16::MAX) - ipv4::HEADER_BYTES - HEADER_BYTES,
        Ends::V6(..) => usize::from(u16::MAX) - HEADER_BYTES,
    };
    let no_room =
        |available_bytes, side| NoRoom { wanted_bytes: room_bytes, available_bytes, side };
    if room_bytes > bytes_max {
        return Err(no_room(bytes_max, Room::Tailroom));
    }
    let first_bytes = packet.data().len();
    let missing_bytes = (offset + room_bytes).saturating_sub(first_bytes);
    if missing_bytes > 0 && packet.len_bytes() > first_bytes {
        return Err(no_room(first_bytes.saturating_sub(offset), Room::Data));
    }
    if missing_bytes > 0 {
        packet.append(missing_bytes)?;
    }
    Ok(())
}
