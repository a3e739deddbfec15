//! Sockets that keep a deadline, and what to tell an operator of what went wrong with them.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// When a probe must be over.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    start: Instant,
    timeout_ms: u32,
}

impl Deadline {
    /// `timeout_ms` milliseconds from now.
    pub fn start(timeout_ms: u32) -> Self {
        Self { start: Instant::now(), timeout_ms }
    }

    /// How long it is since the start.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// How long is left: more than nothing, since the kernel takes nothing for "for ever".
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`] when nothing is left.
    pub fn left(&self) -> io::Result<Duration> {
        Duration::from_millis(self.timeout_ms.into())
            .checked_sub(self.start.elapsed())
            .filter(|left| !left.is_zero())
            .ok_or_else(|| ErrorKind::TimedOut.into())
    }

    /// Waits for a datagram.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`], or what the socket says.
    pub fn receive(&self, socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<usize> {
        self.keep(|left| {
            socket.set_read_timeout(Some(left))?;
            socket.recv(buffer)
        })
    }

    /// Does what blocks for as long as it is told at most, again after a signal.
    fn keep<T>(&self, mut act: impl FnMut(Duration) -> io::Result<T>) -> io::Result<T> {
        loop {
            match act(self.left()?) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // What a timeout of a socket is called on Linux.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(ErrorKind::TimedOut.into());
                }
                done => return done,
            }
        }
    }

    /// Why a probe failed that met `error` when it did what `doing` says: "while connecting".
    pub fn why(&self, error: &io::Error, doing: &str) -> String {
        match error.kind() {
            ErrorKind::TimedOut | ErrorKind::WouldBlock => {
                format!("timed out after {} ms {doing}", self.timeout_ms)
            }
            ErrorKind::ConnectionRefused => "connection refused".into(),
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                format!("connection reset {doing}")
            }
            ErrorKind::UnexpectedEof => format!("connection closed {doing}"),
            ErrorKind::HostUnreachable => "host unreachable".into(),
            ErrorKind::NetworkUnreachable => "network unreachable".into(),
            _ => format!("{error} {doing}"),
        }
    }
}

/// A TCP stream whose reads and writes all end by one deadline, however little each of them brings.
#[derive(Debug)]
pub struct Timed {
    pub stream: TcpStream,
    pub deadline: Deadline,
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.deadline.keep(|left| {
            self.stream.set_read_timeout(Some(left))?;
            self.stream.read(buffer)
        })
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.deadline.keep(|left| {
            self.stream.set_write_timeout(Some(left))?;
            self.stream.write(bytes)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
