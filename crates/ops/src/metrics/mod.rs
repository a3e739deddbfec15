//! Serves metrics for Prometheus, over HTTP.
//!
//! A separate thread serves a few clients without waiting for any of them. For a scrape it asks the
//! control thread, which reads the same values as `ctl status`, `counters` and `xstats`: cores are
//! not involved. Whatever clients do, the control thread collects metrics at most 10 times a
//! second.

mod client;
mod collect;
mod family;
mod http;
mod load;
mod server;

pub use client::CLIENT_WAIT as SCRAPE_WAIT;
pub use collect::METRICS;
pub use family::{Metric, MetricKind, Scrape};
pub use server::CLIENT_COUNT_MAX as SCRAPE_COUNT_MAX;

use crate::failure::Failure;
use clap::Args;
use hotloop_engine::Control;
use hotloop_privileges::{Capabilities, keep};
use server::{Server, Wake};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

/// The version of the names of metrics, drop reasons, and keys of JSON, in
/// `docs/reference/schema.json`.
pub const SCHEMA_VERSION: u32 = 3;

/// The least time between two collections: scrapes that come sooner wait, and share the next.
const COLLECT_INTERVAL: Duration = Duration::from_millis(100);

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

/// A server of metrics, from [`bind`](Self::bind) until it is dropped.
///
/// It serves `GET /metrics`, as OpenMetrics 1.0 if the client accepts that and otherwise in
/// Prometheus's text format 0.0.4. At most [`SCRAPE_COUNT_MAX`] clients are served at a time, each
/// for at most [`SCRAPE_WAIT`]. A request has at most 8 KiB, and each connection one request. More
/// clients wait for a place: slow clients, and those of an address with more places than others,
/// make room for them.
#[derive(Debug)]
pub struct Metrics {
    address: SocketAddr,
    asks: Receiver<()>,
    /// `None` once it is being dropped.
    scrapes: Option<Sender<Arc<Scrape>>>,
    wake: Wake,
    thread: Option<std::thread::JoinHandle<()>>,
    since: Instant,
    due: Instant,
}

impl Metrics {
    /// Listens, and starts the serving thread.
    ///
    /// # Errors
    /// [`Failure::Input`] if the address can't be bound, [`Failure::Run`] if the system refuses a
    /// thread.
    pub fn bind(address: SocketAddr) -> Result<Self, Failure> {
        let cannot_be_had = |error: std::io::Error| {
            Failure::Input(format!("--metrics {address}: {error}; give another address or port"))
        };
        let listener = TcpListener::bind(address).map_err(cannot_be_had)?;
        listener.set_nonblocking(true).map_err(cannot_be_had)?;
        rustix::net::listen(&listener, server::BACKLOG)
            .map_err(|error| cannot_be_had(error.into()))?;
        let address = listener.local_addr().map_err(cannot_be_had)?;
        let failed = |error: std::io::Error| Failure::Run(format!("--metrics {address}: {error}"));
        let wake = Wake::new().map_err(failed)?;
        let ((ask, asks), (scrapes, scraped)) = (mpsc::channel(), mpsc::channel());
        let server = Server {
            listener,
            wake: wake.clone(),
            asks: ask,
            scrapes: scraped,
            clients: Vec::with_capacity(server::CLIENT_COUNT_MAX),
            next: None,
            is_asked: false,
        };
        let (ready, is_ready) = mpsc::channel();
        let serve = move || {
            keep(Capabilities::empty());
            drop(ready);
            server.serve();
        };
        let thread = std::thread::Builder::new().name("metrics".to_owned()).spawn(serve);
        let thread = Some(thread.map_err(failed)?);
        // The channel closes once the thread has given up its capabilities.
        let _: Result<(), _> = is_ready.recv();
        tracing::info!("metrics at http://{address}/metrics");
        let now = Instant::now();
        Ok(Self { address, asks, scrapes: Some(scrapes), wake, thread, since: now, due: now })
    }

    /// The address that it listens at.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers waiting scrapes with the metrics of every program and those that `more` adds. The
    /// control thread calls this every few milliseconds; it returns at once if no scrape waits.
    pub fn answer(&mut self, control: &Control<'_>, more: &mut dyn FnMut(&mut Scrape)) {
        let now = Instant::now();
        if now < self.due || self.asks.try_recv().is_err() {
            return;
        }
        let mut scrape = Scrape::default();
        collect::collect(control, self.since, &mut scrape);
        more(&mut scrape);
        if let Some(scrapes) = &self.scrapes {
            // A panic of the thread has been reported.
            let _ = scrapes.send(Arc::new(scrape));
        }
        self.wake.wake();
        self.due = Instant::now() + COLLECT_INTERVAL;
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        self.scrapes = None;
        self.wake.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
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
