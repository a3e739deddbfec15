//! Shared code of the tests of the whole engine.
//!
//! The tests run network functions on virtual devices of DPDK, which need neither privileges nor
//! hugepages:
//!
//! - `tests/devices` compares the output of every deployment, packet by packet.
//! - `tests/ledger.rs` breaks the ledger on purpose in each place, `tests/cycles.rs` stops and
//!   reopens ports that hold packets.
//! - `tests/steady` counts allocations and system calls.
//!
//! This crate has their shared code:
//!
//! - One process has one EAL: [`eal`]. Devices have names of their own: [`device`].
//! - [`alone`] keeps the tests of a process from running engines side by side, which would share
//!   CPUs, and ends a process that hangs.
//! - [`planted`] is a forwarder with a fault at one place; the program `planted-forwarder` uses it.
//!
//! ```
//! use hotloop::prelude::*;
//! use hotloop_tests::{alone, device, eal};
//!
//! let report = alone(|| {
//!     let port = Port::open(eal(), &device("net_null", ",size=60"))?;
//!     let graph = source(|core| port.rx_queue(core)).sink(|core| port.tx_queue(core));
//!     Ok::<_, hotloop::Error>(
//!         Engine::plan(graph, Deployment::run_to_completion(1))?
//!             .run(|control| while control.snapshot().sent < 1000 { std::thread::yield_now() })?,
//!     )
//! })?;
//! assert!(report.is_whole());
//! # Ok::<(), hotloop::Error>(())
//! ```
//!
//! - [`network`] gives a test interfaces of the kernel, if it may make them.
//! - [`schema`] keeps the names of metrics, drop reasons and keys of JSON.
//! - [`prometheus`] scrapes a program, if there is a Prometheus.
//!
//! With fewer than two CPUs, or if tracing is not allowed, a part of `tests/steady` is skipped with
//! the reason.

#![forbid(unsafe_code)]

mod alone;
mod free_address;
mod host;
pub mod network;
pub mod planted;
pub mod privileges;
mod program;
pub mod prometheus;
pub mod schema;
mod siege;

pub use alone::alone;
pub use free_address::free_address;
pub use host::Host;
pub use program::{Program, wait_until};
pub use siege::{besiege, deliver};
// The only way to start programs of the system.
pub use hotloop_test_tools::tool;

use hotloop::dpdk::Eal;
use hotloop::engine::Deployment;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Every deployment that the tests run: both kinds, with one core and with several in each role.
pub const DEPLOYMENTS: [Deployment; 5] = [
    Deployment::run_to_completion(1),
    Deployment::run_to_completion(2),
    Deployment::pipeline([1, 1]),
    Deployment::pipeline([1, 2]),
    Deployment::pipeline([2, 2]),
];

/// The EAL of this process, with memory for the pools of all tests that run at the same time.
///
/// # Panics
/// If EAL does not start.
#[must_use]
pub fn eal() -> Eal {
    let started = Eal::with_args(&["--no-pci", "--no-huge", "-m", "4096"]);
    started.or_else(|error| Eal::current().ok_or(error)).unwrap_or_else(|error| panic!("{error}"))
}

/// A device string with a unique name: the driver's, a number, and the arguments, which begin with
/// a comma unless empty.
#[must_use]
pub fn device(driver: &str, arguments: &str) -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("{driver}{}{arguments}", NEXT.fetch_add(1, Relaxed))
}

/// The samples of the book's page, included here to be compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../docs/kernel.md")]
struct KernelPage;
