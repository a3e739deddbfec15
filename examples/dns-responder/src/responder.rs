//! The stage that turns queries into answers (RFC 1035, section 4), and requests to a host into replies.

use crate::zone::{Record, Zone};
use hotloop::packet::{answer, ethernet::MacAddress, ip::protocol, udp};
use hotloop::prelude::*;
use std::net::IpAddr;
use std::sync::Arc;

/// The port of DNS, and the maximum length in bytes of an answer (section 4.2.1).
const PORT: u16 = 53;
const ANSWER_BYTES_MAX: usize = 512;

const HEADER_BYTES: usize = 12;
/// Maximum length in bytes of a name (section 2.3.4).
const NAME_BYTES_MAX: usize = 255;

// A header's third byte: this is an answer, of an authority, and cut. The others are repeated.
const ANSWER: u8 = 0x80;
const AUTHORITATIVE: u8 = 0x04;
const TRUNCATED: u8 = 0x02;
const OPERATION: u8 = 0x78;
const REPEATED: u8 = 0x79;

// Response codes.
const FORMAT_ERROR: u8 = 1;
const NO_SUCH_NAME: u8 = 3;
const NOT_IMPLEMENTED: u8 = 4;
const REFUSED: u8 = 5;

drop_reasons! {
    /// Why the responder drops packets.
    pub enum ResponderDrop {
        /// Not for an address of the responder, or neither a DNS message nor a request to every host.
        NotForUs = "not_for_us",
        /// A DNS message that is cut, or an answer itself.
        NotQuery = "not_query",
        /// The packet may not be answered: a checksum is wrong, it is a fragment, or its source is no host.
        NotAnswered = "not_answered",
    }
}

/// Answers from a zone.
pub struct Responder {
    /// The station's address.
    pub mac: MacAddress,
    /// Its IP addresses.
    pub addresses: Vec<IpAddr>,
    /// The zone, which all cores share.
    pub zone: Arc<Zone>,
}

impl Responder {
    /// Turns a packet into its answer.
    fn answer<P: PacketBuf>(&self, p: &mut Classified<P>) -> Result<(), ResponderDrop> {
        let is_own = |address| self.addresses.contains(&address);
        if answer::as_host(&mut p.packet, self.mac, is_own) {
            return Ok(());
        }
        let key = p.key().filter(|key| is_own(key.destination()) && !p.tag().is_icmp_error());
        if key.map(|key| (key.protocol(), key.destination_port())) != Some((protocol::UDP, PORT)) {
            return Err(ResponderDrop::NotForUs);
        }
        let frame = p.packet.data();
        let header_at = p.tag().l4_offset(frame).unwrap_or(frame.len()) + udp::HEADER_BYTES;
        // An answer to an answer would never end.
        match frame.get(header_at..).and_then(<[u8]>::first_chunk::<HEADER_BYTES>) {
            Some(header) if header[2] & ANSWER == 0 => {}
            _ => return Err(ResponderDrop::NotQuery),
        }
        let write = |room: &mut [u8], query_bytes| write_answer(&self.zone, room, query_bytes);
        answer::udp(&mut p.packet, ANSWER_BYTES_MAX, write).map_err(|_| ResponderDrop::NotAnswered)
    }
}

impl<P: PacketBuf> Stage<Classified<P>> for Responder {
    type Out = P;
    type Drop = ResponderDrop;

    fn packet(&mut self, cx: &mut Cx<'_, ResponderDrop>, mut p: Classified<P>) -> Verdict<P> {
        match self.answer(&mut p) {
            Ok(()) => Ok(p.packet),
            Err(reason) => cx.drop(p, reason),
        }
    }
}

/// Writes the answer over the query in the first `query_bytes` bytes of `room`. Returns the answer's
/// length in bytes. Additional records of the query, such as EDNS's, are left out.
fn write_answer(zone: &Zone, room: &mut [u8], query_bytes: usize) -> usize {
    let room = &mut room[..ANSWER_BYTES_MAX];
    let repeated = room[2] & REPEATED;
    let question = read_question(&room[..query_bytes.min(ANSWER_BYTES_MAX)]);
    let (question_end, found) = match &question {
        _ if repeated & OPERATION != 0 => (HEADER_BYTES, Err(NOT_IMPLEMENTED)),
        None => (HEADER_BYTES, Err(FORMAT_ERROR)),
        Some((name, end)) => (end + 4, look_up(zone, &name[..end - HEADER_BYTES])),
    };
    let is_authoritative = matches!(found, Ok(_) | Err(NO_SUCH_NAME));
    let mut flags = ANSWER | repeated | if is_authoritative { AUTHORITATIVE } else { 0 };
    let (records, code) = found.map_or_else(|code| (&[][..], code), |records| (records, 0));
    let (mut end, mut record_count) = (question_end, 0);
    for (kind, bytes) in records {
        if room[question_end - 4..question_end] != *kind {
            continue;
        }
        let Some(place) = room.get_mut(end..end + bytes.len()) else {
            // The client asks again over TCP; a part of the records is of no use (RFC 2181, section 9).
            (flags, end, record_count) = (flags | TRUNCATED, question_end, 0);
            break;
        };
        place.copy_from_slice(bytes);
        (end, record_count) = (end + bytes.len(), record_count + 1);
    }
    let counts = [u16::from(question_end > HEADER_BYTES), record_count, 0, 0].map(u16::to_be_bytes);
    (room[2], room[3]) = (flags, code);
    room[4..HEADER_BYTES].copy_from_slice(counts.as_flattened());
    end
}

/// The name of a query's only question, in lower case, and its end in the query: type and class follow.
/// `None` if the query is malformed.
fn read_question(query: &[u8]) -> Option<([u8; NAME_BYTES_MAX], usize)> {
    let (mut name, mut end) = ([0; NAME_BYTES_MAX], HEADER_BYTES + 1);
    while let label_bytes @ 1.. = *query.get(end - 1)? {
        end += usize::from(label_bytes) + 1;
        // Longer labels are pointers, which a question has no use for.
        if label_bytes >= 64 || end > HEADER_BYTES + NAME_BYTES_MAX {
            return None;
        }
    }
    name[..end - HEADER_BYTES].copy_from_slice(query.get(HEADER_BYTES..end)?);
    // The bytes of lengths are below those of letters.
    name.make_ascii_lowercase();
    (query[4..6] == [0, 1] && query.len() >= end + 4).then_some((name, end))
}

/// The records of a name, or the response code.
fn look_up<'a>(zone: &'a Zone, name: &[u8]) -> Result<&'a [Record], u8> {
    let code = || if zone.is_above(name) { NO_SUCH_NAME } else { REFUSED };
    zone.records(name).ok_or_else(code)
}
