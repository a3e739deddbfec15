//! The way to the workers, which send probes and hand back what comes for them.

use hotloop::engine::Asker;
use hotloop_balancer::balance::{BUFFER_BYTES, BUFFERS_MAX, Buffer};

/// How many buffers each worker has for replies. The rest of its share is for what it is to send.
const ROOM_COUNT: usize = BUFFERS_MAX / 2;

/// Frames go to workers, and come from them: never more than fit, and nothing waits.
#[derive(Debug)]
pub struct Wire {
    asker: Asker<Buffer, Buffer>,
    /// By worker, how many buffers it has for replies, or had for those that have not been taken.
    room_counts: Box<[usize]>,
    free: Vec<Buffer>,
}

impl Wire {
    /// To so many workers.
    #[must_use]
    pub fn new(asker: Asker<Buffer, Buffer>, worker_count: usize) -> Self {
        Self { asker, room_counts: vec![0; worker_count].into(), free: Vec::new() }
    }

    /// Has one of the workers send a frame, the same one for the same `flow`. A frame that does not fit
    /// is lost, as on any wire.
    pub fn send(&mut self, flow: u16, frame: &[u8]) {
        let worker = usize::from(flow) % self.room_counts.len();
        let mut buffer = self.buffer();
        if frame.len() <= buffer.capacity() {
            buffer.extend_from_slice(frame);
        }
        if !buffer.is_empty() {
            self.give(worker, buffer);
        }
    }

    /// Takes the frames that have come, and gives the workers room for others.
    pub fn receive(&mut self, mut each: impl FnMut(&[u8])) {
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
