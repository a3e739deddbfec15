//! Ten thousand malformed frames over a wire, all accounted for.

use std::process::Command;

#[test]
fn malformed_frames_are_accounted_for_to_the_packet() {
    hotloop_tests::besiege(|device, control| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_udp-sink"));
        command.args(["--port", device, "--report", "json", "--control"]).arg(control);
        command
    });
}
