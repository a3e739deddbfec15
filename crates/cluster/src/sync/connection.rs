//! One connection, from its first byte: first greetings, then frames.

use super::peers::{Peers, SessionId, refused};
use super::tls::{Tls, check_name, why_io};
use super::wire::{FRAME_BYTES_MAX, Frame, GREETING_BYTES_MAX, Hello, Message, decode};
use super::{PeerId, transport::lock};
use mio::net::TcpStream;
use std::io::{self, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::sync::Mutex;

/// Maximum time for connecting, TLS and greetings together, in milliseconds.
pub const GREETING_MS_MAX: u64 = 5_000;

/// A peer sends something each second. After this many milliseconds without a byte, it counts as
/// gone.
const SILENCE_MS_MAX: u64 = 5_000;

/// Maximum time for the last message, in milliseconds.
const FAREWELL_MS_MAX: u64 = 1_000;

/// Maximum number of bytes that wait in memory for the socket, plus one frame.
const OUTPUT_BYTES_MAX: usize = 2 * FRAME_BYTES_MAX;

/// Maximum number of reads of a connection in one turn, so that the thread gets to the other
/// connections.
const READS_PER_TURN: usize = 16;

/// The stage of a connection.
#[derive(Clone, Debug)]
enum Stage {
    Connecting,
    Greeting,
    Session(SessionId),
    /// Only the reason is left to send.
    Leaving(String),
}

/// The end of a connection.
#[derive(Debug)]
pub struct Over {
    /// The peer, if the node on the other side is known to be one.
    pub peer: Option<PeerId>,
    /// The session, if there was one.
    pub session: Option<SessionId>,
    /// The reason; empty if another connection took its place.
    pub why: String,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    channel: Channel,
    /// The other end's address.
    pub ip: IpAddr,
    /// The peer that this node connected to.
    expected: Option<PeerId>,
    /// The peer that the other side claims to be.
    claimed: Option<PeerId>,
    stage: Stage,
    until_ms: u64,
    input: Vec<u8>,
    filled_bytes: usize,
    output: Vec<u8>,
}

impl Connection {
    /// Begins to use a connection; `expected` is the peer that this node connects to.
    ///
    /// # Errors
    /// If TLS can't begin.
    pub fn new(
        stream: TcpStream,
        ip: IpAddr,
        expected: Option<(PeerId, &str)>,
        tls: Option<&Tls>,
        now_ms: u64,
    ) -> Result<Self, String> {
        let begin = |tls: &Tls| match expected {
            Some((_, name)) => tls.connect(name),
            None => tls.accept(),
        };
        let tls = tls.map(begin).transpose()?.map(Box::new);
        Ok(Self {
            channel: Channel { stream, tls },
            ip,
            expected: expected.map(|(peer, _)| peer),
            claimed: None,
            stage: Stage::Connecting,
            until_ms: now_ms + GREETING_MS_MAX,
            input: vec![0; GREETING_BYTES_MAX],
            filled_bytes: 0,
            output: Vec::new(),
        })
    }

    /// The socket to wait for.
    pub const fn stream(&mut self) -> &mut TcpStream {
        &mut self.channel.stream
    }

    /// The peer that this node connected to.
    pub const fn expected(&self) -> Option<PeerId> {
        self.expected
    }

    /// Whether the other side has not identified itself yet.
    pub const fn is_unknown(&self) -> bool {
        self.expected.is_none() && !matches!(self.stage, Stage::Session(_))
    }

    /// Continues as far as the socket allows. Returns whether there is more to do at once.
    ///
    /// # Errors
    /// If the connection is over.
    pub fn advance(&mut self, peers: &Mutex<Peers>, now_ms: u64) -> Result<bool, Over> {
        let done = self.try_advance(peers, now_ms);
        done.map_err(|why| self.over(why))
    }

    /// The end of this connection, with this reason.
    pub fn over(&self, why: String) -> Over {
        let session = match self.stage {
            Stage::Session(session) => Some(session),
            _ => None,
        };
        let peer = session.map(|session| session.peer).or(self.expected).or(self.claimed);
        Over { peer, session, why }
    }

    fn try_advance(&mut self, peers: &Mutex<Peers>, now_ms: u64) -> Result<bool, String> {
        if matches!(self.stage, Stage::Connecting) {
            if !self.channel.is_connected().map_err(|error| error.to_string())? {
                return self.check_time(now_ms).map(|()| false);
            }
            // Acknowledgements are small, and must not wait for more data.
            let _ = self.channel.stream.set_nodelay(true);
            self.stage = Stage::Greeting;
            if self.expected.is_some() {
                lock(peers).hello(&mut self.output);
            }
        }
        if let Stage::Session(session) = self.stage
            && !lock(peers).is_current(session)
        {
            return Err(String::new());
        }
        let has_more = self.receive(peers, now_ms)?;
        self.send(peers, now_ms)?;
        self.check_time(now_ms)?;
        Ok(has_more)
    }

    fn check_time(&self, now_ms: u64) -> Result<(), String> {
        if now_ms < self.until_ms {
            return Ok(());
        }
        Err(match &self.stage {
            Stage::Connecting => "no answer while connecting".into(),
            Stage::Greeting => "no greeting within 5 s".into(),
            Stage::Session(_) => "silent for 5 s".into(),
            Stage::Leaving(why) => why.clone(),
        })
    }

    /// Reads the available bytes, and acts on them.
    fn receive(&mut self, peers: &Mutex<Peers>, now_ms: u64) -> Result<bool, String> {
        for _ in 0..READS_PER_TURN {
            if matches!(self.stage, Stage::Leaving(_)) {
                return Ok(false);
            }
            if !self.take_frames(peers, now_ms)? {
                return Ok(false);
            }
            match self.channel.read(&mut self.input[self.filled_bytes..]) {
                Ok(count) => {
                    self.filled_bytes += count;
                    if matches!(self.stage, Stage::Session(_)) {
                        self.until_ms = now_ms + SILENCE_MS_MAX;
                    }
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(false),
                    ErrorKind::Interrupted => {}
                    ErrorKind::UnexpectedEof => return Err("closed by the other side".into()),
                    _ => return Err(why_io(&error)),
                },
            }
        }
        Ok(true)
    }

    /// Acts on complete frames. Returns false if there is no room for their contents: then the
    /// connection stops reading.
    fn take_frames(&mut self, peers: &Mutex<Peers>, now_ms: u64) -> Result<bool, String> {
        let input = std::mem::take(&mut self.input);
        let mut used_bytes = 0;
        let mut has_room = true;
        let done = loop {
            let bytes = &input[used_bytes..self.filled_bytes];
            let mut peers = lock(peers);
            if let Stage::Session(session) = self.stage
                && !peers.can_receive(session.peer)
            {
                has_room = false;
                // The peer isn't silent: this node doesn't read.
                self.until_ms = now_ms + SILENCE_MS_MAX;
                break Ok(());
            }
            let bytes_max = match self.stage {
                Stage::Session(_) => FRAME_BYTES_MAX,
                _ => GREETING_BYTES_MAX,
            };
            match decode(bytes, bytes_max) {
                Ok(None) => break Ok(()),
                Err(error) => break Err(format!("sent {error}")),
                Ok(Some((frame, frame_bytes))) => {
                    used_bytes += frame_bytes;
                    if let Stage::Session(session) = self.stage {
                        peers.count_received(session.peer, frame_bytes);
                    }
                    let done = self.act(&mut peers, &frame, now_ms);
                    if done.is_err() || matches!(self.stage, Stage::Leaving(_)) {
                        break done;
                    }
                }
            }
        };
        self.input = input;
        self.input.copy_within(used_bytes..self.filled_bytes, 0);
        self.filled_bytes -= used_bytes;
        if matches!(self.stage, Stage::Session(_)) {
            self.input.resize(FRAME_BYTES_MAX, 0);
        }
        done.map(|()| has_room)
    }

    fn act(&mut self, peers: &mut Peers, frame: &Frame<'_>, now_ms: u64) -> Result<(), String> {
        match (&self.stage, &frame.message) {
            (Stage::Session(session), _) => peers.input(session.peer, frame, now_ms),
            (_, Message::Refusal(reason)) => Err(refused(reason)),
            (_, Message::Hello(hello)) => {
                match self.greeted(peers, hello, now_ms) {
                    Ok(session) => {
                        if self.expected.is_none() {
                            peers.hello(&mut self.output);
                        }
                        self.stage = Stage::Session(session);
                        self.until_ms = now_ms + SILENCE_MS_MAX;
                    }
                    Err(why) => {
                        self.claimed = peers.named(&hello.node);
                        let message = Message::Refusal(&why);
                        Frame { revision: 0, sequence: 0, message }.encode(&mut self.output);
                        self.stage = Stage::Leaving(why);
                        self.until_ms = now_ms + FAREWELL_MS_MAX;
                    }
                }
                Ok(())
            }
            _ => Err("didn't greet first".into()),
        }
    }

    fn greeted(&self, peers: &mut Peers, hello: &Hello, now_ms: u64) -> Result<SessionId, String> {
        if let Some(tls) = &self.channel.tls {
            check_name(tls, &hello.node)?;
        }
        peers.greet(hello, self.expected, now_ms)
    }

    /// Writes the data that is due.
    fn send(&mut self, peers: &Mutex<Peers>, now_ms: u64) -> Result<(), String> {
        loop {
            if let Stage::Session(session) = self.stage
                && self.output.len() < OUTPUT_BYTES_MAX
            {
                lock(peers).output(session.peer, &mut self.output, OUTPUT_BYTES_MAX, now_ms);
            }
            let written = self.write()?;
            let is_empty = self.output.is_empty() && self.channel.is_flushed();
            match &self.stage {
                Stage::Leaving(why) if is_empty => return Err(why.clone()),
                Stage::Session(_) if is_empty && written > 0 => {}
                _ => return Ok(()),
            }
        }
    }

    fn write(&mut self) -> Result<usize, String> {
        let mut written = 0;
        let done: io::Result<()> = loop {
            match self.channel.write(&self.output[written..]) {
                Ok(0) => break Ok(()),
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        self.output.drain(..written);
        done.map(|()| written).map_err(|error| why_io(&error))
    }
}

/// A TCP connection to another node, with TLS or without, that never blocks.
#[derive(Debug)]
struct Channel {
    stream: TcpStream,
    tls: Option<Box<rustls::Connection>>,
}

impl Channel {
    /// Whether the connection is established, by connect(2)'s rule for sockets that don't block.
    ///
    /// # Errors
    /// If it can't be established.
    fn is_connected(&self) -> io::Result<bool> {
        if let Some(error) = self.stream.take_error()? {
            return Err(error);
        }
        match self.stream.peer_addr() {
            Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
            connected => connected.map(|_| true),
        }
    }

    /// Reads the available bytes, up to the length of `buffer`. Returns their number.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if there is nothing, and [`ErrorKind::UnexpectedEof`] at the end.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = match &mut self.tls {
            None => self.stream.read(buffer)?,
            Some(tls) => read_tls(tls, &mut self.stream, buffer)?,
        };
        if count == 0 { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(count) }
    }

    /// Writes as much of `bytes` as there is room for. Returns the number of bytes.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if there is no room.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            return if bytes.is_empty() { Ok(0) } else { self.stream.write(bytes) };
        };
        let mut written = 0;
        loop {
            while tls.wants_write() {
                match tls.write_tls(&mut self.stream) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock && written > 0 => {
                        return Ok(written);
                    }
                    done => done?,
                };
            }
            if tls.is_handshaking() || written == bytes.len() {
                return Ok(written);
            }
            written += tls.writer().write(&bytes[written..])?;
        }
    }

    /// Whether the kernel has all written bytes.
    fn is_flushed(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| !tls.wants_write())
    }
}

fn read_tls(
    tls: &mut rustls::Connection,
    stream: &mut TcpStream,
    buffer: &mut [u8],
) -> io::Result<usize> {
    loop {
        match tls.reader().read(buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            read => return read,
        }
        if !tls.wants_read() {
            // The channel must write first.
            return Err(ErrorKind::WouldBlock.into());
        }
        if tls.read_tls(stream)? == 0 {
            return Ok(0);
        }
        if let Err(error) = tls.process_new_packets() {
            // The alert with the reason. Nothing comes after it, so a failure doesn't matter.
            let _ = tls.write_tls(stream);
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
    }
}
