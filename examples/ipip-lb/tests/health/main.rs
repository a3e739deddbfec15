//! Health checks against servers of this machine, and what brings a backend down and up.

mod authority;
mod http;
mod https;
mod icmp;
mod probes;
mod server;
mod standing;
mod tcp;
mod udp;

use ipip_lb::config::{Health, HttpProbe, Probe};
use ipip_lb::health::Probed;
use ipip_lb::health::probe;
use ipip_lb::health::tls::Clients;
use std::net::IpAddr;
use std::time::Duration;

/// More than any probe takes that passes, on however busy a machine.
const PATIENT_MS: u32 = 60_000;

/// A GET of `/healthz` that expects 200.
fn healthz() -> HttpProbe {
    HttpProbe { path: "/healthz".into(), expect_status: 200 }
}

fn probed(address: &str, port: u16, probe: Probe, timeout_ms: u32) -> Probed {
    let address = address.parse::<IpAddr>().unwrap();
    let interval_ms = timeout_ms;
    Probed { address, health: Health { probe, port, interval_ms, timeout_ms, rise: 2, fall: 3 } }
}

/// One probe: how long it took, or why it failed.
fn run(address: &str, port: u16, probe: Probe, timeout_ms: u32) -> Result<Duration, String> {
    probe::run(&probed(address, port, probe, timeout_ms), &Clients::new())
}
