//! Output: data to standard output, unless that is reserved for one line of JSON.

use crate::inspect::Found;
use crate::rate::Passed;
use hdrhistogram::Histogram;
use hotloop::engine::Report;
use hotloop_ops::ReportFormat;
use serde_json::{Value, json};
use std::io;
use std::time::Duration;

/// Prints lines as they come, and a summary at the end. Nothing waits for a reader before the end.
#[derive(Debug)]
pub struct Output {
    format: ReportFormat,
    output: hotloop_ops::Output,
}

/// Quantiles of latencies, and how they are written.
const QUANTILES: [(&str, &str, f64); 3] =
    [("median", "median_ns", 0.5), ("99 %", "p99_ns", 0.99), ("99.9 %", "p999_ns", 0.999)];

/// Totals of a whole run.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Datagrams and bytes.
    pub passed: Passed,
    /// The run's duration.
    pub duration: Duration,
    /// By queue, if known.
    pub queues: Vec<(u64, Passed)>,
    /// The distribution over queues, in lines for people.
    pub spread: Vec<String>,
    /// Losses at the device or the sockets, by reason, if they are reported.
    pub lost: Vec<(&'static str, u64)>,
    /// Results from the payloads.
    pub found: Found,
}

impl Output {
    /// Prints in this format.
    ///
    /// # Errors
    /// The system can't create a thread.
    pub fn start(format: ReportFormat) -> io::Result<Self> {
        Ok(Self { format, output: hotloop_ops::Output::start()? })
    }

    /// Prints lines: data, or messages if standard output is reserved for one line of JSON.
    pub fn lines(&self, lines: &[String]) {
        match self.format {
            ReportFormat::Text => self.output.print(&format!("{}\n", lines.join("\n"))),
            ReportFormat::Json => tracing::info!("{}", lines.join(";")),
        }
    }

    /// Whether the reader is gone.
    #[must_use]
    pub fn is_unread(&self) -> bool {
        self.output.is_unread()
    }

    /// Prints the summary of a run, and waits until everything is written.
    ///
    /// # Errors
    /// As for [`hotloop_ops::Output::finish`].
    pub fn summary(&self, report: &Report, totals: &Totals) -> io::Result<()> {
        let summary = match self.format {
            ReportFormat::Text => text(report, totals),
            ReportFormat::Json => json(report, totals).to_string(),
        };
        self.output.print(&format!("{summary}\n"));
        self.output.finish()
    }
}

fn text(report: &Report, totals: &Totals) -> String {
    let Totals { passed, duration, .. } = totals;
    let (seconds, rate) = (duration.as_secs_f64(), passed.in_time(*duration));
    let (packets, bytes) = (passed.packets, passed.payload_bytes);
    let found = [
        (!totals.spread.is_empty()).then(|| format!("{}\n", totals.spread.join("\n"))),
        lost_text(&totals.lost).map(|lost| format!("lost: {lost}\n")),
        totals.found.verified.map(|verified| format!("{verified}\n")),
        totals.found.latency.as_ref().map(|latency| format!("{}\n", latency_text(latency))),
    ];
    let found: String = found.into_iter().flatten().collect();
    format!(
        "{rate}  mean of {seconds:.1} s: {packets} datagrams, {bytes} bytes of payload\n{found}{report}"
    )
}

/// The losses, if any.
#[must_use]
pub fn lost_text(lost: &[(&'static str, u64)]) -> Option<String> {
    let lost = lost.iter().filter(|(_, count)| *count > 0);
    let lost: Vec<_> = lost.map(|(name, count)| format!("{count} {name}")).collect();
    (!lost.is_empty()).then(|| lost.join(", "))
}

#[expect(clippy::cast_precision_loss, reason = "microseconds for people")]
fn latency_text(latency: &Histogram<u64>) -> String {
    let us = |ns: u64| ns as f64 / 1e3;
    let of = |(name, _, share)| format!("{name} {:.1} µs", us(latency.value_at_quantile(share)));
    let shares: Vec<_> = QUANTILES.map(of).to_vec();
    format!("latency of {}: {}, max {:.1} µs", latency.len(), shares.join(", "), us(latency.max()))
}

fn latency_json(latency: &Histogram<u64>) -> Value {
    let mut all = json!({"count": latency.len(), "max_ns": latency.max()});
    for (_, name, share) in QUANTILES {
        all[name] = json!(latency.value_at_quantile(share));
    }
    all
}

/// The engine's report, with the datagrams' results under `udp`.
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
    udp["lost"] = totals.lost.iter().map(|(name, count)| (*name, *count)).collect();
    udp["verified"] = json!(totals.found.verified);
    udp["latency"] = totals.found.latency.as_ref().map(latency_json).into();
    let mut all = json!(report);
    all["udp"] = udp;
    all
}
