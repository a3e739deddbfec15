//! The server's side of a control socket.

mod bind;
mod client;

pub use bind::SocketError;

use crate::request::{Reply, Request};
use bind::Bound;
use client::Client;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// The most clients served at a time. One more takes the place of the one that has been idle
/// longest.
pub const CLIENT_COUNT_MAX: usize = 16;

/// How long a client may neither finish a request nor take an answer before its connection is
/// closed.
pub const CLIENT_IDLE_MAX: Duration = Duration::from_secs(30);

/// A control socket: a listening Unix stream socket, which only its owner may connect to.
///
/// It is removed when this is dropped.
#[derive(Debug)]
pub struct Socket {
    bound: Bound,
    clients: Vec<Client>,
    since: Instant,
}

impl Socket {
    /// Listens at `path`. The socket has mode 0600 from the first moment on. Its folder is created
    /// with mode 0700 if missing. A socket that a program has left there is replaced.
    ///
    /// # Errors
    /// A running program listens there, something else is there, or the system refuses. The error
    /// has a remedy.
    pub fn bind(path: &Path) -> Result<Self, SocketError> {
        let bound = Bound::at(path)?;
        Ok(Self { bound, clients: Vec::with_capacity(CLIENT_COUNT_MAX), since: Instant::now() })
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
        for _ in 0..CLIENT_COUNT_MAX {
            match self.bound.listener.accept() {
                Ok((stream, _)) => {
                    if let Ok(client) = Client::new(stream, now) {
                        self.make_room();
                        self.clients.push(client);
                    }
                }
                // Another client went away before it was accepted.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                // No client waits, or too many files are open, which passes.
                Err(_) => return,
            }
        }
    }

    /// Closes the connection that has been idle longest, if all places are taken.
    fn make_room(&mut self) {
        if self.clients.len() < CLIENT_COUNT_MAX {
            return;
        }
        let idlest = self.clients.iter().enumerate().min_by_key(|(_, client)| client.active());
        if let Some((index, _)) = idlest {
            self.clients.remove(index);
        }
    }
}

#[cfg(test)]
mod tests;
