//! Receive, look up, send: as threads over RAW sockets and in the engine's deployments.

mod forms;
mod raw;
pub mod reflector;

use crate::UdpBed;
use hotloop_measure::table::{Table, publish};

/// The name of the group.
pub const NAME: &str = "deployments";

/// Measures everything.
///
/// # Errors
/// The error message of a program that fails; and if the tables can't be written.
pub fn run(bed: &UdpBed) -> Result<(), String> {
    publish(NAME, &Table { rows: forms::rows(bed)?, ..Table::default() })
}
