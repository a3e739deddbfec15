//! The state of a program that has ended its run, for its successor.

use super::inheritance::Inheritance;
use super::machine_time::MachineTime;
use super::successor::Successor;
use serde::Serialize;
use std::os::fd::OwnedFd;

/// Everything for the program that takes over from this one.
#[derive(Debug)]
pub struct HandedOver<S> {
    successor: Successor,
    inheritance: Inheritance<S>,
    files: Vec<OwnedFd>,
}

impl<S: Serialize> HandedOver<S> {
    /// Collects the state of a program that has received nothing since `closed`.
    #[must_use]
    pub const fn new(successor: Successor, closed: MachineTime, state: S) -> Self {
        let inheritance = Inheritance { closed, interfaces: Vec::new(), state };
        Self { successor, inheritance, files: Vec::new() }
    }

    /// Adds TAP interfaces, each with its name.
    #[must_use]
    pub fn with_interfaces(mut self, interfaces: Vec<(String, OwnedFd)>) -> Self {
        (self.inheritance.interfaces, self.files) = interfaces.into_iter().unzip();
        self
    }

    /// Passes everything to the successor. Nothing of this program may still be in the successor's
    /// way.
    ///
    /// # Errors
    /// If the successor is gone: no program balances.
    pub fn hand_over(self) -> Result<(), String> {
        self.successor.leave(&self.inheritance, self.files)?;
        let ms = self.inheritance.closed.elapsed_ms();
        tracing::info!(
            "replace: everything is handed over, {ms:.1} ms after the last packet was received"
        );
        Ok(())
    }
}
