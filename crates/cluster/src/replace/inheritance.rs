//! The state that a program passes to its successor.

use super::end::Legacy;
use super::machine_time::MachineTime;
use hotloop_balancer::exceptions::Change;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// The predecessor's state at the end, apart from connections.
#[derive(Debug, Deserialize, Serialize)]
pub struct Inheritance<S> {
    /// The time since which it has received nothing.
    #[serde(rename = "closed_ns")]
    pub closed: MachineTime,
    /// The names of the interfaces, in the order of the files that come with this message.
    #[serde(default)]
    pub interfaces: Vec<String>,
    /// The state that only the program itself understands.
    #[serde(flatten)]
    pub state: S,
}

/// The state that the successor has received.
#[derive(Debug)]
pub struct Inherited<S> {
    /// The time since which the predecessor has received nothing.
    pub closed: MachineTime,
    /// The state that only the program itself understands.
    pub state: S,
    /// The files of the predecessor's TAP interfaces, by interface name.
    pub interfaces: HashMap<String, OwnedFd>,
    /// Connections on another backend than the configuration chooses, and the start of their times.
    legacy: (Legacy, Instant),
}

impl<S> Inherited<S> {
    /// Combines all of the predecessor's state.
    pub(super) fn new(
        inheritance: Inheritance<S>,
        files: Vec<OwnedFd>,
        legacy: (Legacy, Instant),
    ) -> Self {
        let Inheritance { closed, interfaces, state } = inheritance;
        Self { closed, state, interfaces: interfaces.into_iter().zip(files).collect(), legacy }
    }

    /// The connections, with their times as of now.
    pub fn take_connections(&mut self) -> Vec<Change> {
        let (legacy, since) = &mut self.legacy;
        legacy.end.set_now(since.elapsed().as_millis() as u64);
        legacy.connections()
    }
}
