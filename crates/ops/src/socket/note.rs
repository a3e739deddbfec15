//! The log of clients' requests.

use crate::request::Request;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use serde_json::Value;
use std::os::unix::net::UnixStream;

/// The text, on one line, that the log gets for a request and its answer; `None` for one that is not logged. The answer may
/// take time to read. It is null if a stream follows.
pub type Note = fn(&Request, &dyn Fn() -> Answer) -> Option<String>;

/// An answer, or an error.
type Answer = Result<Value, String>;

/// Logs the requests of a client.
#[derive(Debug)]
pub struct Notes {
    note: Note,
    /// The client's user and process as it connected (unix(7), `SO_PEERCRED`).
    by: String,
}

impl Notes {
    pub fn of(client: &UnixStream, note: Note) -> Self {
        let by = match getsockopt(client, PeerCredentials) {
            // A process outside this one's container has no number here.
            Ok(peer) if peer.pid() == 0 => format!("user {}", peer.uid()),
            Ok(peer) => format!("user {}, process {}", peer.uid(), peer.pid()),
            Err(error) => format!("unknown: {error}"),
        };
        Self { note, by }
    }

    /// Logs this request.
    pub fn add(&self, request: &Request, answer: impl Fn() -> Answer) {
        if let Some(note) = (self.note)(request, &answer) {
            tracing::info!("ctl {} by {}: {note}", request.command, self.by);
        }
    }
}
