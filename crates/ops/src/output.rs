//! Writes data to standard output, and is the only module that does.

use crate::queue::Queue;
use hotloop_privileges::{Capabilities, keep};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

/// The longest wait, at the end of a running program, for a standard output that takes nothing.
pub const OUTPUT_WAIT: Duration = Duration::from_secs(2);

/// Writes text to standard output, for a command that answers and ends: it waits for a reader as
/// long as it takes. A reader that has gone away is no error: it has seen enough.
///
/// # Errors
/// The system's, such as a full disk.
pub fn print(text: &str) -> io::Result<()> {
    let mut output = stdout();
    gone_is_fine(output.write_all(text.as_bytes()).and_then(|()| output.flush()))
}

/// As [`print()`], for the report of a program that has run: gives up after [`OUTPUT_WAIT`] if
/// standard output takes nothing.
///
/// # Errors
/// As [`Output::finish`].
pub fn print_in_time(text: &str) -> io::Result<()> {
    let queue = Queue::default();
    queue.push(text.as_bytes().to_vec());
    finish(&queue)
}

fn gone_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Standard output of a running program. A thread writes, so that nothing else waits for a reader.
/// Text that finds no room in a queue of 1 MiB is lost, and [`finish`](Self::finish) reports that.
///
/// ```
/// let output = hotloop_ops::Output::start()?;
/// output.print("1.000M pps\n");
/// assert!(!output.is_unread());
/// output.finish()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Output {
    queue: Arc<Queue>,
}

impl Output {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start() -> io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let writing = Arc::clone(&queue);
        std::thread::Builder::new().name("output".into()).spawn(move || {
            keep(Capabilities::empty());
            writing.write_to(&mut stdout(), &mut |_| None)
        })?;
        Ok(Self { queue })
    }

    /// Hands over text, whole lines of it. Never waits.
    pub fn print(&self, text: &str) {
        self.queue.push(text.as_bytes().to_vec());
    }

    /// Whether the reader has gone away.
    #[must_use]
    pub fn is_unread(&self) -> bool {
        self.queue.failure() == Some(io::ErrorKind::BrokenPipe)
    }

    /// Writes the rest on the calling thread. Gives up after [`OUTPUT_WAIT`] if standard output
    /// takes nothing.
    ///
    /// # Errors
    /// Text was not written: the system's reason, or a reader that does not read. A reader that has
    /// gone away is no error.
    pub fn finish(&self) -> io::Result<()> {
        finish(&self.queue)
    }
}

fn finish(queue: &Queue) -> io::Result<()> {
    let is_written = queue.finish(stdout().as_fd(), OUTPUT_WAIT);
    if is_written && let Some(failure) = queue.take_failure() {
        return gone_is_fine(Err(failure));
    }
    if is_written && queue.lost_count() == 0 {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "nobody read all of it"))
}

/// Standard output itself.
#[expect(clippy::disallowed_methods, reason = "the one place that writes there")]
pub(crate) fn stdout() -> io::Stdout {
    io::stdout()
}
