//! The format of frames between nodes.
//!
//! A frame is the length of the rest (4 bytes), a kind (1), the sender's revision (8), a sequence
//! number (8), and a body by kind. Numbers are big-endian. A frame is from the node that sent the
//! [`Hello`] at the beginning of the connection.
//!
//! # Versions
//! Nodes of two adjacent versions talk, so that a cluster can be upgraded node by node. A node sends
//! only frames that the lesser of both versions has, and ignores what it doesn't know: frames of
//! other kinds (it acknowledges those with a sequence number), and bytes after the last field of a
//! Hello or State. The first fields of a Hello and all of a Refusal stay the same in every version,
//! so that other nodes can report why they don't talk.
//!
//! Decoding checks the length before anything else, and never panics. A [`Frame`] borrows from the
//! bytes that it was read from, but for names and short lists.

mod state;

use hotloop::packet::flow_key::{FlowKey, FlowKeyV4, FlowKeyV6};
use hotloop_agreement::Birth;
use hotloop_balancer::clock::STEPS_MAX;
use hotloop_balancer::connection::State;
use hotloop_balancer::exceptions::Record;
pub use state::{DRAINS_MAX, Drains, NodeState};
use state::{drains, node_state, put_drains, put_node_state};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The version of the protocol.
pub const VERSION: u16 = 2;

/// The oldest version of peers. Version 1 was never released.
pub const VERSION_MIN: u16 = 2;

/// Maximum length of a frame, in bytes, including its length field.
pub const FRAME_BYTES_MAX: usize = 64 * 1024;

/// Maximum length of a Hello or Refusal, in bytes, including its length field: all that is read
/// from an unknown sender.
pub const GREETING_BYTES_MAX: usize = 512;

/// Maximum length of a node's name, in bytes.
pub const NAME_BYTES_MAX: usize = 63;

/// Maximum length of a reference table's text, in bytes.
pub const REFERENCE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Maximum length of a part of it in one frame, in bytes.
pub(super) const PART_BYTES_MAX: usize = 32 * 1024;

/// Maximum length of a Refusal's reason, in bytes.
const REASON_BYTES_MAX: usize = 400;

/// Maximum length of a claim, in bytes.
pub(super) const CLAIM_BYTES_MAX: usize = 2 + 4 + 32 + 16 + 8 + 4;

const LENGTH_BYTES: usize = 4;
const HEADER_BYTES: usize = LENGTH_BYTES + 1 + 8 + 8;

/// The first bytes of a Hello, so that other protocols are recognised.
const MAGIC: [u8; 4] = *b"IPLB";

/// The first message of a connection, in both directions.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Hello {
    /// The protocol version of the node.
    pub version: u16,
    /// The node's name.
    pub node: String,
    /// A digest of the settings that must be equal in all nodes.
    pub digest: [u8; 16],
}

/// A message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Message<'a> {
    /// The sender's identity. If the version differs, only version and name are valid.
    Hello(Hello),
    /// The reason that the sender doesn't talk to the receiver; the sender closes the connection.
    Refusal(&'a str),
    /// The messages up to [`SnapshotEnd`](Self::SnapshotEnd) list every connection that nodes know or
    /// have to know, as the sender knows it.
    SnapshotBegin,
    /// Every such connection has been listed since [`SnapshotBegin`](Self::SnapshotBegin).
    SnapshotEnd,
    /// Claims, in order.
    Claims(Claims<'a>),
    /// The frames up to the sequence number of this one's header have been entered.
    Ack,
    /// The sender is alive, and in this state.
    State(NodeState),
    /// A part of a reference table's text.
    Reference(Part<'a>),
    /// Questions about backends that the sender drains, and answers about those of others.
    Drains(Drains),
    /// A message of a later version.
    Unknown,
}

/// A part of a reference table's text. The parts of a text follow each other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Part<'a> {
    /// The number of the reference table.
    pub number: u32,
    /// Length of the whole text, in bytes.
    pub text_bytes: u32,
    /// Position of the part, in bytes.
    pub offset: u32,
    /// The part.
    pub bytes: &'a [u8],
}

/// A frame.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Frame<'a> {
    /// The revision of the configuration in force at the sender; 0 without a store.
    pub revision: u64,
    /// The number of a part of a snapshot or of claims, from 1 in each connection and direction;
    /// in a [`Message::Ack`], the acknowledged number; else 0.
    pub sequence: u64,
    /// The message.
    pub message: Message<'a>,
}

/// The reason that bytes are not a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Malformed {
    /// The length is out of range.
    #[error("a frame of {0} bytes, which none has")]
    Length(u64),
    /// The body doesn't match its kind.
    #[error("a frame with a broken body")]
    Body,
    /// The bytes are not in this protocol.
    #[error("a greeting of another protocol")]
    Magic,
}

