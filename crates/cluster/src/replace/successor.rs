//! The predecessor's view of the program that is about to take over.

use super::channel::{Channel, Message};
use super::end::Bequest;
use super::inheritance::Inheritance;
use super::link::Link;
use serde::Serialize;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Maximum time for the last message and its answer. The successor does nothing else then.
const FAREWELL_MAX: Duration = Duration::from_secs(5);

/// The program that is about to take over.
#[derive(Debug)]
pub struct Successor {
    link: Link,
    bequest: Bequest,
    is_ready: bool,
}

impl Successor {
    /// Continues over the connection of the request.
    ///
    /// # Errors
    /// The system's error.
    pub fn new(stream: UnixStream) -> std::io::Result<Self> {
        let link = Link::new(Channel::new(stream)?);
        Ok(Self { link, bequest: Bequest::default(), is_ready: false })
    }

    /// Sends and receives everything available, without waiting. Returns whether the successor is
    /// ready to take over.
    ///
    /// # Errors
    /// The reason that the successor won't take over any more.
    pub fn turn(&mut self) -> Result<bool, String> {
        match self.link.turn(&mut self.bequest.end)? {
            None => {}
            Some(Message::Take) => self.is_ready = true,
            Some(_) => return Err("it says what only this program may say".into()),
        }
        Ok(self.is_ready)
    }

    /// Tells the successor that this program continues.
    pub fn refuse(mut self, why: &str) {
        // A successor that is gone needs no reason.
        let _ = self.link.say(Message::Refusal(why.to_owned()));
    }

    /// The end of the link that holds its connections.
    pub const fn bequest(&mut self) -> &mut Bequest {
        &mut self.bequest
    }

    /// Whether the snapshot was sent, and the successor has entered everything sent to it.
    #[must_use]
    pub fn is_caught_up(&self) -> bool {
        self.bequest.end.status().is_caught_up
    }

    /// Passes everything to the successor, and waits for its confirmation.
    pub(super) fn leave<S: Serialize>(
        mut self,
        known: &Inheritance<S>,
        files: Vec<OwnedFd>,
    ) -> Result<(), String> {
        let deadline = Instant::now() + FAREWELL_MAX;
        let known = serde_json::to_vec(known).map_err(|error| error.to_string())?;
        let said = self.link.say(Message::Yours(known, files));
        said.map_err(|error| error.to_string())?;
        while Instant::now() < deadline {
            if let Some(Message::Taken) = self.link.turn(&mut self.bequest.end)? {
                return Ok(());
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Err(format!("it has not answered for {} s", FAREWELL_MAX.as_secs()))
    }
}
