//! Ten thousand malformed frames over a wire, all accounted for.

use std::process::Command;

#[test]
fn malformed_frames_are_accounted_for_to_the_packet() {
    hotloop_tests::besiege(|device, control| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nat44"));
        command.args(["--lan", device, "--wan", "net_ring_wan", "--report", "json", "--control"]);
        command.arg(control).args(["--lan-address", "10.0.0.254", "--wan-address", "203.0.113.1"]);
        command.args(["--next-hop-mac", "02:00:00:00:00:01"]);
        command
    });
}
