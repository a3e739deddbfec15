//! Reads captures of any format.

use crate::frame::Frame;
use crate::input::{Input, Stop};
use crate::{pcap, pcapng};
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};

const RECORD_AGAIN: &str = "record a capture with tcpdump -w";

/// Summary of a capture.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Contents {
    /// Number of whole frames.
    pub frame_count: u64,
    /// Number of frames that are shorter than on the wire, because the capture kept only their
    /// beginning.
    pub snapped_count: u64,
    /// Whether the file ends within a record, as it does after its writer was killed.
    pub cut: bool,
}

/// A capture that can't be read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CaptureError {
    /// The file.
    pub path: PathBuf,
    /// The problem, in words.
    pub problem: String,
    /// How to fix it.
    pub remedy: &'static str,
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.path.display(), self.problem, self.remedy)
    }
}

impl std::error::Error for CaptureError {}

/// A capture file of Ethernet frames, read frame by frame.
#[derive(Debug)]
pub struct Capture {
    path: PathBuf,
    format: Format,
    contents: Contents,
}

#[derive(Debug)]
enum Format {
    Pcap(pcap::Reader),
    PcapNg(pcapng::Reader),
}

impl Capture {
    /// Opens the capture at `path`.
    ///
    /// # Errors
    /// The file can't be read, is not a capture, ends within its header, or is a pcap of another
    /// link layer than Ethernet.
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        let file = File::open(path).map_err(|error| stopped(path, Stop::Unreadable(error)))?;
        Self::from_file(path, file)
    }

    /// Reads a file from its current position. Errors name it `path`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_file(path: &Path, file: File) -> Result<Self, CaptureError> {
        let read = || {
            let mut input = Input::new(file);
            Ok(match input.word()? {
                pcapng::MAGIC => Format::PcapNg(pcapng::Reader::new(input)?),
                magic => Format::Pcap(pcap::Reader::new(magic, input)?),
            })
        };
        let format = read().map_err(|stop| match stop {
            Stop::Damaged(what) => error(path, format!("not a capture: {what}")),
            stop => stopped(path, stop),
        })?;
        Ok(Self { path: path.to_owned(), format, contents: Contents::default() })
    }

    /// Returns the next frame, or `None` at the end of the file, even if it ends within a record.
    ///
    /// # Errors
    /// The record is malformed, or its link layer is not Ethernet.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, CaptureError> {
        let Self { path, format, contents } = self;
        let next = match format {
            Format::Pcap(reader) => reader.next(),
            Format::PcapNg(reader) => reader.next(),
        };
        match next {
            Ok(frame) => {
                contents.frame_count += 1;
                let is_snapped = frame.data.len() < frame.original_bytes as usize;
                contents.snapped_count += u64::from(is_snapped);
                Ok(Some(frame))
            }
            Err(Stop::End) => Ok(None),
            Err(Stop::Cut) => {
                contents.cut = true;
                Ok(None)
            }
            Err(Stop::Damaged(what)) => {
                let number = contents.frame_count + 1;
                Err(error(path, format!("record {number} is damaged: {what}")))
            }
            Err(stop) => Err(stopped(path, stop)),
        }
    }

    /// Summary of the frames read so far.
    #[must_use]
    pub const fn contents(&self) -> Contents {
        self.contents
    }
}

/// Reads all frames of a capture.
///
/// # Errors
/// As [`Capture::open`] and [`Capture::next_frame`]. The file ends within a record.
pub fn read_frames(path: &Path) -> Result<Vec<Vec<u8>>, CaptureError> {
    let mut capture = Capture::open(path)?;
    let mut frames = Vec::new();
    while let Some(frame) = capture.next_frame()? {
        frames.push(frame.data.to_vec());
    }
    match capture.contents().cut {
        true => Err(error(path, format!("ends within record {}", frames.len() + 1))),
        false => Ok(frames),
    }
}

fn error(path: &Path, problem: String) -> CaptureError {
    CaptureError { path: path.to_owned(), problem, remedy: RECORD_AGAIN }
}

fn stopped(path: &Path, stop: Stop) -> CaptureError {
    let (problem, remedy) = match stop {
        Stop::Unreadable(error) => (error.to_string(), "name a readable capture"),
        Stop::OtherLink(link) => (
            format!("frames of link type {}, not Ethernet", link_name(link)),
            "capture on an Ethernet interface, not on \"any\"",
        ),
        Stop::Damaged(what) => (what, RECORD_AGAIN),
        Stop::End | Stop::Cut => ("the capture ends within its header".into(), RECORD_AGAIN),
    };
    CaptureError { path: path.to_owned(), problem, remedy }
}

/// The name of a link type that this machine's captures may have.
fn link_name(link: u32) -> String {
    match link {
        0 => "NULL".into(),
        101 => "RAW".into(),
        105 => "IEEE802_11".into(),
        113 => "LINUX_SLL".into(),
        228 => "IPV4".into(),
        229 => "IPV6".into(),
        276 => "LINUX_SLL2".into(),
        link => link.to_string(),
    }
}
