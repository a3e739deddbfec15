//! Metrics of a program, and the server that Prometheus scrapes.
//!
//! - A [`Metric`] is a constant with a name, labels and help. A [`Scrape`] has the values of all metrics
//!   at one moment.
//! - [`MetricsServer`] serves `GET /metrics`, as OpenMetrics 1.0 if the client accepts that and
//!   otherwise in Prometheus's text format 0.0.4.
//!
//! # Guarantees
//!
//! - No client blocks the thread that collects. Clients are served by a thread of their own, without
//!   capabilities: at most [`SCRAPE_COUNT_MAX`] at a time, each for at most [`SCRAPE_WAIT`]. A request has at
//!   most 8 KiB, and each connection one request.
//! - Metrics are collected at most 10 times a second: clients that come sooner share the next scrape.
//! - More clients wait for a place, in the order in which they come. Slow clients, and those of an address with
//!   more places than others, make room for them.
//!
//! # Example
//!
//! ```
//! use hotloop_metrics::{Metric, MetricsServer};
//! use std::io::{Read, Write};
//! use std::net::TcpStream;
//!
//! const SENT: Metric = Metric::counter("nf_packets_sent_total", &[], "Packets sent.");
//!
//! let mut server = MetricsServer::bind("127.0.0.1:0".parse()?)?;
//! let mut client = TcpStream::connect(server.address())?;
//! client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n")?;
//!
//! // In the loop of the program's control thread:
//! let mut is_answered = false;
//! while !is_answered {
//!     server.answer(&mut |scrape| {
//!         scrape.add(&SENT, &[], 7);
//!         is_answered = true;
//!     });
//! }
//! let mut answer = String::new();
//! client.read_to_string(&mut answer)?;
//! assert!(answer.ends_with("nf_packets_sent_total 7\n"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Limits
//!
//! Linux only. Anyone who can connect can read the metrics: the server knows neither TLS nor passwords.

#![forbid(unsafe_code)]

mod client;
mod family;
mod http;
mod scraped;
mod server;

pub use client::CLIENT_WAIT as SCRAPE_WAIT;
pub use family::{Metric, MetricKind, Scrape};
pub use scraped::{BindError, MetricsServer};
pub use server::CLIENT_COUNT_MAX as SCRAPE_COUNT_MAX;
