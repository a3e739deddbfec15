//! Echo: the request, turned round.

use crate::{
    PacketBuf,
    answer::{
        ANSWER_TTL, AnswerError,
        about::{About, Ends},
    },
    checksum::Sum,
    icmp, icmpv6,
    ip::{Fragment, protocol},
    ipv4, ipv6,
};

/// Bits of a TOS or traffic class that are not the congestion mark.
const SERVICES: u8 = 0xfc;

/// Turns an echo request into the reply to it, from its destination to its source (RFC 792; RFC 1122,
/// section 3.2.2.6; RFC 4443, section 4.2).
///
/// Only the message's type and checksum change, so the packet may have any number of segments. The
/// request's checksum is verified first (RFC 1122, section 3.2.2; RFC 4443, section 2.3), and the
/// reply's is computed from scratch: an incremental update never yields 0xffff, which a message of
/// all zeroes needs (RFC 1624, section 3). The reply keeps the request's differentiated services,
/// IPv4 identification and don't-fragment flag, but not its congestion mark. IPv4 options and IPv6
/// extension headers are left out.
///
/// # Errors
/// [`AnswerError`]; the packet is unchanged.
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
    let sum = Message::of(packet, &about).reply_checksum(request, reply)?;

    packet.remove(about.l3_offset + plain_bytes, about.header_bytes - plain_bytes)?;
    let total_bytes = about.total_bytes - (about.header_bytes - plain_bytes);
    packet.truncate(about.l3_offset + total_bytes);
    let bytes = packet.data_mut().get_mut(about.l3_offset..).unwrap_or_default();
    match about.ends {
        Ends::V4(..) => turn_v4(bytes, total_bytes as u16),
        Ends::V6(..) => turn_v6(bytes, total_bytes - plain_bytes),
    }
    let message = bytes.get_mut(plain_bytes..).unwrap_or_default();
    if let Some([kind, _, high, low]) = message.first_chunk_mut::<4>() {
        [*high, *low] = sum.to_be_bytes();
        *kind = reply;
    }
    Ok(())
}

/// The parts of an echo message that its checksum covers.
struct Message {
    code: u8,
    /// The request's checksum.
    checksum: u16,
    /// Everything except type, code and checksum; for IPv6, the pseudo-header too. The sum is the
    /// same in both directions.
    rest: Sum,
}

impl Message {
    /// The message of a packet. The first segment has its first eight bytes.
    fn of<P: PacketBuf>(packet: &P, about: &About) -> Self {
        let start = about.l3_offset + about.header_bytes;
        let end = about.l3_offset + about.total_bytes;
        let head = packet.data().get(start..).and_then(|message| message.first_chunk());
        let [_, code, high, low] = *head.unwrap_or(&[0; 4]);
        let pseudo = match about.ends {
            Ends::V4(..) => Sum::default(),
            Ends::V6(source, destination) => {
                let len_bytes = (end - start) as u32;
                Sum::default().pseudo_v6(source, destination, protocol::ICMPV6, len_bytes)
            }
        };
        let rest = pseudo.packet(packet, start + 4..end);
        Self { code, checksum: u16::from_be_bytes([high, low]), rest }
    }

    /// The checksum with the type `reply` instead of `request`.
    fn reply_checksum(&self, request: u8, reply: u8) -> Result<u16, AnswerError> {
        let with = |kind: u8| self.rest.number(u16::from_be_bytes([kind, self.code]));
        match with(request).number(self.checksum).checksum() {
            0 => Ok(with(reply).checksum()),
            _ => Err(AnswerError::Checksum),
        }
    }
}

fn turn_v4(bytes: &mut [u8], total: u16) {
    let Some(header) = bytes.first_chunk_mut::<{ ipv4::HEADER_BYTES }>() else { return };
    header[0] = ipv4::VERSION_IHL;
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
