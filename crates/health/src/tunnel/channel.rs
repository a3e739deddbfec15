//! The channel to the workers, which send probes and return their replies.

use hotloop::engine::Asker;
use hotloop_balancer::balance::{BUFFER_BYTES, BUFFERS_MAX, Buffer};

/// Number of each worker's buffers for replies. The rest of its share is for sending.
const ROOM_COUNT: usize = BUFFERS_MAX / 2;

/// Passes frames to workers and back: never more than fit, and nothing waits.
#[derive(Debug)]
pub struct ProbeChannel {
    asker: Asker<Buffer, Buffer>,
    /// For each worker, the number of its buffers for replies, including replies that were not
    /// taken yet. Empty until the workers have started.
    room_counts: Vec<usize>,
    free: Vec<Buffer>,
}

impl ProbeChannel {
    /// Makes a channel to the workers with mailboxes from `asker`.
    #[must_use]
    pub const fn new(asker: Asker<Buffer, Buffer>) -> Self {
        Self { asker, room_counts: Vec::new(), free: Vec::new() }
    }

    /// Makes one of the workers send a frame, the same worker for the same `flow`. A frame that
    /// does not fit is lost, like a packet on a wire.
    pub fn send(&mut self, flow: u16, frame: &[u8]) {
        let Some(worker) = usize::from(flow).checked_rem(self.asker.cores().len()) else { return };
        let mut buffer = self.buffer();
        if frame.len() <= buffer.capacity() {
            buffer.extend_from_slice(frame);
        }
        if !buffer.is_empty() {
            self.give(worker, buffer);
        }
    }

    /// Takes the received frames, and provides the workers with room for more.
    pub fn receive(&mut self, mut each: impl FnMut(&[u8])) {
        self.room_counts.resize(self.asker.cores().len(), 0);
        for worker in 0..self.room_counts.len() {
            while let Some(mut buffer) = self.asker.answer(worker) {
                if !buffer.is_empty() {
                    self.room_counts[worker] -= 1;
                    each(&buffer);
                    buffer.clear();
                }
                self.free.push(buffer);
            }
            while self.room_counts[worker] < ROOM_COUNT {
                let buffer = self.buffer();
                if !self.give(worker, buffer) {
                    break;
                }
                self.room_counts[worker] += 1;
            }
        }
    }

    fn buffer(&mut self) -> Buffer {
        self.free.pop().unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES))
    }

    fn give(&mut self, worker: usize, buffer: Buffer) -> bool {
        let given = self.asker.ask(worker, buffer);
        given
            .map_err(|mut buffer| {
                buffer.clear();
                self.free.push(buffer);
            })
            .is_ok()
    }
}
