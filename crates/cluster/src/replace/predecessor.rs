//! The successor's view of the running program.

use super::channel::{Channel, Message};
use super::end::Legacy;
use super::inheritance::{Inheritance, Inherited};
use super::link::Link;
use hotloop::engine::Control;
use serde::de::DeserializeOwned;
use std::io;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Maximum time for the snapshot.
const SNAPSHOT_MAX: Duration = Duration::from_secs(120);

/// Maximum silence of the predecessor while it releases everything: it waits for changes in
/// progress, and ends its run.
const HANDOVER_MAX: Duration = Duration::from_secs(60);

/// Interval of polls of the link.
const LOOK_INTERVAL: Duration = Duration::from_micros(200);

/// The running program, and the connections that it has reported.
#[derive(Debug)]
pub struct Predecessor {
    link: Link,
    legacy: Legacy,
}

impl Predecessor {
    /// Continues over the connection of the request, which the program has accepted.
    ///
    /// # Errors
    /// The system's error, or if the program is gone: nothing has changed.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        let mut predecessor =
            Self { link: Link::new(Channel::new(stream)?), legacy: Legacy::default() };
        predecessor.link.say(Message::Frames(predecessor.legacy.end.output()))?;
        Ok(predecessor)
    }

    /// Waits for the snapshot of the program's exceptions, or for a signal.
    ///
    /// # Errors
    /// If this fails, the program continues: nothing has changed.
    pub fn learn(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + SNAPSHOT_MAX;
        while !self.legacy.end.status().has_its_snapshot {
            refused(self.turn()?.as_ref())?;
            if Control::signal_came() {
                return Err("a signal came".into());
            }
            if Instant::now() > deadline {
                let s = SNAPSHOT_MAX.as_secs();
                return Err(format!("its snapshot takes longer than {s} s"));
            }
        }
        tracing::info!(
            "replace: the program that runs has sent {} connections that are not where the configuration says",
            self.legacy.keys().len()
        );
        Ok(())
    }

    /// Makes the program release everything, and returns its state. Calls `before_end` before the
    /// program ends.
    ///
    /// # Errors
    /// If this fails, the program either continues or has ended.
    pub fn take_over<S: DeserializeOwned>(
        mut self,
        before_end: impl FnOnce(),
    ) -> Result<Inherited<S>, String> {
        self.link.be_patient(HANDOVER_MAX);
        self.link.say(Message::Take).map_err(|error| error.to_string())?;
        let (known, files) = loop {
            match self.turn()? {
                Some(Message::Yours(known, files)) => break (known, files),
                said => refused(said.as_ref())?,
            }
        };
        let inheritance: Inheritance<S> =
            serde_json::from_slice(&known).map_err(|error| error.to_string())?;
        before_end();
        self.link.say(Message::Taken).map_err(|error| error.to_string())?;
        Ok(Inherited::new(inheritance, files, (self.legacy, self.link.since())))
    }

    /// Receives and sends everything available, and records connections.
    fn turn(&mut self) -> Result<Option<Message>, String> {
        let said = self.link.turn(&mut self.legacy.end)?;
        self.legacy.learn();
        if said.is_none() {
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(said)
    }
}

/// Checks that the predecessor has not refused.
fn refused(said: Option<&Message>) -> Result<(), String> {
    match said {
        None => Ok(()),
        Some(Message::Refusal(why)) => Err(format!("the program that runs goes on: {why}")),
        Some(_) => Err("the program that runs says what only its successor may say".into()),
    }
}
