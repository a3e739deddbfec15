//! The stage that turns queries into answers (RFC 1035, section 4), and requests to a host into replies.

use crate::zone::{NO_SUCH_NAME, Zone};
use hotloop::packet::{answer, ethernet::MacAddress, ip::protocol, udp};
use hotloop::prelude::*;
use std::net::IpAddr;
use std::sync::Arc;

/// The port of DNS, and the maximum length in bytes of an answer (section 4.2.1).
const PORT: u16 = 53;
const ANSWER_BYTES_MAX: usize = 512;

const HEADER_BYTES: usize = 12;
/// Maximum length in bytes of a question: a name (section 2.3.4) with its type and class.
const QUESTION_BYTES_MAX: usize = 255 + 4;

// A header's third byte: this is an answer, of an authority, and cut. The others are repeated.
const ANSWER: u8 = 0x80;
const AUTHORITATIVE: u8 = 0x04;
const TRUNCATED: u8 = 0x02;
const OPERATION: u8 = 0x78;
const REPEATED: u8 = 0x79;

// Response codes.
const FORMAT_ERROR: u8 = 1;
const NOT_IMPLEMENTED: u8 = 4;

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
#[derive(Clone)]
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
    let (repeated, question) = (room[2] & REPEATED, read_question(&room[..query_bytes]));
    let (question_bytes, found) = match &question {
        _ if repeated & OPERATION != 0 => (0, Err(NOT_IMPLEMENTED)),
        None => (0, Err(FORMAT_ERROR)),
        Some((question, bytes)) => (*bytes, zone.find(&question[..*bytes])),
    };
    let is_authoritative = matches!(found, Ok(_) | Err(NO_SUCH_NAME));
    let mut flags = ANSWER | repeated | if is_authoritative { AUTHORITATIVE } else { 0 };
    let code = found.err().unwrap_or_default();
    let (mut record_count, records) = found.unwrap_or_default();
    let question_end = HEADER_BYTES + question_bytes;
    let mut end = question_end + records.len();
    if end <= ANSWER_BYTES_MAX {
        room[question_end..end].copy_from_slice(records);
    } else {
        // The client asks again over TCP; a part of the records is of no use (RFC 2181, section 9).
        (flags, end, record_count) = (flags | TRUNCATED, question_end, 0);
    }
    let counts = [u16::from(question_bytes > 0), record_count, 0, 0].map(u16::to_be_bytes);
    (room[2], room[3]) = (flags, code);
    room[4..HEADER_BYTES].copy_from_slice(counts.as_flattened());
    end
}

/// A query's only question, with its name in lower case, and its length in bytes. `None` if the query
/// is malformed.
fn read_question(query: &[u8]) -> Option<([u8; QUESTION_BYTES_MAX], usize)> {
    let (after_header, mut name_bytes) = (query.get(HEADER_BYTES..)?, 1);
    while let label_bytes @ 1.. = *after_header.get(name_bytes - 1)? {
        name_bytes += usize::from(label_bytes) + 1;
        // Longer labels are pointers, which a question has no use for.
        if label_bytes >= 64 || name_bytes + 4 > QUESTION_BYTES_MAX {
            return None;
        }
    }
    let (mut question, bytes) = ([0; QUESTION_BYTES_MAX], name_bytes + 4);
    question[..bytes].copy_from_slice(after_header.get(..bytes)?);
    // The bytes of lengths are below those of letters.
    question[..name_bytes].make_ascii_lowercase();
    (query[4..6] == [0, 1]).then_some((question, bytes))
}
