//! Capture files, good, cut and bad.

use hotloop_testing::{Capture, CaptureError, Frame, read_capture, write_capture};
use proptest::prelude::*;
use std::fs;
use std::path::PathBuf;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join("test.cap");
        fs::write(&path, bytes).unwrap();
        path
    }
}

fn read(bytes: &[u8]) -> Result<Capture, CaptureError> {
    read_capture(Folder::new().file(bytes))
}

/// A pcap header and records of (seconds, fraction, captured bytes, length on the wire).
fn pcap(big: bool, magic: u32, link: u32, records: &[(u32, u32, &[u8], u32)]) -> Vec<u8> {
    let word = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let half = |value: u16| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let mut file = [&word(magic)[..], &half(2), &half(4), &[0; 8], &word(96), &word(link)].concat();
    for (seconds, fraction, bytes, original) in records {
        for value in [*seconds, *fraction, bytes.len() as u32, *original] {
            file.extend(word(value));
        }
        file.extend(*bytes);
    }
    file
}

/// A little-endian pcapng block.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let padding_bytes = (4 - body.len() % 4) % 4;
    let len = ((12 + body.len() + padding_bytes) as u32).to_le_bytes();
    [&kind.to_le_bytes()[..], &len, body, &[0; 3][..padding_bytes], &len].concat()
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn section() -> Vec<u8> {
    block(0x0a0d_0d0a, &words(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX]))
}

fn interface(link: u32, snaplen: u32, options: &[u8]) -> Vec<u8> {
    block(1, &[&words(&[link, snaplen])[..], options].concat())
}

fn enhanced(interface: u32, units: u64, bytes: &[u8], original: u32) -> Vec<u8> {
    let header =
        words(&[interface, (units >> 32) as u32, units as u32, bytes.len() as u32, original]);
    block(6, &[&header[..], bytes].concat())
}

#[test]
fn what_is_written_is_read_again() {
    let folder = Folder::new();
    let path = folder.0.path().join("out.pcap");
    let frames = [
        Frame::new([]),
        Frame::new([1, 2, 3]).captured_at(1_700_000_000_123_456_789),
        Frame::new(vec![9; 9000]),
    ];
    write_capture(&path, &frames).unwrap();
    let capture = read_capture(&path).unwrap();
    let times: Vec<_> = capture.frames.iter().map(|frame| frame.timestamp_ns.unwrap()).collect();
    assert_eq!(times, [0, 1_700_000_000_123_456_789, 1_700_000_000_123_456_789]);
    let bytes = |frames: &[Frame]| frames.iter().map(|f| f.bytes.clone()).collect::<Vec<_>>();
    assert_eq!(bytes(&capture.frames), bytes(&frames));
    assert_eq!((capture.snapped_count, capture.cut), (0, false));
}

#[test]
fn all_four_kinds_of_pcap_are_read() {
    for (big, magic, ns) in [
        (false, 0xa1b2_c3d4, 7_000_005_000),
        (true, 0xa1b2_c3d4, 7_000_005_000),
        (false, 0xa1b2_3c4d, 7_000_000_005),
        (true, 0xa1b2_3c4d, 7_000_000_005),
    ] {
        let capture = read(&pcap(big, magic, 1, &[(7, 5, &[1, 2], 2)])).unwrap();
        assert_eq!(capture.frames, [Frame::new([1, 2]).captured_at(ns)]);
    }
}

#[test]
fn a_snapped_record_is_counted() {
    let capture =
        read(&pcap(false, 0xa1b2_c3d4, 1, &[(0, 0, &[1], 1), (0, 0, &[7; 96], 1500)])).unwrap();
    assert_eq!((capture.frames.len(), capture.snapped_count, capture.cut), (2, 1, false));
}

#[test]
fn a_file_cut_in_its_last_record_is_read_up_to_there() {
    let whole = pcap(false, 0xa1b2_c3d4, 1, &[(0, 0, &[1], 1), (0, 0, &[2; 20], 20)]);
    for len in whole.len() - 35..whole.len() {
        let capture = read(&whole[..len]).unwrap();
        assert_eq!((capture.frames.len(), capture.cut), (1, true), "{len} bytes");
    }
    assert!(!read(&whole[..whole.len() - 36]).unwrap().cut);
    let whole = [section(), interface(1, 0, &[]), enhanced(0, 1, &[1], 1), enhanced(0, 2, &[2], 1)]
        .concat();
    let capture = read(&whole[..whole.len() - 1]).unwrap();
    assert_eq!((capture.frames.len(), capture.cut), (1, true));
}

#[test]
fn an_empty_capture_holds_nothing() {
    let empty = Capture::default();
    assert_eq!(read(&pcap(false, 0xa1b2_c3d4, 1, &[])).unwrap(), empty);
    assert_eq!(read(&section()).unwrap(), empty);
}

