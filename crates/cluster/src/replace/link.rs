//! Code for both ends of a takeover: the [`Peers`] of sync with one peer, over a [`Channel`].

use super::channel::{Channel, Message};
use crate::sync::wire::{FRAME_BYTES_MAX, Message as Said, decode};
use crate::sync::{Local, PeerId, PeerStatus, Peers};
use std::io;
use std::time::{Duration, Instant};

/// Maximum silence of the other end, which sends something each second.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Number of bytes of frames to make at once.
const OUTPUT_BYTES: usize = 2 * FRAME_BYTES_MAX;

/// The names of both ends, in order: the first of two nodes connects.
const SUCCESSOR: &str = "successor";
const PREDECESSOR: &str = "the-running-one";

/// A connection between the two programs.
#[derive(Debug)]
pub struct Link {
    channel: Channel,
    /// This end, as a node with the other end as its only peer.
    pub peers: Peers,
    peer: PeerId,
    is_greeted: bool,
    is_successor: bool,
    /// Received frames that are incomplete.
    frames: Vec<u8>,
    since: Instant,
    heard: Instant,
    silence_max: Duration,
}

impl Link {
    /// Makes the successor's end, which greets first.
    ///
    /// # Errors
    /// If the other end is gone.
    pub fn to_predecessor(channel: Channel) -> io::Result<Self> {
        let mut link = Self::new(channel, SUCCESSOR, PREDECESSOR);
        link.greet()?;
        Ok(link)
    }

    /// Makes the predecessor's end.
    #[must_use]
    pub fn to_successor(channel: Channel) -> Self {
        Self::new(channel, PREDECESSOR, SUCCESSOR)
    }

    fn new(channel: Channel, own: &str, other: &str) -> Self {
        // There is one of each, so nothing else must be distinguished.
        let local = Local { node: own.into(), digest: [0; 16] };
        let peers = Peers::new(local, [(other.to_owned(), String::new())]);
        let peer = peers.named(other).expect("it is the only one");
        let now = Instant::now();
        Self {
            channel,
            peer,
            peers,
            is_greeted: false,
            is_successor: own == SUCCESSOR,
            frames: Vec::new(),
            since: now,
            heard: now,
            silence_max: SILENCE_MAX,
        }
    }

    /// The time for [`Peers`].
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.since.elapsed().as_millis() as u64
    }

    /// The status of the other end.
    #[must_use]
    pub fn status(&self) -> PeerStatus {
        self.peers.status(self.now_ms()).remove(0)
    }

    fn greet(&mut self) -> io::Result<()> {
        let mut hello = Vec::new();
        self.peers.hello(&mut hello);
        self.channel.say(Message::Frames(hello))
    }

    /// Sends a message other than frames.
    ///
    /// # Errors
    /// If the other end is gone.
    pub fn say(&mut self, message: Message) -> io::Result<()> {
        self.channel.say(message)
    }

    /// Sends and receives everything available, without waiting. Returns a received message other
    /// than frames.
    ///
    /// # Errors
    /// The reason that the link is over.
    pub fn turn(&mut self) -> Result<Option<Message>, String> {
        let now_ms = self.now_ms();
        if self.is_greeted && self.channel.has_room() {
            let mut out = Vec::new();
            self.peers.output(self.peer, &mut out, OUTPUT_BYTES, now_ms);
            if !out.is_empty() {
                self.channel.say(Message::Frames(out)).map_err(gone)?;
            }
        }
        self.channel.flush().map_err(gone)?;
        while let Some(message) = self.channel.hear().map_err(gone)? {
            self.heard = Instant::now();
            match message {
                Message::Frames(bytes) => self.take_frames(&bytes, now_ms)?,
                other => return Ok(Some(other)),
            }
        }
        if self.heard.elapsed() > self.silence_max {
            return Err(format!("it has said nothing for {} s", self.silence_max.as_secs()));
        }
        Ok(None)
    }

    /// Permits the other end this much silence: it has other work to do.
    pub const fn be_patient(&mut self, silence_max: Duration) {
        self.silence_max = silence_max;
    }

    fn take_frames(&mut self, bytes: &[u8], now_ms: u64) -> Result<(), String> {
        self.frames.extend_from_slice(bytes);
        let frames = std::mem::take(&mut self.frames);
        let mut used = 0;
        while let Some((frame, length)) =
            decode(&frames[used..], FRAME_BYTES_MAX).map_err(|error| error.to_string())?
        {
            used += length;
            if self.is_greeted {
                self.peers.input(self.peer, &frame, now_ms)?;
                continue;
            }
            let Said::Hello(hello) = &frame.message else {
                return Err("it did not greet first".into());
            };
            let expected = self.is_successor.then_some(self.peer);
            self.peers.greet(hello, expected, now_ms)?;
            if !self.is_successor {
                self.greet().map_err(gone)?;
            }
            self.is_greeted = true;
        }
        self.frames = frames[used..].to_vec();
        Ok(())
    }
}

fn gone(error: io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionReset => "it went away".into(),
        _ => error.to_string(),
    }
}
