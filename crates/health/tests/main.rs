//! Health checks against servers on this machine, and the conditions for a backend to go down and
//! come up.
#![allow(clippy::print_stderr, reason = "a test reports what it skips, or has seen")]

mod authority;
mod http;
mod https;
mod icmp;
mod many;
mod probe_state;
mod probes;
mod room;
mod server;
mod tcp;
mod udp;

use hotloop_health::settings::{Health, HttpProbe, Probe, Via};
use hotloop_health::{Probed, Probes, State};
use std::net::IpAddr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// More than any passing probe takes, on however busy a machine.
const PATIENT_MS: u32 = 60_000;

/// A GET of `/healthz` that expects 200.
fn healthz() -> HttpProbe {
    HttpProbe { path: "/healthz".into(), expect_status: 200, user_agent: "test" }
}

fn probed(address: &str, port: u16, probe: Probe, timeout_ms: u32) -> Probed {
    let address = address.parse::<IpAddr>().unwrap();
    let interval_ms = timeout_ms;
    let via = Via::Direct;
    let health = Health { probe, port, interval_ms, timeout_ms, rise: 2, fall: 3, via };
    Probed { address, health }
}

/// Runs one probe: its duration, or the reason that it failed.
fn run(address: &str, port: u16, probe: Probe, timeout_ms: u32) -> Result<Duration, String> {
    let mut probes = Probes::start(mpsc::channel().0).unwrap();
    probes.set(vec![probed(address, port, probe, timeout_ms)]);
    outcome_after(&probes, 0)
}

/// The result of the only backend's next probe.
fn next_outcome(probes: &Probes) -> Result<Duration, String> {
    outcome_after(probes, count(&only(probes)))
}

/// The result of the only backend's last probe, once there were more than `before` probes.
fn outcome_after(probes: &Probes, before: u64) -> Result<Duration, String> {
    loop {
        let state = only(probes);
        if count(&state) > before {
            return state.last.expect("a probe has ended");
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn only(probes: &Probes) -> State {
    match &probes.states()[..] {
        [state] => state.clone(),
        states => panic!("one is probed: {states:?}"),
    }
}

/// Number of probes that have ended.
const fn count(state: &State) -> u64 {
    state.passed_count + state.failed_count
}
