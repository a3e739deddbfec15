//! pcapng files (draft-ietf-opsawg-pcapng).

use crate::frame::{ETHERNET, Frame};
use crate::input::{Input, Stop, half, within, word};

/// First word of a file: the type of a section's header, the same in either byte order.
pub const MAGIC: u32 = 0x0A0D_0D0A;

/// The number that shows a section's byte order.
pub const BYTE_ORDER: u32 = 0x1A2B_3C4D;

/// The types of the blocks that are read.
pub const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
pub const ENHANCED_PACKET: u32 = 6;

/// Bytes around a block's body: its type, and its length twice.
const FRAMING_BYTES: u32 = 12;

/// Options of an interface.
pub const IF_TSRESOL: u16 = 9;
const IF_TSOFFSET: u16 = 14;

#[derive(Debug)]
pub struct Reader {
    input: Input,
    interfaces: Vec<Interface>,
    last_ns: u64,
}

/// An interface that the file describes.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link: u32,
    /// Number of bytes kept of each frame.
    snap_bytes: u32,
    clock: Clock,
}

/// A packet's block: the position of the bytes, and their description.
struct Packet {
    interface: u32,
    ticks: Option<u64>,
    at: usize,
    captured_bytes: u32,
    original_bytes: u32,
}

impl Reader {
    /// Reads the first section's header; its type has already been read.
    pub fn new(mut input: Input) -> Result<Self, Stop> {
        section(&mut input)?;
        Ok(Self { input, interfaces: Vec::new(), last_ns: 0 })
    }

    /// Reads the next frame.
    pub fn next(&mut self) -> Result<Frame<'_>, Stop> {
        loop {
            let kind = self.input.word()?;
            if kind == MAGIC {
                within(section(&mut self.input))?;
                self.interfaces.clear();
                continue;
            }
            let is_big = self.input.is_big;
            let count = within(self.input.word())?;
            let body = within(body(&mut self.input, count, FRAMING_BYTES))?;
            let packet = match kind {
                INTERFACE => {
                    let interface = Interface::read(is_big, body);
                    self.interfaces.push(interface.ok_or_else(|| short("an interface"))?);
                    continue;
                }
                ENHANCED_PACKET | OLD_PACKET => timed(is_big, body, kind),
                SIMPLE_PACKET => simple(is_big, body, self.interfaces.first()),
                _ => continue,
            };
            let packet = packet.ok_or_else(|| short("a packet"))?;
            let interface = self.interfaces.get(packet.interface as usize);
            let Some(interface) = interface else {
                let what = format!("interface {} is not described", packet.interface);
                return Err(Stop::Damaged(what));
            };
            if interface.link != ETHERNET {
                return Err(Stop::OtherLink(interface.link));
            }
            self.last_ns = packet.ticks.map_or(self.last_ns, |ticks| interface.clock.ns(ticks));
            let Packet { at, captured_bytes, original_bytes, .. } = packet;
            let range = at..at + captured_bytes as usize;
            if body.get(range.clone()).is_none() {
                return Err(short("a packet"));
            }
            let data = &self.input.last()[range];
            return Ok(Frame { timestamp_ns: self.last_ns, data, original_bytes });
        }
    }
}

/// Reads the header of a section; its type has already been read. Sets the byte order of the rest.
fn section(input: &mut Input) -> Result<(), Stop> {
    input.is_big = false;
    let (count, order) = (input.word()?, input.word()?);
    input.is_big = order != BYTE_ORDER;
    if ![order, order.swap_bytes()].contains(&BYTE_ORDER) {
        return Err(Stop::Damaged("a section of no byte order".into()));
    }
    let count = if input.is_big { count.swap_bytes() } else { count };
    // The byte order is part of the body, and has already been read.
    body(input, count, FRAMING_BYTES + 4).map(drop)
}

