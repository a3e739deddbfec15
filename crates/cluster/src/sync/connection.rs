//! One connection, from its first byte: greetings, then frames.

use super::channel::Channel;
use super::peers::{Peers, SessionId, refused};
use super::tls::{Tls, check_name, why_io};
use super::wire::{FRAME_BYTES_MAX, Frame, GREETING_BYTES_MAX, Hello, Message, decode};
use super::{PeerId, transport::lock};
use mio::net::TcpStream;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::sync::Mutex;

/// How long connecting, TLS and greetings may take together, in milliseconds.
pub const GREETING_MS_MAX: u64 = 5_000;

/// After so many milliseconds without a byte of a peer, which sends something each second, it is gone.
const SILENCE_MS_MAX: u64 = 5_000;

/// How long the last words may take, in milliseconds.
const FAREWELL_MS_MAX: u64 = 1_000;

/// How many bytes wait in memory for the socket to take them, and one frame more.
const OUTPUT_BYTES_MAX: usize = 2 * FRAME_BYTES_MAX;

/// How many times a connection reads in one turn, so that none keeps the thread from the others.
const READS_PER_TURN: usize = 16;

/// How far a connection has come.
#[derive(Clone, Debug)]
enum Stage {
    Connecting,
    Greeting,
    Session(SessionId),
    /// All that is left is to send the reason.
    Leaving(String),
}

/// Why a connection is over.
#[derive(Debug)]
pub struct Over {
    /// The peer, if the node on the other side is known to be one.
    pub peer: Option<PeerId>,
    /// The session, if there was one.
    pub session: Option<SessionId>,
    /// Why; empty where another connection took its place.
    pub why: String,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    channel: Channel,
    /// Where it comes from, or goes to.
    pub ip: IpAddr,
    /// The peer that this node connected to.
    expected: Option<PeerId>,
    /// Who the other side says it is.
    claimed: Option<PeerId>,
    stage: Stage,
    until_ms: u64,
    input: Vec<u8>,
    filled_bytes: usize,
    output: Vec<u8>,
}

impl Connection {
    /// Begins to talk over a connection; `expected` is the peer that this node connects to.
    ///
    /// # Errors
    /// TLS can't begin.
    pub fn new(
        (stream, ip): (TcpStream, IpAddr),
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

    /// What to wait for.
    pub const fn stream(&mut self) -> &mut TcpStream {
        &mut self.channel.stream
    }

    /// The peer that this node connected to.
    pub const fn expected(&self) -> Option<PeerId> {
        self.expected
    }

    /// Whether the other side has not said yet who it is.
    pub const fn is_unknown(&self) -> bool {
        self.expected.is_none() && !matches!(self.stage, Stage::Session(_))
    }

    /// Goes on as far as the socket allows. Returns whether there is more to do at once.
    ///
    /// # Errors
    /// The connection is over.
    pub fn advance(&mut self, peers: &Mutex<Peers>, now_ms: u64) -> Result<bool, Over> {
        let done = self.try_advance(peers, now_ms);
        done.map_err(|why| self.over(why))
    }

    /// What is over with it, for this reason.
    pub fn over(&self, why: String) -> Over {
        let session = match self.stage {
            Stage::Session(session) => Some(session),
            _ => None,
        };
        let peer = session.map(|it| it.peer).or(self.expected).or(self.claimed);
        Over { peer, session, why }
    }

    fn try_advance(&mut self, peers: &Mutex<Peers>, now_ms: u64) -> Result<bool, String> {
        if matches!(self.stage, Stage::Connecting) {
            if !self.channel.is_connected().map_err(|error| error.to_string())? {
                return self.check_time(now_ms).map(|()| false);
            }
            // Acknowledgements are small, and wait for nothing.
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

    /// Reads what is there, and acts on it.
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

    /// Acts on the frames that are whole. False if there is no room for what they say: then it reads no more.
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
                // It isn't silent: nobody listens.
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
                        Frame { epoch: 0, sequence: 0, message }.encode(&mut self.output);
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

    /// Writes what is due.
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
