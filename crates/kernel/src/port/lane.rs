//! The rings between a core and the thread of a kernel port: frames that are on their way, and empty
//! ones on their way back. So nobody allocates.

use hotloop_packet::PacketBuf;
use hotloop_ring::{Consumer, Producer, ring};

/// How many frames may be on their way between a core and the thread.
pub const FRAME_COUNT: usize = 256;

/// What the Ethernet header and two VLAN tags add to a packet.
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

    /// The frame.
    pub(super) fn data(&self) -> &[u8] {
        &self.bytes[..self.len_bytes]
    }

    /// Copies a packet, all of its segments. Returns whether there is room for it.
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
    /// Frames with something in them go there.
    pub(super) full: Producer<Frame>,
    empty: Consumer<Frame>,
    /// One that was taken, and not filled after all.
    spare: Option<Frame>,
}

impl Filling {
    /// An empty frame.
    pub(super) fn take(&mut self) -> Option<Frame> {
        self.spare.take().or_else(|| self.empty.pop())
    }

    /// Keeps an empty frame for the next time.
    pub(super) fn keep(&mut self, frame: Frame) {
        self.spare = Some(frame);
    }

    /// Sends a frame to the other end: there is room for all that there are.
    pub(super) fn send(&mut self, frame: Frame) {
        let _ = self.full.push(frame);
    }

    /// How many empty frames there are.
    pub(super) fn empty_count(&self) -> usize {
        self.empty.len() + usize::from(self.spare.is_some())
    }

    /// Whether there is an empty frame.
    pub(super) fn has_room(&mut self) -> bool {
        self.spare.is_some() || !self.empty.is_empty()
    }
}

/// The end that empties them.
#[derive(Debug)]
pub(super) struct Emptying {
    pub(super) full: Consumer<Frame>,
    empty: Producer<Frame>,
}

impl Emptying {
    /// Sends an empty frame back: there is room for all that there are.
    pub(super) fn give_back(&mut self, frame: Frame) {
        let _ = self.empty.push(frame);
    }
}

/// Both ends of a pair of rings, with all frames in the one of the empty.
pub(super) fn lane(mtu_bytes: u32) -> (Filling, Emptying) {
    let (full, filled) = ring(FRAME_COUNT);
    let (mut emptied, empty) = ring(FRAME_COUNT);
    emptied.push_burst(FRAME_COUNT, || Frame::new(mtu_bytes));
    (Filling { full, empty, spare: None }, Emptying { full: filled, empty: emptied })
}