/// Reads the frame at the beginning of `bytes`. Returns the frame and its length, or `None` if it
/// isn't complete yet. `bytes_max` is the maximum length: [`GREETING_BYTES_MAX`] or
/// [`FRAME_BYTES_MAX`].
///
/// # Errors
/// If these bytes, and any after them, are not a frame.
pub fn decode(bytes: &[u8], bytes_max: usize) -> Result<Option<(Frame<'_>, usize)>, Malformed> {
    let Some((length, rest)) = bytes.split_first_chunk() else { return Ok(None) };
    let frame_bytes = u64::from(u32::from_be_bytes(*length)) + LENGTH_BYTES as u64;
    if !(HEADER_BYTES as u64..=bytes_max as u64).contains(&frame_bytes) {
        return Err(Malformed::Length(frame_bytes));
    }
    let frame_bytes = frame_bytes as usize;
    let Some(body) = rest.get(..frame_bytes - LENGTH_BYTES) else { return Ok(None) };
    let mut reader = Reader(body);
    let (kind, revision, sequence) = (|| Some((reader.byte()?, reader.u64()?, reader.u64()?)))()
        .ok_or(Malformed::Length(frame_bytes as u64))?;
    let message = message(kind, reader)?;
    Ok(Some((Frame { revision, sequence, message }, frame_bytes)))
}

fn message(kind: u8, mut reader: Reader<'_>) -> Result<Message<'_>, Malformed> {
    let message = match kind {
        0 => return hello(reader).map(Message::Hello),
        1 => {
            let reason = text(reader.0).filter(|reason| reason.len() <= REASON_BYTES_MAX);
            return reason.map(Message::Refusal).ok_or(Malformed::Body);
        }
        2 => Message::SnapshotBegin,
        3 => Message::SnapshotEnd,
        4 => return Ok(Message::Claims(Claims::checked(reader.0)?)),
        5 => Message::Ack,
        6 => return node_state(reader).map(Message::State).ok_or(Malformed::Body),
        7 => return part(reader).map(Message::Reference).ok_or(Malformed::Body),
        8 => return drains(reader).map(Message::Drains).ok_or(Malformed::Body),
        _ => return Ok(Message::Unknown),
    };
    if reader.byte().is_some() { Err(Malformed::Body) } else { Ok(message) }
}

fn hello(mut reader: Reader<'_>) -> Result<Hello, Malformed> {
    if reader.array() != Some(MAGIC) {
        return Err(Malformed::Magic);
    }
    let version = reader.u16().ok_or(Malformed::Body)?;
    let node = name(&mut reader).ok_or(Malformed::Body)?.to_owned();
    if !is_adjacent(version) {
        return Ok(Hello { version, node, digest: [0; 16] });
    }
    let digest = reader.array().ok_or(Malformed::Body)?;
    if version == VERSION && reader.byte().is_some() {
        return Err(Malformed::Body);
    }
    Ok(Hello { version, node, digest })
}

/// Whether nodes of this version talk to this node.
#[must_use]
pub const fn is_adjacent(version: u16) -> bool {
    VERSION_MIN <= version && version <= VERSION + 1
}

fn part(mut reader: Reader<'_>) -> Option<Part<'_>> {
    let (number, text_bytes, offset) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let bytes = reader.0;
    let end_bytes = u64::from(offset) + bytes.len() as u64;
    let is_sound = text_bytes as usize <= REFERENCE_BYTES_MAX && end_bytes <= text_bytes.into();
    is_sound.then_some(Part { number, text_bytes, offset, bytes })
}

fn name<'a>(reader: &mut Reader<'a>) -> Option<&'a str> {
    let length = usize::from(reader.byte()?);
    let sound = (1..=NAME_BYTES_MAX).contains(&length);
    text(reader.take(length)?).filter(|_| sound)
}

/// Text that is safe to print on an operator's terminal.
fn text(bytes: &[u8]) -> Option<&str> {
    let is_plain = bytes.iter().all(|byte| (b' '..=b'~').contains(byte));
    std::str::from_utf8(bytes).ok().filter(|_| is_plain)
}

/// The claims of a frame. They were checked when the frame was decoded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Claims<'a>(&'a [u8]);

impl<'a> Claims<'a> {
    fn checked(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(bytes);
        while !reader.0.is_empty() {
            reader.record().ok_or(Malformed::Body)?;
        }
        Ok(Self(bytes))
    }

    /// The claims, in order.
    pub fn iter(&self) -> impl Iterator<Item = Record> + use<'a> {
        let mut reader = Reader(self.0);
        std::iter::from_fn(move || reader.record())
    }
}

const KEY_V6: u8 = 0x40;
const BACKEND_V6: u8 = 0x20;

/// The rest of a body.
#[derive(Clone, Copy)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn v4(&mut self) -> Option<Ipv4Addr> {
        self.array().map(Ipv4Addr::from_octets)
    }

    fn v6(&mut self) -> Option<Ipv6Addr> {
        self.array().map(Ipv6Addr::from_octets)
    }

    fn record(&mut self) -> Option<Record> {
        let (tag, protocol) = (self.byte()?, self.byte()?);
        let (from, to) = (self.u16()?, self.u16()?);
        let key = if tag & KEY_V6 == 0 {
            FlowKey::V4(FlowKeyV4::new(self.v4()?, self.v4()?, from, to, protocol))
        } else {
            FlowKey::V6(FlowKeyV6::new(self.v6()?, self.v6()?, from, to, protocol))
        };
        let state = state(tag & !(KEY_V6 | BACKEND_V6))?;
        let backend =
            if tag & BACKEND_V6 == 0 { self.v4()?.into() } else { IpAddr::V6(self.v6()?) };
        let birth = Birth::from_bits(self.u64()?);
        let left_ms = self.u32()?;
        (birth.number() <= STEPS_MAX).then_some(Record { key, backend, state, birth, left_ms })
    }
}

