//! One capture in, one capture a receiving core out.

use super::words;
use crate::capture::{Capture, Contents};
use crate::failure::BadInput;
use pcap_file::pcap::{PcapHeader, PcapWriter, RawPcapPacket};
use pcap_file::{DataLink, Endianness, TsResolution};
use std::borrow::Cow;
use std::fs::File;
use std::io::BufWriter;

/// The longest frame that is replayed, in bytes: with its headroom it fits into the largest buffer
/// that there is.
pub const FRAME_BYTES_MAX: usize = 65_535 - 128;

/// What a capture was split into.
#[derive(Debug)]
pub struct Split {
    /// A capture for each queue, without a name.
    pub files: Vec<File>,
    /// What was found in the capture.
    pub contents: Contents,
    /// How many of its frames are longer than [`FRAME_BYTES_MAX`], and are in no queue.
    pub too_long_count: u64,
    /// The longest of the others, in bytes.
    pub longest_bytes: usize,
}

/// The header of the captures that are written: nanoseconds, this machine's byte order.
pub fn header() -> PcapHeader {
    PcapHeader {
        version_major: 2,
        version_minor: 4,
        ts_correction: 0,
        ts_accuracy: 0,
        snaplen: 262_144,
        datalink: DataLink::ETHERNET,
        ts_resolution: TsResolution::NanoSecond,
        endianness: Endianness::native(),
    }
}

/// A record as it stands in a capture of this header. Times beyond the year 2106, which a pcap can't
/// say, become its last second.
pub fn record(timestamp_ns: u64, data: &[u8]) -> RawPcapPacket<'_> {
    let (seconds, fraction) = (timestamp_ns / 1_000_000_000, timestamp_ns % 1_000_000_000);
    let len = data.len() as u32;
    RawPcapPacket {
        ts_sec: u32::try_from(seconds).unwrap_or(u32::MAX),
        ts_frac: fraction as u32,
        incl_len: len,
        orig_len: len,
        data: Cow::Borrowed(data),
    }
}

/// A file without a name, which is gone when it is closed.
///
/// # Errors
/// A folder for temporary files that can't be written to.
pub fn nameless() -> Result<File, BadInput> {
    tempfile::tempfile().map_err(|error| unwritable(&error))
}

fn unwritable(error: &dyn std::fmt::Display) -> BadInput {
    let folder = std::env::temp_dir();
    let folder = folder.display();
    BadInput::new(format!("{folder}: can't write: {error}; set TMPDIR to a folder with room"))
}

/// Writes each frame of `capture` into that of `queue_count` files which `queue` says, in the order
/// in which they come.
///
/// # Errors
/// Whatever is wrong with the capture, and a folder that can't be written to.
pub fn split(
    capture: Capture,
    queue_count: usize,
    queue: impl Fn(&[u8]) -> usize,
) -> Result<Split, BadInput> {
    let create = |_| {
        let file = BufWriter::new(nameless()?);
        PcapWriter::with_header(file, header()).map_err(|error| unwritable(&words(&error)))
    };
    let mut writers = (0..queue_count).map(create).collect::<Result<Vec<_>, _>>()?;
    let (mut too_long_count, mut longest_bytes) = (0, 0);
    let contents = capture.read(|frame| {
        if frame.data.len() > FRAME_BYTES_MAX {
            too_long_count += 1;
            return Ok(());
        }
        longest_bytes = longest_bytes.max(frame.data.len());
        let writer = &mut writers[queue(frame.data)];
        let record = record(frame.timestamp_ns, frame.data);
        writer.write_raw_packet(&record).map_err(|error| unwritable(&words(&error))).map(|_| ())
    })?;
    let whole = |writer: PcapWriter<BufWriter<File>>| {
        writer.into_writer().into_inner().map_err(|error| unwritable(error.error()))
    };
    let files = writers.into_iter().map(whole).collect::<Result<_, _>>()?;
    Ok(Split { files, contents, too_long_count, longest_bytes })
}
