//! Reads, writes and merges capture files of Ethernet frames: pcap (microseconds or nanoseconds) and
//! pcapng. Files of either byte order can be read.
//!
//! Any file is either read or refused with an error. At most [`RECORD_BYTES_MAX`] of it are in
//! memory at once. A file that ends within its last record is read up to there.
//!
//! ```
//! use hotloop_capture::{Capture, CaptureWriter};
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("one.pcap");
//! let mut writer = CaptureWriter::new(std::fs::File::create(&path)?)?;
//! writer.write(1_700_000_000_123_456_789, &[0; 60])?;
//!
//! let mut capture = Capture::open(&path)?;
//! while let Some(frame) = capture.next_frame()? {
//!     assert_eq!((frame.timestamp_ns, frame.data.len()), (1_700_000_000_123_456_789, 60));
//! }
//! assert_eq!((capture.contents().frame_count, capture.contents().cut), (1, false));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Limits
//!
//! Files only: this crate depends on no other crate of the workspace. The engine's taps capture a
//! running program's packets.
#![forbid(unsafe_code)]

mod frame;
mod input;
mod merge;
mod pcap;
mod pcapng;
mod pcapng_write;
mod read;
mod write;

pub use frame::{Frame, RECORD_BYTES_MAX};
pub use merge::merge;
pub use pcapng_write::{Direction, PcapNgPacket, PcapNgWriter};
pub use read::{Capture, CaptureError, Contents, read_frames};
pub use write::{CaptureWriter, write_frames};
