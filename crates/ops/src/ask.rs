//! The client's side of a control socket: the arguments of `ctl`, and requests.

use crate::output::print;
use crate::path::{query_path, socket_path};
use crate::request::{ANSWER_BYTES_MAX, Request, read_answer};
use crate::unix::{Peer, connected};
use clap::Args;
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The longest wait for an answer, in all.
pub const ANSWER_WAIT: Duration = Duration::from_secs(30);

/// How often to try to connect to a busy program.
const CONNECT_INTERVAL: Duration = Duration::from_millis(10);

/// Exit code of `ctl` if the program answered with an error.
pub(crate) const REFUSED: u8 = 1;

/// Exit code of `ctl` if an argument is wrong, or no program answers.
pub(crate) const WRONG_INPUT: u8 = 2;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// No program listens there.
    #[error(
        "no program listens at {path}: start it first, or if it runs as another user or was given \
         another path, give that path with --control PATH"
    )]
    NoProgram {
        /// The path.
        path: PathBuf,
    },
    /// A program listens there, but the request failed.
    #[error(
        "{path}: {source}; ask as the user that the program runs as, or give the path of another \
         program with --control PATH"
    )]
    System {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A program listens there, but didn't answer in time.
    #[error("{path}: a program listens here, but doesn't answer within {} s: is it stuck?", wait.as_secs_f64())]
    Silent {
        /// The path.
        path: PathBuf,
        /// The time waited.
        wait: Duration,
    },
    /// The program sent something other than an answer.
    #[error("{path}: {problem}; is it the control socket of the program you mean?")]
    NoAnswer {
        /// The path.
        path: PathBuf,
        /// The problem.
        problem: &'static str,
    },
    /// The program answered with this error.
    #[error("{0}")]
    Refused(String),
}

/// Arguments of `ctl`, before or after its command.
#[derive(Args, Clone, Debug, Default)]
pub struct CtlArgs {
    /// The running program's control socket; by default, the program's own default path.
    #[arg(long, value_name = "PATH", global = true)]
    pub control: Option<PathBuf>,
    /// Write the answer as one line of JSON.
    #[arg(long, global = true)]
    pub json: bool,
}

impl CtlArgs {
    /// Sends `request` to the running program `name`, and prints its answer to standard output: as
    /// JSON if the arguments ask for that, otherwise read as an `A` and formatted by `text`. Errors
    /// go to standard error.
    ///
    /// Returns the exit code: 0 for an answer, 1 if the program answers with an error, 2 if there
    /// is no answer.
    pub fn ask<A: DeserializeOwned>(
        &self,
        name: &str,
        request: &Request,
        text: impl FnOnce(&A) -> String,
    ) -> ExitCode {
        let path = self.control.clone().unwrap_or_else(|| socket_path(name));
        let problem = "this ctl can't read another version's answer, but prints it with --json";
        let answer = ask(&path, request).and_then(|answer| match self.json {
            true => Ok(answer.to_string()),
            false => serde_json::from_value(answer)
                .map(|answer| text(&answer))
                .map_err(|_| AskError::NoAnswer { path, problem }),
        });
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                tracing::error!("{error}");
                let is_refused = matches!(error, AskError::Refused(_));
                return ExitCode::from(if is_refused { REFUSED } else { WRONG_INPUT });
            }
        };
        match print(&format!("{answer}\n")) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                tracing::error!("standard output: {error}");
                ExitCode::from(WRONG_INPUT)
            }
        }
    }
}

/// Sends a request to the program that listens at the socket at `path`, and waits at most
/// [`ANSWER_WAIT`] for its answer.
///
/// # Errors
/// [`AskError::Refused`] if the program answers with an error. The other variants if there is no
/// answer, with the path and a remedy.
pub fn ask(path: &Path, request: &Request) -> Result<Value, AskError> {
    ask_within(path, request, ANSWER_WAIT)
}

/// As [`ask`], but waits at most `wait`.
///
/// # Errors
/// As [`ask`].
pub fn ask_within(path: &Path, request: &Request, wait: Duration) -> Result<Value, AskError> {
    let deadline = Instant::now() + wait;
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            AskError::Silent { path: path.to_owned(), wait }
        }
        _ => AskError::System { path: path.to_owned(), source },
    };
    let no_answer = |problem| AskError::NoAnswer { path: path.to_owned(), problem };

    let mut stream = connect(path, deadline, &failed)?;
    send(&mut stream, &request.line(), deadline).map_err(failed)?;
    let line = receive(&mut stream, deadline).map_err(failed)?;
    let Some(line) = line.strip_suffix(b"\n") else {
        let problem = if line.len() > ANSWER_BYTES_MAX {
            "what came is longer than any answer"
        } else {
            "the program went away without an answer"
        };
        return Err(no_answer(problem));
    };
    let answer = read_answer(line).ok_or_else(|| no_answer("what came is no answer"))?;
    answer.map_err(AskError::Refused)
}

/// A connection that continues after the answer.
#[derive(Debug)]
pub(crate) struct Stream {
    stream: UnixStream,
}

