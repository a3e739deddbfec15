//! Two balancers that announce their VIPs by BIRD, and connections of which none is broken by what happens
//! to one of them: `demo/cluster.sh`, which checks whatever it shows. Without the section `[cluster]`, a drain and
//! the end of a balancer break some, so the check can fail.
#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

use std::process::Command;

#[test]
fn connections_go_on_when_a_backend_is_drained_and_a_balancer_killed_silent_withdrawn_or_stopped() {
    show(&[]);
    show(&["--apart"]);
}

/// Runs the script, which ends with an error where something is not as it says.
fn show(arguments: &[&str]) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo/cluster.sh");
    let mut command = Command::new(script);
    let output = command.arg(env!("CARGO_BIN_EXE_ipip-lb")).args(arguments).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(2) {
        return println!("skipped: {}", errors.trim());
    }
    assert!(output.status.success(), "{shown}{errors}");
    println!("{shown}");
}
