//! The outcome of a run: the report on standard output, and whether the run succeeded.

use crate::failure::Failure;
use hotloop::engine::{Report, RunError};
use hotloop_balancer::counts::Summary;
use hotloop_ops::ReportFormat;
use serde_json::{Value, json};
use std::fmt::Write;

/// The result of replaying a capture.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Replayed {
    /// Number of whole frames in the capture.
    pub frame_count: u64,
    /// Number of these that were too long to be replayed.
    pub too_long_count: u64,
    /// Whether the capture ends within a record.
    pub cut: bool,
    /// Whether a signal came before its end.
    pub interrupted: bool,
}

/// The outcome of a run.
#[derive(Debug)]
pub struct Outcome {
    report: Option<Report>,
    /// The balancer's counts, for people and for programs.
    summary: (String, Value),
    replayed: Option<Replayed>,
    failures: Vec<String>,
}

impl Outcome {
    /// The outcome of a run, with the balancer's counts.
    #[must_use]
    pub fn new(run: Result<Report, RunError>, summary: &Summary<'_>) -> Self {
        let (report, failures) = match run {
            Ok(report) => (Some(report), Vec::new()),
            Err(error) => (error.report().cloned(), vec![error.to_string()]),
        };
        let summary = (summary.to_string(), summary.to_json());
        Self { report, summary, replayed: None, failures }
    }

    /// The outcome of a run that never began, because a signal came before.
    #[must_use]
    pub fn of_no_run() -> Self {
        let summary = (String::new(), Value::Null);
        Self { report: Some(Report::of_no_run()), summary, replayed: None, failures: Vec::new() }
    }

    /// Adds the result of replaying a capture.
    #[must_use]
    pub fn replayed(self, replayed: Replayed) -> Self {
        Self { replayed: Some(replayed), ..self }
    }

    /// Adds an error.
    pub fn add_failure(&mut self, failure: String) {
        self.failures.push(failure);
    }

    /// The engine's report, if the run started.
    #[must_use]
    pub const fn report(&self) -> Option<&Report> {
        self.report.as_ref()
    }

    /// The text for standard output: empty if the run did not start.
    #[must_use]
    pub fn text(&self, format: ReportFormat) -> String {
        let Some(report) = &self.report else { return String::new() };
        match format {
            ReportFormat::Text => self.for_people(report),
            ReportFormat::Json => self.for_programs(report),
        }
    }

    /// Returns whether everything succeeded.
    ///
    /// # Errors
    /// [`Failure::Run`] with all errors.
    pub fn verdict(&self) -> Result<(), Failure> {
        if self.failures.is_empty() { Ok(()) } else { Err(Failure::Run(self.failures.join("; "))) }
    }

    fn for_people(&self, report: &Report) -> String {
        let mut text = format!("{report}\n{}", self.summary.0);
        if let Some(replayed) = self.replayed {
            let Replayed { frame_count, too_long_count, cut, interrupted } = replayed;
            // Writing to a string does not fail.
            let _ = writeln!(text, "input: {frame_count} frames");
            if too_long_count > 0 {
                let _ =
                    writeln!(text, "input: {too_long_count} of them are too long to be replayed");
            }
            if cut {
                let _ = writeln!(text, "input: cut within its last record: read up to there");
            }
            if interrupted {
                let _ = writeln!(text, "input: interrupted by a signal before its end");
            }
        }
        text
    }

    fn for_programs(&self, report: &Report) -> String {
        let json = serde_json::from_str(&report.to_json());
        let mut json: Value = json.expect("the engine's report is JSON");
        json["balancer"] = self.summary.1.clone();
        if let Some(replayed) = self.replayed {
            json["input"] = json!({
                "frames": replayed.frame_count,
                "too_long": replayed.too_long_count,
                "cut": replayed.cut,
                "interrupted": replayed.interrupted,
            });
        }
        format!("{json}\n")
    }
}
