//! The successor's view of the running program.

use super::Inherited;
use crate::config::Config;
use crate::failure::{BadInput, Failure, unless_ended};
use crate::request::{Candidate, Request};
use hotloop_cluster::replace::Predecessor;
use hotloop_ops::{ControlArgs, notify, socket_path};
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum time for the first answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Maximum length of the first answer, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Makes the program at the control socket release everything, and returns its state.
///
/// # Errors
/// If the program refuses and continues, or has ended. [`Failure::Ended`] if a signal came before
/// it began to release anything.
pub fn take_over(control: &ControlArgs, config: &Config) -> Result<Inherited, Failure> {
    let path = path_of(control);
    let failed = |why: String| Failure::Run(format!("--replace: {}: {why}", path.display()));
    let mut predecessor = unless_ended(ask(&path, config))?;
    unless_ended(predecessor.learn().map_err(failed))?;
    // From here on a signal ends the run, which begins now: the other program ends in any case, and
    // systemd must know before.
    predecessor.take_over(notify::take_over).map_err(failed)
}

/// The path of the control socket.
#[must_use]
pub fn path_of(control: &ControlArgs) -> PathBuf {
    control.control.clone().unwrap_or_else(|| socket_path("ipip-lb"))
}

/// Asks the program at the control socket at `path` to let one with this configuration take over.
///
/// # Errors
/// If it refuses, or doesn't exist: nothing has changed.
pub fn ask(path: &Path, config: &Config) -> Result<Predecessor, BadInput> {
    let wrong = |why: String| {
        BadInput::new(format!("--replace: {}: {why}; nothing has changed", path.display()))
    };
    let asked = answered(path, &Request::Replace(Candidate::with(config)));
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
    Predecessor::new(stream).map_err(|error| wrong(error.to_string()))
}

/// Sends the request, and reads the answer; more messages may follow it.
fn answered(path: &Path, request: &Request) -> io::Result<UnixStream> {
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
