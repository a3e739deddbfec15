//! The kernel beside a program: what `ops::kernel` knows of it, compared with what `ip` says.
#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

mod beside;
mod follow;
mod ping;
mod port;
mod said;
mod tap;
mod vips;

use hotloop_tests::network::{Network, ip};
use std::fs;
use std::time::Duration;

/// How long a test waits for what takes milliseconds.
const WITHIN: Duration = Duration::from_secs(30);

/// A namespace with IPv6 for the interfaces that are made in it, and `a0` and `b0`, each other's wire.
fn network() -> Result<Network, String> {
    let network = namespace()?;
    network.pair("a0", "b0")?;
    Ok(network)
}

/// A namespace with IPv6 for the interfaces that are made in it.
fn namespace() -> Result<Network, String> {
    let network = Network::enter()?;
    for of in ["default", "all", "lo"] {
        // Addresses are used at once, without a search for others that have them (RFC 4862, section 5.4).
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{of}/disable_ipv6"), "0");
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{of}/accept_dad"), "0");
    }
    let _ = fs::write("/proc/sys/net/ipv4/ping_group_range", "0 2147483647");
    ip(&["link", "set", "dev", "lo", "up"])?;
    Ok(network)
}

/// Runs `ip` with arguments in one line.
fn run(arguments: &str) {
    let words: Vec<_> = arguments.split_whitespace().collect();
    ip(&words).unwrap_or_else(|error| panic!("{error}"));
}
