//! Asking the program how it is while it runs, and when it doesn't.

use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// How often a program that starts is asked until it answers.
const ASK_COUNT_MAX: usize = 10_000;

/// The program, with its default path in this folder.
fn udp_sink(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_udp-sink"));
    command.env("XDG_RUNTIME_DIR", folder).args(arguments);
    command
}

/// A running program, which is killed in the end.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ctl(folder: &Path, command: &str) -> Output {
    udp_sink(folder, &["ctl", "--json", command]).output().expect("the program starts")
}

/// What the program answers, where one runs.
fn asked(folder: &Path, command: &str) -> Option<Value> {
    let asked = ctl(folder, command);
    (asked.status.code() == Some(0)).then(|| serde_json::from_slice(&asked.stdout).unwrap())
}

#[test]
fn a_running_program_tells_how_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = udp_sink(folder.path(), &["--port", "net_null0", "--idle", "pause"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let _running = Running(child.expect("the program starts"));
    let statuses = (0..ASK_COUNT_MAX).filter_map(|_| asked(folder.path(), "status"));
    let status = { statuses }.find(|status| status["dropped"].as_u64() > Some(0)).expect("it runs");
    assert_eq!((&status["is_plausible"], &status["idle"]), (&true.into(), &"pause".into()));
    assert_eq!((&status["program"], &status["sent"]), (&"udp-sink".into(), &0.into()));
    let (received, dropped) = (status["received"].as_u64(), status["dropped"].as_u64());
    assert!(received > Some(0) && dropped <= received, "{status}");
    let counters = asked(folder.path(), "counters").unwrap();
    // What the null device makes up is no datagram.
    assert!(counters["dropped"]["not_udp"].as_u64() > Some(0), "{counters}");
}

#[test]
fn where_no_program_runs_the_path_is_named_and_the_exit_code_is_2() {
    let folder = tempfile::tempdir().unwrap();
    let asked = ctl(folder.path(), "status");
    let message = String::from_utf8(asked.stderr).unwrap();
    assert_eq!((asked.status.code(), asked.stdout.len()), (Some(2), 0), "{message}");
    let path = folder.path().join("hotloop/udp-sink.sock");
    assert!(
        message.contains(path.to_str().unwrap()) && message.contains("--control PATH"),
        "{message}"
    );
}
