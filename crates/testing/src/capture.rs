//! Capture files: pcap of either resolution and pcapng in, pcap out.

use crate::Frame;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The bytes a pcapng file begins with: the type of a section header block, a palindrome.
const PCAPNG_MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// The longest frame that [`write_capture`] writes, in bytes: what tcpdump takes.
const SNAPLEN_BYTES: u32 = 262_144;

/// What a capture file holds.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Capture {
    /// The frames, in the file's order.
    pub frames: Vec<Frame>,
    /// How many of them are shorter than they were on the wire: the capture kept only their
    /// beginning.
    pub snapped_count: usize,
    /// Whether the file ends within a record, as it does when the capturing program was killed.
    /// What stands before that record is in `frames`.
    pub cut: bool,
}

/// A capture file that could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// It could not be opened, created, read or written.
    #[error("{}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is not a capture, or breaks its format in the record that follows those counted.
    #[error("{}: not a pcap or pcapng file, or broken behind record {record_count}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// How many records could be read.
        record_count: usize,
        /// What is wrong with it.
        source: PcapError,
    },
    /// It holds something other than Ethernet frames.
    #[error("{}: link type {link_type} ({name}), where only Ethernet (1) is read", path.display())]
    LinkType {
        /// The file.
        path: PathBuf,
        /// The number of the link type.
        link_type: u32,
        /// Its name.
        name: String,
    },
}

/// Reads all frames of a pcap file of microseconds or nanoseconds, of either byte order, or of a
/// pcapng file.
///
/// # Errors
/// Whatever keeps it from being read. A file cut within its last record is not an error: see
/// [`Capture::cut`].
pub fn read_capture(path: impl AsRef<Path>) -> Result<Capture, CaptureError> {
    let path = path.as_ref();
    let io = |source| CaptureError::Io { path: path.to_owned(), source };
    let file = File::open(path).map_err(io)?;
    let mut magic = Vec::new();
    (&file).take(4).read_to_end(&mut magic).map_err(io)?;
    let is_pcapng = magic == PCAPNG_MAGIC;
    let whole = std::io::Cursor::new(magic).chain(file);
    let mut reading = Reading { path, capture: Capture::default() };
    if is_pcapng {
        reading.pcapng(whole)?
    } else {
        reading.pcap(whole)?
    }
    Ok(reading.capture)
}

/// Writes frames into a pcap file with nanoseconds. A frame without a time is written with that of
/// the frame before it, the first with zero.
///
/// # Errors
/// When the file cannot be written, a time lies beyond the year 2106, or a frame is longer than
/// 262,144 bytes.
pub fn write_capture<'a>(
    path: impl AsRef<Path>,
    frames: impl IntoIterator<Item = &'a Frame>,
) -> Result<(), CaptureError> {
    let path = path.as_ref();
    let io = |source| CaptureError::Io { path: path.to_owned(), source };
    let mut record_count = 0;
    let mut file = BufWriter::new(File::create(path).map_err(io)?);
    let written = write_frames(&mut file, frames, &mut record_count);
    written.map_err(|source| error(path, record_count, source))?;
    file.flush().map_err(io)
}

fn write_frames<'a>(
    file: &mut BufWriter<File>,
    frames: impl IntoIterator<Item = &'a Frame>,
    record_count: &mut usize,
) -> Result<(), PcapError> {
    let header = PcapHeader {
        snaplen: SNAPLEN_BYTES,
        datalink: DataLink::ETHERNET,
        ts_resolution: TsResolution::NanoSecond,
        endianness: Endianness::Little,
        ..PcapHeader::default()
    };
    let mut writer = PcapWriter::with_header(file, header)?;
    let mut timestamp_ns = 0;
    for frame in frames {
        timestamp_ns = frame.timestamp_ns.unwrap_or(timestamp_ns);
        let timestamp = Duration::from_nanos(timestamp_ns);
        let original_bytes = u32::try_from(frame.bytes.len()).unwrap_or(u32::MAX);
        writer.write_packet(&PcapPacket::new(timestamp, original_bytes, &frame.bytes))?;
        *record_count += 1;
    }
    Ok(())
}

fn error(path: &Path, record_count: usize, source: PcapError) -> CaptureError {
    let path = path.to_owned();
    match source {
        PcapError::IoError(source) => CaptureError::Io { path, source },
        source => CaptureError::Format { path, record_count, source },
    }
}

struct Reading<'a> {
    path: &'a Path,
    capture: Capture,
}

