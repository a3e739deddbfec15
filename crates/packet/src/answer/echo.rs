//! Echo: the request, turned round.

use crate::{
    PacketBuf,
    answer::{
        ANSWER_TTL, AnswerError,
        about::{About, Ends},
    },
    checksum, ethernet, icmp, icmpv6,
    ip::{Fragment, protocol},
    ipv4, ipv6,
};

/// Bits of a TOS or traffic class that are not the congestion mark.
const SERVICES: u8 = 0xfc;

/// Turns an echo request into the reply to it, from its destination to its source (RFC 792; RFC 1122,
/// section 3.2.2.6; RFC 4443, section 4.2).
///
/// The message stays but for its type, so any number of segments stay too, and a wrong checksum of the
/// message stays wrong by as much: its sender notices. Differentiated services are the request's, as
/// are an IPv4 header's identification and whether it forbids fragments; there is no congestion mark.
/// IPv4 options and IPv6 extension headers are left out.
///
/// # Errors
/// [`AnswerError`]; the packet is as it was.
pub fn echo_reply<P: PacketBuf>(packet: &mut P) -> Result<(), AnswerError> {
    let about = About::read(packet)?;
    let (request, reply, plain_bytes) = match about.ends {
        Ends::V4(..) => (icmp::kind::ECHO_REQUEST, icmp::kind::ECHO_REPLY, ipv4::HEADER_BYTES),
        Ends::V6(..) => (icmpv6::kind::ECHO_REQUEST, icmpv6::kind::ECHO_REPLY, ipv6::HEADER_BYTES),
    };
    if about.fragment == Fragment::Later {
        return Err(AnswerError::Fragment);
    }
    if about.icmp_kind(packet.data())? != Some(request) {
        return Err(AnswerError::NotEchoRequest);
    }
    if about.fragment != Fragment::None {
        return Err(AnswerError::Fragment);
    }
    about.need_single()?;

    leave_out(packet, about.l3_offset + plain_bytes, about.header_bytes - plain_bytes)?;
    let total_bytes = about.total_bytes - (about.header_bytes - plain_bytes);
    packet.truncate(about.l3_offset + total_bytes);
    let bytes = packet.data_mut().get_mut(about.l3_offset..).unwrap_or_default();
    match about.ends {
        Ends::V4(..) => turn_v4(bytes, total_bytes as u16),
        Ends::V6(..) => turn_v6(bytes, total_bytes - plain_bytes),
    }
    let message = bytes.get_mut(plain_bytes..).unwrap_or_default();
    if let Some([kind, code, high, low]) = message.first_chunk_mut::<4>() {
        let word = |kind: u8| u16::from_be_bytes([kind, *code]);
        let sum = u16::from_be_bytes([*high, *low]);
        let sum = checksum::update(sum, word(request), word(reply));
        [*high, *low] = sum.to_be_bytes();
        *kind = reply;
    }
    Ok(())
}

/// Takes `count` bytes out of a packet, behind its first `front_bytes`: the only thing that can fail
/// comes first.
fn leave_out<P: PacketBuf>(
    packet: &mut P,
    front_bytes: usize,
    count: usize,
) -> Result<(), AnswerError> {
    if count == 0 {
        return Ok(());
    }
    let mut front = [0; ethernet::HEADER_BYTES_MAX + ipv6::HEADER_BYTES];
    let front = &mut front[..front_bytes];
    front.copy_from_slice(&packet.data()[..front_bytes]);
    packet.trim_front(count)?;
    packet.data_mut()[..front_bytes].copy_from_slice(front);
    Ok(())
}

fn turn_v4(bytes: &mut [u8], total: u16) {
    let Some(header) = bytes.first_chunk_mut::<{ ipv4::HEADER_BYTES }>() else { return };
    header[0] = 0x45;
    header[1] &= SERVICES;
    header[2..4].copy_from_slice(&total.to_be_bytes());
    header[8] = ANSWER_TTL;
    let (source, destination) = header[12..].split_at_mut(4);
    source.swap_with_slice(destination);
    // The header is whole: it was checked, and its checksum was right.
    let _ = ipv4::fill_checksum(bytes);
}

fn turn_v6(bytes: &mut [u8], payload_bytes: usize) {
    let Some(header) = bytes.first_chunk_mut::<{ ipv6::HEADER_BYTES }>() else { return };
    // The congestion mark is in the upper half of the second byte; there is no flow label.
    header[1] &= SERVICES << 4;
    header[2..4].fill(0);
    header[4..6].copy_from_slice(&(payload_bytes as u16).to_be_bytes());
    header[6] = protocol::ICMPV6;
    header[7] = ANSWER_TTL;
    let (source, destination) = header[8..].split_at_mut(16);
    source.swap_with_slice(destination);
}
