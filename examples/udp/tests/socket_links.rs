//! Interfaces that go down or disappear under programs that use the kernel's sockets.

#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

use hotloop_tests::network::{Network, ip};
use hotloop_tests::{Program, wait_until};
use std::process::Command;
use std::time::Duration;

/// Time limit for a program to report a lost interface, ten times the documented one.
const NAMED_WITHIN: Duration = Duration::from_secs(10);

/// Starts a program on an interface with address 192.0.2.1 and the other end `b`.
fn start(
    program: &str,
    arguments: &[&str],
) -> Result<(Network, tempfile::TempDir, Program), String> {
    let network = Network::enter()?;
    network.pair("a", "b")?;
    ip(&["address", "add", "192.0.2.1/24", "dev", "a"])?;
    ip(&["neighbour", "replace", "192.0.2.2", "lladdr", "02:00:00:00:00:02", "dev", "a"])?;
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let control = folder.path().join("control.sock");
    let mut command = Command::new(program);
    command.args(arguments).args(["--report", "json", "--control"]).arg(&control);
    Ok((network, folder, Program::start(command, &control)))
}

/// Takes the interface down and up again, deletes it, and ends the program. Returns its report and
/// its log.
fn outage(program: Program) -> (serde_json::Value, String) {
    let is = |state: &str| {
        let status = program.ask("status").unwrap();
        let devices = status["devices"].as_array().unwrap().iter();
        devices.clone().any(|device| device["name"] == "192.0.2.1" && device["link"] == state)
    };
    assert!(is("up"), "{:?}", program.ask("status"));
    for (word, state) in [("down", "down"), ("up", "up")] {
        ip(&["link", "set", "dev", "b", word]).unwrap();
        let waited = wait_until(word, || is(state));
        assert!(waited < NAMED_WITHIN, "{waited:?}");
        // The control thread writes the log in its turns, every quarter of a second.
        std::thread::sleep(Duration::from_millis(600));
    }
    ip(&["link", "delete", "dev", "a"]).unwrap();
    let waited = wait_until("it is gone", || is("gone"));
    assert!(waited < NAMED_WITHIN, "{waited:?}");
    std::thread::sleep(Duration::from_secs(1));
    let (report, errors) = program.end();
    println!("gone after {waited:?}: {errors}");
    for said in ["the link is down", "the link is up", "its interface has gone"] {
        let lines: Vec<_> = errors.lines().filter(|line| line.contains(said)).collect();
        assert_eq!(lines.len(), 1, "{errors}");
        assert!(lines[0].contains("192.0.2.1"), "{errors}");
    }
    assert!(report["notes"].to_string().contains("its interface has gone"), "{report}");
    assert_eq!(report["balanced"], true, "{report}");
    (report, errors)
}

#[test]
fn a_sink_names_the_address_whose_interface_goes() {
    match start(env!("CARGO_BIN_EXE_udp-sink"), &["192.0.2.1"]) {
        Ok((_network, _folder, program)) => drop(outage(program)),
        Err(why) => println!("skipped: {why}"),
    }
}

#[test]
fn a_source_keeps_its_counts_when_its_interface_goes() {
    // The program's core also passes burst boundaries while it can't send anything, for longer than
    // this.
    let arguments = ["192.0.2.2", "--rate", "1000", "--worker-stall-ms-max", "300"];
    let (_network, _folder, program) = match start(env!("CARGO_BIN_EXE_udp-source"), &arguments) {
        Ok(started) => started,
        Err(why) => return println!("skipped: {why}"),
    };
    wait_until("some are sent", || program.ask("status").unwrap()["sent"].as_u64() > Some(100));
    let (report, errors) = outage(program);
    let count = |what: &str| report[what].as_u64().unwrap();
    let dropped: u64 =
        report["dropped"].as_object().unwrap().values().filter_map(|count| count.as_u64()).sum();
    assert_eq!(count("created"), count("sent") + dropped, "{report}");
    assert!(count("sent") > 100, "{report}");
    assert!(errors.contains("sends nothing"), "{errors}");
}
