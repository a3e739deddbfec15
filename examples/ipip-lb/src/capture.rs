//! Reading capture files: pcap with microseconds or nanoseconds, and pcapng.

use crate::failure::BadInput;
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError, TsResolution};
use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::{Path, PathBuf};

/// A capture file of Ethernet frames.
pub struct Capture {
    path: PathBuf,
    format: Format,
}

enum Format {
    Pcap(PcapReader<BufReader<File>>),
    PcapNg(PcapNgReader<BufReader<File>>),
}

impl std::fmt::Debug for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Capture").field("path", &self.path).finish_non_exhaustive()
    }
}

/// A frame of a capture.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// When it was captured, in nanoseconds since the epoch.
    pub timestamp_ns: u64,
    /// Its bytes, as many as were captured.
    pub data: &'a [u8],
}

/// What was found in a capture.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Contents {
    /// How many whole frames there were.
    pub frame_count: u64,
    /// Whether the file ends within a record.
    pub cut: bool,
}

/// The first four bytes of each format, either way round; those of pcapng read the same both ways.
const PCAP_MAGICS: [[u8; 4]; 4] = [
    [0xA1, 0xB2, 0xC3, 0xD4],
    [0xD4, 0xC3, 0xB2, 0xA1],
    [0xA1, 0xB2, 0x3C, 0x4D],
    [0x4D, 0x3C, 0xB2, 0xA1],
];
const PCAPNG_MAGIC: [u8; 4] = [0x0A, 0x0D, 0x0D, 0x0A];

const RECORD_AGAIN: &str = "record a capture with tcpdump -w";

