//! Rows of a benchmark's table.

use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;

/// One comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was measured.
    pub name: String,
    /// What it is compared with; `limit` where that is a bound and no program.
    pub peer: String,
    /// The unit of `ours` and `theirs`.
    pub unit: &'static str,
    /// Our median.
    pub ours: f64,
    /// The peer's median, or the limit.
    pub theirs: f64,
    /// The median of the rounds' ratios: above 1 means that hotloop is ahead.
    pub ratio: f64,
    /// The ratio aimed at.
    pub aim: f64,
    /// Whether the aim was met.
    pub met: bool,
    /// The largest ratio of a round less the smallest, over the median; beside a limit, the range of
    /// the rounds' figures over the limit.
    pub spread: f64,
    /// How many rounds.
    pub rounds: usize,
}

impl Row {
    /// A row of figures where more is better, each of ours beside the peer's of the same round.
    ///
    /// # Panics
    /// Without a round.
    #[must_use]
    pub fn rate(
        name: &str,
        peer: &str,
        unit: &'static str,
        rounds: &[(f64, f64)],
        aim: f64,
    ) -> Self {
        let ratios: Vec<_> = rounds.iter().map(|(ours, theirs)| ours / theirs).collect();
        Self::new(name, peer, unit, medians(rounds), &ratios, aim)
    }

    /// A row of figures where less is better, each of ours beside the peer's of the same round.
    ///
    /// # Panics
    /// Without a round.
    #[must_use]
    pub fn time(
        name: &str,
        peer: &str,
        unit: &'static str,
        rounds: &[(f64, f64)],
        aim: f64,
    ) -> Self {
        let ratios: Vec<_> = rounds.iter().map(|(ours, theirs)| theirs / ours).collect();
        Self::new(name, peer, unit, medians(rounds), &ratios, aim)
    }

    /// A row of figures where less is better, against a limit.
    ///
    /// # Panics
    /// Without a round.
    #[must_use]
    pub fn limit(name: &str, unit: &'static str, ours: &[f64], limit: f64) -> Self {
        // A figure that noise makes zero or negative is far within the limit, not beyond measure.
        let ratios: Vec<_> = ours.iter().map(|ours| limit / ours.max(limit / 100.0)).collect();
        let row = Self::new(name, "limit", unit, (median(ours), limit), &ratios, 1.0);
        Self { spread: range(ours) / limit, ..row }
    }

    fn new(
        name: &str,
        peer: &str,
        unit: &'static str,
        (ours, theirs): (f64, f64),
        ratios: &[f64],
        aim: f64,
    ) -> Self {
        let ratio = median(ratios);
        Self {
            name: name.to_owned(),
            peer: peer.to_owned(),
            unit,
            ours,
            theirs,
            ratio,
            aim,
            met: ratio >= aim,
            spread: range(ratios) / ratio,
            rounds: ratios.len(),
        }
    }
}

fn range(figures: &[f64]) -> f64 {
    let most = figures.iter().copied().fold(f64::MIN, f64::max);
    most - figures.iter().copied().fold(f64::MAX, f64::min)
}

/// Of our side, and of theirs.
fn medians(rounds: &[(f64, f64)]) -> (f64, f64) {
    let (ours, theirs): (Vec<_>, Vec<_>) = rounds.iter().copied().unzip();
    (median(&ours), median(&theirs))
}

/// The middle one of these figures; of an even number, the mean of the middle two.
///
/// # Panics
/// Without a figure.
#[must_use]
pub fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

/// A group's table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The comparisons: they are in the JSON file too.
    pub rows: Vec<Row>,
    /// What is worth knowing beside the rows, such as the state of the machine.
    pub notes: Vec<String>,
    /// Rows that can't be shown here, each with the reason.
    pub unshown: Vec<String>,
}

/// Prints the table, with what could not be shown and why, and writes `target/bench/GROUP.json` and
/// `GROUP.md`.
///
/// # Errors
/// Where a file can't be written.
pub fn publish(group: &str, table: &Table) -> std::io::Result<()> {
    let Table { rows, notes, unshown } = table;
    print_rows(rows);
    for note in notes {
        println!("beside it: {note}");
    }
    for reason in unshown {
        println!("not shown: {reason}");
    }
    let path = folder().join(format!("{group}.json"));
    std::fs::create_dir_all(folder())?;
    let mut file = std::fs::File::create(&path)?;
    file.write_all(serde_json::to_string_pretty(rows)?.as_bytes())?;
    file.write_all(b"\n")?;
    std::fs::write(path.with_extension("md"), markdown(table))?;
    println!("written to {}", path.canonicalize()?.display());
    Ok(())
}

