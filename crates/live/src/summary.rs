//! The result of a capture.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The result of a capture, in packets.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Summary {
    /// Packets in the file.
    pub captured: u64,
    /// Packets that the expression did not match.
    pub filtered: u64,
    /// Matching packets left out because of `--sample`.
    pub left_out: u64,
    /// Matching packets lost because they came faster than the file was written.
    pub lost: u64,
    /// The size of the file, in bytes.
    pub bytes: u64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { captured, filtered, left_out, lost, bytes } = self;
        write!(
            f,
            "{captured} packets captured in {bytes} bytes, {lost} lost, {filtered} filtered"
        )?;
        match left_out {
            0 => Ok(()),
            left_out => write!(f, ", {left_out} left out"),
        }
    }
}
