//! One connection of a client that wants metrics.

use super::family::Format;
use super::http::{self, HEAD_BYTES_MAX, Head};
use rustix::event::PollFlags;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a connection may last, whatever the client does.
pub const CLIENT_WAIT: Duration = Duration::from_secs(10);

/// A connection. It holds at most the head of one request; answers are shared.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    pub phase: Phase,
    /// When it is let go.
    pub end: Instant,
}

/// How far a client has come.
#[derive(Debug)]
pub enum Phase {
    /// Its request is still coming.
    Reading(Vec<u8>),
    /// It waits for metrics, which nobody has been asked for yet.
    Waiting(Format),
    /// They have been asked for.
    Asked(Format),
    /// Its answer is being sent, of which so many bytes are.
    Sending(Arc<[u8]>, usize),
}

impl Client {
    pub fn new(stream: TcpStream, now: Instant) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, phase: Phase::Reading(Vec::new()), end: now + CLIENT_WAIT })
    }

    pub const fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// What it waits for from its side.
    pub const fn events(&self) -> PollFlags {
        match self.phase {
            Phase::Reading(_) => PollFlags::IN,
            Phase::Waiting(_) | Phase::Asked(_) => PollFlags::empty(),
            Phase::Sending(..) => PollFlags::OUT,
        }
    }

    /// Goes on as far as goes without waiting. An error says that nothing more is to be done for it.
    pub fn go_on(&mut self) -> io::Result<()> {
        if let Phase::Reading(head) = &mut self.phase {
            let is_ended = read(&mut self.stream, head)?;
            self.phase = match Head::read(head) {
                Head::Partial if is_ended => return Err(io::ErrorKind::UnexpectedEof.into()),
                Head::Partial => return Ok(()),
                Head::Scrape(format) => Phase::Waiting(format),
                Head::Refused(status, what) => {
                    Phase::Sending(http::refused(status, what).into(), 0)
                }
            };
        }
        match &mut self.phase {
            Phase::Sending(answer, sent_bytes) => send(&mut self.stream, answer, sent_bytes),
            _ => Ok(()),
        }
    }
}

/// Reads what has come, to the longest head. Says whether nothing more will come.
fn read(stream: &mut TcpStream, head: &mut Vec<u8>) -> io::Result<bool> {
    let mut bytes = [0; 1 << 10];
    while head.len() < HEAD_BYTES_MAX {
        match stream.read(&mut bytes) {
            Ok(0) => return Ok(true),
            Ok(count) => head.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// Sends on. The end of the answer is an error too: nothing more is to be done.
fn send(stream: &mut TcpStream, answer: &[u8], sent_bytes: &mut usize) -> io::Result<()> {
    while *sent_bytes < answer.len() {
        match stream.write(&answer[*sent_bytes..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => *sent_bytes += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}
