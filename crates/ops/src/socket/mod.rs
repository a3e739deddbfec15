//! The server's side of a control socket.

mod bind;
mod note;

pub use bind::{ControlArgs, SocketError};
pub use note::Note;

use crate::path::query_path;
use crate::request::{Promise, REQUEST_BYTES_MAX, Reply, Request, answer_line, read_answer};
use bind::Bound;
use note::Notes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// The most clients served at a time. One more takes the place of the one that has been idle
/// longest.
pub const CLIENT_COUNT_MAX: usize = 16;

/// How long a client may neither finish a request nor take an answer before its connection is
/// closed.
pub const CLIENT_IDLE_MAX: Duration = Duration::from_secs(30);

/// The answer to a client that may only query, if its request is none.
const ONLY_QUERIES: &str = "you may only query this program: it takes other requests from its own \
     user, from root, and from the group of --control-group";

/// The most requests answered in a round.
const REQUEST_COUNT_MAX: usize = 4;

/// A control socket: a listening Unix stream socket, which only its owner may connect to, unless
/// [`ControlArgs`] name groups.
///
/// It is removed when this is dropped.
#[derive(Debug)]
pub struct Socket {
    bound: Bound,
    /// The socket for clients that may only query.
    queries: Option<Bound>,
    clients: Vec<Client>,
    since: Instant,
    note: Note,
    is_query: IsQuery,
}

/// Whether a request changes nothing.
pub type IsQuery = fn(&Request) -> bool;

impl Socket {
    /// Listens at `path`. The socket has mode 0600 from the first moment on. Its folder is created
    /// with mode 0700 if missing. A socket that a program has left there is replaced.
    ///
    /// # Errors
    /// A running program listens there, something else is there, or the system refuses. The error
    /// has a remedy.
    pub fn bind(path: &Path) -> Result<Self, SocketError> {
        let bound = Bound::at(path)?;
        let clients = Vec::with_capacity(CLIENT_COUNT_MAX);
        let (since, is_query): (_, IsQuery) = (Instant::now(), |_| false);
        Ok(Self { bound, queries: None, clients, since, note: |_, _| None, is_query })
    }

    /// Listens beside the control socket, too, for clients of a group that may only query.
    fn admit_queries(&mut self, group: &str) -> Result<(), SocketError> {
        let queries = Bound::at(&query_path(&self.bound.path))?;
        queries.share(group)?;
        self.queries = Some(queries);
        Ok(())
    }

    /// Lets clients of [`ControlArgs::query_group`] send the requests for which `is_query` returns
    /// true, besides `status`, `counters`, `load` and `xstats`, which they always may.
    #[must_use]
    pub fn querying(self, is_query: IsQuery) -> Self {
        Self { is_query, ..self }
    }

    /// Logs each request for which `note` has a text, with its client's process and user, once it is
    /// answered. Without this call, none is logged.
    #[must_use]
    pub fn noting(self, note: Note) -> Self {
        Self { note, ..self }
    }

    /// The path that it listens at.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.bound.path
    }

    /// When it began to listen.
    #[must_use]
    pub const fn since(&self) -> Instant {
        self.since
    }

    /// Serves the clients for one round: accepts new ones, reads the bytes that have come, calls
    /// `answer` for each whole request, and sends answers. Never waits for a client. A round takes
    /// at most [`CLIENT_COUNT_MAX`] new clients and four requests of each, so its time is bounded
    /// by that of `answer`.
    ///
    /// A client's requests are answered in order, each once the last answer is sent. A line that is
    /// no request, and an `Err` of `answer`, are answered by an error. A request of more than 64
    /// KiB ends the connection. An answer of more than 16 MiB is replaced by an error.
    pub fn serve(&mut self, answer: &mut dyn FnMut(&Request) -> Reply) {
        self.serve_at(Instant::now(), answer);
    }

    fn serve_at(&mut self, now: Instant, answer: &mut dyn FnMut(&Request) -> Reply) {
        self.accept(now);
        self.clients.retain_mut(|client| client.serve(now, answer));
    }

    fn accept(&mut self, now: Instant) {
        let by_any = accepted(&self.bound).map(|stream| (stream, None));
        let by_group = self.queries.iter().flat_map(accepted);
        let by_group = by_group.map(|stream| (stream, Some(self.is_query)));
        let new: Vec<_> = by_any.chain(by_group).collect();
        for (stream, only) in new {
            if let Ok(client) = Client::new(stream, now, self.note, only) {
                self.make_room();
                self.clients.push(client);
            }
        }
    }

    /// Closes the connection that has been idle longest, if all places are taken.
    fn make_room(&mut self) {
        if self.clients.len() < CLIENT_COUNT_MAX {
            return;
        }
        let idlest = self.clients.iter().enumerate().min_by_key(|(_, client)| client.active);
        if let Some((index, _)) = idlest {
            self.clients.remove(index);
        }
    }
}

/// The clients that wait to be accepted, up to [`CLIENT_COUNT_MAX`].
fn accepted(bound: &Bound) -> impl Iterator<Item = UnixStream> {
    let waiting = (0..CLIENT_COUNT_MAX).map_while(|_| match bound.listener.accept() {
        Ok((stream, _)) => Some(Some(stream)),
        // Another client went away before it was accepted.
        Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => Some(None),
        // No client waits, or too many files are open, which passes.
        Err(_) => None,
    });
    waiting.flatten()
}

