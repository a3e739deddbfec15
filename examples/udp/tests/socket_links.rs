//! Interfaces that go down or disappear under programs that use the kernel's sockets.

#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

use crate::links::{self, MESSAGES, wire};
use hotloop_tests::network::{Network, ip};
use hotloop_tests::{Program, wait_until};

/// Starts a program on an interface with address 192.0.2.1 and the other end `b`.
fn start(
    program: &str,
    arguments: &[&str],
) -> Result<(Network, tempfile::TempDir, Program), String> {
    let network = wire()?;
    ip(&["address", "add", "192.0.2.1/24", "dev", "a"])?;
    ip(&["neighbour", "replace", "192.0.2.2", "lladdr", "02:00:00:00:00:02", "dev", "a"])?;
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let program = links::start(program, folder.path(), arguments);
    Ok((network, folder, program))
}

/// [`links::outage`] that is named once, with the address. Returns the program's report and its log.
fn outage(program: Program) -> (serde_json::Value, String) {
    let (report, errors) = links::outage(program, "192.0.2.1");
    for message in MESSAGES {
        let lines: Vec<_> = errors.lines().filter(|line| line.contains(message)).collect();
        assert_eq!(lines.len(), 1, "{errors}");
        assert!(lines[0].contains("192.0.2.1"), "{errors}");
    }
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