impl Capture {
    /// Opens the capture at `path`.
    ///
    /// # Errors
    /// A file that can't be read, is not a capture, ends within its header, or holds frames of
    /// another link layer than Ethernet.
    pub fn open(path: &Path) -> Result<Self, BadInput> {
        let unreadable = |error| BadInput::file(path, "--input", &error, "name a readable capture");
        let mut file = File::open(path).map_err(unreadable)?;
        let mut magic = Vec::new();
        file.by_ref().take(4).read_to_end(&mut magic).map_err(unreadable)?;
        file.rewind().map_err(unreadable)?;
        let wrong = |error: PcapError| match error {
            PcapError::IoError(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => {
                unreadable(error)
            }
            PcapError::IoError(_) | PcapError::IncompleteBuffer => {
                bad(path, "the capture ends within its header", RECORD_AGAIN)
            }
            error => bad(path, &format!("not a capture ({error})"), RECORD_AGAIN),
        };
        let file = BufReader::new(file);
        let Ok(magic) = <[u8; 4]>::try_from(magic) else {
            return Err(bad(path, "the capture ends within its header", RECORD_AGAIN));
        };
        let format = if magic == PCAPNG_MAGIC {
            Format::PcapNg(PcapNgReader::new(file).map_err(wrong)?)
        } else if PCAP_MAGICS.contains(&magic) {
            let reader = PcapReader::new(file).map_err(wrong)?;
            let link = reader.header().datalink;
            if link != DataLink::ETHERNET {
                return Err(other_link(path, link));
            }
            Format::Pcap(reader)
        } else {
            return Err(bad(path, "not a capture: neither pcap nor pcapng", RECORD_AGAIN));
        };
        Ok(Self { path: path.to_owned(), format })
    }

    /// Reads it to its end and calls `frame` for each frame.
    ///
    /// # Errors
    /// A record that makes no sense, frames of another link layer than Ethernet, and whatever
    /// `frame` returns.
    pub fn read<E: From<BadInput>>(
        self,
        mut frame: impl FnMut(Frame<'_>) -> Result<(), E>,
    ) -> Result<Contents, E> {
        let mut contents = Contents::default();
        let Self { path, format } = self;
        let ended = match format {
            Format::Pcap(reader) => read_pcap(reader, &mut contents, &mut frame),
            Format::PcapNg(reader) => read_pcapng(&path, reader, &mut contents, &mut frame),
        };
        match ended {
            Ok(()) => Ok(contents),
            Err(Ended::Callee(error)) => Err(error),
            Err(Ended::File(PcapError::IoError(error)))
                if error.kind() == std::io::ErrorKind::UnexpectedEof =>
            {
                Ok(Contents { cut: true, ..contents })
            }
            Err(Ended::File(error)) => {
                let problem = format!("record {} is damaged ({error})", contents.frame_count + 1);
                Err(bad(&path, &problem, RECORD_AGAIN).into())
            }
        }
    }
}

/// Why reading stopped before the end.
enum Ended<E> {
    File(PcapError),
    Callee(E),
}

impl<E> From<PcapError> for Ended<E> {
    fn from(error: PcapError) -> Self {
        Self::File(error)
    }
}

fn bad(path: &Path, problem: &str, remedy: &str) -> BadInput {
    BadInput::new(format!("{}: --input: {problem}; {remedy}", path.display()))
}

fn other_link(path: &Path, link: DataLink) -> BadInput {
    let problem = format!("frames of link type {link:?}, not Ethernet");
    bad(path, &problem, "capture on an Ethernet interface, not on \"any\"")
}

fn read_pcap<E>(
    mut reader: PcapReader<BufReader<File>>,
    contents: &mut Contents,
    frame: &mut impl FnMut(Frame<'_>) -> Result<(), E>,
) -> Result<(), Ended<E>> {
    let fraction_ns = match reader.header().ts_resolution {
        TsResolution::MicroSecond => 1_000,
        TsResolution::NanoSecond => 1,
    };
    // Raw records: the checked ones refuse a frame longer than the snapshot length, which is what
    // a snapshot length is for.
    while let Some(record) = reader.next_raw_packet() {
        let record = record?;
        let seconds_ns = u64::from(record.ts_sec) * 1_000_000_000;
        let timestamp_ns = seconds_ns + u64::from(record.ts_frac) * fraction_ns;
        frame(Frame { timestamp_ns, data: &record.data }).map_err(Ended::Callee)?;
        contents.frame_count += 1;
    }
    Ok(())
}

/// What a pcapng file says of one of its interfaces.
#[derive(Clone, Copy)]
struct Interface {
    link: DataLink,
    clock: Clock,
}

fn read_pcapng<E: From<BadInput>>(
    path: &Path,
    mut reader: PcapNgReader<BufReader<File>>,
    contents: &mut Contents,
    frame: &mut impl FnMut(Frame<'_>) -> Result<(), E>,
) -> Result<(), Ended<E>> {
    let mut interfaces: Vec<Interface> = Vec::new();
    let mut last_ns = 0;
    while let Some(block) = reader.next_block() {
        let (interface, ticks, data) = match block? {
            Block::SectionHeader(_) => {
                interfaces.clear();
                continue;
            }
            Block::InterfaceDescription(block) => {
                interfaces.push(Interface { link: block.linktype, clock: Clock::of(&block) });
                continue;
            }
            // The crate takes every timestamp for nanoseconds: what it calls so are the ticks.
            Block::EnhancedPacket(block) => {
                (block.interface_id, Some(block.timestamp.as_nanos() as u64), block.data)
            }
            Block::Packet(block) => {
                (u32::from(block.interface_id), Some(block.timestamp), block.data)
            }
            // It has no time of its own, and says only how long the frame was before it was cut.
            Block::SimplePacket(mut block) => {
                let len = block.data.len().min(block.original_len as usize);
                block.data.to_mut().truncate(len);
                (0, None, block.data)
            }
            _ => continue,
        };
        let Some(Interface { link, clock }) = interfaces.get(interface as usize).copied() else {
            return Err(PcapError::InvalidInterfaceId(interface).into());
        };
        if link != DataLink::ETHERNET {
            return Err(Ended::Callee(other_link(path, link).into()));
        }
        last_ns = ticks.map_or(last_ns, |ticks| clock.ns(ticks));
        frame(Frame { timestamp_ns: last_ns, data: &data }).map_err(Ended::Callee)?;
        contents.frame_count += 1;
    }
    Ok(())
}

/// How an interface of a pcapng file counts time (options `if_tsresol` and `if_tsoffset`).
#[derive(Clone, Copy)]
struct Clock {
    ticks_per_second: u128,
    offset_seconds: u64,
}

impl Clock {
    fn of(interface: &InterfaceDescriptionBlock<'_>) -> Self {
        let mut clock = Self { ticks_per_second: 1_000_000, offset_seconds: 0 };
        for option in &interface.options {
            match option {
                InterfaceDescriptionOption::IfTsResol(resolution) => {
                    let base = if resolution & 0x80 == 0 { 10_u128 } else { 2 };
                    let power = base.checked_pow(u32::from(resolution & 0x7F));
                    clock.ticks_per_second = power.unwrap_or(u128::MAX);
                }
                InterfaceDescriptionOption::IfTsOffset(seconds) => clock.offset_seconds = *seconds,
                _ => {}
            }
        }
        clock
    }

    fn ns(self, ticks: u64) -> u64 {
        let ns = u128::from(ticks) * 1_000_000_000 / self.ticks_per_second;
        let offset_ns = self.offset_seconds.wrapping_mul(1_000_000_000);
        (ns as u64).wrapping_add(offset_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_says_how_it_counts_time() {
        type O = InterfaceDescriptionOption<'static>;
        for (options, ticks, ns) in [
            (vec![], 1_700_000_000_123_456, 1_700_000_000_123_456_000),
            (vec![O::IfTsResol(9)], 1_700_000_000_123_456_789, 1_700_000_000_123_456_789),
            (vec![O::IfTsResol(0), O::IfTsOffset(1_000)], 700, 1_700_000_000_000),
            (vec![O::IfTsResol(0x80 | 20)], (5 << 20) + (1 << 19), 5_500_000_000),
            (vec![O::IfTsResol(0x7F)], u64::MAX, 0),
        ] {
            let mut interface = InterfaceDescriptionBlock::new(DataLink::ETHERNET, 0);
            interface.options = options;
            assert_eq!(Clock::of(&interface).ns(ticks), ns, "{:?}", interface.options);
        }
    }
}