impl Reading<'_> {
    fn pcap(&mut self, file: impl Read) -> Result<(), CaptureError> {
        let mut reader = PcapReader::new(file).map_err(|source| self.header_error(source))?;
        let header = reader.header();
        self.check_link_type(header.datalink)?;
        let fraction_ns = if header.ts_resolution == TsResolution::NanoSecond { 1 } else { 1000 };
        // Raw records: a record longer on the wire than the snap length is lawful.
        while let Some(record) = reader.next_raw_packet() {
            let Some(record) = self.unless_cut(record)? else { break };
            let seconds_ns = u64::from(record.ts_sec) * 1_000_000_000;
            let timestamp_ns = seconds_ns + u64::from(record.ts_frac) * fraction_ns;
            self.push(record.data.into_owned(), record.orig_len, Some(timestamp_ns));
        }
        Ok(())
    }

    fn pcapng(&mut self, file: impl Read) -> Result<(), CaptureError> {
        let mut reader = PcapNgReader::new(file).map_err(|source| self.header_error(source))?;
        loop {
            let Some(block) = reader.next_block() else { return Ok(()) };
            let Some(block) = self.unless_cut(block)? else { return Ok(()) };
            let block = block.into_owned();
            match block {
                Block::InterfaceDescription(interface) => {
                    self.check_link_type(interface.linktype)?;
                }
                Block::EnhancedPacket(packet) => {
                    // The library takes units of the interface's clock for nanoseconds.
                    let units = packet.timestamp.as_nanos() as u64;
                    let interface = self.interface(reader.interfaces(), packet.interface_id)?;
                    let timestamp_ns = timestamp_ns(interface, units);
                    self.push(packet.data.into_owned(), packet.original_len, Some(timestamp_ns));
                }
                Block::SimplePacket(packet) => {
                    let interface = self.interface(reader.interfaces(), 0)?;
                    let snaplen = if interface.snaplen == 0 { u32::MAX } else { interface.snaplen };
                    let mut bytes = packet.data.into_owned();
                    bytes.truncate(packet.original_len.min(snaplen) as usize);
                    self.push(bytes, packet.original_len, None);
                }
                Block::Packet(packet) => {
                    // Two 32-bit halves, high first, which the library reads as one number.
                    let little = reader.section().endianness == Endianness::Little;
                    let units = packet.timestamp.rotate_left(if little { 32 } else { 0 });
                    let id = u32::from(packet.interface_id);
                    let timestamp_ns =
                        timestamp_ns(self.interface(reader.interfaces(), id)?, units);
                    self.push(packet.data.into_owned(), packet.original_len, Some(timestamp_ns));
                }
                _ => {}
            }
        }
    }

    fn push(&mut self, bytes: Vec<u8>, original_bytes: u32, timestamp_ns: Option<u64>) {
        self.capture.snapped_count += usize::from(bytes.len() < original_bytes as usize);
        self.capture.frames.push(Frame { bytes, timestamp_ns });
    }

    /// The record, or `None` where the file ends within it.
    fn unless_cut<T>(&mut self, record: Result<T, PcapError>) -> Result<Option<T>, CaptureError> {
        match record {
            Ok(record) => Ok(Some(record)),
            Err(PcapError::IoError(source)) if source.kind() == ErrorKind::UnexpectedEof => {
                self.capture.cut = true;
                Ok(None)
            }
            Err(source) => Err(self.error(source)),
        }
    }

    fn error(&self, source: PcapError) -> CaptureError {
        error(self.path, self.capture.frames.len(), source)
    }

    /// A file that ends within its header is not a capture.
    fn header_error(&self, source: PcapError) -> CaptureError {
        match source {
            PcapError::IoError(source) if source.kind() == ErrorKind::UnexpectedEof => {
                self.error(PcapError::IncompleteBuffer)
            }
            source => self.error(source),
        }
    }

    fn check_link_type(&self, link: DataLink) -> Result<(), CaptureError> {
        if link == DataLink::ETHERNET {
            return Ok(());
        }
        let (link_type, name) = (u32::from(link), format!("{link:?}"));
        Err(CaptureError::LinkType { path: self.path.to_owned(), link_type, name })
    }

    fn interface<'i>(
        &self,
        interfaces: &'i [InterfaceDescriptionBlock<'static>],
        id: u32,
    ) -> Result<&'i InterfaceDescriptionBlock<'static>, CaptureError> {
        let found = interfaces.get(id as usize);
        found.ok_or_else(|| self.error(PcapError::InvalidInterfaceId(id)))
    }
}

/// Nanoseconds since the epoch of a time in units of the interface's clock: microseconds, unless its
/// options say otherwise (`if_tsresol`: a power of ten, or of two where the highest bit is set;
/// `if_tsoffset`: seconds to add).
fn timestamp_ns(interface: &InterfaceDescriptionBlock<'_>, units: u64) -> u64 {
    let (mut resolution, mut offset_seconds) = (6_u8, 0_i64);
    for option in &interface.options {
        match option {
            InterfaceDescriptionOption::IfTsResol(value) => resolution = *value,
            InterfaceDescriptionOption::IfTsOffset(value) => offset_seconds = value.cast_signed(),
            _ => {}
        }
    }
    let exponent = u32::from(resolution & 0x7f);
    let base = if resolution & 0x80 == 0 { 10_u128 } else { 2 };
    let units_per_second = base.checked_pow(exponent).unwrap_or(u128::MAX);
    let ns = u128::from(units) * 1_000_000_000 / units_per_second;
    let offset_ns = i128::from(offset_seconds) * 1_000_000_000;
    let sum_ns = ns.saturating_add_signed(offset_ns);
    u64::try_from(sum_ns).unwrap_or(u64::MAX)
}
