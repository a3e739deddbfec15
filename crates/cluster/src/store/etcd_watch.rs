//! A running watch of keys: messages, a line of JSON each.

use super::access::Token;
use super::error::{StoreError, StoreErrorKind};
use super::gateway;
use crate::settings::StoreAddress;
use hotloop::packet::excerpt::excerpt;
use serde_json::Value;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use ureq::{Body, BodyReader, Timeout};

/// Maximum length of a message, in bytes: the watched keys have short values.
const MESSAGE_BYTES_MAX: u64 = 4 << 20;

/// The result of a wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WatchEvent {
    /// The store's watch has begun.
    Begun,
    /// Keys have changed.
    Changed,
    /// The time of the watch is over.
    Over,
}

/// A watch of keys.
pub struct EtcdWatch {
    address: StoreAddress,
    /// The token of the client that began the watch.
    token: Token,
    lines: BufReader<BodyReader<'static>>,
}

impl EtcdWatch {
    pub(super) fn new(address: StoreAddress, body: Body, token: Token) -> Self {
        let lines = BufReader::new(body.into_reader());
        Self { address, token, lines }
    }

    /// Waits until there is something to report.
    ///
    /// # Errors
    /// [`StoreErrorKind::Compacted`] if the first revision of the watch is no longer kept, and any
    /// error that ends the connection or comes in place of a message.
    pub fn wait(&mut self) -> Result<WatchEvent, StoreError> {
        let mut line = Vec::new();
        let read = (&mut self.lines).take(MESSAGE_BYTES_MAX).read_until(b'\n', &mut line);
        match read {
            Err(error) if is_over(&error) => return Ok(WatchEvent::Over),
            Err(error) => return Err(self.lost(&error.to_string())),
            Ok(0) => return Err(self.lost("the member has closed the connection")),
            Ok(_) => {}
        }
        let message: Value = serde_json::from_slice(&line)
            .map_err(|_| self.lost(&format!("no message: {}", String::from_utf8_lossy(&line))))?;
        let result = &message["result"];
        if gateway::number(&result["compact_revision"]).is_some_and(|revision| revision > 0) {
            let problem = "the revision that the watch began at was compacted; read the newest one";
            return Err(StoreError::new(StoreErrorKind::Compacted, &self.address, problem));
        }
        let is_refused = message["error"].is_object() || result["canceled"] == true;
        if is_refused {
            let message = message.to_string();
            if gateway::is_about_token(&message) {
                // The next watch begins with a new one.
                self.token.set(None);
            }
            return Err(self.lost(&format!("the watch has ended: {message}")));
        }
        match (result["events"].as_array(), result["created"].as_bool()) {
            (Some(events), _) if !events.is_empty() => Ok(WatchEvent::Changed),
            (_, Some(true)) => Ok(WatchEvent::Begun),
            _ => Err(self.lost(&format!("the watch has ended: {message}"))),
        }
    }

    fn lost(&self, why: &str) -> StoreError {
        let problem = format!("the watch was lost ({}); it begins again", excerpt(why));
        StoreError::new(StoreErrorKind::Unreachable, &self.address, problem)
    }
}

/// Whether the time of the whole watch has passed.
fn is_over(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref());
    matches!(error, Some(ureq::Error::Timeout(Timeout::Global)))
}

impl fmt::Debug for EtcdWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdWatch").field("address", &self.address).finish_non_exhaustive()
    }
}
