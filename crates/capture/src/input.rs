//! Reads a capture's bytes part by part.

use crate::frame::RECORD_BYTES_MAX;
use std::fs::File;
use std::io::{self, BufReader, Read};

/// Why no further part follows.
#[derive(Debug)]
pub enum Stop {
    /// The file ends before the part.
    End,
    /// The file ends within the part.
    Cut,
    /// The part is malformed; the text describes how.
    Damaged(String),
    /// The file has frames of another link type than Ethernet.
    OtherLink(u32),
    /// The system fails to read the file.
    Unreadable(io::Error),
}

/// A file that is read once, from beginning to end.
#[derive(Debug)]
pub struct Input {
    file: BufReader<File>,
    part: Vec<u8>,
    /// Whether the file's numbers are big-endian.
    pub is_big: bool,
}

impl Input {
    pub fn new(file: File) -> Self {
        Self { file: BufReader::new(file), part: Vec::new(), is_big: false }
    }

    /// Reads the next `count` bytes.
    pub fn part(&mut self, count: u32) -> Result<&[u8], Stop> {
        if count > RECORD_BYTES_MAX {
            return Err(Stop::Damaged(format!("{count} bytes long")));
        }
        self.part.clear();
        // The buffer grows with the file's content, not with the length that the file claims.
        let read = self.file.by_ref().take(count.into()).read_to_end(&mut self.part);
        match read.map_err(Stop::Unreadable)? {
            read if read == count as usize => Ok(&self.part),
            0 => Err(Stop::End),
            _ => Err(Stop::Cut),
        }
    }

    /// The part that was read last.
    pub fn last(&self) -> &[u8] {
        &self.part
    }

    /// Reads the next number of 32 bits.
    pub fn word(&mut self) -> Result<u32, Stop> {
        let is_big = self.is_big;
        Ok(word(is_big, self.part(4)?, 0).expect("a part of four bytes"))
    }
}

/// Turns the end of the file into a cut: within a record, the file may not end.
pub fn within<T>(part: Result<T, Stop>) -> Result<T, Stop> {
    part.map_err(|stop| if matches!(stop, Stop::End) { Stop::Cut } else { stop })
}

/// The number of 32 bits at offset `at` of `bytes`, if there is one.
pub fn word(is_big: bool, bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = *bytes.get(at..)?.first_chunk()?;
    Some(if is_big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
}

/// The number of 16 bits at offset `at` of `bytes`, if there is one.
pub fn half(is_big: bool, bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = *bytes.get(at..)?.first_chunk()?;
    Some(if is_big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
}
