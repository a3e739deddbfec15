//! Merges the captures of several TX queues into one.

use hotloop_capture::{Capture, CaptureWriter};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};
use std::path::Path;

/// A capture that is read record by record.
struct Queue {
    capture: Capture,
    /// The bytes of the next record.
    next: Vec<u8>,
}

impl Queue {
    fn new(mut file: File) -> io::Result<Self> {
        file.rewind()?;
        let capture = Capture::from_file(Path::new("what a port sent"), file);
        Ok(Self { capture: capture.map_err(io::Error::other)?, next: Vec::new() })
    }

    /// Reads the next record and yields its time.
    fn advance(&mut self) -> io::Result<Option<u64>> {
        self.next.clear();
        if let Some(frame) = self.capture.next_frame().map_err(io::Error::other)? {
            self.next.extend_from_slice(frame.data);
            return Ok(Some(frame.timestamp_ns));
        }
        match self.capture.contents().cut {
            true => Err(io::ErrorKind::UnexpectedEof.into()),
            false => Ok(None),
        }
    }
}

/// Writes the records of the captures in `files` to `output`, earliest first, the records of one
/// capture in their order. Returns the number of records.
///
/// # Errors
/// If a capture can't be read, or the output can't be written.
pub fn merge(files: Vec<File>, output: File) -> io::Result<u64> {
    let mut writer = CaptureWriter::new(BufWriter::new(output))?;
    let mut queues = files.into_iter().map(Queue::new).collect::<Result<Vec<_>, _>>()?;
    // The time of each queue's next record, the earliest on top.
    let mut due = BinaryHeap::new();
    for (index, queue) in queues.iter_mut().enumerate() {
        due.extend(queue.advance()?.map(|time| Reverse((time, index))));
    }
    let mut count = 0;
    while let Some(Reverse((time, index))) = due.pop() {
        let queue = &mut queues[index];
        writer.write(time, &queue.next)?;
        count += 1;
        due.extend(queue.advance()?.map(|next| Reverse((next, index))));
    }
    writer.into_inner().flush()?;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::split::nameless;

    fn capture(records: &[(u64, u8)]) -> File {
        let mut writer = CaptureWriter::new(nameless().unwrap()).unwrap();
        for (time, byte) in records {
            writer.write(*time, &[*byte]).unwrap();
        }
        writer.into_inner()
    }

    #[test]
    fn records_of_one_queue_keep_their_order() {
        let files = vec![
            capture(&[(5_000_000_001, 1), (4, 2), (5_000_000_003, 3)]),
            capture(&[(2, 11), (5_000_000_002, 12)]),
            capture(&[]),
        ];
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out.pcap");
        assert_eq!(merge(files, File::create(&out).unwrap()).unwrap(), 5);
        let mut merged = Vec::new();
        let mut capture = Capture::open(&out).unwrap();
        while let Some(frame) = capture.next_frame().unwrap() {
            merged.push((frame.timestamp_ns, frame.data[0]));
        }
        assert!(!capture.contents().cut);
        let expected =
            [(2, 11), (5_000_000_001, 1), (4, 2), (5_000_000_002, 12), (5_000_000_003, 3)];
        assert_eq!(merged, expected);
    }
}
