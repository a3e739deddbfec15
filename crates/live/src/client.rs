//! The program's view of a client: an answer and pieces are sent to it, at its own pace.

use crate::piece;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Returns an answer as a line, with its line feed, in the format of the program's socket.
pub type AnswerLine = fn(Result<Value, String>) -> Vec<u8>;

/// How often a waiting write checks whether the program ends.
const WRITE_WAIT: Duration = Duration::from_millis(100);

/// How long a client may take nothing while the program ends.
const STALL_WAIT: Duration = Duration::from_millis(300);

/// How long the end of a capture may take: cores give it back within microseconds, and clients take
/// the rest as they can.
pub const END_WAIT: Duration = Duration::from_secs(2);

/// A client, and how long to wait for it.
pub struct Client<'a> {
    stream: UnixStream,
    answer_line: AnswerLine,
    is_ending: &'a AtomicBool,
    /// The time to give up on it, once the program ends.
    gives_up: Option<Instant>,
}

impl<'a> Client<'a> {
    pub fn new(
        stream: UnixStream,
        answer_line: AnswerLine,
        is_ending: &'a AtomicBool,
    ) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(WRITE_WAIT))?;
        Ok(Self { stream, answer_line, is_ending, gives_up: None })
    }

    /// Whether the program ends.
    pub fn is_ending(&self) -> bool {
        self.is_ending.load(Relaxed)
    }

    /// Sends an answer.
    pub fn answer(&mut self, answer: Result<Value, String>) -> io::Result<()> {
        self.send(&(self.answer_line)(answer))
    }

    /// Sends the end of the file.
    pub fn end_file(&mut self) -> io::Result<()> {
        self.send(&piece::length(&[]))
    }

    /// Sends bytes, however long that takes while the program runs.
    fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let mut stalls_since = Instant::now();
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => (bytes, stalls_since) = (&bytes[count..], Instant::now()),
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                        if self.is_waited_for(stalls_since) => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }

    /// Whether to keep waiting for a client that has taken nothing since `stalls_since`.
    fn is_waited_for(&mut self, stalls_since: Instant) -> bool {
        if !self.is_ending() {
            return true;
        }
        let now = Instant::now();
        now < stalls_since + STALL_WAIT && now < *self.gives_up.get_or_insert(now + END_WAIT)
    }

    /// Sends a piece of the file.
    pub fn send_piece(&mut self, piece: &[u8]) -> io::Result<()> {
        if piece.is_empty() {
            return Ok(());
        }
        self.send(&piece::length(piece))?;
        self.send(piece)
    }

    /// Waits at most `wait`, and returns whether the client has closed its side, or is gone.
    pub fn has_ended(&mut self, wait: Duration) -> bool {
        let mut events = [PollFd::new(&self.stream, PollFlags::IN)];
        let wait = Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
        match poll(&mut events, Some(&wait)) {
            Ok(1..) => !matches!(self.stream.read(&mut [0; 64]), Ok(1..)),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_takes_nothing_is_not_waited_for_once_the_program_ends() {
        let is_ending = AtomicBool::new(false);
        let (stream, _other) = UnixStream::pair().unwrap();
        let mut client = Client::new(stream, |_| Vec::new(), &is_ending).unwrap();
        let long_ago = Instant::now().checked_sub(STALL_WAIT).unwrap();
        assert!(client.is_waited_for(long_ago));
        is_ending.store(true, Relaxed);
        assert!(!client.is_waited_for(long_ago));
        // One that takes some now and then has until the end of all captures.
        let takes = Instant::now() + END_WAIT;
        assert!(client.is_waited_for(takes));
        client.gives_up = Some(Instant::now());
        assert!(!client.is_waited_for(takes));
        // More than a socket holds.
        assert!(client.send(&vec![7; 16 << 20]).is_err());
    }
}
