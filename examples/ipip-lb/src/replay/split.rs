//! One capture in, one capture a receiving core out.

use crate::failure::BadInput;
use hotloop::engine::Control;
use hotloop_capture::{Capture, CaptureWriter, Contents};
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
/// in which they come, up to its end or a signal. Time never goes back: not for any of them.
///
/// # Errors
/// Whatever is wrong with the capture, and a folder that can't be written to.
pub fn split(
    mut capture: Capture,
    queue_count: usize,
    mut queue: impl FnMut(&[u8]) -> usize,
) -> Result<Split, BadInput> {
    let create = |_| {
        let file = BufWriter::new(nameless()?);
        CaptureWriter::new(file).map_err(|error| unwritable(&error))
    };
    let mut writers = (0..queue_count).map(create).collect::<Result<Vec<_>, _>>()?;
    let (mut too_long_count, mut longest_bytes, mut now_ns) = (0, 0, 0);
    while !Control::signal_came()
        && let Some(frame) = capture.next_frame()?
    {
        if frame.data.len() > FRAME_BYTES_MAX {
            too_long_count += 1;
            continue;
        }
        longest_bytes = longest_bytes.max(frame.data.len());
        let writer = &mut writers[queue(frame.data)];
        // Cores that have only some of the frames would not see by them how late it is.
        now_ns = frame.timestamp_ns.max(now_ns);
        writer.write(now_ns, frame.data).map_err(|error| unwritable(&error))?;
    }
    let contents = capture.contents();
    let whole = |writer: CaptureWriter<BufWriter<File>>| {
        writer.into_inner().into_inner().map_err(|error| unwritable(error.error()))
    };
    let files = writers.into_iter().map(whole).collect::<Result<_, _>>()?;
    Ok(Split { files, contents, too_long_count, longest_bytes })
}
