//! What is printed where: data to standard output, unless that is kept for one line of JSON.

use crate::rate::Passed;
use hotloop::engine::Report;
use hotloop_ops::ReportFormat;
use serde_json::{Value, json};
use std::io;
use std::time::Duration;

/// Prints lines as they come, and a summary in the end. Nothing waits for a reader before the end.
#[derive(Debug)]
pub struct Output {
    format: ReportFormat,
    output: hotloop_ops::Output,
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
    ///
    /// # Errors
    /// The system grants no thread.
    pub fn start(format: ReportFormat) -> io::Result<Self> {
        Ok(Self { format, output: hotloop_ops::Output::start()? })
    }

    /// Prints lines: data, or messages where standard output is kept for one line of JSON.
    pub fn lines(&self, lines: &[String]) {
        match self.format {
            ReportFormat::Text => self.output.print(&format!(
                "{}
",
                lines.join(
                    "
"
                )
            )),
            ReportFormat::Json => tracing::info!("{}", lines.join(";")),
        }
    }

    /// Whether nobody reads any more.
    #[must_use]
    pub fn is_unread(&self) -> bool {
        self.output.is_unread()
    }

    /// Prints the summary of a run, and waits until all is written.
    ///
    /// # Errors
    /// As [`hotloop_ops::Output::finish`].
    pub fn summary(&self, report: &Report, totals: &Totals) -> io::Result<()> {
        let summary = match self.format {
            ReportFormat::Text => text(report, totals),
            ReportFormat::Json => json(report, totals).to_string(),
        };
        self.output.print(&format!(
            "{summary}
"
        ));
        self.output.finish()
    }
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
