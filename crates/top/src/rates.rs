//! Computes rates from two samples of one program.

use super::programs::Sample;
use serde_json::Value;
use std::collections::BTreeMap;

/// A program's last two samples.
#[derive(Debug)]
pub struct Rates<'a> {
    pub now: &'a Sample,
    before: Option<&'a Sample>,
}

/// A row of an answer, and the same row of the answer before.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    pub now: &'a Value,
    before: Option<&'a Value>,
    seconds: f64,
}

impl<'a> Rates<'a> {
    /// The rates between two samples of one process. Without an earlier sample, they are unknown.
    pub fn new(now: &'a Sample, before: Option<&'a Sample>) -> Self {
        let is_same = |before: &&Sample| {
            before.status["process"] == now.status["process"] && before.at < now.at
        };
        Self { now, before: before.filter(is_same) }
    }

    fn seconds(&self) -> f64 {
        self.before.map_or(0.0, |before| (self.now.at - before.at).as_secs_f64())
    }

    /// All counters, as one row.
    pub fn all(&self) -> Row<'a> {
        let before = self.before.map(|before| &before.counters);
        Row { now: &self.now.counters, before, seconds: self.seconds() }
    }

    /// The rows of a list in the answer to `status`.
    pub fn status(&self, list: &str) -> Vec<Row<'a>> {
        self.rows(&self.now.status[list], self.before.map(|before| &before.status[list]))
    }

    /// The places of each core.
    pub fn places(&self) -> Vec<Row<'a>> {
        let before = self.before.map(|before| &before.counters["places"]);
        self.rows(&self.now.counters["places"], before)
    }

    fn rows(&self, now: &'a Value, before: Option<&'a Value>) -> Vec<Row<'a>> {
        let rows = now.as_array().into_iter().flatten().enumerate();
        let seconds = self.seconds();
        rows.map(|(index, now)| Row {
            now,
            before: before.and_then(|rows| rows.get(index)),
            seconds,
        })
        .collect()
    }
}

impl<'a> Row<'a> {
    /// A text of the row; empty if the row has no such key.
    pub fn text(&self, key: &str) -> String {
        match &self.now[key] {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => String::new(),
        }
    }

    /// The growth of a count per second, if known.
    pub fn rate(&self, key: &str) -> Option<f64> {
        self.difference(self.now[key].as_u64()?, self.before?[key].as_u64()?)
    }

    /// The growth of all drops per second.
    pub fn dropped_rate(&self) -> Option<f64> {
        let sum = |row: &Value| -> u64 {
            let counts = row["dropped"].as_object().into_iter().flatten();
            counts.filter_map(|(_, count)| count.as_u64()).sum()
        };
        self.difference(sum(self.now), sum(self.before?))
    }

    /// Drops by reason: the total, and the growth per second.
    pub fn dropped(&self) -> BTreeMap<&'a str, (u64, Option<f64>)> {
        let reasons = self.now["dropped"].as_object().into_iter().flatten();
        let reasons = reasons.map(|(reason, count)| {
            let now = count.as_u64().unwrap_or(0);
            let before = self.before.map(|before| before["dropped"][reason].as_u64().unwrap_or(0));
            let rate = before.and_then(|before| self.difference(now, before));
            (reason.as_str(), (now, rate))
        });
        reasons.collect()
    }

    fn difference(&self, now: u64, before: u64) -> Option<f64> {
        let is_known = self.before.is_some() && self.seconds > 0.0;
        is_known.then(|| now.saturating_sub(before) as f64 / self.seconds)
    }
}

/// A rate as displayed: a whole number, or `-` if unknown.
pub fn shown(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::{Duration, Instant};

    #[test]
    fn rates_are_those_of_one_process() {
        let start = Instant::now();
        let sample = |process: u32, seconds: u64, count: u64| Sample {
            at: start + Duration::from_secs(seconds),
            status: json!({"process": process, "cores": [{"core": "core 0", "received": count}]}),
            counters: json!({"received": count, "dropped": {"odd": count / 2},
                "places": [{"name": "Even", "received": count}]}),
        };
        let (before, now) = (sample(7, 0, 100), sample(7, 2, 300));
        let rates = Rates::new(&now, Some(&before));
        assert_eq!(rates.all().rate("received"), Some(100.0));
        assert_eq!(rates.all().dropped_rate(), Some(50.0));
        assert_eq!(rates.all().dropped(), [("odd", (150, Some(50.0)))].into());
        assert_eq!(rates.status("cores")[0].rate("received"), Some(100.0));
        assert_eq!(rates.places()[0].text("name"), "Even");
        assert_eq!(shown(rates.places()[0].rate("received")), "100");
        assert_eq!(shown(rates.places()[0].rate("missing")), "-");
        // A restarted process counts from 0, and a first sample has no predecessor.
        let other = sample(8, 1, 0);
        for before in [None, Some(&other), Some(&now)] {
            assert_eq!(shown(Rates::new(&now, before).all().rate("received")), "-");
        }
    }
}
