//! Receive, look up, send: as threads over RAW sockets and in the engine's deployments; and the cost
//! of a packet, depending on the work for it and on whether it crosses to another core.

mod forms;
mod raw;
pub mod reflector;
mod scaling;

use crate::Bed;
use hotloop_measure::table::{Table, markdown, write};

/// The name of the group.
pub const NAME: &str = "deployments";

/// Measures everything.
///
/// # Errors
/// The error message of a program that fails; and if the tables can't be written.
pub fn run(bed: &Bed) -> Result<(), String> {
    let rows = forms::rows(bed)?;
    let scaling = scaling::text().map_err(|error| error.to_string())?;
    let table = Table { rows, ..Table::default() };
    table.print();
    println!("\n{scaling}");
    let page = format!("{}\n## What a packet costs\n\n{scaling}", markdown(&table));
    write(NAME, "json", &table.json())?;
    write(NAME, "md", &page)
}
