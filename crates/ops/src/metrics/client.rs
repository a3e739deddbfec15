//! One connection of a client that wants metrics.

use super::family::Format;
use super::http::{self, HEAD_BYTES_MAX, Head};
use rustix::event::PollFlags;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a connection may last, whatever the client does.
pub const CLIENT_WAIT: Duration = Duration::from_secs(10);

/// How long a client may take for its request, and for its answer, where others wait for its place.
pub const GRACE: Duration = Duration::from_millis(250);

/// A connection. It holds at most the head of one request; answers are shared.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    /// From where it is: places are shared by that.
    pub address: IpAddr,
    pub phase: Phase,
    /// Since when it is in its phase.
    pub since: Instant,
    /// It will send nothing more: most likely, it is gone.
    pub has_closed: bool,
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
    pub fn new(stream: TcpStream, address: IpAddr, now: Instant) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let (phase, end) = (Phase::Reading(Vec::new()), now + CLIENT_WAIT);
        Ok(Self { stream, address: network(address), phase, since: now, has_closed: false, end })
    }

    pub const fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// What it waits for from its side.
    pub const fn events(&self) -> PollFlags {
        let events = match self.phase {
            Phase::Reading(_) => PollFlags::IN,
            Phase::Waiting(_) | Phase::Asked(_) => PollFlags::empty(),
            Phase::Sending(..) => PollFlags::OUT,
        };
        if self.has_closed { events } else { events.union(PollFlags::RDHUP) }
    }

    /// Whether it is the client that has to do something, and not the program.
    pub const fn is_awaited(&self) -> bool {
        self.has_closed || matches!(self.phase, Phase::Reading(_) | Phase::Sending(..))
    }

    /// Whether it has had its time.
    pub fn is_late(&self, now: Instant) -> bool {
        self.has_closed || (self.is_awaited() && now >= self.since + GRACE)
    }

    /// Begins another phase.
    pub fn enter(&mut self, phase: Phase, now: Instant) {
        (self.phase, self.since) = (phase, now);
    }

    /// Goes on as far as goes without waiting. An error says that nothing more is to be done for it.
    pub fn go_on(&mut self, now: Instant) -> io::Result<()> {
        if let Phase::Reading(head) = &mut self.phase {
            let is_ended = read(&mut self.stream, head)?;
            let phase = match Head::read(head) {
                Head::Partial if is_ended => return Err(io::ErrorKind::UnexpectedEof.into()),
                Head::Partial => return Ok(()),
                Head::Scrape(format) => Phase::Waiting(format),
                Head::Refused(status, what) => {
                    Phase::Sending(http::refused(status, what).into(), 0)
                }
            };
            self.enter(phase, now);
        }
        match &mut self.phase {
            Phase::Sending(answer, sent_bytes) => send(&mut self.stream, answer, sent_bytes),
            _ => Ok(()),
        }
    }
}

/// What counts as one address: of IPv6, the network of 64 bits, of which one host may have all.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        v4 => v4,
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
