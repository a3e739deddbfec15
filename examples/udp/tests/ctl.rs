//! `ctl` queries while the programs run, and while they don't.

use hotloop_tests::Program;
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// Maximum number of queries until a starting program answers.
const ASK_COUNT_MAX: usize = 10_000;

const SINK: &str = env!("CARGO_BIN_EXE_udp-sink");
const SOURCE: &str = env!("CARGO_BIN_EXE_udp-source");

/// A program, with its default path in this folder.
fn command(program: &str, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.env("XDG_RUNTIME_DIR", folder).args(arguments);
    command
}

/// A running program, which is killed on drop.
struct Running(Child);

impl Running {
    fn start(program: &str, folder: &Path, arguments: &[&str]) -> Self {
        let mut command = command(program, folder, arguments);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Self(child.expect("the program starts"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ctl(program: &str, folder: &Path, request: &str) -> Output {
    command(program, folder, &["ctl", "--json", request]).output().expect("the program starts")
}

/// A program's answer, if one runs.
fn asked(program: &str, folder: &Path, request: &str) -> Option<Value> {
    let asked = ctl(program, folder, request);
    (asked.status.code() == Some(0)).then(|| serde_json::from_slice(&asked.stdout).unwrap())
}

/// The first status with a count of this kind.
fn status_with(program: &str, folder: &Path, kind: &str) -> Value {
    let mut statuses = (0..ASK_COUNT_MAX).filter_map(|_| asked(program, folder, "status"));
    statuses.find(|status| status[kind].as_u64() > Some(0)).expect("it runs")
}

#[test]
fn a_running_sink_tells_how_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--port", "net_null0", "--idle", "pause"];
    let _running = Running::start(SINK, folder.path(), &arguments);
    let status = status_with(SINK, folder.path(), "dropped");
    assert_eq!((&status["is_plausible"], &status["idle"]), (&true.into(), &"pause".into()));
    assert_eq!((&status["program"], &status["sent"]), (&"udp-sink".into(), &0.into()));
    let (received, dropped) = (status["received"].as_u64(), status["dropped"].as_u64());
    assert!(received > Some(0) && dropped <= received, "{status}");
    let counters = asked(SINK, folder.path(), "counters").unwrap();
    // The null device's frames are not datagrams.
    assert!(counters["dropped"]["not_udp"].as_u64() > Some(0), "{counters}");
}

#[test]
fn a_running_source_tells_how_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--port", "net_null0", "--rate", "10000", "--idle", "pause"];
    let _running = Running::start(SOURCE, folder.path(), &arguments);
    let status = status_with(SOURCE, folder.path(), "sent");
    assert_eq!((&status["is_plausible"], &status["idle"]), (&true.into(), &"pause".into()));
    assert_eq!((&status["program"], &status["received"]), (&"udp-source".into(), &0.into()));
    let (created, sent) = (status["created"].as_u64(), status["sent"].as_u64());
    assert!(sent <= created, "{status}");
    let counters = asked(SOURCE, folder.path(), "counters").unwrap();
    assert!(counters["created"].as_u64() >= created, "{counters}");
    let source = &counters["places"][0];
    assert_eq!((&source["name"], &source["created"]), (&"source".into(), &counters["created"]));
}

#[test]
fn where_no_program_runs_the_path_is_named_and_the_exit_code_is_2() {
    for (program, socket) in [(SINK, "hotloop/udp-sink.sock"), (SOURCE, "hotloop/udp-source.sock")]
    {
        let folder = tempfile::tempdir().unwrap();
        let asked = ctl(program, folder.path(), "status");
        let message = String::from_utf8(asked.stderr).unwrap();
        assert_eq!((asked.status.code(), asked.stdout.len()), (Some(2), 0), "{message}");
        let path = folder.path().join(socket);
        assert!(
            message.contains(path.to_str().unwrap()) && message.contains("--control PATH"),
            "{message}"
        );
    }
}

#[test]
fn a_signal_that_comes_before_they_run_ends_them_with_a_report() {
    let silent = "net_null0,no-rx=1";
    let neighbour = ["--from", "192.0.2.1", "--next-hop", "--link-wait", "3600", "192.0.2.2"];
    for (program, name, arguments) in [
        (SINK, "udp-sink", &["--port", silent][..]),
        (SINK, "udp-sink", &["127.0.0.1:40999"]),
        (SOURCE, "udp-source", &["--port", silent, "192.0.2.2"]),
        // The source asks for a neighbour's address, and gets no answer.
        (SOURCE, "udp-source", &[&["--port", silent], &neighbour[..]].concat()),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = command(program, folder.path(), arguments);
        command.args(["--report", "json"]);
        let socket = folder.path().join(format!("hotloop/{name}.sock"));
        let (report, errors) = Program::begin(command, |_| socket.exists()).end();
        assert_eq!(
            (&report["balanced"], &report["pools_whole"]),
            (&true.into(), &true.into()),
            "{errors}"
        );
        assert!(!arguments.contains(&"--next-hop") || report["sent"] == 0, "{report}");
    }
}
