//! Metrics, their samples, and their text formats.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::Arc;

/// The longest value of a label, in bytes. Longer ones are cut.
const LABEL_BYTES_MAX: usize = 200;

/// A metric: samples of one name that differ in their labels.
///
/// Names are part of the programs' interface, and follow Prometheus's conventions: a counter's ends
/// in `_total`, and the unit, `packets`, `bytes` or `seconds`, is part of the name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Metric {
    /// The metric's name.
    pub name: &'static str,
    /// A sentence on what it counts.
    pub help: &'static str,
    /// The meaning of its values.
    pub kind: MetricKind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
}

/// The meaning of a [`Metric`]'s values.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MetricKind {
    /// They only grow, until the program starts again.
    Counter,
    /// They show the current state.
    Gauge,
}

impl Metric {
    /// A counter.
    ///
    /// # Panics
    /// If the name does not end in `_total`; in a constant, that is an error of the compiler.
    #[must_use]
    pub const fn counter(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        assert!(stem(name).len() < name.len(), "a counter's name ends in _total");
        Self { name, help, kind: MetricKind::Counter, labels }
    }

    /// A gauge.
    #[must_use]
    pub const fn gauge(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self { name, help, kind: MetricKind::Gauge, labels }
    }
}

/// A name without `_total` at its end.
const fn stem(name: &str) -> &str {
    match name.as_bytes() {
        [stem @ .., b'_', b't', b'o', b't', b'a', b'l'] => name.split_at(stem.len()).0,
        _ => name,
    }
}

/// The values of all metrics at one moment, which a scrape returns.
///
/// ```
/// use hotloop_metrics::{Metric, Scrape};
///
/// const SENT: Metric =
///     Metric::counter("nf_packets_sent_total", &["backend"], "Packets sent to a backend.");
///
/// let mut scrape = Scrape::default();
/// scrape.add(&SENT, &["10.0.0.1"], 7);
/// scrape.add(&SENT, &["10.0.0.2"], 1);
/// assert_eq!(
///     scrape.to_text(),
///     "# HELP nf_packets_sent_total Packets sent to a backend.\n\
///      ## TYPE nf_packets_sent_total counter\n\
///      nf_packets_sent_total{backend=\"10.0.0.1\"} 7\n\
///      nf_packets_sent_total{backend=\"10.0.0.2\"} 1\n"
/// );
/// ```
#[derive(Clone, Debug, Default)]
pub struct Scrape {
    /// By name, so that the samples of a metric are together.
    metrics: BTreeMap<&'static str, Samples>,
}

/// A metric's samples, by the values of their labels.
#[derive(Clone, Debug)]
struct Samples {
    metric: Metric,
    values: BTreeMap<Labels, Value>,
}

