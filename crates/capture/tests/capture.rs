//! Capture files, good, cut and bad.

use hotloop_capture::{
    Capture, CaptureError, CaptureWriter, Contents, RECORD_BYTES_MAX, read_frames, write_frames,
};
use proptest::prelude::*;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

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

/// Capture time and bytes of each frame.
type Frames = Vec<(u64, Vec<u8>)>;

fn read_file(path: &Path) -> Result<(Frames, Contents), CaptureError> {
    let mut frames = Vec::new();
    let mut capture = Capture::open(path)?;
    while let Some(frame) = capture.next_frame()? {
        frames.push((frame.timestamp_ns, frame.data.to_vec()));
    }
    let contents = capture.contents();
    assert_eq!(contents.frame_count, frames.len() as u64);
    Ok((frames, contents))
}

fn read(bytes: &[u8]) -> Result<(Frames, Contents), CaptureError> {
    read_file(&Folder::new().file(bytes))
}

/// The error for a file of these bytes.
fn problem(bytes: &[u8]) -> String {
    read(bytes).expect_err("it is wrong").problem
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
    let last_second_ns = u64::from(u32::MAX) * 1_000_000_000;
    let frames = [
        (0, Vec::new()),
        (1_700_000_000_123_456_789, vec![1, 2, 3]),
        (5, vec![9; 9000]),
        (last_second_ns + 7_000_000_005, vec![1]),
    ];
    let mut writer = CaptureWriter::new(File::create(&path).unwrap()).unwrap();
    for (timestamp_ns, data) in &frames {
        writer.write(*timestamp_ns, data).unwrap();
    }
    let too_long = vec![0; RECORD_BYTES_MAX as usize + 1];
    assert_eq!(writer.write(0, &too_long).unwrap_err().kind(), ErrorKind::InvalidInput);
    let (read, contents) = read_file(&path).unwrap();
    assert_eq!(read[..3], frames[..3]);
    assert_eq!(read[3], (last_second_ns + 5, vec![1]), "2106 is as far as it goes");
    assert_eq!(contents, Contents { frame_count: 4, ..Contents::default() });

    write_frames(&path, [&[1_u8][..], &[2, 3]]).unwrap();
    assert_eq!(read_frames(&path).unwrap(), [vec![1], vec![2, 3]]);
    let whole = fs::read(&path).unwrap();
    let cut = folder.file(&whole[..whole.len() - 1]);
    assert_eq!(read_frames(&cut).unwrap_err().problem, "ends within record 2");
}

#[test]
fn all_four_kinds_of_pcap_are_read() {
    for (big, magic, ns) in [
        (false, 0xa1b2_c3d4, 7_000_005_000),
        (true, 0xa1b2_c3d4, 7_000_005_000),
        (false, 0xa1b2_3c4d, 7_000_000_005),
        (true, 0xa1b2_3c4d, 7_000_000_005),
    ] {
        let (frames, _) = read(&pcap(big, magic, 1, &[(7, 5, &[1, 2], 2)])).unwrap();
        assert_eq!(frames, [(ns, vec![1, 2])]);
    }
}

#[test]
fn a_snapped_record_is_counted() {
    let file = pcap(false, 0xa1b2_c3d4, 1, &[(0, 0, &[1], 1), (0, 0, &[7; 96], 1500)]);
    let (_, contents) = read(&file).unwrap();
    assert_eq!(contents, Contents { frame_count: 2, snapped_count: 1, cut: false });
}

#[test]
fn a_file_cut_in_its_last_record_is_read_up_to_there() {
    let whole = pcap(false, 0xa1b2_c3d4, 1, &[(0, 0, &[1], 1), (0, 0, &[2; 20], 20)]);
    for len in whole.len() - 35..whole.len() {
        let (_, contents) = read(&whole[..len]).unwrap();
        assert_eq!((contents.frame_count, contents.cut), (1, true), "{len} bytes");
    }
    assert!(!read(&whole[..whole.len() - 36]).unwrap().1.cut);
    let whole = [section(), interface(1, 0, &[]), enhanced(0, 1, &[1], 1), enhanced(0, 2, &[2], 1)]
        .concat();
    for len in whole.len() - 35..whole.len() {
        let (_, contents) = read(&whole[..len]).unwrap();
        assert_eq!((contents.frame_count, contents.cut), (1, true), "{len} bytes");
    }
}

#[test]
fn an_empty_capture_holds_nothing() {
    let empty = (Vec::new(), Contents::default());
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
    let (frames, contents) = read(&file).unwrap();
    let times: Vec<_> = frames.iter().map(|(time, _)| *time).collect();
    assert_eq!(times, [5_000_000_000_000, 5_000_000_001, 1_500_000_000, 100_000_001_000]);
    assert_eq!(contents.snapped_count, 1);
}

#[test]
fn pcapng_packets_of_the_older_kinds_are_read() {
    let simple = block(3, &[&words(&[5])[..], &[1, 2, 3, 4, 5]].concat());
    let snapped = block(3, &[&words(&[50])[..], &[7; 8]].concat());
    let obsolete = block(2, &[&words(&[0, 1, 2, 3, 3])[..], &[8, 8, 8]].concat());
    let file = [section(), interface(1, 8, &[]), simple, snapped, obsolete].concat();
    let (frames, contents) = read(&file).unwrap();
    // Simple packets take the time of the packet before them.
    let time = ((1 << 32) + 2) * 1000;
    assert_eq!(frames, [(0, vec![1, 2, 3, 4, 5]), (0, vec![7; 8]), (time, vec![8; 3])]);
    assert_eq!(contents.snapped_count, 1);
}

