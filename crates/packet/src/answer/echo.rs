//! Echo: the request, turned round.

use crate::{
    PacketBuf,
    answer::{
        AnswerError,
        about::{About, Ends},
    },
    checksum::Sum,
    icmp, icmpv6,
    ip::{Fragment, protocol},
};

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
    let (request, reply) = match about.ends {
        Ends::V4(..) => (icmp::kind::ECHO_REQUEST, icmp::kind::ECHO_REPLY),
        Ends::V6(..) => (icmpv6::kind::ECHO_REQUEST, icmpv6::kind::ECHO_REPLY),
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

    let message = about.turn(packet, about.total_bytes - about.header_bytes)?;
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
            Ends::V6(..) => about.ends.pseudo_header(protocol::ICMPV6, end - start),
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
