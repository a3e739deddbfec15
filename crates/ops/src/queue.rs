//! A bounded queue of lines, and the loop that writes them: a thread that pushes a line never waits
//! for the file. The thread that ends the program writes the rest itself.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most bytes of lines that wait. A single line is taken whatever its length.
pub(crate) const QUEUE_BYTES_MAX: usize = 1 << 20;

/// The most bytes written at once: a pipe that takes any bytes takes this many without a wait
/// (PIPE_BUF, pipe(7)).
const WRITE_BYTES_MAX: usize = 4096;

/// The time before a non-blocking file that is full is tried again.
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
    /// The length of all lines.
    bytes: usize,
    /// A line has been taken out and is being written.
    is_writing: bool,
    /// Another thread than the writing one writes the rest.
    is_finishing: bool,
    /// Number of bytes that files have taken.
    taken_bytes: u64,
    is_woken: bool,
    /// The error of the last line that could not be written.
    failure: Option<io::Error>,
}

/// The state of the writing thread when there is nothing left to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Idle {
    /// The last line was written.
    pub(crate) is_writable: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line, with its line feed. If there is no room, it is counted as lost.
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

    /// Number of lines that found no room, or could not be written.
    pub(crate) fn lost_count(&self) -> u64 {
        self.lost_count.load(Ordering::Relaxed)
    }

    /// Wakes the writing thread.
    pub(crate) fn wake(&self) {
        self.lock().is_woken = true;
        self.changed.notify_all();
    }

    /// Writes the rest to `file` on the calling thread, after the line that the writing thread has
    /// begun. Gives up if neither takes anything for `wait`. Returns whether nothing is left.
    pub(crate) fn finish(&self, file: BorrowedFd<'_>, wait: Duration) -> bool {
        self.lock().is_finishing = true;
        let is_finished = self.finish_in(&mut InTime { file, wait, end: None }, wait);
        self.lock().is_finishing = false;
        is_finished
    }

    fn finish_in(&self, output: &mut dyn Write, wait: Duration) -> bool {
        loop {
            let mut state = self.lock();
            while state.is_writing {
                let before = state.taken_bytes;
                let waits = |state: &mut State| state.is_writing && state.taken_bytes == before;
                let waited = self.changed.wait_timeout_while(state, wait, waits);
                let (now, result) = waited.unwrap_or_else(PoisonError::into_inner);
                if result.timed_out() {
                    return false;
                }
                state = now;
            }
            match self.write_one(state, output) {
                None => return true,
                Some(Err(io::ErrorKind::TimedOut)) => return false,
                Some(_) => {}
            }
        }
    }

    /// The error of the last line that could not be written.
    pub(crate) fn failure(&self) -> Option<io::ErrorKind> {
        self.lock().failure.as_ref().map(io::Error::kind)
    }

    /// As [`failure`](Self::failure), in the system's words. Forgets the error.
    pub(crate) fn take_failure(&self) -> Option<io::Error> {
        self.lock().failure.take()
    }

    /// Writes lines for ever. Calls `idle` when there is nothing to write; it may push lines, and
    /// returns the time of its next call.
    pub(crate) fn write_to(
        &self,
        output: &mut dyn Write,
        idle: &mut dyn FnMut(Idle) -> Option<Instant>,
    ) -> ! {
        let mut is_writable = true;
        loop {
            while let Some(result) = self.write_next(output) {
                is_writable = result.is_ok();
            }
            let due = idle(Idle { is_writable });
            self.wait(due);
        }
    }

    /// Writes a line, unless another thread writes the rest.
    fn write_next(&self, output: &mut dyn Write) -> Option<Result<(), io::ErrorKind>> {
        let state = self.lock();
        if state.is_finishing { None } else { self.write_one(state, output) }
    }

    /// Writes the first line, and returns the result. `None` if there is no line.
    fn write_one(
        &self,
        mut state: MutexGuard<'_, State>,
        output: &mut dyn Write,
    ) -> Option<Result<(), io::ErrorKind>> {
        let line = state.lines.pop_front()?;
        state.bytes -= line.len();
        state.is_writing = true;
        drop(state);
        let result = self.write_whole(output, &line);
        let kind = result.as_ref().err().map(io::Error::kind);
        let mut state = self.lock();
        state.is_writing = false;
        if let Err(error) = result {
            state.failure = Some(error);
            self.lose(1);
        }
        drop(state);
        self.changed.notify_all();
        Some(kind.map_or(Ok(()), Err))
    }

    fn write_whole(&self, output: &mut dyn Write, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match output.write(&bytes[..bytes.len().min(WRITE_BYTES_MAX)]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    bytes = &bytes[count..];
                    self.lock().taken_bytes += count as u64;
                    self.changed.notify_all();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Another process with the same terminal or pipe may have made it non-blocking.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(RETRY)
                }
                Err(error) => return Err(error),
            }
        }
        output.flush()
    }

    fn wait(&self, due: Option<Instant>) {
        let rests =
            |state: &mut State| (state.lines.is_empty() || state.is_finishing) && !state.is_woken;
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

/// A file that is given up if it takes nothing for a time.
struct InTime<'a> {
    file: BorrowedFd<'a>,
    wait: Duration,
    /// The time at which it is given up, while a write waits.
    end: Option<Instant>,
}

