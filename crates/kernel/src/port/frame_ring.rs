//! The rings between a core and the thread of a kernel port: one for full frames, one for empty
//! frames on their way back. So neither side allocates.

use hotloop_packet::PacketBuf;
use hotloop_ring::{Consumer, Producer, ring};

/// Number of frames that may be under way between a core and the thread.
pub const FRAME_COUNT: usize = 256;

/// Bytes that the Ethernet header and two VLAN tags add to a packet.
const HEADER_BYTES_MAX: usize = 14 + 2 * 4;

/// Room for a frame.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) bytes: Box<[u8]>,
    pub(super) len_bytes: usize,
}

impl Frame {
    fn new(mtu_bytes: u32) -> Self {
        let bytes = vec![0; mtu_bytes as usize + HEADER_BYTES_MAX].into_boxed_slice();
        Self { bytes, len_bytes: 0 }
    }

    /// The frame's bytes.
    pub(super) fn data(&self) -> &[u8] {
        &self.bytes[..self.len_bytes]
    }

    /// Copies a packet, all of its segments. Returns whether it fits.
    pub(super) fn copy_from(&mut self, packet: &impl PacketBuf) -> bool {
        self.len_bytes = 0;
        for segment in packet.segments() {
            let end = self.len_bytes + segment.len();
            let Some(room) = self.bytes.get_mut(self.len_bytes..end) else { return false };
            room.copy_from_slice(segment);
            self.len_bytes = end;
        }
        true
    }
}

/// The end that fills frames.
#[derive(Debug)]
pub(super) struct Filling {
    /// The ring of full frames.
    pub(super) full: Producer<Frame>,
    empty: Consumer<Frame>,
    /// A frame that was taken, but not filled.
    spare: Option<Frame>,
}

impl Filling {
    /// Takes an empty frame.
    pub(super) fn take(&mut self) -> Option<Frame> {
        self.spare.take().or_else(|| self.empty.pop())
    }

    /// Keeps an empty frame for the next `take`.
    pub(super) fn keep(&mut self, frame: Frame) {
        self.spare = Some(frame);
    }

    /// Sends a frame to the other end. The ring has room for all frames.
    pub(super) fn send(&mut self, frame: Frame) {
        let _ = self.full.push(frame);
    }

    /// Number of empty frames.
    pub(super) fn empty_count(&self) -> usize {
        self.empty.len() + usize::from(self.spare.is_some())
    }

    /// Whether there is an empty frame.
    pub(super) fn has_room(&mut self) -> bool {
        self.spare.is_some() || !self.empty.is_empty()
    }
}

/// The end that empties frames.
#[derive(Debug)]
pub(super) struct Emptying {
    pub(super) full: Consumer<Frame>,
    empty: Producer<Frame>,
}

impl Emptying {
    /// Sends an empty frame back. The ring has room for all frames.
    pub(super) fn give_back(&mut self, frame: Frame) {
        let _ = self.empty.push(frame);
    }
}

/// Makes both ends of a pair of rings. All frames begin in the ring of empty ones.
pub(super) fn frame_rings(mtu_bytes: u32) -> (Filling, Emptying) {
    let (full, filled) = ring(FRAME_COUNT);
    let (mut emptied, empty) = ring(FRAME_COUNT);
    emptied.push_burst(FRAME_COUNT, || Frame::new(mtu_bytes));
    (Filling { full, empty, spare: None }, Emptying { full: filled, empty: emptied })
}