/// A sample's labels: the values of its metric's, and those of its own.
type Labels = (Vec<String>, Vec<(&'static str, String)>);

/// A sample's value.
#[derive(Clone, Copy, Debug)]
enum Value {
    Count(u64),
    Measured(f64),
}

impl Scrape {
    /// Adds to a metric, with these values of its labels in their order. Counts with the same
    /// values are summed. A value of more than 200 bytes is cut.
    ///
    /// # Panics
    /// If the number of values differs from that of the metric's labels.
    pub fn add(&mut self, metric: &Metric, values: &[&str], count: u64) {
        self.add_labelled(metric, values, &[], count);
    }

    /// Like [`add`](Self::add), to a sample with `more` labels of its own after the metric's.
    ///
    /// # Panics
    /// As [`add`](Self::add), and if the metric has no labels.
    pub fn add_labelled(
        &mut self,
        metric: &Metric,
        values: &[&str],
        more: &[(&'static str, &str)],
        count: u64,
    ) {
        assert!(more.is_empty() || !values.is_empty(), "{}: it has no labels", metric.name);
        match self.entry(metric, values, more) {
            Entry::Vacant(place) => {
                place.insert(Value::Count(count));
            }
            Entry::Occupied(mut place) => {
                if let Value::Count(sum) = place.get_mut() {
                    *sum = sum.saturating_add(count);
                }
            }
        }
    }

    /// Sets a metric that is measured in seconds.
    ///
    /// # Panics
    /// As [`add`](Self::add).
    pub fn set_seconds(&mut self, metric: &Metric, values: &[&str], seconds: f64) {
        self.entry(metric, values, &[]).insert_entry(Value::Measured(seconds));
    }

    /// Sets a metric that is a share, from 0 to 1.
    ///
    /// # Panics
    /// As [`add`](Self::add).
    pub fn set_ratio(&mut self, metric: &Metric, values: &[&str], ratio: f64) {
        self.entry(metric, values, &[]).insert_entry(Value::Measured(ratio));
    }

    /// Adds to a counter of seconds. Seconds with the same values are summed.
    ///
    /// # Panics
    /// As [`add`](Self::add).
    pub fn add_seconds(&mut self, metric: &Metric, values: &[&str], seconds: f64) {
        let sum = self.entry(metric, values, &[]).or_insert(Value::Measured(0.0));
        if let Value::Measured(sum) = sum {
            *sum += seconds;
        }
    }

    fn entry(
        &mut self,
        metric: &Metric,
        values: &[&str],
        more: &[(&'static str, &str)],
    ) -> Entry<'_, Labels, Value> {
        assert_eq!(metric.labels.len(), values.len(), "{}: one value a label", metric.name);
        let values = values.iter().map(|value| cut(value).to_owned()).collect();
        let more = more.iter().map(|(label, value)| (*label, cut(value).to_owned())).collect();
        let samples = Samples { metric: *metric, values: BTreeMap::new() };
        self.metrics.entry(metric.name).or_insert(samples).values.entry((values, more))
    }

    /// Number of samples.
    #[must_use]
    pub fn sample_count(&self) -> usize {
        self.metrics.values().map(|samples| samples.values.len()).sum()
    }

    /// Returns the scrape in [Prometheus's text
    /// format](https://prometheus.io/docs/instrumenting/exposition_formats/), version 0.0.4.
    #[must_use]
    pub fn to_text(&self) -> String {
        Written { scrape: Arc::new(self.clone()), format: Format::Text }.to_string()
    }

    /// Returns the scrape in a client's format.
    pub(crate) fn written(self: &Arc<Self>, format: Format) -> String {
        Written { scrape: Arc::clone(self), format }.to_string()
    }
}

/// The first bytes of a label's value, in whole characters.
fn cut(value: &str) -> &str {
    &value[..value.floor_char_boundary(LABEL_BYTES_MAX)]
}

/// The formats that Prometheus reads.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    /// Prometheus's own, 0.0.4.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

/// A scrape in a format.
#[derive(Debug)]
struct Written {
    scrape: Arc<Scrape>,
    format: Format,
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut registry = Registry::default();
        let Self { scrape, format } = self;
        registry.register_collector(Box::new(Self { scrape: Arc::clone(scrape), format: *format }));
        prometheus_client::encoding::text::encode_registry(f, &registry)?;
        if *format == Format::OpenMetrics {
            prometheus_client::encoding::text::encode_eof(f)?;
        }
        Ok(())
    }
}

impl Collector for Written {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Samples { metric, values } in self.scrape.metrics.values() {
            let is_counter = metric.kind == MetricKind::Counter;
            let (kind, name) = match (is_counter, self.format) {
                // The encoder adds `_total` to the samples of OpenMetrics's counters.
                (true, Format::OpenMetrics) => (MetricType::Counter, stem(metric.name)),
                (true, Format::Text) => (MetricType::Counter, metric.name),
                (false, _) => (MetricType::Gauge, metric.name),
            };
            let has_suffix = is_counter && self.format == Format::OpenMetrics;
            let mut encoder = encoder.encode_descriptor(name, metric.help, None, kind)?;
            if metric.labels.is_empty() {
                // An empty set of labels would be written as `{}`.
                let value = values.values().next();
                value.map_or(Ok(()), |value| value.encode(has_suffix, encoder))?;
                continue;
            }
            for ((values, more), value) in values {
                let own = more.iter().map(|(label, value)| (label, value));
                let labels = metric.labels.iter().zip(values).chain(own);
                let labels: Vec<_> =
                    labels.map(|(label, value)| (*label, value.as_str())).collect();
                value.encode(has_suffix, encoder.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

impl Value {
    fn encode(self, has_suffix: bool, sample: MetricEncoder<'_>) -> fmt::Result {
        match (self, has_suffix) {
            (Self::Count(count), true) => ConstCounter::new(count).encode(sample),
            (Self::Count(count), false) => ConstGauge::new(count).encode(sample),
            (Self::Measured(figure), true) => ConstCounter::new(figure).encode(sample),
            (Self::Measured(figure), false) => ConstGauge::new(figure).encode(sample),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKETS: Metric = Metric::counter("nf_packets_total", &["stage"], "Packets.");
    const UP: Metric = Metric::gauge("nf_up", &[], "Whether it is up.");
    const WAITED: Metric = Metric::counter("nf_waited_seconds_total", &[], "Waited.");

    #[test]
    fn a_sample_may_have_labels_of_its_own() {
        let mut scrape = Scrape::default();
        scrape.add(&PACKETS, &["a"], 1);
        scrape.add_labelled(&PACKETS, &["a"], &[("rule", "ssh")], 2);
        scrape.add_labelled(&PACKETS, &["a"], &[("rule", "ssh")], 3);
        scrape.add_labelled(&PACKETS, &["a"], &[("rule", "dns")], 4);
        let samples = "nf_packets_total{stage=\"a\"} 1\n\
                       nf_packets_total{stage=\"a\",rule=\"dns\"} 4\n\
                       nf_packets_total{stage=\"a\",rule=\"ssh\"} 5\n";
        assert!(scrape.to_text().ends_with(samples), "{}", scrape.to_text());
    }

    #[test]
    fn both_formats_have_the_same_samples() {
        let mut scrape = Scrape::default();
        scrape.add(&PACKETS, &["b"], 1);
        scrape.add(&PACKETS, &["b"], u64::MAX);
        scrape.add(&PACKETS, &["a\"\\\n"], 3);
        scrape.set_seconds(&UP, &[], 1.5);
        scrape.add_seconds(&WAITED, &[], 0.25);
        scrape.add_seconds(&WAITED, &[], 0.5);
        let samples = "nf_packets_total{stage=\"a\\\"\\\\\\n\"} 3\n\
                       nf_packets_total{stage=\"b\"} 18446744073709551615\n";
        let up = "# HELP nf_up Whether it is up.\n# TYPE nf_up gauge\nnf_up 1.5\n";
        let waited = |suffix| {
            format!(
                "# HELP nf_waited_seconds{suffix} Waited.\n# TYPE nf_waited_seconds{suffix} counter\n\
                 nf_waited_seconds_total 0.75\n"
            )
        };
        assert_eq!(
            scrape.to_text(),
            format!(
                "# HELP nf_packets_total Packets.\n# TYPE nf_packets_total counter\n{samples}{up}{}",
                waited("_total")
            )
        );
        assert_eq!(
            Arc::new(scrape).written(Format::OpenMetrics),
            format!(
                "# HELP nf_packets Packets.\n# TYPE nf_packets counter\n{samples}{up}{}# EOF\n",
                waited("")
            )
        );
    }

    #[test]
    fn a_long_value_is_cut_between_characters() {
        let mut scrape = Scrape::default();
        scrape.add(&PACKETS, &["ä".repeat(LABEL_BYTES_MAX).as_str()], 1);
        scrape.add(&PACKETS, &[format!("x{}", "ä".repeat(LABEL_BYTES_MAX)).as_str()], 1);
        let text = scrape.to_text();
        assert!(text.contains(&format!("\"{}\"", "ä".repeat(LABEL_BYTES_MAX / 2))), "{text}");
        assert!(text.contains(&format!("\"x{}\"", "ä".repeat(LABEL_BYTES_MAX / 2 - 1))), "{text}");
    }

    #[test]
    #[should_panic(expected = "one value a label")]
    fn a_label_without_a_value_is_found() {
        Scrape::default().add(&PACKETS, &[], 1);
    }
}
