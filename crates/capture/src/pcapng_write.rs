//! Writes pcapng files (draft-ietf-opsawg-pcapng). Each block is written at once, so a program that
//! reads the growing file never waits long for the rest of a block.

use crate::frame::ETHERNET;
use crate::pcapng::{BYTE_ORDER, ENHANCED_PACKET, IF_TSRESOL, INTERFACE, MAGIC};
use std::io::{self, Write};

/// Option codes, by the block that uses them.
const OPTION_COMMENT: u16 = 1;
const SECTION_PROGRAM: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_DESCRIPTION: u16 = 3;
const PACKET_FLAGS: u16 = 2;

/// The longest text of an option, in bytes.
const TEXT_BYTES_MAX: usize = 0xFFFF;

/// A packet's direction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Direction {
    /// Neither, or unknown.
    Unknown,
    /// The packet was received.
    Inbound,
    /// The packet was sent.
    Outbound,
}

/// A packet of a pcapng file.
#[derive(Clone, Copy, Debug)]
pub struct PcapNgPacket<'a> {
    /// The number of its interface, as [`PcapNgWriter::interface`] returned it.
    pub interface: u32,
    /// When it was captured, in nanoseconds since the epoch.
    pub timestamp_ns: u64,
    /// The captured bytes.
    pub data: &'a [u8],
    /// Length of the frame on the wire, in bytes.
    pub original_bytes: u32,
    /// The packet's direction.
    pub direction: Direction,
    /// A comment on the packet.
    pub comment: Option<&'a str>,
}

/// Writes a pcapng file of nanoseconds, with one section of Ethernet frames.
///
/// ```
/// use hotloop_capture::{Capture, Direction, PcapNgPacket, PcapNgWriter};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("one.pcapng");
/// let mut writer = PcapNgWriter::new(std::fs::File::create(&path)?, "an example", 65_536)?;
/// let interface = writer.interface("uplink on core 0", "source")?;
/// writer.write(&PcapNgPacket {
///     interface,
///     timestamp_ns: 1_700_000_000_123_456_789,
///     data: &[7; 60],
///     original_bytes: 1500,
///     direction: Direction::Inbound,
///     comment: None,
/// })?;
///
/// let mut capture = Capture::open(&path)?;
/// let frame = capture.next_frame()?.expect("there is one");
/// assert_eq!((frame.timestamp_ns, frame.original_bytes), (1_700_000_000_123_456_789, 1500));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PcapNgWriter<W> {
    file: W,
    snap_bytes: u32,
    interface_count: u32,
    block: Vec<u8>,
}

impl<W: Write> PcapNgWriter<W> {
    /// Writes the section's header, which names the writing program. The caller cuts frames to
    /// `snap_bytes`.
    ///
    /// # Errors
    /// An error of `file`.
    pub fn new(file: W, program: &str, snap_bytes: u32) -> io::Result<Self> {
        let mut writer = Self { file, snap_bytes, interface_count: 0, block: Vec::new() };
        writer.begin(MAGIC);
        writer.word(BYTE_ORDER);
        // Version 1.0, and an unknown length.
        writer.word(1);
        writer.block.extend([0xFF; 8]);
        writer.option(SECTION_PROGRAM, program.as_bytes());
        writer.end(true)?;
        Ok(writer)
    }

    /// Describes an interface, and returns its number.
    ///
    /// # Errors
    /// An error of the file.
    pub fn interface(&mut self, name: &str, description: &str) -> io::Result<u32> {
        self.begin(INTERFACE);
        self.word(ETHERNET);
        self.word(self.snap_bytes);
        self.option(INTERFACE_NAME, name.as_bytes());
        self.option(INTERFACE_DESCRIPTION, description.as_bytes());
        // Ticks of 10 to the power of -9 seconds.
        self.option(IF_TSRESOL, &[9]);
        self.end(true)?;
        self.interface_count += 1;
        Ok(self.interface_count - 1)
    }

    /// Writes a packet.
    ///
    /// # Errors
    /// An error of the file. [`io::ErrorKind::InvalidInput`] if the packet's interface was not
    /// described, or if the packet is longer than the snap length.
    pub fn write(&mut self, packet: &PcapNgPacket<'_>) -> io::Result<()> {
        let captured_bytes = u32::try_from(packet.data.len()).unwrap_or(u32::MAX);
        if packet.interface >= self.interface_count || captured_bytes > self.snap_bytes {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.begin(ENHANCED_PACKET);
        self.word(packet.interface);
        self.word((packet.timestamp_ns >> 32) as u32);
        self.word(packet.timestamp_ns as u32);
        self.word(captured_bytes);
        self.word(packet.original_bytes);
        self.padded(packet.data);
        let flags: u32 = match packet.direction {
            Direction::Unknown => 0,
            Direction::Inbound => 1,
            Direction::Outbound => 2,
        };
        if flags != 0 {
            self.option(PACKET_FLAGS, &flags.to_le_bytes());
        }
        if let Some(comment) = packet.comment {
            self.option(OPTION_COMMENT, comment.as_bytes());
        }
        self.end(flags != 0 || packet.comment.is_some())
    }

    /// Returns the file without flushing it.
    pub fn into_inner(self) -> W {
        self.file
    }

    /// The file, such as to look at it or to take the written bytes out.
    pub const fn file_mut(&mut self) -> &mut W {
        &mut self.file
    }

    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.word(kind);
        // The length, filled in at the end.
        self.word(0);
    }

    fn word(&mut self, word: u32) {
        self.block.extend(word.to_le_bytes());
    }

    fn padded(&mut self, bytes: &[u8]) {
        self.block.extend(bytes);
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        let value = &value[..value.len().min(TEXT_BYTES_MAX)];
        self.block.extend(code.to_le_bytes());
        self.block.extend((value.len() as u16).to_le_bytes());
        self.padded(value);
    }

    /// Ends the block and writes all of it at once.
    fn end(&mut self, has_options: bool) -> io::Result<()> {
        if has_options {
            // The option that ends the list.
            self.word(0);
        }
        let length = self.block.len() as u32 + 4;
        self.word(length);
        self.block[4..8].copy_from_slice(&length.to_le_bytes());
        self.file.write_all(&self.block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_the_file_is_refused() {
        let mut writer = PcapNgWriter::new(Vec::new(), "test", 60).unwrap();
        let packet = PcapNgPacket {
            interface: 0,
            timestamp_ns: 0,
            data: &[0; 60],
            original_bytes: 60,
            direction: Direction::Unknown,
            comment: None,
        };
        writer.write(&packet).unwrap_err();
        assert_eq!(writer.interface("a", "").unwrap(), 0);
        writer.write(&packet).unwrap();
        writer.write(&PcapNgPacket { data: &[0; 61], ..packet }).unwrap_err();
        let long = "x".repeat(100_000);
        writer.write(&PcapNgPacket { comment: Some(&long), ..packet }).unwrap();
        assert!(writer.into_inner().len().is_multiple_of(4));
    }
}
