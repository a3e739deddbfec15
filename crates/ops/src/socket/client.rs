//! One client of a control socket.

use super::CLIENT_IDLE_MAX;
use crate::request::{Promise, REQUEST_BYTES_MAX, Reply, Request, answer_line};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// The most requests answered in a round.
const REQUEST_COUNT_MAX: usize = 4;

/// The most bytes read at a time.
const READ_BYTES: usize = 4 << 10;

/// A connection. It holds at most one request and a read's bytes, and one answer.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    /// The bytes that have come and are not answered yet.
    input: Vec<u8>,
    /// The answer to the last request, while that takes time.
    awaited: Option<Promise>,
    /// The answer that is being sent.
    output: Vec<u8>,
    /// The number of its bytes sent.
    sent_bytes: usize,
    /// Nothing more will come.
    is_ended: bool,
    /// The input can't be parsed any further: the connection is closed once the client has its
    /// answer.
    is_refused: bool,
    /// When the client last finished a request, or took some of an answer.
    active: Instant,
}

impl Client {
    pub fn new(stream: UnixStream, now: Instant) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            input: Vec::new(),
            awaited: None,
            output: Vec::new(),
            sent_bytes: 0,
            is_ended: false,
            is_refused: false,
            active: now,
        })
    }

    /// Time of the last progress.
    pub const fn active(&self) -> Instant {
        self.active
    }

    /// The memory that it takes.
    #[cfg(test)]
    pub fn held_bytes(&self) -> usize {
        self.input.capacity() + self.output.capacity()
    }

    /// Serves the client as far as possible without waiting. Returns whether to keep it.
    pub fn serve(&mut self, now: Instant, answer: &mut dyn FnMut(&Request) -> Reply) -> bool {
        self.go_on(now, answer).is_ok()
            && now.saturating_duration_since(self.active) < CLIENT_IDLE_MAX
    }

    /// An error means that the connection is done.
    fn go_on(&mut self, now: Instant, answer: &mut dyn FnMut(&Request) -> Reply) -> io::Result<()> {
        for _ in 0..REQUEST_COUNT_MAX {
            if !self.is_answered(now)? || !self.is_sent(now)? {
                return Ok(());
            }
            self.read()?;
            let Some(line) = self.line() else {
                return if self.is_ended {
                    Err(io::ErrorKind::UnexpectedEof.into())
                } else {
                    Ok(())
                };
            };
            self.active = now;
            match line.and_then(|line| Request::read(&line)) {
                Ok(request) => match answer(&request) {
                    Reply::Now(answer) => self.output = answer_line(answer),
                    Reply::Later(answer) => self.awaited = Some(answer),
                    Reply::Stream(stream) => {
                        stream.take(self.stream.try_clone()?);
                        // Another function has the connection now.
                        return Err(io::ErrorKind::Other.into());
                    }
                },
                Err(error) => self.output = answer_line(Err(error)),
            }
        }
        if self.is_answered(now)? { self.is_sent(now).map(|_| ()) } else { Ok(()) }
    }

    /// Takes the promised answer, once it has come. Returns whether no answer is awaited any more.
    /// An error means that the client no longer waits.
    fn is_answered(&mut self, now: Instant) -> io::Result<bool> {
        let Some(awaited) = &self.awaited else { return Ok(true) };
        // The delay is the program's.
        self.active = now;
        let Some(line) = awaited.line() else {
            return if self.has_gone() { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(false) };
        };
        self.awaited = None;
        self.output = line;
        Ok(true)
    }

    /// Whether the client has closed its connection. One that only sends nothing more still reads.
    fn has_gone(&self) -> bool {
        // poll(2) reports a hangup without being asked.
        let mut events = [PollFd::new(&self.stream, PollFlags::empty())];
        matches!(poll(&mut events, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1..))
    }

    /// Sends more of the answer. Returns whether all of it is sent.
    fn is_sent(&mut self, now: Instant) -> io::Result<bool> {
        while self.sent_bytes < self.output.len() {
            match self.stream.write(&self.output[self.sent_bytes..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.sent_bytes += count;
                    self.active = now;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.is_refused {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // The memory of a long answer is not kept for the next.
        (self.output, self.sent_bytes) = (Vec::new(), 0);
        Ok(true)
    }

    /// Reads the bytes that have come, up to more than a request.
    fn read(&mut self) -> io::Result<()> {
        let mut bytes = [0; READ_BYTES];
        while !self.is_ended && self.input.len() <= REQUEST_BYTES_MAX {
            match self.stream.read(&mut bytes) {
                Ok(0) => self.is_ended = true,
                Ok(count) => self.input.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes the first line out of the input, without its feed. The rest at the end of all input is
    /// a line, too.
    fn line(&mut self) -> Option<Result<Vec<u8>, String>> {
        let end = self.input.iter().position(|byte| *byte == b'\n');
        if end.unwrap_or(self.input.len()) > REQUEST_BYTES_MAX {
            self.is_refused = true;
            return Some(Err(format!("a request has at most {REQUEST_BYTES_MAX} bytes")));
        }
        if let Some(end) = end {
            let mut line: Vec<_> = self.input.drain(..=end).collect();
            line.pop();
            return Some(Ok(line));
        }
        let is_whole = self.is_ended && !self.input.is_empty();
        is_whole.then(|| Ok(std::mem::take(&mut self.input)))
    }
}