fn print_rows(rows: &[Row]) {
    let width = |name: fn(&Row) -> &str, head: &str| {
        rows.iter().map(|row| name(row).chars().count()).max().unwrap_or(0).max(head.len())
    };
    let (names, peers) = (width(|row| &row.name, "row"), width(|row| &row.peer, "peer"));
    let units = width(|row| row.unit, "unit");
    println!(
        "{:<names$}  {:>peers$}  {:>units$} {:>9} {:>9} {:>7} {:>6} {:>7} {:>4}",
        "row", "peer", "unit", "ours", "theirs", "ratio", "aim", "spread", "met"
    );
    for row in rows {
        println!(
            "{:<names$}  {:>peers$}  {:>units$} {:>9.2} {:>9.2} {:>7.3} {:>6.2} {:>6.1}% {:>4}",
            row.name,
            row.peer,
            row.unit,
            row.ours,
            row.theirs,
            row.ratio,
            row.aim,
            row.spread * 100.0,
            if row.met { "yes" } else { "no" }
        );
    }
}

/// The table in Markdown, followed by its notes as a list.
fn markdown(table: &Table) -> String {
    let mut text = "| what | beside | hotloop | theirs | ratio | aim | spread |\n".to_owned();
    text.push_str("|---|---|---|---|---|---|---|\n");
    for row in &table.rows {
        let Row { name, peer, unit, ours, theirs, ratio, aim, .. } = row;
        let (mark, spread) = (if row.met { "" } else { " ✗" }, row.spread * 100.0);
        text.push_str(&format!(
            "| {name} | {peer} | {ours:.2} {unit} | {theirs:.2} | {ratio:.2}{mark} | {aim:.2} | \
             {spread:.0} % |\n"
        ));
    }
    let notes = table.notes.iter().map(|note| format!("- {note}\n"));
    let unshown = table.unshown.iter().map(|reason| format!("- not shown: {reason}\n"));
    let list: String = notes.chain(unshown).collect();
    if list.is_empty() { text } else { format!("{text}\n{list}") }
}

/// `target/bench`, where cargo builds.
fn folder() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let default = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target");
    target.unwrap_or_else(default).join("bench")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_has_a_line_for_each_row_and_note() {
        let row = Row::rate("io", "peer", "Mpps", &[(1.0, 2.0)], 1.0);
        let (rows, notes, unshown) = (vec![row], vec!["a note".to_owned()], vec!["far".to_owned()]);
        let text = markdown(&Table { rows, notes, unshown });
        let lines: Vec<_> = text.lines().skip(2).collect();
        let line = "| io | peer | 1.00 Mpps | 2.00 | 0.50 ✗ | 1.00 | 0 % |";
        assert_eq!(lines, [line, "", "- a note", "- not shown: far"]);
    }

    #[test]
    fn the_ratio_is_the_median_of_the_rounds() {
        let row = Row::rate("io", "peer", "Mpps", &[(2.0, 1.0), (3.0, 2.0), (1.0, 1.0)], 1.5);
        assert_eq!((row.ratio, row.met, row.rounds), (1.5, true, 3));
        assert_eq!((row.ours, row.theirs), (2.0, 1.0));
        assert!((row.spread - 1.0 / 1.5).abs() < 1e-9);
    }

    #[test]
    fn less_time_is_ahead() {
        let row = Row::time("push", "peer", "ns", &[(2.0, 4.0), (1.0, 3.0), (2.0, 2.0)], 2.0);
        assert_eq!((row.ratio, row.ours, row.theirs, row.met), (2.0, 2.0, 3.0, true));
    }

    #[test]
    fn a_limit_is_met_from_below() {
        let row = Row::limit("stage", "ns", &[0.5, 0.8, -0.1], 1.0);
        assert!(row.met && (row.spread - 0.9).abs() < 1e-9);
        assert!(!Row::limit("stage", "ns", &[1.5, 1.2, 0.9], 1.0).met);
    }
}
