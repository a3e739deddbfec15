//! A stage's own counters and gauges, with their names and labels.

use crate::Counter;
use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// One of a stage's own counters and gauges.
///
/// ```
/// use hotloop_stage::{Counter, Gauge};
/// use std::sync::Arc;
///
/// let counter = Arc::new(Counter::default());
/// let gauge = Gauge::new("matched", &counter).label("rule", "ssh");
/// assert_eq!(gauge.name.to_string(), r#"matched{rule="ssh"}"#);
/// ```
#[derive(Clone, Debug)]
pub struct Gauge {
    /// Its name, with its labels.
    pub name: GaugeName,
    /// Its value, which the stage changes.
    pub counter: Arc<Counter>,
}

impl Gauge {
    /// A gauge with this name and no labels.
    #[must_use]
    pub fn new(name: &'static str, counter: &Arc<Counter>) -> Self {
        let name = GaugeName { text: name.to_owned(), bare: name, labels: Vec::new() };
        Self { name, counter: Arc::clone(counter) }
    }

    /// The same gauge with one more label, for one of several gauges with this name, such as the
    /// gauge of a rule or a backend. `label` is a label's name in Prometheus's format (letters,
    /// digits, `_`), and none of `core`, `stage` and `value`.
    #[must_use]
    pub fn label(mut self, label: &'static str, value: impl Into<String>) -> Self {
        self.name.labels.push((label, value.into()));
        let labels: Vec<_> =
            self.name.labels.iter().map(|(label, value)| format!("{label}={value:?}")).collect();
        self.name.text = format!("{}{{{}}}", self.name.bare, labels.join(","));
        self
    }
}

/// The name of a [`Gauge`] with its labels. Reports show it as `name`, or as
/// `name{label="value"}`; it borrows, compares and sorts as this text.
#[derive(Clone, Debug)]
pub struct GaugeName {
    text: String,
    bare: &'static str,
    labels: Vec<(&'static str, String)>,
}

impl GaugeName {
    /// The name without labels.
    #[must_use]
    pub const fn bare(&self) -> &'static str {
        self.bare
    }

    /// The labels with their values, in the order in which they were added.
    #[must_use]
    pub fn labels(&self) -> &[(&'static str, String)] {
        &self.labels
    }
}

impl Borrow<str> for GaugeName {
    fn borrow(&self) -> &str {
        &self.text
    }
}

impl PartialEq for GaugeName {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for GaugeName {}

impl PartialOrd for GaugeName {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for GaugeName {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.text.cmp(&other.text)
    }
}

impl fmt::Display for GaugeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}
