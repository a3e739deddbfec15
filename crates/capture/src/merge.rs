//! Merges several captures into one.

use crate::read::Capture;
use crate::write::CaptureWriter;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufWriter, Write};

/// A capture that is read record by record.
struct Input {
    capture: Capture,
    /// The bytes of the next record.
    next: Vec<u8>,
}

impl Input {
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

/// Writes the records of `captures` to `output`, earliest first, the records of one capture in their
/// order. Returns the number of records.
///
/// # Errors
/// If a capture can't be read or is cut, or the output can't be written.
pub fn merge(captures: Vec<Capture>, output: File) -> io::Result<u64> {
    let mut writer = CaptureWriter::new(BufWriter::new(output))?;
    let input = |capture| Input { capture, next: Vec::new() };
    let mut inputs: Vec<_> = captures.into_iter().map(input).collect();
    // The time of each input's next record, the earliest on top.
    let mut due = BinaryHeap::new();
    for (index, input) in inputs.iter_mut().enumerate() {
        due.extend(input.advance()?.map(|time| Reverse((time, index))));
    }
    let mut count = 0;
    while let Some(Reverse((time, index))) = due.pop() {
        let input = &mut inputs[index];
        writer.write(time, &input.next)?;
        count += 1;
        due.extend(input.advance()?.map(|next| Reverse((next, index))));
    }
    writer.into_inner().flush()?;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Seek;
    use std::path::Path;

    fn capture(records: &[(u64, u8)]) -> Capture {
        let mut writer = CaptureWriter::new(tempfile::tempfile().unwrap()).unwrap();
        for (time, byte) in records {
            writer.write(*time, &[*byte]).unwrap();
        }
        let mut file = writer.into_inner();
        file.rewind().unwrap();
        Capture::from_file(Path::new("in memory"), file).unwrap()
    }

    #[test]
    fn records_of_one_queue_keep_their_order() {
        let captures = vec![
            capture(&[(5_000_000_001, 1), (4, 2), (5_000_000_003, 3)]),
            capture(&[(2, 11), (5_000_000_002, 12)]),
            capture(&[]),
        ];
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out.pcap");
        assert_eq!(merge(captures, File::create(&out).unwrap()).unwrap(), 5);
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
