//! Splits one capture into one for each receiving core.

use crate::failure::BadInput;
use hotloop::engine::Control;
use hotloop_capture::{Capture, CaptureWriter, Contents};
use std::fs::File;
use std::io::BufWriter;

/// Maximum length of a replayed frame, in bytes: with its headroom it fits into the largest
/// possible buffer.
pub const FRAME_BYTES_MAX: usize = 65_535 - 128;

/// The parts of a split capture.
#[derive(Debug)]
pub struct Split {
    /// A capture for each queue, without a name.
    pub files: Vec<File>,
    /// A summary of the capture's contents.
    pub contents: Contents,
    /// Number of frames that are longer than [`FRAME_BYTES_MAX`], and are in no queue.
    pub too_long_count: u64,
    /// The longest of the others, in bytes.
    pub longest_bytes: usize,
}

/// A file without a name, which is gone when it is closed.
///
/// # Errors
/// If the folder for temporary files can't be written to.
pub fn nameless() -> Result<File, BadInput> {
    tempfile::tempfile().map_err(|error| unwritable(&error))
}

fn unwritable(error: &dyn std::fmt::Display) -> BadInput {
    let folder = std::env::temp_dir();
    let folder = folder.display();
    BadInput::new(format!("{folder}: can't write: {error}; set TMPDIR to a folder with room"))
}

/// Writes each frame of `capture` into one of `queue_count` files, selected by `queue`, in order of
/// arrival, up to the capture's end or a signal. Time never goes back, in any of the files.
///
/// # Errors
/// If the capture is invalid, or a folder can't be written to.
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
        // Cores that have only some of the frames would not learn the time from them.
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
