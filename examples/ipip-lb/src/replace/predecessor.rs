//! The successor's view of the running program.

use super::channel::{Channel, Message};
use super::inheritance::{Inheritance, Inherited};
use super::link::Link;
use crate::config::Config;
use crate::failure::{BadInput, Failure, unless_ended};
use crate::request::Candidate;
use crate::request::Request;
use hotloop::engine::Control;
use hotloop::packet::flow_key::FlowKey;
use hotloop_balancer::exceptions::{Change, Record};
use hotloop_ops::{ControlArgs, notify, socket_path};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Maximum time for the first answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Maximum time for the snapshot.
const SNAPSHOT_MAX: Duration = Duration::from_secs(120);

/// Maximum silence of the predecessor while it releases everything: it waits for changes in
/// progress, and ends its run.
const HANDOVER_MAX: Duration = Duration::from_secs(60);

/// Interval of polls of the link.
const LOOK_INTERVAL: Duration = Duration::from_micros(200);

/// Number of changes to take at once.
const IMPORTS_MAX: usize = 4096;

/// Maximum length of the first answer, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Makes the program at the control socket release everything, and returns its state.
///
/// # Errors
/// If the program refuses and continues, or has ended. [`Failure::Ended`] if a signal came before
/// it began to release anything.
pub fn take_over(control: &ControlArgs, config: &Config) -> Result<Inherited, Failure> {
    let path = control.control.clone().unwrap_or_else(|| socket_path("ipip-lb"));
    let mut predecessor = unless_ended(Predecessor::ask(&path, config))?;
    unless_ended(predecessor.learn())?;
    // From here on a signal ends the run, which begins now: the other program ends in any case.
    predecessor.take_over()
}

/// The running program, and the connections that it has reported.
#[derive(Debug)]
pub struct Predecessor {
    path: PathBuf,
    link: Link,
    known: HashMap<FlowKey, (Record, Instant)>,
    taken: Vec<Change>,
}

impl Predecessor {
    /// Asks the program at the control socket at `path` to let one with this configuration take
    /// over.
    ///
    /// # Errors
    /// If it refuses, or doesn't exist: nothing has changed.
    pub fn ask(path: &Path, config: &Config) -> Result<Self, BadInput> {
        let wrong = |why: String| {
            BadInput::new(format!("--replace: {}: {why}; nothing has changed", path.display()))
        };
        let asked = ask(path, &Request::Replace(Candidate::with(config)));
        let stream = asked.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => wrong(
                "no program runs with its control socket here: start without --replace, or give its --control"
                    .into(),
            ),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => wrong(format!(
                "the program that runs does not answer within {} s: is it stuck?",
                ANSWER_MAX.as_secs()
            )),
            _ => wrong(error.to_string()),
        })?;
        let link = Channel::new(stream).and_then(Link::to_predecessor);
        let link = link.map_err(|error| wrong(error.to_string()))?;
        Ok(Self { path: path.to_owned(), link, known: HashMap::new(), taken: Vec::new() })
    }

    /// Waits for the snapshot of the program's exceptions.
    ///
    /// # Errors
    /// If this fails, the program continues: nothing has changed.
    pub fn learn(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + SNAPSHOT_MAX;
        while !self.link.status().has_its_snapshot {
            let said = self.turn();
            said.and_then(|said| refused(said.as_ref())).map_err(|why| self.failed(&why))?;
            if Control::signal_came() {
                return Err(Failure::Ended);
            }
            if Instant::now() > deadline {
                let s = SNAPSHOT_MAX.as_secs();
                return Err(self.failed(&format!("its snapshot takes longer than {s} s")));
            }
        }
        tracing::info!(
            "replace: the program that runs has sent {} connections that are not where the configuration says",
            self.known.len()
        );
        Ok(())
    }

    /// Makes the program release everything, and returns its state.
    ///
    /// # Errors
    /// If this fails, the program either continues or has ended.
    pub fn take_over(mut self) -> Result<Inherited, Failure> {
        self.link.be_patient(HANDOVER_MAX);
        let said = self.link.say(Message::Take);
        said.map_err(|error| self.failed(&error.to_string()))?;
        let (known, files) = loop {
            match self.turn().map_err(|why| self.failed(&why))? {
                Some(Message::Yours(known, files)) => break (known, files),
                said => refused(said.as_ref()).map_err(|why| self.failed(&why))?,
            }
        };
        let known: Value = serde_json::from_slice(&known).unwrap_or_default();
        let inheritance = Inheritance::of_json(&known);
        let inheritance = inheritance.map_err(|why| self.failed(&why))?;
        // The program ends when it receives this: systemd must know before.
        notify::take_over();
        let said = self.link.say(Message::Taken);
        said.map_err(|error| self.failed(&error.to_string()))?;
        let connections = self.known.into_values().collect();
        Ok(Inherited::new(inheritance, files, connections))
    }

    /// Receives and sends everything available, and records connections.
    fn turn(&mut self) -> Result<Option<Message>, String> {
        let said = self.link.turn()?;
        let now = Instant::now();
        // Changes that were taken are recorded at once.
        while self.link.peers.take_imports(&mut self.taken, IMPORTS_MAX) && !self.taken.is_empty() {
            for change in self.taken.drain(..) {
                match change {
                    Change::Claim(record) => drop(self.known.insert(record.key, (record, now))),
                    Change::End(key) => drop(self.known.remove(&key)),
                }
            }
        }
        if said.is_none() {
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(said)
    }

    fn failed(&self, why: &str) -> Failure {
        Failure::Run(format!("--replace: {}: {why}", self.path.display()))
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

/// Sends the request, and reads the answer; more messages may follow it.
fn ask(path: &Path, request: &Request) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.set_write_timeout(Some(ANSWER_MAX))?;
    stream.write_all(format!("{}\n", json!(request)).as_bytes())?;
    let mut line = Vec::new();
    let mut byte = [0];
    while line.last() != Some(&b'\n') {
        if stream.read(&mut byte)? == 0 || line.len() > ANSWER_BYTES_MAX {
            return Err(io::Error::other("the program that runs went away without an answer"));
        }
        line.extend(byte);
    }
    let answer: Value = serde_json::from_slice(&line)?;
    match answer["error"].as_str() {
        Some(why) => Err(io::Error::other(why)),
        None => Ok(stream),
    }
}
