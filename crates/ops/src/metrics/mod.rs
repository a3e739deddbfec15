//! The metrics of every program, and the arguments of the server for Prometheus.

mod collect;
mod load;
mod process;

pub use collect::METRICS;
pub use hotloop_metrics::{Metric, MetricKind, SCRAPE_COUNT_MAX, SCRAPE_WAIT, Scrape};

use crate::failure::Failure;
use clap::Args;
use hotloop_engine::Control;
use hotloop_metrics::{BindError, MetricsServer};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

/// The version of the names of metrics, drop reasons, and keys of JSON, in
/// `docs/reference/schema.json`.
pub const SCHEMA_VERSION: u32 = 6;

/// Arguments of a program that serves metrics. Flattened into its own arguments.
#[derive(Args, Clone, Debug, Default)]
pub struct MetricsArgs {
    /// Serve metrics for Prometheus at http://ADDRESS/metrics, such as 9100 (on 127.0.0.1),
    /// 192.0.2.1:9100 or 0.0.0.0:9100; anyone who can connect there can read them.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub metrics: Option<SocketAddr>,
}

impl MetricsArgs {
    /// Listens at the address in the arguments. `None` if there is none.
    ///
    /// # Errors
    /// The address can't be bound. The error has a remedy.
    pub fn bind(&self) -> Result<Option<Metrics>, Failure> {
        self.metrics.map(Metrics::bind).transpose()
    }
}

/// Reads an address, or a port of 127.0.0.1.
fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.parse().map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    port.or_else(|_| text.parse())
        .map_err(|_| "write a port, such as 9100, or an address with one: [::1]:9100".to_owned())
}

/// A server of metrics, from [`bind`](Self::bind) until it is dropped: a [`MetricsServer`] with the
/// metrics of every program.
#[derive(Debug)]
pub struct Metrics {
    server: MetricsServer,
    since: Instant,
}

impl Metrics {
    /// Listens, and starts the serving thread.
    ///
    /// # Errors
    /// [`Failure::Input`] if the address can't be bound, [`Failure::Run`] if the system refuses a
    /// thread.
    pub fn bind(address: SocketAddr) -> Result<Self, Failure> {
        let server = MetricsServer::bind(address).map_err(|error| {
            let text = format!("--metrics {error}");
            match error {
                BindError::Address { .. } => Failure::Input(text),
                BindError::System { .. } => Failure::Run(text),
            }
        })?;
        tracing::info!("metrics at http://{}/metrics", server.address());
        Ok(Self { server, since: Instant::now() })
    }

    /// The address that it listens at.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Answers waiting scrapes with the metrics of every program and those that `more` adds. The
    /// control thread calls this every few milliseconds; it returns at once if no scrape waits.
    pub fn answer(&mut self, control: &Control<'_>, more: &mut dyn FnMut(&mut Scrape)) {
        self.server.answer(&mut |scrape| {
            collect::collect(control, self.since, scrape);
            more(scrape);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_one_of_this_machine() {
        for (text, expected) in
            [("9100", "127.0.0.1:9100"), ("192.0.2.1:9100", "192.0.2.1:9100"), ("[::]:0", "[::]:0")]
        {
            assert_eq!(address(text), Ok(expected.parse().unwrap()));
        }
        for wrong in ["", "localhost", "65536", ":9100", "::1:9100x", "192.0.2.1", "-1"] {
            assert!(address(wrong).unwrap_err().contains("such as 9100"), "{wrong}");
        }
    }

    #[test]
    fn an_address_in_use_is_named() {
        let first = Metrics::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let second = Metrics::bind(first.address()).unwrap_err().to_string();
        assert!(second.contains(&first.address().to_string()), "{second}");
        assert!(second.contains("give another"), "{second}");
        let address = first.address();
        drop(first);
        assert!(Metrics::bind(address).is_ok(), "it is free again");
    }
}
