//! The cost of a known connection's packet, and the tables' memory, for growing numbers of
//! connections, services or backends: a group of its own.
//!
//! `cargo xtask bench growth -- services` measures only that series; the others are `connections`
//! and `backends`. `--quick` leaves out the largest sizes.

mod machine;
mod page;
mod picture;
mod series;

use hotloop_measure::cores::Pair;
use hotloop_measure::hugepages::Reserved;
use hotloop_measure::instrument::Instrument;
use hotloop_measure::table::{Table, write};
pub use series::short;
use series::{Growth, Series};

/// The name of the group.
pub const GROUP: &str = "growth";

/// Memory reserved for everything except connections, in bytes.
const SPARE_BYTES: usize = 2 << 30;

/// Measures the series named in `words`, or all.
pub fn run(mut instrument: Instrument, words: &[&str]) -> Result<(), String> {
    let parts: Vec<_> = words.iter().filter(|word| !word.starts_with("--")).collect();
    let wants = |kind: &Growth| parts.is_empty() || parts.iter().any(|word| **word == kind.name);
    let mut kinds: Vec<_> = Growth::ALL.into_iter().filter(wants).collect();
    let mut table = Table::default();
    let room_bytes = machine::free_bytes().saturating_sub(SPARE_BYTES);
    for kind in &mut kinds {
        if words.contains(&"--quick") {
            kind.counts = &kind.counts[..kind.counts.len() - 2];
        }
        table.unshown.extend(kind.fit(room_bytes));
    }
    let page_count = kinds.iter().map(Growth::hugepage_count).max().unwrap_or(0);
    let reserved = Reserved::hugepages(page_count);
    if let Err(reason) = &reserved {
        table.unshown.push(format!("all sizes on reserved 2 MiB pages: {reason}"));
    }
    Pair::pin()?;
    let mut all: Vec<Series> = Vec::new();
    for kind in &kinds {
        all.extend(kind.measure(&mut instrument)?);
    }
    drop(reserved);
    if instrument.is_part() {
        return Ok(());
    }
    table.rows = all.iter().flat_map(Series::steps).map(|step| step.row.clone()).collect();
    table.notes = page::notes();
    table.notes.extend(instrument.finish());
    table.print();
    let files =
        [("json", table.json()), ("md", page::markdown(&all, &table)), ("svg", picture::svg(&all))];
    for (extension, text) in files {
        write(GROUP, extension, &text)?;
    }
    Ok(())
}
