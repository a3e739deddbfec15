//! Ten thousand malformed frames over a wire, all accounted for.

use std::process::Command;

#[test]
fn malformed_frames_are_accounted_for_to_the_packet() {
    hotloop_tests::besiege(|device, control| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ipip-endpoint"));
        command.args(["--port", device, "--tap", "hltap0", "--address", "10.0.0.1"]);
        command.args(["--balancer", "192.0.2.0/26", "--report", "json", "--control"]);
        command.arg(control);
        command
    });
}