/// A connection. It holds at most one request and a read's bytes, and one answer.
#[derive(Debug)]
struct Client {
    stream: UnixStream,
    /// The bytes that have come and are not answered yet.
    input: Vec<u8>,
    /// The last request and its answer, while that takes time.
    awaited: Option<(Request, Promise)>,
    /// The answer that is being sent.
    output: Vec<u8>,
    /// The number of its bytes sent.
    sent_bytes: usize,
    /// Nothing more will come.
    is_ended: bool,
    /// The input can't be parsed any further: the connection is closed once the client has its
    /// answer.
    is_refused: bool,
    /// When the client last finished a request, or took some of an answer.
    active: Instant,
    notes: Notes,
    /// The requests that the client may send, if not all.
    only: Option<IsQuery>,
}

impl Client {
    fn new(
        stream: UnixStream,
        now: Instant,
        note: Note,
        only: Option<IsQuery>,
    ) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            notes: Notes::of(&stream, note),
            stream,
            input: Vec::new(),
            awaited: None,
            output: Vec::new(),
            sent_bytes: 0,
            is_ended: false,
            is_refused: false,
            active: now,
            only,
        })
    }

    /// Bytes of memory held.
    #[cfg(test)]
    fn held_bytes(&self) -> usize {
        self.input.capacity() + self.output.capacity()
    }

    /// Serves the client as far as possible without waiting. Returns whether to keep it.
    fn serve(&mut self, now: Instant, answer: &mut dyn FnMut(&Request) -> Reply) -> bool {
        self.go_on(now, answer).is_ok()
            && now.saturating_duration_since(self.active) < CLIENT_IDLE_MAX
    }

    /// An error means that the connection is done.
    fn go_on(&mut self, now: Instant, answer: &mut dyn FnMut(&Request) -> Reply) -> io::Result<()> {
        for _ in 0..REQUEST_COUNT_MAX {
            if !self.is_answered(now)? || !self.is_sent(now)? {
                return Ok(());
            }
            self.read()?;
            let Some(line) = self.line() else {
                return if self.is_ended {
                    Err(io::ErrorKind::UnexpectedEof.into())
                } else {
                    Ok(())
                };
            };
            self.active = now;
            match line.and_then(|line| Request::read(&line)) {
                Ok(request) if !self.may_send(&request) => {
                    let refusal = || Err(ONLY_QUERIES.to_owned());
                    self.notes.add(&request, refusal);
                    self.output = answer_line(refusal());
                }
                Ok(request) => match answer(&request) {
                    Reply::Now(answer) => {
                        self.notes.add(&request, || answer.clone());
                        self.output = answer_line(answer);
                    }
                    Reply::Later(answer) => self.awaited = Some((request, answer)),
                    Reply::Stream(stream) => {
                        self.notes.add(&request, || Ok(Value::Null));
                        stream.take(self.stream.try_clone()?);
                        // Another function has the connection now.
                        return Err(io::ErrorKind::Other.into());
                    }
                },
                Err(error) => self.output = answer_line(Err(error)),
            }
        }
        if self.is_answered(now)? { self.is_sent(now).map(|_| ()) } else { Ok(()) }
    }

    fn may_send(&self, request: &Request) -> bool {
        self.only.is_none_or(|is_query| request.is_common_query() || is_query(request))
    }

    /// Takes the promised answer, once it has come. Returns whether no answer is awaited any more.
    /// An error means that the client no longer waits.
    fn is_answered(&mut self, now: Instant) -> io::Result<bool> {
        let Some((request, promise)) = &self.awaited else { return Ok(true) };
        // The delay is the program's.
        self.active = now;
        let Some(line) = promise.line() else {
            if !self.has_gone() {
                return Ok(false);
            }
            self.notes.add(request, || Err("its client went away before the answer".to_owned()));
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let unread = || Err("its answer can't be read".to_owned());
        self.notes.add(request, || read_answer(line.trim_ascii_end()).unwrap_or_else(unread));
        (self.awaited, self.output) = (None, line);
        Ok(true)
    }

    /// Whether the client has closed its connection. One that only sends nothing more still reads.
    fn has_gone(&self) -> bool {
        // poll(2) reports a hangup without being asked.
        let mut events = [PollFd::new(&self.stream, PollFlags::empty())];
        matches!(poll(&mut events, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1..))
    }

    /// Sends more of the answer. Returns whether all of it is sent.
    fn is_sent(&mut self, now: Instant) -> io::Result<bool> {
        while self.sent_bytes < self.output.len() {
            match self.stream.write(&self.output[self.sent_bytes..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.sent_bytes += count;
                    self.active = now;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.is_refused {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // The memory of a long answer is not kept for the next.
        (self.output, self.sent_bytes) = (Vec::new(), 0);
        Ok(true)
    }

    /// Reads the bytes that have come, up to more than a request.
    fn read(&mut self) -> io::Result<()> {
        let room = (REQUEST_BYTES_MAX + 1).saturating_sub(self.input.len());
        match (&self.stream).take(room as u64).read_to_end(&mut self.input) {
            Ok(count) => self.is_ended |= count < room,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Takes the first line out of the input, without its feed. The rest at the end of all input is
    /// a line, too.
    fn line(&mut self) -> Option<Result<Vec<u8>, String>> {
        let end = self.input.iter().position(|byte| *byte == b'\n');
        if end.unwrap_or(self.input.len()) > REQUEST_BYTES_MAX {
            self.is_refused = true;
            return Some(Err(format!("a request has at most {REQUEST_BYTES_MAX} bytes")));
        }
        if let Some(end) = end {
            let mut line: Vec<_> = self.input.drain(..=end).collect();
            line.pop();
            return Some(Ok(line));
        }
        let is_whole = self.is_ended && !self.input.is_empty();
        is_whole.then(|| Ok(std::mem::take(&mut self.input)))
    }
}

#[cfg(test)]
mod tests;
