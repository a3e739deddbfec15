//! An interface that goes down and up, and then disappears, under a program.

#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

use hotloop_tests::network::{Network, ip};
use hotloop_tests::{Program, wait_until};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Time limit for a program to report a lost interface, ten times the documented one.
const NAMED_WITHIN: Duration = Duration::from_secs(10);

/// Messages of the log, in their order.
pub const MESSAGES: [&str; 3] = ["the link is down", "the link is up", "its interface has gone"];

/// Interfaces `a` and `b` at both ends of a wire, in a network of their own.
pub fn wire() -> Result<Network, String> {
    let network = Network::enter()?;
    network.pair("a", "b")?;
    Ok(network)
}

/// Starts a program that reports as JSON, with its control socket in this folder.
pub fn start(program: &str, folder: &Path, arguments: &[&str]) -> Program {
    let control = folder.join("control.sock");
    let mut command = Command::new(program);
    command.args(arguments).args(["--report", "json", "--control"]).arg(&control);
    Program::start(command, &control)
}

/// Takes the other end of interface `a` down and up again, deletes `a`, and ends the program, which
/// follows it as its device `name`. Returns its report and its log.
pub fn outage(program: Program, name: &str) -> (Value, String) {
    let is = |state: &str| {
        let status = program.ask("status").unwrap();
        let mut devices = status["devices"].as_array().unwrap().iter();
        devices.any(|device| device["name"] == name && device["link"] == state)
    };
    assert!(is("up"), "{name}: {:?}", program.ask("status"));
    for state in ["down", "up"] {
        ip(&["link", "set", "dev", "b", state]).unwrap();
        let waited = wait_until(state, || is(state));
        assert!(waited < NAMED_WITHIN, "{name}: {waited:?}");
        // The control thread writes the log in its turns, every quarter of a second.
        std::thread::sleep(Duration::from_millis(600));
    }
    ip(&["link", "delete", "dev", "a"]).unwrap();
    let waited = wait_until("it is gone", || is("gone"));
    assert!(waited < NAMED_WITHIN, "{name}: {waited:?}");
    std::thread::sleep(Duration::from_secs(1));
    let (report, errors) = program.end();
    println!("{name}: gone after {waited:?}: {errors}");
    for message in MESSAGES {
        assert!(errors.contains(message), "{name}: {errors}");
    }
    assert!(report["notes"].to_string().contains("its interface has gone"), "{report}");
    assert_eq!(report["balanced"], true, "{report}");
    (report, errors)
}
