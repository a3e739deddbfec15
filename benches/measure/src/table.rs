//! A group's table: printed, and written as JSON and Markdown.

use crate::row::Row;
use std::path::PathBuf;

/// A group's table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The comparisons, which the JSON file has, too.
    pub rows: Vec<Row>,
    /// Notes beside the rows, such as the state of the machine.
    pub notes: Vec<String>,
    /// Rows that can't be shown here, each with the reason.
    pub unshown: Vec<String>,
}

impl Table {
    /// Prints the table, and the rows that could not be shown with their reasons.
    pub fn print(&self) {
        let Self { rows, notes, unshown } = self;
        print_rows(rows);
        for note in notes {
            println!("note: {note}");
        }
        for reason in unshown {
            println!("not shown: {reason}");
        }
    }

    /// The rows in JSON.
    ///
    /// # Panics
    /// Never: a row is text and numbers.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(&self.rows).expect("text and numbers") + "\n"
    }

    /// The notes, and the rows not shown, as a Markdown list.
    #[must_use]
    pub fn list(&self) -> String {
        let notes = self.notes.iter().map(|note| format!("- {note}\n"));
        let unshown = self.unshown.iter().map(|reason| format!("- not shown: {reason}\n"));
        notes.chain(unshown).collect()
    }
}

/// Prints the table, and writes `target/bench/GROUP.json` and `GROUP.md`.
///
/// # Errors
/// If a file can't be written.
pub fn publish(group: &str, table: &Table) -> Result<(), String> {
    table.print();
    write(group, "json", &table.json())?;
    write(group, "md", &markdown(table))
}

/// Writes a file of a group into `target/bench`.
///
/// # Errors
/// If the file can't be written.
pub fn write(group: &str, extension: &str, text: &str) -> Result<(), String> {
    let path = folder().join(group).with_extension(extension);
    let written = std::fs::create_dir_all(folder()).and_then(|()| std::fs::write(&path, text));
    let written = written.and_then(|()| path.canonicalize());
    let path = written.map_err(|error| format!("{} can't be written: {error}", path.display()))?;
    println!("written to {}", path.display());
    Ok(())
}

fn print_rows(rows: &[Row]) {
    let width = |name: fn(&Row) -> &str, head: &str| {
        rows.iter().map(|row| name(row).chars().count()).max().unwrap_or(0).max(head.len())
    };
    let (names, peers) = (width(|row| &row.name, "row"), width(|row| &row.peer, "peer"));
    let units = width(|row| row.unit, "unit");
    println!(
        "{:<names$}  {:>peers$}  {:>units$} {:>9} {:>9} {:>7} {:>6} {:>7} {:>5} {:>15}  result",
        "row", "peer", "unit", "ours", "theirs", "ratio", "aim", "spread", "kept", "instructions"
    );
    for row in rows {
        println!(
            "{:<names$}  {:>peers$}  {:>units$} {:>9.2} {:>9.2} {:>7.3} {:>6.2} {:>6.1}% {:>5} {:>15}  {}",
            row.name,
            row.peer,
            row.unit,
            row.ours,
            row.theirs,
            row.ratio,
            row.aim,
            row.spread * 100.0,
            row.rounds,
            instructions(row.instructions),
            row.result
        );
    }
}

/// The instructions per operation on both sides, if counted.
#[must_use]
pub fn instructions(counts: [Option<f64>; 2]) -> String {
    let text = |count: Option<f64>| count.map(|count| format!("{count:.1}"));
    match counts.map(text) {
        [Some(ours), Some(theirs)] => format!("{ours} / {theirs}"),
        [Some(only), None] => only,
        _ => String::new(),
    }
}

/// The table in Markdown, followed by its notes as a list.
#[must_use]
pub fn markdown(table: &Table) -> String {
    let mut text = "| what | beside | hotloop | theirs | ratio | aim | result | spread | kept | \
                    instructions |\n"
        .to_owned();
    text.push_str("|---|---|---|---|---|---|---|---|---|---|\n");
    for row in &table.rows {
        let Row { name, peer, unit, ours, theirs, ratio, aim, rounds, .. } = row;
        let (result, spread) = (row.result, row.spread * 100.0);
        text.push_str(&format!(
            "| {name} | {peer} | {ours:.2} {unit} | {theirs:.2} | {ratio:.2} | {aim:.2} | {result} | \
             {spread:.0} % | {rounds} | {} |\n",
            instructions(row.instructions)
        ));
    }
    let list = table.list();
    if list.is_empty() { text } else { format!("{text}\n{list}") }
}

/// `target/bench` in the folder that cargo builds in.
#[must_use]
pub fn folder() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let default = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target");
    target.unwrap_or_else(default).join("bench")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Figure;

    #[test]
    fn markdown_has_a_line_for_each_row_and_note() {
        let row = Row::rate("io", "peer", "Mpps", (&Figure::exact(1.0), &Figure::exact(2.0)), 1.0);
        let row = row.counted([Some(30.25), Some(20.0)]);
        let (rows, notes, unshown) = (vec![row], vec!["a note".to_owned()], vec!["far".to_owned()]);
        let text = markdown(&Table { rows, notes, unshown });
        let lines: Vec<_> = text.lines().skip(2).collect();
        let line =
            "| io | peer | 1.00 Mpps | 2.00 | 0.50 | 1.00 | missed | 0 % | 1 | 30.2 / 20.0 |";
        assert_eq!(lines, [line, "", "- a note", "- not shown: far"]);
    }
}
