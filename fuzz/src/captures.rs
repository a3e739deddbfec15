//! Capture files of arbitrary bytes.

use hotloop_capture::{Capture, CaptureError, CaptureWriter};
use std::fs::File;
use std::io::{Seek, Write};
use std::path::Path;

const SECOND_NS: u64 = 1_000_000_000;

/// A frame: its time, and its bytes.
type Frame = (u64, Vec<u8>);

/// Reads the bytes as a capture. An error must be one line; the frames read must lie within the
/// file, and be the same after they were written and read again.
pub fn run(bytes: &[u8]) {
    let mut file = tempfile::tempfile().expect("a temporary file");
    file.write_all(bytes).expect("room for it");
    let (frames, failure) = read(file);
    if let Some(failure) = failure {
        let message = failure.to_string();
        assert!(!message.chars().any(char::is_control), "{message:?}");
    }
    let total: usize = frames.iter().map(|(_, data)| data.len()).sum();
    assert!(total <= bytes.len(), "{total} bytes of frames in a file of {}", bytes.len());
    let (again, failure) = read(written(&frames));
    assert!(failure.is_none() && again == frames.into_iter().map(as_pcap).collect::<Vec<_>>());
}

/// All frames, and the error that ended the reading, if any.
fn read(mut file: File) -> (Vec<Frame>, Option<CaptureError>) {
    file.rewind().expect("a file on a disk");
    let mut frames = Vec::new();
    let mut capture = match Capture::from_file(Path::new("input.pcap"), file) {
        Ok(capture) => capture,
        Err(error) => return (frames, Some(error)),
    };
    loop {
        match capture.next_frame() {
            Ok(Some(frame)) => frames.push((frame.timestamp_ns, frame.data.to_vec())),
            Ok(None) => break,
            Err(error) => return (frames, Some(error)),
        }
    }
    assert_eq!(capture.contents().frame_count, frames.len() as u64);
    (frames, None)
}

/// The frames as a capture.
fn written(frames: &[Frame]) -> File {
    let file = tempfile::tempfile().expect("a temporary file");
    let mut writer = CaptureWriter::new(file).expect("room for a header");
    for (timestamp_ns, data) in frames {
        writer.write(*timestamp_ns, data).expect("room for a frame");
    }
    writer.into_inner()
}

/// A frame as in a pcap file: times beyond the year 2106 become the last second.
fn as_pcap((timestamp_ns, data): Frame) -> Frame {
    let (seconds, fraction) = (timestamp_ns / SECOND_NS, timestamp_ns % SECOND_NS);
    (seconds.min(u32::MAX.into()) * SECOND_NS + fraction, data)
}
