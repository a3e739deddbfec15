//! The predecessor's view of the program that is to take over from it.

use super::channel::{Channel, Message};
use super::inheritance::Inheritance;
use super::link::Link;
use crate::exception_mover::{Exceptions, Pulled};
use hotloop_balancer::exceptions::Change;
use hotloop_cluster::sync::Walk;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How long the last message and its answer may take. The successor waits for nothing else then.
const FAREWELL_MAX: Duration = Duration::from_secs(5);

/// The program that is to take over.
#[derive(Debug)]
pub struct Successor {
    link: Link,
    /// The snapshot that is being gathered for it.
    walk: Option<Walk>,
    is_ready: bool,
}

impl Successor {
    /// Goes on over the connection by which it asked.
    ///
    /// # Errors
    /// The system's.
    pub fn new(stream: UnixStream) -> std::io::Result<Self> {
        let link = Link::to_successor(Channel::new(stream)?);
        Ok(Self { link, walk: None, is_ready: false })
    }

    /// Sends and receives what there is, without waiting. Returns whether it is ready to take over.
    ///
    /// # Errors
    /// Why it won't take over any more.
    pub fn turn(&mut self) -> Result<bool, String> {
        match self.link.turn()? {
            None => {}
            Some(Message::Take) => self.is_ready = true,
            Some(_) => return Err("it says what only this program may say".into()),
        }
        Ok(self.is_ready)
    }

    /// Says that this program goes on.
    pub fn refuse(mut self, why: &str) {
        // One that is gone needs no reason.
        let _ = self.link.say(Message::Refusal(why.to_owned()));
    }

    /// Whether a walk for it is under way.
    #[must_use]
    pub const fn is_walking(&self) -> bool {
        self.walk.is_some()
    }

    /// Begins the walk that it needs, and has it wait for room: to be called before each turn of `exceptions`.
    pub fn follow_walk(&mut self, exceptions: &mut Exceptions) {
        let room = self.walk.and_then(|walk| self.link.peers.has_room_for(walk));
        if room.is_none() {
            self.walk = self.link.peers.snapshot_wanted(self.link.now_ms());
            if self.walk.is_some() {
                exceptions.begin_whole_walk();
            }
        }
        exceptions.hold_walk(room == Some(false));
    }

    /// Queues changes for it.
    pub fn offer(&mut self, changes: &[Change]) {
        self.link.peers.offer(changes, self.link.now_ms());
    }

    /// Queues what workers have found. To the successor, what was entered for other nodes is as good as this one's own: a
    /// packet makes it the successor's.
    pub fn take(&mut self, pulled: Pulled<'_>) {
        match (pulled, self.walk) {
            (Pulled::Changes(changes), _) => self.offer(changes),
            (Pulled::Exceptions { own, entered }, Some(walk)) => {
                let now_ms = self.link.now_ms();
                for records in [own, entered] {
                    self.link.peers.give_page(walk, (records, &[]), false, now_ms);
                }
            }
            (Pulled::Exceptions { .. }, None) => {}
        }
    }

    /// Ends the walk where it is through; begins another one where changes were lost: to be called after each turn of
    /// `exceptions`.
    pub fn end_walk(&mut self, is_walking: bool, has_lost: bool) {
        if has_lost {
            self.link.peers.resync();
        } else if !is_walking && let Some(walk) = self.walk.take() {
            self.link.peers.give_page(walk, (&[], &[]), true, self.link.now_ms());
        }
    }

    /// Whether it has entered all that it was sent, and the snapshot was sent.
    #[must_use]
    pub fn is_caught_up(&self) -> bool {
        self.link.status().is_caught_up
    }

    /// Leaves everything to it, and waits until it has it. Nothing of this program may be in its way any more.
    ///
    /// # Errors
    /// It is gone: no program balances.
    pub fn leave(mut self, known: &Inheritance, files: Vec<OwnedFd>) -> Result<(), String> {
        let deadline = Instant::now() + FAREWELL_MAX;
        let said = self.link.say(Message::Yours(known.to_json().to_string().into_bytes(), files));
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
