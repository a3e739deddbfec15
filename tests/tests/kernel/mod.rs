//! The kernel beside a program: `ops::kernel`'s tables compared with the output of `ip`.
#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

mod beside;
mod follow;
mod ping;
mod port;
mod said;
mod tap;
mod vips;

use hotloop_tests::network::{Network, ip};
use std::time::Duration;

/// How long a test waits for things that take milliseconds.
const WITHIN: Duration = Duration::from_secs(30);

/// A namespace with IPv6 for its interfaces, and `a0` and `b0`, each other's wire.
fn network() -> Result<Network, String> {
    let network = Network::with_ipv6()?;
    network.pair("a0", "b0")?;
    Ok(network)
}

/// Runs `ip` with arguments in one line.
fn run(arguments: &str) {
    let words: Vec<_> = arguments.split_whitespace().collect();
    ip(&words).unwrap_or_else(|error| panic!("{error}"));
}
