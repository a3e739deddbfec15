//! The format of frames between nodes.
//!
//! A frame is the length of the rest (4 bytes), a kind (1), the sender's epoch (8), a sequence
//! number (8), and a body by kind. Numbers are big-endian. A frame is from the node that sent the
//! [`Hello`] at the beginning of the connection. The first fields of a Hello and all of a Refusal
//! stay the same in every version, so that nodes of two versions can report why they don't talk.
//!
//! Decoding checks the length before anything else, never panics, and allocates nothing: a
//! [`Frame`] borrows from the bytes that it was read from.

use hotloop::packet::flow_key::{FlowKey, FlowKeyV4, FlowKeyV6};
use hotloop_balancer::connection::State;
use hotloop_balancer::exceptions::{Change, MOVES, Record};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The version of the protocol. Nodes of two versions don't talk.
pub const VERSION: u16 = 1;

/// Maximum length of a frame, in bytes, including its length field.
pub const FRAME_BYTES_MAX: usize = 64 * 1024;

/// Maximum length of a Hello or Refusal, in bytes, including its length field: all that is read
/// from an unknown sender.
pub const GREETING_BYTES_MAX: usize = 512;

/// Maximum length of a node's name, in bytes.
pub const NAME_BYTES_MAX: usize = 63;

/// Maximum length of a Refusal's reason, in bytes.
const REASON_BYTES_MAX: usize = 400;

/// Maximum length of a change, in bytes.
pub(super) const CHANGE_BYTES_MAX: usize = 2 + 4 + 32 + 16 + 8 + 1;

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
    /// The number of this run of its program, which no other run uses.
    pub incarnation: u64,
    /// A digest of the settings that must be equal in all nodes.
    pub digest: [u8; 16],
}

/// A node's report of its own state.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct NodeState {
    /// The [digest](hotloop_balancer::services::ServiceTable::digest) of its service table.
    pub tables: u64,
    /// Whether the node knows what its peers know, as far as they could be reached.
    pub is_ready: bool,
}

/// A message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Message<'a> {
    /// The sender's identity. If the version differs, only version and name are valid.
    Hello(Hello),
    /// The reason that the sender doesn't talk to the receiver; the sender closes the connection.
    Refusal(&'a str),
    /// The messages up to [`SnapshotEnd`](Self::SnapshotEnd) list every exception of the sender.
    SnapshotBegin,
    /// Every exception of the sender has been listed since [`SnapshotBegin`](Self::SnapshotBegin),
    /// or has ended.
    SnapshotEnd,
    /// Changes of the sender's exceptions, in order.
    Changes(Changes<'a>),
    /// Claims of a third node, which the sender can't reach now.
    Relayed {
        /// The third node's name.
        owner: &'a str,
        /// The third node's [`Hello::incarnation`]; 0 if it has restarted since.
        incarnation: u64,
        /// The claims.
        claims: Changes<'a>,
    },
    /// The frames up to the sequence number of this one's header have been entered.
    Ack,
    /// The sender is alive, and in this state.
    State(NodeState),
}

/// A frame.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Frame<'a> {
    /// The revision of the configuration in force at the sender; 0 if there is no common one.
    pub epoch: u64,
    /// The number of a snapshot, change or relayed claim, from 1 in each connection and direction;
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
    /// There is no such kind.
    #[error("a frame of the unknown kind {0}")]
    Kind(u8),
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
    let (kind, epoch, sequence) = (|| Some((reader.byte()?, reader.u64()?, reader.u64()?)))()
        .ok_or(Malformed::Length(frame_bytes as u64))?;
    let message = message(kind, reader)?;
    Ok(Some((Frame { epoch, sequence, message }, frame_bytes)))
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
        4 => return Ok(Message::Changes(Changes::checked(reader.0, true)?)),
        5 => return relayed(reader).ok_or(Malformed::Body)?,
        6 => Message::Ack,
        7 => Message::State(node_state(&mut reader).ok_or(Malformed::Body)?),
        kind => return Err(Malformed::Kind(kind)),
    };
    if reader.byte().is_some() { Err(Malformed::Body) } else { Ok(message) }
}

fn hello(mut reader: Reader<'_>) -> Result<Hello, Malformed> {
    if reader.array() != Some(MAGIC) {
        return Err(Malformed::Magic);
    }
    let version = reader.u16().ok_or(Malformed::Body)?;
    let node = name(&mut reader).ok_or(Malformed::Body)?.to_owned();
    if version != VERSION {
        return Ok(Hello { version, node, incarnation: 0, digest: [0; 16] });
    }
    let fields = (|| Some((reader.u64()?, reader.array()?)))();
    let (incarnation, digest) = fields.ok_or(Malformed::Body)?;
    if reader.byte().is_some() {
        return Err(Malformed::Body);
    }
    Ok(Hello { version, node, incarnation, digest })
}