#[test]
fn pcapng_times_are_in_units_of_their_interface() {
    let resolution = |value: u8| [&[9, 0, 1, 0, value, 0, 0, 0][..], &[0; 4]].concat();
    let offset = [&[14, 0, 8, 0][..], &100_u64.to_le_bytes(), &[0; 4]].concat();
    let file = [
        section(),
        interface(1, 0, &[]),
        interface(1, 0, &resolution(9)),
        interface(1, 0, &resolution(0x80 | 10)),
        interface(1, 0, &offset),
        enhanced(0, 5_000_000_000, &[1], 1),
        enhanced(1, 5_000_000_001, &[2], 9),
        enhanced(2, 1536, &[3], 1),
        enhanced(3, 1, &[4], 1),
    ]
    .concat();
    let capture = read(&file).unwrap();
    let times: Vec<_> = capture.frames.iter().map(|frame| frame.timestamp_ns.unwrap()).collect();
    assert_eq!(times, [5_000_000_000_000, 5_000_000_001, 1_500_000_000, 100_000_001_000]);
    assert_eq!(capture.snapped_count, 1);
}

#[test]
fn pcapng_packets_of_the_older_kinds_are_read() {
    let simple = block(3, &[&words(&[5])[..], &[1, 2, 3, 4, 5]].concat());
    let snapped = block(3, &[&words(&[50])[..], &[7; 8]].concat());
    let obsolete = block(2, &[&words(&[0, 1, 2, 3, 3])[..], &[8, 8, 8]].concat());
    let file = [section(), interface(1, 8, &[]), simple, snapped, obsolete].concat();
    let capture = read(&file).unwrap();
    let expected = [
        Frame::new([1, 2, 3, 4, 5]),
        Frame::new([7; 8]),
        Frame::new([8; 3]).captured_at(((1 << 32) + 2) * 1000),
    ];
    assert_eq!((&capture.frames[..], capture.snapped_count), (&expected[..], 1));
}

#[test]
fn what_is_not_a_capture_is_refused() {
    let header = pcap(false, 0xa1b2_c3d4, 1, &[]);
    let (good, bad) = (enhanced(0, 1, &[1], 1), enhanced(3, 1, &[1], 1));
    let broken = [section(), interface(1, 0, &[]), good, bad].concat();
    for (bytes, expected) in
        [(&b""[..], 0), (b"hello, this is a text file", 0), (&header[..10], 0), (&broken, 1)]
    {
        match read(bytes) {
            Err(CaptureError::Format { record_count, .. }) => assert_eq!(record_count, expected),
            other => panic!("{bytes:?}: {other:?}"),
        }
    }
}

#[test]
fn another_link_type_is_refused_by_name() {
    for bytes in [pcap(false, 0xa1b2_c3d4, 113, &[]), [section(), interface(113, 0, &[])].concat()]
    {
        let message = read(&bytes).unwrap_err().to_string();
        assert!(message.contains("link type 113 (LINUX_SLL)"), "{message}");
    }
}

#[test]
fn a_file_that_cannot_be_opened_is_named() {
    let path = PathBuf::from("/nonexistent/a.pcap");
    for error in [read_capture(&path).unwrap_err(), write_capture(&path, &[]).unwrap_err()] {
        assert!(matches!(error, CaptureError::Io { .. }), "{error:?}");
        assert_eq!(error.to_string(), "/nonexistent/a.pcap");
    }
}

proptest! {
    /// Whatever a file holds, it is read or refused.
    #[test]
    fn damaged_captures_are_read_or_refused(
        is_pcapng: bool,
        damages in prop::collection::vec((0_usize..400, any::<u8>()), 1..8),
        len in 0_usize..400,
    ) {
        let mut bytes = if is_pcapng {
            let resolution = [9, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0, 0];
            let packets = [enhanced(0, 7, &[1; 60], 60), enhanced(0, 8, &[2; 61], 90)].concat();
            [section(), interface(1, 96, &resolution), packets].concat()
        } else {
            pcap(false, 0xa1b2_c3d4, 1, &[(1, 2, &[1; 60], 60), (3, 4, &[2; 96], 1500)])
        };
        for (place, byte) in damages {
            let place = place % bytes.len();
            bytes[place] = byte;
        }
        bytes.truncate(len);
        if let Ok(capture) = read(&bytes) {
            prop_assert!(capture.snapped_count <= capture.frames.len());
            let frame_bytes: usize = capture.frames.iter().map(|frame| frame.bytes.len()).sum();
            prop_assert!(frame_bytes <= bytes.len());
        }
    }
}
