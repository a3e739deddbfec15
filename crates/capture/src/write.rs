//! Writes pcap files.

use crate::frame::{ETHERNET, RECORD_BYTES_MAX};
use crate::pcap::NANOSECONDS;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// The snap length in the header, in bytes: tcpdump's default.
const SNAP_BYTES: u32 = 262_144;

/// Writes a pcap file of nanoseconds.
#[derive(Debug)]
pub struct CaptureWriter<W> {
    file: W,
}

impl<W: Write> CaptureWriter<W> {
    /// Writes the header. `file` gets many small writes.
    ///
    /// # Errors
    /// An error of `file`.
    pub fn new(mut file: W) -> io::Result<Self> {
        let version = 4 << 16 | 2;
        let header = [NANOSECONDS, version, 0, 0, SNAP_BYTES, ETHERNET];
        file.write_all(header.map(u32::to_le_bytes).as_flattened())?;
        Ok(Self { file })
    }

    /// Writes a frame that was captured at `timestamp_ns`. Times beyond the year 2106, the last
    /// that a pcap can hold, become its last second.
    ///
    /// # Errors
    /// An error of the file. [`io::ErrorKind::InvalidInput`] if the frame has more than
    /// [`RECORD_BYTES_MAX`] bytes.
    pub fn write(&mut self, timestamp_ns: u64, data: &[u8]) -> io::Result<()> {
        let (seconds, fraction) = (timestamp_ns / 1_000_000_000, timestamp_ns % 1_000_000_000);
        let bytes = u32::try_from(data.len()).ok().filter(|bytes| *bytes <= RECORD_BYTES_MAX);
        let bytes = bytes.ok_or(io::ErrorKind::InvalidInput)?;
        let header = [u32::try_from(seconds).unwrap_or(u32::MAX), fraction as u32, bytes, bytes];
        self.file.write_all(header.map(u32::to_le_bytes).as_flattened())?;
        self.file.write_all(data)
    }

    /// Returns the file without flushing it.
    pub fn into_inner(self) -> W {
        self.file
    }
}

/// Writes frames into a new pcap file, all with the time 0.
///
/// # Errors
/// The system can't create or write the file, or a frame is too long.
pub fn write_frames<F: AsRef<[u8]>>(
    path: &Path,
    frames: impl IntoIterator<Item = F>,
) -> io::Result<()> {
    let mut writer = CaptureWriter::new(BufWriter::new(File::create(path)?))?;
    frames.into_iter().try_for_each(|frame| writer.write(0, frame.as_ref()))?;
    writer.into_inner().flush()
}
