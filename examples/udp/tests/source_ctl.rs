//! Asking the program how it is while it runs, and when it doesn't.

use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// How often a program that starts is asked until it answers.
const ASK_COUNT_MAX: usize = 10_000;

/// The program, with its default path in this folder.
fn udp_source(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_udp-source"));
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
    udp_source(folder, &["ctl", "--json", command]).output().expect("the program starts")
}

/// What the program answers, where one runs.
fn asked(folder: &Path, command: &str) -> Option<Value> {
    let asked = ctl(folder, command);
    (asked.status.code() == Some(0)).then(|| serde_json::from_slice(&asked.stdout).unwrap())
}

#[test]
fn a_running_program_tells_how_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--port", "net_null0", "--rate", "10000", "--idle", "pause"];
    let mut command = udp_source(folder.path(), &arguments);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let _running = Running(child.expect("the program starts"));
    let statuses = (0..ASK_COUNT_MAX).filter_map(|_| asked(folder.path(), "status"));
    let status = { statuses }.find(|status| status["sent"].as_u64() > Some(0)).expect("it runs");
    assert_eq!((&status["is_plausible"], &status["idle"]), (&true.into(), &"pause".into()));
    assert_eq!((&status["program"], &status["received"]), (&"udp-source".into(), &0.into()));
    let (created, sent) = (status["created"].as_u64(), status["sent"].as_u64());
    assert!(sent <= created, "{status}");
    let counters = asked(folder.path(), "counters").unwrap();
    assert!(counters["created"].as_u64() >= created, "{counters}");
    let source = &counters["places"][0];
    assert_eq!((&source["name"], &source["created"]), (&"source".into(), &counters["created"]));
}

#[test]
fn where_no_program_runs_the_path_is_named_and_the_exit_code_is_2() {
    let folder = tempfile::tempdir().unwrap();
    let asked = ctl(folder.path(), "status");
    let message = String::from_utf8(asked.stderr).unwrap();
    assert_eq!((asked.status.code(), asked.stdout.len()), (Some(2), 0), "{message}");
    let path = folder.path().join("hotloop/udp-source.sock");
    assert!(
        message.contains(path.to_str().unwrap()) && message.contains("--control PATH"),
        "{message}"
    );
}
