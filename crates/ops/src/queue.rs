//! A bounded queue of lines, and the loop that writes them: a thread that has a line never waits for
//! the file that it goes to.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many bytes of lines wait at most. One line is taken whatever its length.
pub(crate) const QUEUE_BYTES_MAX: usize = 1 << 20;

/// How soon a file that can't take anything now is tried again, where it says so instead of blocking.
const RETRY: Duration = Duration::from_millis(10);

/// Lines on their way to a file.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    lost_count: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<Vec<u8>>,
    /// The length of them all.
    bytes: usize,
    /// A line has been taken out and is being written.
    is_writing: bool,
    is_woken: bool,
    /// Why the last line that could not be written was not.
    failure: Option<io::Error>,
}

/// What the writing thread knows when there is nothing left to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Idle {
    /// The last line was written.
    pub(crate) is_writable: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line, with its line feed. Where there is no room, it is counted as lost.
    pub(crate) fn push(&self, line: Vec<u8>) {
        let mut state = self.lock();
        if !state.lines.is_empty() && state.bytes + line.len() > QUEUE_BYTES_MAX {
            drop(state);
            self.lose(1);
            return;
        }
        state.bytes += line.len();
        state.lines.push_back(line);
        drop(state);
        self.changed.notify_all();
    }

    /// Counts lines as lost.
    pub(crate) fn lose(&self, count: u64) {
        self.lost_count.fetch_add(count, Ordering::Relaxed);
    }

    /// Lines that found no room, or could not be written.
    pub(crate) fn lost_count(&self) -> u64 {
        self.lost_count.load(Ordering::Relaxed)
    }

    /// Makes the writing thread look at what there is to do.
    pub(crate) fn wake(&self) {
        self.lock().is_woken = true;
        self.changed.notify_all();
    }

    /// Waits until everything is written, for `wait` at most. Returns whether it is.
    pub(crate) fn flush(&self, wait: Duration) -> bool {
        let is_full = |state: &mut State| !state.lines.is_empty() || state.is_writing;
        let waited = self.changed.wait_timeout_while(self.lock(), wait, is_full);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Why the last line that could not be written was not.
    pub(crate) fn failure(&self) -> Option<io::ErrorKind> {
        self.lock().failure.as_ref().map(io::Error::kind)
    }

    /// As [`failure`](Self::failure), in the system's words. It is known no longer.
    pub(crate) fn take_failure(&self) -> Option<io::Error> {
        self.lock().failure.take()
    }

    /// Writes whatever comes, for ever. `idle` is called when there is nothing to write; it may push
    /// lines, and returns when it is to be called again.
    pub(crate) fn write_to(
        &self,
        output: &mut dyn Write,
        idle: &mut dyn FnMut(Idle) -> Option<Instant>,
    ) -> ! {
        let mut is_writable = true;
        loop {
            while let Some(result) = self.write_one(output) {
                is_writable = result;
            }
            let due = idle(Idle { is_writable });
            self.wait(due);
        }
    }

    /// Writes what is there, on the calling thread.
    pub(crate) fn drain_to(&self, output: &mut dyn Write) {
        while self.write_one(output).is_some() {}
    }

    /// Writes a line, and says whether it could; nothing where there is none.
    fn write_one(&self, output: &mut dyn Write) -> Option<bool> {
        let mut state = self.lock();
        let line = state.lines.pop_front()?;
        state.bytes -= line.len();
        state.is_writing = true;
        drop(state);
        let result = write_whole(output, &line);
        let is_written = result.is_ok();
        let mut state = self.lock();
        state.is_writing = false;
        if let Err(error) = result {
            state.failure = Some(error);
            self.lose(1);
        }
        drop(state);
        self.changed.notify_all();
        Some(is_written)
    }

    fn wait(&self, due: Option<Instant>) {
        let rests = |state: &mut State| state.lines.is_empty() && !state.is_woken;
        let state = self.lock();
        let mut state = match due {
            None => self.changed.wait_while(state, rests).unwrap_or_else(PoisonError::into_inner),
            Some(due) => {
                let wait = due.saturating_duration_since(Instant::now());
                let waited = self.changed.wait_timeout_while(state, wait, rests);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        state.is_woken = false;
    }
}

fn write_whole(output: &mut dyn Write, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match output.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Another process that has the same terminal or pipe may have made it non-blocking.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(RETRY),
            Err(error) => return Err(error),
        }
    }
    output.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    /// A file that takes a line when the test takes it.
    struct Slow(SyncSender<Vec<u8>>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn slow() -> (Arc<Queue>, Receiver<Vec<u8>>) {
        let (queue, (sender, receiver)) = (Arc::new(Queue::default()), sync_channel(0));
        let writing = Arc::clone(&queue);
        std::thread::spawn(move || writing.write_to(&mut Slow(sender), &mut |_| None));
        (queue, receiver)
    }

    #[test]
    fn lines_are_written_in_order() {
        let (queue, written) = slow();
        for line in ["a\n", "b\n", "c\n"] {
            queue.push(line.into());
        }
        assert_eq!(written.iter().take(3).collect::<Vec<_>>(), [b"a\n", b"b\n", b"c\n"]);
        assert!(queue.flush(Duration::from_secs(60)));
        assert_eq!(queue.lost_count(), 0);
    }

    #[test]
    fn a_file_that_blocks_delays_nobody_and_what_finds_no_room_is_counted() {
        let (queue, written) = slow();
        let count = 3 * QUEUE_BYTES_MAX / 1024;
        for _ in 0..count {
            queue.push(vec![b'x'; 1024]);
        }
        assert!(!queue.flush(Duration::from_millis(1)));
        let lost = queue.lost_count();
        // One more than there is room for, where the thread has taken one out.
        let room = (QUEUE_BYTES_MAX / 1024) as u64;
        assert!((room..=room + 1).contains(&(count as u64 - lost)), "{lost} of {count}");
        assert_eq!(written.iter().take(count - lost as usize).count() as u64 + lost, count as u64);
        assert!(queue.flush(Duration::from_secs(60)));
    }

    #[test]
    fn a_line_longer_than_the_queue_is_taken_where_it_is_alone() {
        let queue = Queue::default();
        queue.push(vec![b'x'; 2 * QUEUE_BYTES_MAX]);
        queue.push(b"y".to_vec());
        assert_eq!(queue.lost_count(), 1);
        let mut output = Vec::new();
        queue.drain_to(&mut output);
        assert_eq!(output.len(), 2 * QUEUE_BYTES_MAX);
    }

    #[test]
    fn what_cannot_be_written_is_counted_and_the_reason_is_kept() {
        let (queue, written) = slow();
        drop(written);
        queue.push(b"a\n".to_vec());
        assert!(queue.flush(Duration::from_secs(60)));
        assert_eq!(queue.lost_count(), 1);
        assert_eq!(queue.take_failure().unwrap().kind(), io::ErrorKind::BrokenPipe);
        assert!(queue.take_failure().is_none());
    }

    /// Takes half of what it is given, and each second time says that it can't now.
    #[derive(Default)]
    struct Reluctant(Vec<u8>, bool);

    impl Write for Reluctant {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let count = bytes.len().div_ceil(2);
            self.0.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_is_written_whole_in_however_many_parts() {
        let (queue, mut output) = (Queue::default(), Reluctant::default());
        queue.push(b"in many parts\n".to_vec());
        queue.drain_to(&mut output);
        assert_eq!(output.0, b"in many parts\n");
        assert_eq!(queue.lost_count(), 0);
    }
}