fn relayed(mut reader: Reader<'_>) -> Option<Result<Message<'_>, Malformed>> {
    let (owner, incarnation) = (name(&mut reader)?, reader.u64()?);
    let claims = Changes::checked(reader.0, false);
    Some(claims.map(|claims| Message::Relayed { owner, incarnation, claims }))
}

fn node_state(reader: &mut Reader<'_>) -> Option<NodeState> {
    let (tables, is_ready) = (reader.u64()?, reader.byte()?);
    (is_ready <= 1).then_some(NodeState { tables, is_ready: is_ready == 1 })
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

/// The changes of a frame. They were checked when the frame was decoded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Changes<'a>(&'a [u8]);

impl<'a> Changes<'a> {
    fn checked(bytes: &'a [u8], may_end: bool) -> Result<Self, Malformed> {
        let mut reader = Reader(bytes);
        while !reader.0.is_empty() {
            match reader.change() {
                Some(Change::Claim(_)) => {}
                Some(Change::End(_)) if may_end => {}
                _ => return Err(Malformed::Body),
            }
        }
        Ok(Self(bytes))
    }

    /// The changes, in order.
    pub fn iter(&self) -> impl Iterator<Item = Change> + use<'a> {
        let mut reader = Reader(self.0);
        std::iter::from_fn(move || reader.change())
    }
}

const END: u8 = 0x80;
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

    fn change(&mut self) -> Option<Change> {
        let (tag, protocol) = (self.byte()?, self.byte()?);
        let (from, to) = (self.u16()?, self.u16()?);
        let key = if tag & KEY_V6 == 0 {
            FlowKey::V4(FlowKeyV4::new(self.v4()?, self.v4()?, from, to, protocol))
        } else {
            FlowKey::V6(FlowKeyV6::new(self.v6()?, self.v6()?, from, to, protocol))
        };
        if tag & END != 0 {
            return (tag & !(END | KEY_V6) == 0).then_some(Change::End(key));
        }
        let state = state(tag & !(KEY_V6 | BACKEND_V6))?;
        let backend =
            if tag & BACKEND_V6 == 0 { self.v4()?.into() } else { IpAddr::V6(self.v6()?) };
        let (age_ms, left_ms, moves) = (self.u32()?, self.u32()?, self.byte()?);
        let record = Record { key, backend, state, age_ms, left_ms, moves, wins_ties: false };
        (moves < MOVES).then_some(Change::Claim(record))
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
            Message::Changes(_) => 4,
            Message::Relayed { .. } => 5,
            Message::Ack => 6,
            Message::State(_) => 7,
        };
        let start = out.len();
        out.extend([0; LENGTH_BYTES]);
        out.push(kind);
        out.extend(self.epoch.to_be_bytes());
        out.extend(self.sequence.to_be_bytes());
        match &self.message {
            Message::Hello(hello) => put_hello(out, hello),
            Message::Refusal(reason) => put_reason(out, reason),
            Message::Changes(Changes(bytes)) => out.extend_from_slice(bytes),
            Message::Relayed { owner, incarnation, claims } => {
                put_name(out, owner);
                out.extend(incarnation.to_be_bytes());
                out.extend_from_slice(claims.0);
            }
            Message::State(NodeState { tables, is_ready }) => {
                out.extend(tables.to_be_bytes());
                out.push(u8::from(*is_ready));
            }
            Message::SnapshotBegin | Message::SnapshotEnd | Message::Ack => {}
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
    out.extend(hello.incarnation.to_be_bytes());
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

/// Changes that are gathered for a frame.
#[derive(Debug, Default)]
pub struct Gathered(Vec<u8>);

impl Gathered {
    /// Appends a change.
    pub fn push(&mut self, change: &Change) {
        match change {
            Change::End(key) => self.put_key(END, key),
            Change::Claim(record) => {
                let is_v6 = record.backend.is_ipv6();
                self.put_key(record.state as u8 | if is_v6 { BACKEND_V6 } else { 0 }, &record.key);
                match record.backend {
                    IpAddr::V4(backend) => self.0.extend(backend.octets()),
                    IpAddr::V6(backend) => self.0.extend(backend.octets()),
                }
                self.0.extend(record.age_ms.to_be_bytes());
                self.0.extend(record.left_ms.to_be_bytes());
                self.0.push(record.moves % MOVES);
            }
        }
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

    /// Whether another change fits into a frame.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let others = HEADER_BYTES + 1 + NAME_BYTES_MAX + 8;
        self.0.len() + others + CHANGE_BYTES_MAX <= FRAME_BYTES_MAX
    }

    /// The gathered changes.
    #[must_use]
    pub fn changes(&self) -> Changes<'_> {
        Changes(&self.0)
    }

    /// Forgets the gathered changes.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