/// How often `look` is called while a stream is read.
const STREAM_LOOK: Duration = Duration::from_millis(100);

/// As [`ask`], for a command that sends more after its answer.
pub(crate) fn open(path: &Path, request: &Request) -> Result<Stream, AskError> {
    let deadline = Instant::now() + ANSWER_WAIT;
    let failed = |source: io::Error| AskError::System { path: path.to_owned(), source };
    let mut stream = connect(path, deadline, &failed)?;
    send(&mut stream, &request.line(), deadline).map_err(failed)?;
    let mut stream = Stream { stream };
    stream.stream.set_read_timeout(Some(STREAM_LOOK)).map_err(failed)?;
    let is_late = || Instant::now() >= deadline;
    let line = stream.line(&mut || (), &is_late).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => AskError::Silent { path: path.to_owned(), wait: ANSWER_WAIT },
        io::ErrorKind::UnexpectedEof => AskError::NoAnswer {
            path: path.to_owned(),
            problem: "the program went away without an answer",
        },
        _ => failed(error),
    })?;
    let no_answer =
        || AskError::NoAnswer { path: path.to_owned(), problem: "what came is no answer" };
    read_answer(&line).ok_or_else(no_answer)?.map_err(AskError::Refused)?;
    Ok(stream)
}

impl Stream {
    /// Fills the buffer, and calls `look` from time to time meanwhile.
    pub(crate) fn read_exact(
        &mut self,
        mut bytes: &mut [u8],
        look: &mut dyn FnMut(),
    ) -> io::Result<()> {
        while !bytes.is_empty() {
            look();
            match self.stream.read(bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => bytes = &mut bytes[count..],
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted
                    | io::ErrorKind::WouldBlock
                    | io::ErrorKind::TimedOut => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }

    /// Reads an answer, however long it takes.
    pub(crate) fn answer(&mut self, look: &mut dyn FnMut()) -> io::Result<Value> {
        let line = self.line(look, &|| false)?;
        let no_answer = || io::Error::new(io::ErrorKind::InvalidData, "what came is no answer");
        read_answer(&line).ok_or_else(no_answer)?.map_err(io::Error::other)
    }

    /// Reads up to a line feed, byte by byte: the bytes after it are not part of the line.
    fn line(&mut self, look: &mut dyn FnMut(), is_late: &dyn Fn() -> bool) -> io::Result<Vec<u8>> {
        let (mut line, mut byte) = (Vec::new(), [0]);
        while line.len() <= ANSWER_BYTES_MAX {
            look();
            match self.stream.read(&mut byte) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) if byte[0] == b'\n' => return Ok(line),
                Ok(_) => line.push(byte[0]),
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut if !is_late() => {}
                    io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
                    _ => return Err(error),
                },
            }
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "what came is longer than any answer"))
    }

    /// A handle of the same connection, to [`end`](Self::end) it.
    pub(crate) fn ender(&self) -> io::Result<Self> {
        Ok(Self { stream: self.stream.try_clone()? })
    }

    /// Tells the program, once, that the client wants no more.
    pub(crate) fn end(&self) {
        // A program that is gone needs no notice.
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }
}

/// Connects to the control socket at `path` or, if this user may not, to the one for queries.
fn connect(
    path: &Path,
    deadline: Instant,
    failed: &dyn Fn(io::Error) -> AskError,
) -> Result<UnixStream, AskError> {
    let attempt = || match connected(path) {
        Err(Errno::ACCESS) => match connected(&query_path(path)) {
            Ok(Peer::Stale | Peer::Nothing) | Err(_) => Err(Errno::ACCESS),
            connected => connected,
        },
        connected => connected,
    };
    loop {
        match attempt().map_err(|error| failed(error.into()))? {
            Peer::Connected(stream) => {
                let stream = UnixStream::from(stream);
                stream.set_nonblocking(false).map_err(failed)?;
                return Ok(stream);
            }
            Peer::Stale | Peer::Nothing => {
                return Err(AskError::NoProgram { path: path.to_owned() });
            }
            Peer::Busy => std::thread::sleep(CONNECT_INTERVAL),
        }
        left(deadline).map_err(failed)?;
    }
}

/// The time that is left.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn send(stream: &mut UnixStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        match stream.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted => {}
                // The program may have sent its reason before it closed the connection.
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => return Ok(()),
                _ => return Err(error),
            },
        }
    }
    Ok(())
}

/// Reads until a line feed, the end, or more bytes than an answer may have.
fn receive(stream: &mut UnixStream, deadline: Instant) -> io::Result<Vec<u8>> {
    let (mut line, mut bytes) = (Vec::new(), [0; 16 << 10]);
    while line.len() <= ANSWER_BYTES_MAX {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => {
                let read = &bytes[..count];
                if let Some(end) = read.iter().position(|byte| *byte == b'\n') {
                    line.extend_from_slice(&read[..=end]);
                    break;
                }
                line.extend_from_slice(read);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A program that closes the connection before it has read everything resets it.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
            Err(error) => return Err(error),
        }
    }
    Ok(line)
}