/// Reads the rest of a block of `count` bytes. All of `framing_bytes` but the length at the end
/// have already been read. Returns the body, and fails if the length at the end differs from the
/// one at the beginning.
fn body(input: &mut Input, count: u32, framing_bytes: u32) -> Result<&[u8], Stop> {
    let Some(body_bytes) = count.checked_sub(framing_bytes).filter(|_| count.is_multiple_of(4))
    else {
        return Err(Stop::Damaged(format!("a block of {count} bytes")));
    };
    let is_big = input.is_big;
    let part = input.part(body_bytes.saturating_add(4))?;
    let (body, _) = part.split_at(body_bytes as usize);
    match word(is_big, part, body.len()) {
        Some(again) if again == count => Ok(body),
        _ => Err(Stop::Damaged("a block of two lengths".into())),
    }
}

fn short(what: &str) -> Stop {
    Stop::Damaged(format!("{what} that is longer than its block"))
}

/// An enhanced packet block, or the obsolete packet block: that one has a narrower interface number
/// and a count of drops.
fn timed(is_big: bool, body: &[u8], kind: u32) -> Option<Packet> {
    let field = |index: usize| word(is_big, body, 4 * index);
    let interface = match kind {
        OLD_PACKET => half(is_big, body, 0)?.into(),
        _ => field(0)?,
    };
    Some(Packet {
        interface,
        ticks: Some(u64::from(field(1)?) << 32 | u64::from(field(2)?)),
        at: 20,
        captured_bytes: field(3)?,
        original_bytes: field(4)?,
    })
}

/// A simple packet block. It has no time, and its only length is the one on the wire.
fn simple(is_big: bool, body: &[u8], interface: Option<&Interface>) -> Option<Packet> {
    let original_bytes = word(is_big, body, 0)?;
    let snap_bytes = interface.map_or(u32::MAX, |interface| interface.snap_bytes);
    let room = u32::try_from(body.len() - 4).ok()?;
    let captured_bytes = original_bytes.min(snap_bytes).min(room);
    Some(Packet { interface: 0, ticks: None, at: 4, captured_bytes, original_bytes })
}

impl Interface {
    fn read(is_big: bool, body: &[u8]) -> Option<Self> {
        let link = half(is_big, body, 0)?.into();
        let snap_bytes = match word(is_big, body, 4)? {
            0 => u32::MAX,
            snap_bytes => snap_bytes,
        };
        Some(Self { link, snap_bytes, clock: Clock::read(is_big, &body[8..]) })
    }
}

/// The unit in which an interface counts time.
#[derive(Clone, Copy, Debug)]
struct Clock {
    ticks_per_second: u128,
    offset_seconds: i64,
}

impl Clock {
    /// Reads an interface's options. The unit is microseconds if no valid option sets it.
    fn read(is_big: bool, mut options: &[u8]) -> Self {
        let mut clock = Self { ticks_per_second: 1_000_000, offset_seconds: 0 };
        while let (Some(code), Some(count)) = (half(is_big, options, 0), half(is_big, options, 2)) {
            let Some(value) = options[4..].get(..usize::from(count)) else { break };
            match (code, value) {
                (0, _) => break,
                (IF_TSRESOL, [resolution, ..]) => {
                    let base = if resolution & 0x80 == 0 { 10_u128 } else { 2 };
                    let power = base.checked_pow(u32::from(resolution & 0x7F));
                    clock.ticks_per_second = power.unwrap_or(u128::MAX);
                }
                (IF_TSOFFSET, value) => {
                    if let Some(&bytes) = value.first_chunk() {
                        let read = if is_big { i64::from_be_bytes } else { i64::from_le_bytes };
                        clock.offset_seconds = read(bytes);
                    }
                }
                _ => {}
            }
            let padded = value.len().next_multiple_of(4);
            options = options.get(4 + padded..).unwrap_or_default();
        }
        clock
    }

    /// Nanoseconds since the epoch, at most `u64::MAX`.
    fn ns(self, ticks: u64) -> u64 {
        let ns = u128::from(ticks) * 1_000_000_000 / self.ticks_per_second;
        let offset_ns = i128::from(self.offset_seconds) * 1_000_000_000;
        u64::try_from(ns.saturating_add_signed(offset_ns)).unwrap_or(u64::MAX)
    }
}
