//! The predecessor's view of the program that is about to take over.

use super::channel::{Channel, Message};
use super::inheritance::Inheritance;
use super::link::Link;
use crate::sync::Walk;
use hotloop_balancer::exception_mover::{ExceptionMover, Pulled};
use hotloop_balancer::exceptions::Record;
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
    /// The snapshot that is being collected for it.
    walk: Option<Walk>,
    is_ready: bool,
}

impl Successor {
    /// Continues over the connection of the request.
    ///
    /// # Errors
    /// The system's error.
    pub fn new(stream: UnixStream) -> std::io::Result<Self> {
        let link = Link::to_successor(Channel::new(stream)?);
        Ok(Self { link, walk: None, is_ready: false })
    }

    /// Sends and receives everything available, without waiting. Returns whether the successor is
    /// ready to take over.
    ///
    /// # Errors
    /// The reason that the successor won't take over any more.
    pub fn turn(&mut self) -> Result<bool, String> {
        match self.link.turn()? {
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

    /// Whether a walk for the successor is under way.
    #[must_use]
    pub const fn is_walking(&self) -> bool {
        self.walk.is_some()
    }

    /// Begins the walk that it needs, and pauses the walk without room: call this before each turn
    /// of `exceptions`.
    pub fn follow_walk(&mut self, exceptions: &mut ExceptionMover) {
        let room = self.walk.and_then(|walk| self.link.peers.has_room_for(walk));
        if room.is_none() {
            self.walk = self.link.peers.snapshot_wanted(self.link.now_ms());
            if self.walk.is_some() {
                exceptions.begin_walk();
            }
        }
        exceptions.hold_walk(room == Some(false));
    }

    /// Queues claims for the successor.
    pub fn offer(&mut self, claims: &[Record]) {
        self.link.peers.offer(claims, self.link.now_ms());
    }

    /// Queues the workers' findings.
    pub fn take(&mut self, pulled: Pulled<'_>) {
        match (pulled, self.walk) {
            (Pulled::Changes(claims), _) => self.offer(claims),
            (Pulled::Exceptions(claims), Some(walk)) => {
                self.link.peers.give_page(walk, claims, false, self.link.now_ms());
            }
            (Pulled::Exceptions(_), None) => {}
        }
    }

    /// Ends a completed walk; begins another one if changes were lost: call this after each turn of
    /// `exceptions`.
    pub fn end_walk(&mut self, is_walking: bool, has_lost: bool) {
        if has_lost {
            self.link.peers.resync();
        } else if !is_walking && let Some(walk) = self.walk.take() {
            self.link.peers.give_page(walk, &[], true, self.link.now_ms());
        }
    }

    /// Whether the snapshot was sent, and the successor has entered everything sent to it.
    #[must_use]
    pub fn is_caught_up(&self) -> bool {
        self.link.status().is_caught_up
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
            if let Some(Message::Taken) = self.link.turn()? {
                return Ok(());
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Err(format!("it has not answered for {} s", FAREWELL_MAX.as_secs()))
    }
}
