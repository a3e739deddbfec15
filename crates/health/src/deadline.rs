//! The deadline of a probe, and an operator's text for its failure.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

/// The beginning of the text for every probe that timed out.
pub const TIMED_OUT: &str = "timed out";

/// The deadline of a probe.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    start: Instant,
    timeout_ms: u32,
}

impl Deadline {
    /// A deadline `timeout_ms` milliseconds from now.
    pub fn start(timeout_ms: u32) -> Self {
        Self { start: Instant::now(), timeout_ms }
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// The time of the deadline.
    pub fn end(&self) -> Instant {
        self.start + Duration::from_millis(self.timeout_ms.into())
    }

    /// The reason that a probe failed with `error` during the step `doing`: "while connecting".
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
