//! Receive, look up, send: as threads over RAW sockets and in the engine's deployments; receivers
//! under increasing load; and the cost of a packet, depending on the work for it and on whether it
//! crosses to another core.

mod forms;
mod lines;
mod raw;
pub mod reflector;
mod scaling;
mod sweep;

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
    let sweeps = sweep::sweep(bed)?;
    let scaling = scaling::text().map_err(|error| error.to_string())?;
    let table = Table { rows, ..Table::default() };
    table.print();
    let loads = sweep::table(&sweeps);
    println!("\n{loads}\n{scaling}");
    let page = format!(
        "{}\n## More and more load\n\n![What is received of what is sent](loads.svg)\n\n{loads}\n## What a packet costs\n\n{scaling}",
        markdown(&table)
    );
    write(NAME, "json", &table.json())?;
    write("loads", "svg", &lines::svg(&sweeps))?;
    write(NAME, "md", &page)
}
