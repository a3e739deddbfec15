//! The thread of a kernel port, which carries frames between the cores' rings and the interface.

use super::frame_ring::{Emptying, Filling};
use super::{Claims, Shared};
use crate::tap::Tap;
use hotloop_privileges::{Capabilities, keep};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read, write};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

/// The most frames of one ring, or of the interface, before the others have their turn.
const FRAMES_PER_TURN: usize = 64;

/// Sleep after a turn with frames. Cores can't wake the thread: that would take a system call.
const SLEEP_MIN: Duration = Duration::from_micros(50);

/// Sleep after some time without frames, and so the latest a packet for the kernel can be.
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// State of the thread.
pub(super) struct Carrier {
    pub(super) tap: Tap,
    pub(super) shared: Arc<Shared>,
    /// From cores to the kernel.
    pub(super) sinks: Vec<Emptying>,
    /// From the kernel to a core.
    pub(super) source: Option<Filling>,
}

impl Carrier {
    /// Runs until the port is dropped.
    pub(super) fn run(mut self) {
        keep(Capabilities::empty());
        let mut sleep = SLEEP_MIN;
        while !self.shared.is_stopping.load(Acquire) {
            self.take_claims();
            let moved = self.write_punted() + self.read_sent();
            self.leave();
            sleep = if moved > 0 { SLEEP_MIN } else { SLEEP_MAX.min(sleep * 2) };
            if moved < FRAMES_PER_TURN {
                self.wait(sleep);
            }
        }
        self.write_punted();
    }

    /// Takes over the rings of cores that have claimed an end.
    fn take_claims(&mut self) {
        if !self.shared.has_claims.swap(false, Acquire) {
            return;
        }
        let Claims { sinks, source } = std::mem::take(&mut *self.shared.claims());
        self.sinks.extend(sinks);
        self.source = source.or(self.source.take());
    }

    /// Writes punted frames. Returns their number.
    fn write_punted(&mut self) -> usize {
        let (tap, shared) = (&self.tap, &self.shared);
        let mut count = 0;
        for ring in &mut self.sinks {
            for _ in 0..FRAMES_PER_TURN {
                let Some(frame) = ring.full.pop() else { break };
                if write(tap.file(), frame.data()) != Ok(frame.len_bytes) {
                    shared.write_failed.add(1);
                }
                ring.give_back(frame);
                count += 1;
            }
        }
        count
    }

    /// Reads frames that the kernel sends, while the ring has room. The rest waits in the
    /// interface's queue, and the kernel counts those that are lost there.
    fn read_sent(&mut self) -> usize {
        let Some(ring) = &mut self.source else { return 0 };
        if self.shared.is_gone.load(Relaxed) {
            return 0;
        }
        let mut count = 0;
        while count < FRAMES_PER_TURN {
            let Some(mut frame) = ring.take() else { break };
            match read(self.tap.file(), &mut frame.bytes[..]) {
                Ok(len_bytes) => {
                    frame.len_bytes = len_bytes;
                    ring.send(frame);
                    count += 1;
                }
                Err(error) => {
                    ring.keep(frame);
                    // The kernel's error for an interface that was deleted.
                    if error == Errno::BADFD {
                        self.shared.is_gone.store(true, Relaxed);
                        tracing::error!(
                            "interface {} was deleted: no packets go to or come from the kernel any \
                             more, until the program is started again",
                            self.tap.name()
                        );
                    }
                    break;
                }
            }
        }
        count
    }

    /// Drops the rings that their cores have dropped.
    fn leave(&mut self) {
        let before = self.sinks.len();
        self.sinks.retain(|ring| !ring.full.is_finished());
        self.shared.sink_count.fetch_sub(before - self.sinks.len(), Release);
        if self.source.as_ref().is_some_and(|ring| ring.full.is_closed()) {
            self.source = None;
        }
    }

    /// Sleeps until the kernel sends something, at most for `sleep`. If no core can punt, until one
    /// claims an end.
    fn wait(&mut self, sleep: Duration) {
        let reads = !self.shared.is_gone.load(Relaxed)
            && self.source.as_mut().is_some_and(Filling::has_room);
        let tap =
            PollFd::new(self.tap.file(), if reads { PollFlags::IN } else { PollFlags::empty() });
        let mut files = [PollFd::new(&self.shared.wake, PollFlags::IN), tap];
        // An interface that is gone, or is not read, would end every wait at once.
        let files = if reads { &mut files[..] } else { &mut files[..1] };
        let is_polling = !self.sinks.is_empty() || self.source.is_some();
        let timeout =
            is_polling.then(|| Timespec { tv_sec: 0, tv_nsec: sleep.subsec_nanos().into() });
        let woken = poll(files, timeout.as_ref());
        if woken.is_ok() && !files[0].revents().is_empty() {
            let _ = read(&self.shared.wake, &mut [0; 8][..]);
        }
    }
}
