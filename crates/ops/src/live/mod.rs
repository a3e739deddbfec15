//! Captures a running program's packets for `ctl capture`.
//!
//! The connection of the request becomes the capture's stream. After the answer, a line as any
//! other, come pieces of a pcapng file, each preceded by its length in four bytes, little-endian. A
//! length of 0 ends them, and the [`Summary`] follows as a line. The client writes the file, with
//! its own rights, its own quota and at its own pace. It ends the capture by closing its side. If a
//! client goes away or stops reading, the program loses only the capture's own records.

mod client;
mod session;

pub use client::CaptureArgs;
pub(crate) use client::run;
pub(crate) use session::Sessions;

use hotloop_engine::Record;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Returns the program's own comment on a captured packet, such as its destination, if any. At most
/// 65,535 bytes of it are written.
pub type Annotate = Arc<dyn Fn(&Record<'_>) -> Option<String> + Send + Sync>;

/// The longest piece that is sent, in bytes, unless a single block is longer.
const PIECE_BYTES: usize = 64 << 10;

/// The longest piece that a client takes, in bytes.
const PIECE_BYTES_MAX: u32 = 16 << 20;

/// The capture that a client requests.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct Wanted {
    /// A pcap-filter expression; empty for every packet.
    expression: String,
    /// The places, as in `--at`.
    at: Vec<String>,
    worker: Option<usize>,
    snaplen: Option<usize>,
    sample: Option<u32>,
    count: Option<u64>,
    max_bytes: Option<u64>,
}

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
