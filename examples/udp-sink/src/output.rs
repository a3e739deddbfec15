//! What is printed where: data to standard output, unless that is kept for one line of JSON.

use crate::arguments::ReportFormat;
use crate::rate::Passed;
use hotloop::engine::Report;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::time::Duration;

/// Prints lines as they come, and a summary in the end.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    format: ReportFormat,
}

/// What passed in the whole run.
#[derive(Clone, Debug)]
pub struct Totals {
    /// All of it.
    pub passed: Passed,
    /// In what time.
    pub duration: Duration,
    /// By queue, where it is known by queue.
    pub queues: Vec<(u64, Passed)>,
}

impl Output {
    /// Prints in this format.
    #[must_use]
    pub const fn new(format: ReportFormat) -> Self {
        Self { format }
    }

    /// Prints one line at once.
    ///
    /// # Errors
    /// The system's, where nobody reads any more.
    pub fn line(self, line: &str) -> io::Result<()> {
        match self.format {
            ReportFormat::Text => print(line),
            ReportFormat::Json => writeln!(io::stderr(), "{line}"),
        }
    }

    /// Prints the summary of a run. A reader who has gone away has seen enough.
    ///
    /// # Errors
    /// The system's.
    pub fn summary(self, report: &Report, totals: &Totals) -> io::Result<()> {
        let printed = match self.format {
            ReportFormat::Text => print(&text(report, totals)),
            ReportFormat::Json => print(&json(report, totals).to_string()),
        };
        match printed {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other,
        }
    }
}

fn print(line: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{line}")?;
    output.flush()
}

fn text(report: &Report, totals: &Totals) -> String {
    let Totals { passed, duration, .. } = totals;
    let (seconds, rate) = (duration.as_secs_f64(), passed.in_time(*duration));
    let (packets, bytes) = (passed.packets, passed.payload_bytes);
    format!(
        "{rate}  mean of {seconds:.1} s: {packets} datagrams, {bytes} bytes of payload\n{report}"
    )
}

/// The engine's report, with what is known of datagrams under `udp`.
fn json(report: &Report, totals: &Totals) -> Value {
    let of = |passed: Passed| json!({"datagrams": passed.packets, "payload_bytes": passed.payload_bytes});
    let mut udp = of(totals.passed);
    udp["seconds"] = json!(totals.duration.as_secs_f64());
    let queues = totals.queues.iter().map(|(index, passed)| {
        let mut queue = of(*passed);
        queue["index"] = json!(index);
        queue
    });
    udp["queues"] = queues.collect();
    let mut all = json!(report);
    all["udp"] = udp;
    all
}
