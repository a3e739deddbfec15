//! A short `soak`.

#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

use std::process::{Command, Stdio};

/// Just enough to open all lasting connections in both deployments.
const PACKETS: &str = "44000";

#[test]
fn two_at_a_time_account_for_every_packet() {
    let soak = || {
        let mut soak = Command::new(env!("CARGO_BIN_EXE_soak"));
        soak.arg(PACKETS).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    for soak in [soak(), soak()] {
        let output = soak.wait_with_output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains(&format!("soak: {PACKETS} packets, 0 unaccounted")), "{said}");
        for why in said.lines().filter_map(|line| line.strip_prefix("soak: left out: ")) {
            println!("skipped: {why}");
        }
    }
}
