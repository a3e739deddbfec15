//! Datagrams in a capture that net_pcap receives over and over.

use hotloop::packet::build::udp;
use hotloop_capture::write_frames;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Their destination port.
pub const DATAGRAM_PORT: u16 = 4321;

/// One burst, with each frame from a flow of its own.
const FRAME_COUNT: u16 = 64;

/// The payload: frames have 74 bytes.
const PAYLOAD: [u8; 32] = [7; 32];

/// A device that receives the frames of a capture over and over.
#[must_use]
pub fn playing(capture: &Path) -> String {
    format!("net_pcap0,rx_pcap={},infinite_rx=1", capture.display())
}

/// A capture of datagrams. Dropping this removes the file.
#[derive(Debug)]
pub struct Frames {
    folder: TempDir,
}

impl Frames {
    /// Writes the file.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn new() -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let frames = Self { folder };
        let written = write_frames(&frames.path(), (0..FRAME_COUNT).map(frame));
        written.map_err(|error| error.to_string())?;
        Ok(frames)
    }

    /// The capture.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("datagrams.pcap")
    }

    /// A device that receives the capture.
    #[must_use]
    pub fn device(&self) -> String {
        playing(&self.path())
    }
}

/// A datagram of a flow.
#[must_use]
pub fn frame(flow: u16) -> Vec<u8> {
    let from = format!("192.0.2.1:{}", 10_000 + flow);
    udp().from(from).to(format!("192.0.2.2:{DATAGRAM_PORT}")).payload(PAYLOAD).build()
}