impl Write for InTime<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let end = *self.end.get_or_insert_with(|| Instant::now() + self.wait);
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok();
        // An error of the file is an event too: the write returns it.
        if left.is_zero()
            || poll(&mut [PollFd::new(&self.file, PollFlags::OUT)], timeout.as_ref())? == 0
        {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let count = rustix::io::write(self.file, bytes)?;
        self.end = None;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::os::fd::AsFd as _;
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    /// The longest wait, for a machine however busy.
    const PATIENCE: Duration = Duration::from_secs(60);

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
        assert_eq!(queue.lost_count(), 0);
    }

    #[test]
    fn a_file_that_blocks_delays_nobody_and_what_finds_no_room_is_counted() {
        let (queue, written) = slow();
        let count = 3 * QUEUE_BYTES_MAX / 1024;
        for _ in 0..count {
            queue.push(vec![b'x'; 1024]);
        }
        let lost = queue.lost_count();
        // One more than there is room for, if the thread has taken one out.
        let room = (QUEUE_BYTES_MAX / 1024) as u64;
        assert!((room..=room + 1).contains(&(count as u64 - lost)), "{lost} of {count}");
        assert_eq!(written.iter().take(count - lost as usize).count() as u64 + lost, count as u64);
    }

    #[test]
    fn a_line_longer_than_the_queue_is_taken_where_it_is_alone() {
        let queue = Queue::default();
        queue.push(vec![b'x'; 2 * QUEUE_BYTES_MAX]);
        queue.push(b"y".to_vec());
        assert_eq!(queue.lost_count(), 1);
        let mut output = Vec::new();
        assert!(queue.finish_in(&mut output, PATIENCE));
        assert_eq!(output.len(), 2 * QUEUE_BYTES_MAX);
    }

    #[test]
    fn what_cannot_be_written_is_counted_and_the_reason_is_kept() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let queue = Queue::default();
        queue.push(b"a\n".to_vec());
        assert!(queue.finish(writer.as_fd(), PATIENCE));
        assert_eq!(queue.lost_count(), 1);
        assert_eq!(queue.take_failure().unwrap().kind(), io::ErrorKind::BrokenPipe);
        assert!(queue.take_failure().is_none());
    }

    #[test]
    fn what_is_left_is_written_without_the_writing_thread_but_after_the_line_that_it_has_begun() {
        let (queue, written) = slow();
        queue.push(b"a\n".to_vec());
        while !queue.lock().is_writing {
            std::thread::yield_now();
        }
        for line in ["b\n", "c\n"] {
            queue.push(line.into());
        }
        let (mut reader, writer) = io::pipe().unwrap();
        // The writing thread has its line until the test takes it.
        assert!(!queue.finish(writer.as_fd(), Duration::from_millis(1)));
        let finishing = Arc::clone(&queue);
        let finishing = std::thread::spawn(move || finishing.finish(writer.as_fd(), PATIENCE));
        while !queue.lock().is_finishing {
            std::thread::yield_now();
        }
        assert_eq!(written.recv().unwrap(), b"a\n");
        assert!(finishing.join().unwrap());
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert_eq!(
            (rest.as_str(), written.try_recv().ok(), queue.lost_count()),
            ("b\nc\n", None, 0)
        );
        // It continues with later lines.
        queue.push(b"d\n".to_vec());
        assert_eq!(written.recv().unwrap(), b"d\n");
    }

    #[test]
    fn a_file_is_given_up_that_takes_nothing_and_not_one_that_takes_little() {
        let (mut reader, writer) = io::pipe().unwrap();
        let queue = Queue::default();
        let line = vec![b'x'; 3 * WRITE_BYTES_MAX + 1];
        let line_count = 50;
        (0..line_count).for_each(|_| queue.push(line.clone()));
        // More than a pipe holds.
        assert!(!queue.finish(writer.as_fd(), Duration::from_millis(10)));
        let lost = queue.lost_count();
        let reading = std::thread::spawn(move || {
            let (mut read, mut part) = (0, [0; WRITE_BYTES_MAX]);
            loop {
                match reader.read(&mut part).unwrap() {
                    0 => return read,
                    count => read += count,
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        assert!(queue.finish(writer.as_fd(), PATIENCE));
        drop(writer);
        let read = reading.join().unwrap();
        // A part of the line that was given up was taken.
        let whole = (line_count - lost as usize) * line.len();
        assert!(lost == 1 && (whole..whole + line.len()).contains(&read), "{lost}, {read}");
    }

    /// Takes half of each write, and refuses each second one with `WouldBlock`.
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
        assert!(queue.finish_in(&mut output, PATIENCE));
        assert_eq!(output.0, b"in many parts\n");
        assert_eq!(queue.lost_count(), 0);
    }
}
