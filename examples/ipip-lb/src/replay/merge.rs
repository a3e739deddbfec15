//! The captures of several TX queues in, one out.

use super::split::{header, record};
use pcap_file::pcap::{PcapReader, PcapWriter};
use pcap_file::{PcapError, TsResolution};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufWriter, Seek, Write};

/// A capture that is read record by record.
struct Queue {
    reader: PcapReader<File>,
    /// The bytes of the record that is next.
    next: Vec<u8>,
    fraction_ns: u64,
}

impl Queue {
    fn new(mut file: File) -> Result<Self, PcapError> {
        file.rewind().map_err(PcapError::IoError)?;
        let reader = PcapReader::new(file)?;
        let fraction_ns = match reader.header().ts_resolution {
            TsResolution::MicroSecond => 1_000,
            TsResolution::NanoSecond => 1,
        };
        Ok(Self { reader, next: Vec::new(), fraction_ns })
    }

    /// Reads the next record and yields its time.
    fn advance(&mut self) -> Result<Option<u64>, PcapError> {
        let Some(record) = self.reader.next_raw_packet().transpose()? else { return Ok(None) };
        self.next.clear();
        self.next.extend_from_slice(&record.data);
        let seconds_ns = u64::from(record.ts_sec) * 1_000_000_000;
        Ok(Some(seconds_ns + u64::from(record.ts_frac) * self.fraction_ns))
    }
}

/// Writes the records of the captures in `files` to `output`, earliest first, those of one capture in
/// their order, and says how many there were.
///
/// # Errors
/// A capture that can't be read, an output that can't be written.
pub fn merge(files: Vec<File>, output: File) -> Result<u64, PcapError> {
    let mut writer = PcapWriter::with_header(BufWriter::new(output), header())?;
    let mut queues = files.into_iter().map(Queue::new).collect::<Result<Vec<_>, _>>()?;
    // The time of each queue's next record, the earliest on top.
    let mut due = BinaryHeap::new();
    for (index, queue) in queues.iter_mut().enumerate() {
        due.extend(queue.advance()?.map(|time| Reverse((time, index))));
    }
    let mut count = 0;
    while let Some(Reverse((time, index))) = due.pop() {
        let queue = &mut queues[index];
        writer.write_raw_packet(&record(time, &queue.next))?;
        count += 1;
        due.extend(queue.advance()?.map(|next| Reverse((next, index))));
    }
    writer.into_writer().flush().map_err(PcapError::IoError)?;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::Capture;
    use crate::failure::BadInput;
    use crate::replay::split::nameless;

    fn capture(records: &[(u64, u8)]) -> File {
        let mut writer = PcapWriter::with_header(nameless().unwrap(), header()).unwrap();
        for (time, byte) in records {
            writer.write_raw_packet(&record(*time, &[*byte])).unwrap();
        }
        writer.into_writer()
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
        let contents = Capture::open(&out).unwrap().read(|frame| {
            merged.push((frame.timestamp_ns, frame.data[0]));
            Ok::<_, BadInput>(())
        });
        assert_eq!(contents.unwrap().frame_count, 5);
        let expected =
            [(2, 11), (5_000_000_001, 1), (4, 2), (5_000_000_002, 12), (5_000_000_003, 3)];
        assert_eq!(merged, expected);
    }
}