const fn state(number: u8) -> Option<State> {
    Some(match number {
        0 => State::Opening,
        1 => State::Established,
        2 => State::Closing,
        3 => State::Udp,
        4 => State::Other,
        _ => return None,
    })
}

impl Frame<'_> {
    /// Appends the frame to `out`.
    ///
    /// # Panics
    /// If it is longer than [`FRAME_BYTES_MAX`].
    pub fn encode(&self, out: &mut Vec<u8>) {
        let kind = match self.message {
            Message::Hello(_) => 0,
            Message::Refusal(_) => 1,
            Message::SnapshotBegin => 2,
            Message::SnapshotEnd => 3,
            Message::Claims(_) => 4,
            Message::Ack => 5,
            Message::State(_) => 6,
            Message::Reference(_) => 7,
            Message::Drains(_) => 8,
            Message::Unknown => u8::MAX,
        };
        let start = out.len();
        out.extend([0; LENGTH_BYTES]);
        out.push(kind);
        out.extend(self.revision.to_be_bytes());
        out.extend(self.sequence.to_be_bytes());
        match &self.message {
            Message::Hello(hello) => put_hello(out, hello),
            Message::Refusal(reason) => put_reason(out, reason),
            Message::Claims(Claims(bytes)) => out.extend_from_slice(bytes),
            Message::State(state) => put_node_state(out, state),
            Message::Drains(drains) => put_drains(out, drains),
            Message::Reference(Part { number, text_bytes, offset, bytes }) => {
                [number, text_bytes, offset].iter().for_each(|it| out.extend(it.to_be_bytes()));
                out.extend_from_slice(bytes);
            }
            Message::SnapshotBegin | Message::SnapshotEnd | Message::Ack | Message::Unknown => {}
        }
        let frame_bytes = out.len() - start;
        assert!(frame_bytes <= FRAME_BYTES_MAX, "a frame of {frame_bytes} bytes");
        let length = (frame_bytes - LENGTH_BYTES) as u32;
        out[start..start + LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
    }
}

fn put_hello(out: &mut Vec<u8>, hello: &Hello) {
    out.extend(MAGIC);
    out.extend(hello.version.to_be_bytes());
    put_name(out, &hello.node);
    out.extend(hello.digest);
}

/// A configuration allows no longer name.
fn put_name(out: &mut Vec<u8>, name: &str) {
    out.push(name.len() as u8);
    out.extend_from_slice(name.as_bytes());
}

fn put_reason(out: &mut Vec<u8>, reason: &str) {
    let plain = reason
        .chars()
        .map(|character| if (' '..='~').contains(&character) { character as u8 } else { b'?' });
    out.extend(plain.take(REASON_BYTES_MAX));
}

/// Claims that are gathered for a frame.
#[derive(Debug, Default)]
pub struct Gathered(Vec<u8>);

impl Gathered {
    /// Appends a claim.
    pub fn push(&mut self, record: &Record) {
        let family = if record.backend.is_ipv6() { BACKEND_V6 } else { 0 };
        self.put_key(record.state as u8 | family, &record.key);
        match record.backend {
            IpAddr::V4(backend) => self.0.extend(backend.octets()),
            IpAddr::V6(backend) => self.0.extend(backend.octets()),
        }
        self.0.extend(record.birth.to_bits().to_be_bytes());
        self.0.extend(record.left_ms.to_be_bytes());
    }

    fn put_key(&mut self, tag: u8, key: &FlowKey) {
        let (source, destination, family) = match key {
            FlowKey::V4(key) => (key.source_port(), key.destination_port(), 0),
            FlowKey::V6(key) => (key.source_port(), key.destination_port(), KEY_V6),
        };
        self.0.extend([tag | family, key.protocol()]);
        self.0.extend(source.to_be_bytes());
        self.0.extend(destination.to_be_bytes());
        match key {
            FlowKey::V4(key) => {
                self.0.extend(key.source().octets());
                self.0.extend(key.destination().octets());
            }
            FlowKey::V6(key) => {
                self.0.extend(key.source().octets());
                self.0.extend(key.destination().octets());
            }
        }
    }

    /// Whether another claim fits into a frame.
    #[must_use]
    pub fn has_room(&self) -> bool {
        HEADER_BYTES + self.0.len() + CLAIM_BYTES_MAX <= FRAME_BYTES_MAX
    }

    /// The gathered claims.
    #[must_use]
    pub fn claims(&self) -> Claims<'_> {
        Claims(&self.0)
    }

    /// Forgets the gathered claims.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
