//! One client's connection to the metrics server.

use crate::family::Format;
use crate::http::{self, HEAD_BYTES_MAX, Head};
use rustix::event::PollFlags;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest a connection may last, whatever the client does.
pub const CLIENT_WAIT: Duration = Duration::from_secs(10);

/// How long a client may take to send its request, and to read its answer, while others wait for
/// its place.
pub const GRACE: Duration = Duration::from_millis(250);

/// A connection. It holds at most the head of one request; answers are shared.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    /// The client's address. Clients share places by address.
    pub address: IpAddr,
    pub phase: Phase,
    /// Start of the current phase.
    pub since: Instant,
    /// The client will send nothing more: most likely, it is gone.
    pub has_closed: bool,
    /// The time at which the connection is closed.
    pub end: Instant,
}

/// The progress of a client.
#[derive(Debug)]
pub enum Phase {
    /// Its request is still coming.
    Reading(Vec<u8>),
    /// It waits for metrics that have yet to be requested.
    Waiting(Format),
    /// The metrics have been requested.
    Asked(Format),
    /// Its answer is being sent; the number counts the bytes sent.
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

    /// The events that it waits for from the client.
    pub const fn events(&self) -> PollFlags {
        let events = match self.phase {
            Phase::Reading(_) => PollFlags::IN,
            Phase::Waiting(_) | Phase::Asked(_) => PollFlags::empty(),
            Phase::Sending(..) => PollFlags::OUT,
        };
        if self.has_closed { events } else { events.union(PollFlags::RDHUP) }
    }

    /// Whether the client must act next, rather than the program.
    pub const fn is_awaited(&self) -> bool {
        self.has_closed || matches!(self.phase, Phase::Reading(_) | Phase::Sending(..))
    }

    /// Whether its time is over.
    pub fn is_late(&self, now: Instant) -> bool {
        self.has_closed || (self.is_awaited() && now >= self.since + GRACE)
    }

    /// Starts another phase.
    pub fn enter(&mut self, phase: Phase, now: Instant) {
        (self.phase, self.since) = (phase, now);
    }

    /// Proceeds as far as possible without waiting. An error means that the connection is done.
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

/// The unit that shares places: the address, or for IPv6 the /64 network, as one host may own all
/// of it.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

/// Reads the bytes that have come, up to the longest head. Returns whether the client has closed
/// its side.
fn read(stream: &mut TcpStream, head: &mut Vec<u8>) -> io::Result<bool> {
    let room = HEAD_BYTES_MAX - head.len();
    match stream.take(room as u64).read_to_end(head) {
        Ok(count) => Ok(count < room),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// Sends more of the answer. Returns an error at its end, too: the connection is done.
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
