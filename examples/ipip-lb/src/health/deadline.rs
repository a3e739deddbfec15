//! When a probe must be over, and what an operator reads of what went wrong with it.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

/// How the text of every probe begins whose time was over.
pub const TIMED_OUT: &str = "timed out";

/// When a probe must be over.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    start: Instant,
    timeout_ms: u32,
}

impl Deadline {
    /// `timeout_ms` milliseconds from now.
    pub fn start(timeout_ms: u32) -> Self {
        Self { start: Instant::now(), timeout_ms }
    }

    /// How long it is since the start.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// When it is over.
    pub fn end(&self) -> Instant {
        self.start + Duration::from_millis(self.timeout_ms.into())
    }

    /// Why a probe failed that met `error` when it did what `doing` says: "while connecting".
    pub fn why(&self, error: &io::Error, doing: &str) -> String {
        match error.kind() {
            ErrorKind::TimedOut => {
                format!("{TIMED_OUT} after {} ms {doing}", self.timeout_ms)
            }
            ErrorKind::ConnectionRefused => "connection refused".into(),
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                format!("connection reset {doing}")
            }
            ErrorKind::UnexpectedEof => format!("connection closed {doing}"),
            ErrorKind::HostUnreachable => "host unreachable".into(),
            ErrorKind::NetworkUnreachable => "network unreachable".into(),
            _ => format!("{error} {doing}"),
        }
    }
}
