//! One [end](End) over a [`Channel`], with the time.

use super::channel::{Channel, Message};
use super::end::End;
use std::io;
use std::time::{Duration, Instant};

/// Maximum silence of the other end, which sends something each second.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// A connection between the two programs.
#[derive(Debug)]
pub struct Link {
    channel: Channel,
    since: Instant,
    heard: Instant,
    silence_max: Duration,
}

impl Link {
    /// Makes a link over this channel.
    #[must_use]
    pub fn new(channel: Channel) -> Self {
        let now = Instant::now();
        Self { channel, since: now, heard: now, silence_max: SILENCE_MAX }
    }

    /// The start of the [`End`]'s times.
    #[must_use]
    pub const fn since(&self) -> Instant {
        self.since
    }

    /// Sends a message other than frames.
    ///
    /// # Errors
    /// If the other end is gone.
    pub fn say(&mut self, message: Message) -> io::Result<()> {
        self.channel.say(message)
    }

    /// Sends and receives everything available for this end, without waiting. Returns a received message
    /// other than frames.
    ///
    /// # Errors
    /// The reason that the link is over.
    pub fn turn(&mut self, end: &mut End) -> Result<Option<Message>, String> {
        end.set_now(self.since.elapsed().as_millis() as u64);
        if self.channel.has_room() {
            let out = end.output();
            if !out.is_empty() {
                self.channel.say(Message::Frames(out)).map_err(gone)?;
            }
        }
        self.channel.flush().map_err(gone)?;
        while let Some(message) = self.channel.hear().map_err(gone)? {
            self.heard = Instant::now();
            match message {
                Message::Frames(bytes) => end.input(&bytes)?,
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
}

fn gone(error: io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionReset => "it went away".into(),
        _ => error.to_string(),
    }
}
