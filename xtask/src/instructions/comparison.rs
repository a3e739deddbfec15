//! The counts of now beside those that are kept.

use std::collections::BTreeMap;
use std::fmt;

use super::CALL_COUNT;
use super::kept::Counts;

/// Every case that is kept or was counted.
pub struct Comparison {
    /// By name: the count kept, the count of now.
    rows: BTreeMap<String, (Option<u64>, Option<u64>)>,
}

impl Comparison {
    /// Compares case by case.
    pub fn new(kept: &Counts, now: &Counts) -> Self {
        let cases = kept.keys().chain(now.keys());
        let count = |counts: &Counts, case| counts.get(case).copied();
        let rows = cases.map(|case| (case.clone(), (count(kept, case), count(now, case))));
        Self { rows: rows.collect() }
    }

    /// How many cases are not as kept, new and absent ones included.
    pub fn changed_count(&self) -> usize {
        self.rows.values().filter(|(kept, now)| kept != now).count()
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.rows.keys().map(String::len).max().unwrap_or(0);
        write!(f, "{:width$} {:>10} {:>10}", "instructions a call", "kept", "now")?;
        for (case, row) in &self.rows {
            let (kept, now) = (per_call(row.0), per_call(row.1));
            write!(f, "\n{case:width$} {kept:>10} {now:>10}  {}", difference(*row))?;
        }
        Ok(())
    }
}

fn per_call(count: Option<u64>) -> String {
    count.map_or_else(|| "-".into(), |count| format!("{:.3}", count as f64 / CALL_COUNT as f64))
}

fn difference((kept, now): (Option<u64>, Option<u64>)) -> String {
    match (kept, now) {
        (Some(kept), Some(now)) if kept == now => "same".into(),
        (Some(kept), Some(now)) => {
            let share = (now as f64 - kept as f64) / kept as f64;
            format!("{:+.2} %", share * 100.0)
        }
        (None, _) => "new".into(),
        (Some(_), None) => "gone".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_difference_counts_and_is_named() {
        let kept = [("gone", 5), ("less", 2000), ("same", 40)].map(|(name, n)| (name.into(), n));
        let now = [("less", 1500), ("new", 6), ("same", 40)].map(|(name, n)| (name.into(), n));
        let comparison = Comparison::new(&Counts::from(kept), &Counts::from(now));
        assert_eq!(comparison.changed_count(), 3);
        let table = comparison.to_string();
        let cells: Vec<Vec<&str>> =
            table.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(cells[0], ["gone", "0.005", "-", "gone"]);
        assert_eq!(cells[1], ["less", "2.000", "1.500", "-25.00", "%"]);
        assert_eq!(cells[2], ["new", "-", "0.006", "new"]);
        assert_eq!(cells[3], ["same", "0.040", "0.040", "same"]);
    }

    #[test]
    fn equal_counts_are_no_change() {
        let counts = Counts::from([("pop".to_owned(), 7)]);
        assert_eq!(Comparison::new(&counts, &counts).changed_count(), 0);
    }
}