#[test]
fn each_section_has_its_byte_order_and_its_interfaces() {
    let big = |kind: u32, body: &[u8]| {
        let len = (12 + body.len() as u32).to_be_bytes();
        [&kind.to_be_bytes()[..], &len, body, &len].concat()
    };
    let words =
        |values: &[u32]| values.iter().flat_map(|value| value.to_be_bytes()).collect::<Vec<_>>();
    let section_big = big(0x0a0d_0d0a, &words(&[0x1a2b_3c4d, 1 << 16, u32::MAX, u32::MAX]));
    let interface_big =
        big(1, &[&words(&[1 << 16, 0])[..], &[0, 9, 0, 1, 9, 0, 0, 0, 0, 0, 0, 0]].concat());
    let packet_big = big(6, &words(&[0, 1, 2, 4, 4, 0x0102_0304]));
    let first = [section(), interface(1, 0, &[]), enhanced(0, 1, &[1], 1)].concat();
    let file = [first, section_big.clone(), interface_big, packet_big.clone()].concat();
    let (frames, _) = read(&file).unwrap();
    assert_eq!(frames, [(1000, vec![1]), ((1 << 32) + 2, vec![1, 2, 3, 4])]);
    let forgotten = [section(), interface(1, 0, &[]), section_big, packet_big].concat();
    assert_eq!(problem(&forgotten), "record 1 is damaged: interface 0 is not described");
}

#[test]
fn what_is_not_a_capture_is_refused() {
    let header = pcap(false, 0xa1b2_c3d4, 1, &[]);
    let no_order = block(0x0a0d_0d0a, &words(&[0x1a2b_3c4e, 1, u32::MAX, u32::MAX]));
    for (bytes, expected) in [
        (&b""[..], "the capture ends within its header"),
        (&header[..10], "the capture ends within its header"),
        (&section()[..20], "the capture ends within its header"),
        (b"hello, this is a text file", "not a capture: neither pcap nor pcapng"),
        (&no_order, "not a capture: a section of no byte order"),
    ] {
        assert_eq!(problem(bytes), expected);
    }
}

#[test]
fn a_damaged_record_is_named() {
    let good = [section(), interface(1, 0, &[]), enhanced(0, 1, &[1], 1)].concat();
    let mut two_lengths = enhanced(0, 1, &[1], 1);
    *two_lengths.last_mut().unwrap() ^= 1;
    let mut too_long = enhanced(0, 1, &[1], 1);
    too_long[20] = 5;
    for (bad, expected) in [
        (enhanced(3, 1, &[1], 1), "interface 3 is not described"),
        (two_lengths, "a block of two lengths"),
        (too_long, "a packet that is longer than its block"),
        (block(6, &[1; 8]), "a packet that is longer than its block"),
        (block(3, &[]), "a packet that is longer than its block"),
        (block(1, &[1; 4]), "an interface that is longer than its block"),
        (words(&[6, 10]), "a block of 10 bytes"),
        (words(&[6, 0]), "a block of 0 bytes"),
        (words(&[6, u32::MAX - 3]), "4294967284 bytes long"),
    ] {
        let expected = format!("record 2 is damaged: {expected}");
        assert_eq!(problem(&[&good[..], &bad].concat()), expected);
    }
    let mut file = pcap(false, 0xa1b2_c3d4, 1, &[(0, 0, &[1], 1)]);
    file.extend(words(&[0, 0, RECORD_BYTES_MAX + 1, 1]));
    assert_eq!(problem(&file), "record 2 is damaged: 16777217 bytes long");
}

#[test]
fn another_link_type_is_refused_by_name() {
    let packet = enhanced(0, 1, &[1], 1);
    let ng = |link| [section(), interface(link, 0, &[]), packet.clone()].concat();
    for (link, name) in [(113, "LINUX_SLL"), (101, "RAW"), (9999, "9999")] {
        for file in [pcap(false, 0xa1b2_c3d4, link, &[]), ng(link)] {
            assert_eq!(problem(&file), format!("frames of link type {name}, not Ethernet"));
        }
    }
    let unused = [section(), interface(113, 0, &[]), interface(1, 0, &[]), enhanced(1, 1, &[1], 1)];
    assert_eq!(read(&unused.concat()).unwrap().0.len(), 1);
}

#[test]
fn a_file_that_cannot_be_opened_is_named() {
    let path = PathBuf::from("/nonexistent/a.pcap");
    let message = Capture::open(&path).unwrap_err().to_string();
    assert!(message.starts_with("/nonexistent/a.pcap: No such file"), "{message}");
    assert!(message.ends_with("; name a readable capture"), "{message}");
    assert_eq!(write_frames(&path, [[0]]).unwrap_err().kind(), ErrorKind::NotFound);
}

proptest! {
    /// Any file is either read or refused.
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
        if let Ok((frames, contents)) = read(&bytes) {
            prop_assert!(contents.snapped_count <= contents.frame_count);
            let frame_bytes: usize = frames.iter().map(|(_, frame)| frame.len()).sum();
            prop_assert!(frame_bytes <= bytes.len());
        }
    }
}
