//! Tables for people, and their cells.

use serde_json::Value;
use std::fmt;

/// Lines of cells in columns as wide as their widest cell. A column of numbers only (or `-`, for
/// none) is flush right, any other flush left. Characters other than printable ASCII are escaped,
/// so that a name cannot steer a terminal.
///
/// ```
/// use hotloop_ops::Table;
///
/// let mut table = Table::new(["backend", "weight", "share"]);
/// table.row(["10.0.0.1", "3", "75.0"]).row(["2001:db8::1", "1", "25.0"]);
/// assert_eq!(
///     table.to_string(),
///     "backend      weight  share\n\
///      10.0.0.1          3   75.0\n\
///      2001:db8::1       1   25.0"
/// );
/// ```
#[derive(Clone, Debug)]
pub struct Table {
    heads: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    #[must_use]
    pub fn new(heads: impl IntoIterator<Item: ToString>) -> Self {
        Self { heads: cells(heads), rows: Vec::new() }
    }

    /// Adds a line.
    ///
    /// # Panics
    /// If the number of cells differs from that of the columns.
    pub fn row(&mut self, row: impl IntoIterator<Item: ToString>) -> &mut Self {
        let row = cells(row);
        assert_eq!(row.len(), self.heads.len(), "a cell for each column");
        self.rows.push(row);
        self
    }

    /// Whether there are no lines below the heads.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

fn cells(cells: impl IntoIterator<Item: ToString>) -> Vec<String> {
    cells.into_iter().map(|cell| printable(cell.to_string())).collect()
}

fn printable(cell: String) -> String {
    let is_printable = cell.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    if is_printable { cell } else { cell.escape_default().to_string() }
}

fn is_number(cell: &str) -> bool {
    cell == "-" || cell.parse::<f64>().is_ok_and(f64::is_finite)
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let column = |index: usize| self.rows.iter().map(move |row| row[index].as_str());
        let columns = self.heads.iter().enumerate().map(|(index, head)| {
            let width = column(index).chain([head.as_str()]).map(|cell| cell.chars().count());
            (width.max().unwrap_or(0), !self.rows.is_empty() && column(index).all(is_number))
        });
        let columns: Vec<_> = columns.collect();
        for (index, row) in std::iter::once(&self.heads).chain(&self.rows).enumerate() {
            let padded = row.iter().zip(&columns).map(|(cell, (width, is_right))| {
                if *is_right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
            });
            let line = padded.collect::<Vec<_>>().join("  ");
            let feed = if index == 0 { "" } else { "\n" };
            write!(f, "{feed}{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// The elements of an array; no elements for any other value.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Text and numbers as they are, `-` if unknown.
pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A number with `digits` digits after the point, `-` if unknown.
pub(crate) fn rounded(value: &Value, digits: usize) -> String {
    value.as_f64().map_or_else(|| cell(value), |number| format!("{number:.digits$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_flush_right_and_addresses_are_no_numbers() {
        let mut table = Table::new(["address", "packets", "why"]);
        table.row(["10.0.0.1", "7", ""]).row(["::1", "-", "down"]).row(["a", "1000000000", "x y"]);
        assert_eq!(
            table.to_string(),
            "address      packets  why\n\
             10.0.0.1           7\n\
             ::1                -  down\n\
             a         1000000000  x y"
        );
    }

    #[test]
    fn a_table_without_lines_has_its_heads() {
        let table = Table::new(["a", "b"]);
        assert!(table.is_empty());
        assert_eq!(table.to_string(), "a  b");
    }

    #[test]
    fn no_cell_can_steer_a_terminal() {
        let mut table = Table::new(["name", "n"]);
        table.row(["\u{1b}[2Jx\ny", "1"]);
        let text = table.to_string();
        assert!(text.ends_with("\n\\u{1b}[2Jx\\ny  1"), "{text}");
        assert!(!text.contains('\u{1b}') && text.lines().count() == 2, "{text}");
    }

    #[test]
    #[should_panic(expected = "a cell for each column")]
    fn a_line_with_another_number_of_cells_is_refused() {
        Table::new(["a", "b"]).row(["1"]);
    }
}
