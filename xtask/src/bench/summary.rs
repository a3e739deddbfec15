//! The results of several tables, or of several runs.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::failure::Failure;

/// The rows of all tables, each with its results in the order of the runs.
#[derive(Default)]
pub struct Summary(BTreeMap<String, Vec<Row>>);

/// The fields that are read from a row.
#[derive(Deserialize)]
struct Row {
    name: String,
    peer: String,
    unit: String,
    ours: Option<f64>,
    theirs: Option<f64>,
    /// `None` if there was nothing to divide.
    ratio: Option<f64>,
    /// `met`, `missed` or `unsettled`.
    result: String,
    settled: bool,
}

impl Summary {
    /// Adds a table.
    pub fn add(&mut self, file: &Path) -> Result<(), Failure> {
        let text = fs::read_to_string(file).map_err(Failure::file("read", file))?;
        let rows: Vec<Row> = serde_json::from_str(&text).map_err(Failure::file("read", file))?;
        for row in rows {
            let name = format!("{} ({}, {})", row.name, row.peer, row.unit);
            self.0.entry(name).or_default().push(row);
        }
        Ok(())
    }
}

impl Row {
    /// The figure to compare between runs, as the spread does within a run: the ratio, or the share
    /// of a limit.
    fn figure(&self) -> Option<f64> {
        match (&*self.peer, self.ours.zip(self.theirs)) {
            ("limit", Some((ours, limit))) => Some(ours / limit),
            _ => self.ratio,
        }
    }

    /// The difference between the figures of runs.
    fn difference(&self, least: f64, most: f64) -> f64 {
        if self.peer == "limit" { most - least } else { most / least - 1.0 }
    }
}

/// The differences of rows that settled in several runs; then the targets that were met in the last
/// run.
impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.keys().map(|name| name.chars().count()).max().unwrap_or(0);
        for (name, runs) in &self.0 {
            let settled = || runs.iter().filter(|row| row.settled).filter_map(Row::figure);
            let (least, most) = settled().fold((f64::MAX, f64::MIN), |(least, most), ratio| {
                (least.min(ratio), most.max(ratio))
            });
            let last = &runs[runs.len() - 1];
            if runs.len() > 1 {
                write!(f, "{name:<width$}  settled {} of {}", settled().count(), runs.len())?;
                match settled().count() {
                    0 | 1 => writeln!(f)?,
                    _ => writeln!(
                        f,
                        ", {least:.3} to {most:.3}: {:.1} %",
                        last.difference(least, most) * 100.0
                    )?,
                }
            }
        }
        for (name, runs) in &self.0 {
            let last = &runs[runs.len() - 1];
            if last.result == "missed" {
                writeln!(f, "missed: {name}")?;
            }
        }
        let [met, missed, unsettled] = ["met", "missed", "unsettled"].map(|result| {
            self.0.values().filter(|runs| runs[runs.len() - 1].result == result).count()
        });
        writeln!(f, "aims met: {met}, missed: {missed}, unsettled: {unsettled}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_compared_and_aims_counted() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("group.json");
        let mut summary = Summary::default();
        for ratio in [1.0, 1.02] {
            let row = |name: &str, settled| {
                let result = if settled { "missed" } else { "unsettled" };
                format!(
                    r#"{{"name": "{name}", "peer": "p", "unit": "ns", "ratio": {ratio}, "result": "{result}",
                        "settled": {settled}, "spread": 0.1, "ours": 3.0, "theirs": {ratio}}}"#
                )
            };
            let limit = row("c", true).replace(r#""p""#, r#""limit""#);
            fs::write(&file, format!("[{}, {}, {limit}]", row("a", true), row("b", false)))
                .unwrap();
            summary.add(&file).unwrap();
        }
        let lines: Vec<_> = summary.to_string().lines().map(str::to_owned).collect();
        let expected = [
            "a (p, ns)      settled 2 of 2, 1.000 to 1.020: 2.0 %",
            "b (p, ns)      settled 0 of 2",
            "c (limit, ns)  settled 2 of 2, 2.941 to 3.000: 5.9 %",
            "missed: a (p, ns)",
            "missed: c (limit, ns)",
            "aims met: 0, missed: 2, unsettled: 1",
        ];
        assert_eq!(lines, expected);
    }
}
