//! Captures of a running program: what `ctl capture` asks for, and how the program sends it.
//!
//! The connection over which a capture was asked for becomes its stream. After the answer, a line as any
//! other, come pieces of a pcapng file, each after its length in four bytes, the least first; a length of 0
//! ends them, and the [`Summary`] follows as a line. The client writes the file, with its own rights, its own quota and
//! at its own pace; it ends the capture by closing its side. A client that goes away, or does not read on, costs
//! the program nothing but the capture's own records.

mod client;
mod session;

pub use client::CaptureArgs;
pub(crate) use client::run;
pub(crate) use session::Sessions;

use hotloop_engine::Record;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Says what a program knows of a captured packet, such as where it goes; nothing where it knows nothing. At most 65,535
/// bytes of it are written.
pub type Annotate = Arc<dyn Fn(&Record<'_>) -> Option<String> + Send + Sync>;

/// The longest piece that is sent, in bytes, but for one block that is longer.
const PIECE_BYTES: usize = 64 << 10;

/// The longest piece that a client takes, in bytes.
const PIECE_BYTES_MAX: u32 = 16 << 20;

/// What a client wants to capture.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct Wanted {
    /// A pcap-filter expression; every packet where it is empty.
    expression: String,
    /// Where, as `--at` has it.
    at: Vec<String>,
    worker: Option<usize>,
    snaplen: Option<usize>,
    sample: Option<u32>,
    count: Option<u64>,
    max_bytes: Option<u64>,
}

/// What a capture came to, in packets.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Summary {
    /// Those in the file.
    pub captured: u64,
    /// Those that the expression did not match.
    pub filtered: u64,
    /// Those that matched and were left out, because of `--sample`.
    pub left_out: u64,
    /// Those that matched and are missing, because they came faster than the file was written.
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
