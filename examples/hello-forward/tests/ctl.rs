//! `ctl` queries while the program runs, and while it doesn't.

use hotloop_tests::{Program, tool};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// Maximum number of queries until a starting program answers.
const ASK_COUNT_MAX: usize = 10_000;

/// The program, with its default path in this folder.
fn hello_forward(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hello-forward"));
    command.env("XDG_RUNTIME_DIR", folder).args(arguments);
    command
}

fn output(folder: &Path, arguments: &[&str]) -> Output {
    hello_forward(folder, arguments).output().expect("the program starts")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A running program, which is killed if a test fails.
struct Running(Option<Child>);

impl Running {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        let mut command = hello_forward(folder, arguments);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        Self(Some(child.expect("the program starts")))
    }

    /// Ends the program with a signal, and waits.
    fn end(mut self, signal: &str) -> Output {
        let child = self.0.take().expect("it runs");
        let kill = format!("kill -{signal} {}", child.id());
        assert!(tool("sh").unwrap().args(["-c", &kill]).status().unwrap().success());
        child.wait_with_output().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The running program's answer to `ctl status`, once packets have passed.
fn status(folder: &Path, options: &[&str]) -> Value {
    let arguments = [&["ctl", "status", "--json"], options].concat();
    for _ in 0..ASK_COUNT_MAX {
        let asked = output(folder, &arguments);
        // Until the program listens, there is no answer; until its cores run, nothing has passed.
        if asked.status.code() == Some(0) {
            let status: Value = serde_json::from_slice(&asked.stdout).unwrap();
            if status["sent"].as_u64() > Some(0) {
                return status;
            }
        }
    }
    panic!("{}", errors(&output(folder, &arguments)));
}

#[test]
fn a_running_program_tells_how_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.sock");
    let control = ["--control", path.to_str().unwrap()];
    let running = Running::start(folder.path(), &[&control[..], &["--idle", "pause"]].concat());
    let status = status(folder.path(), &control);
    assert_eq!((&status["program"], &status["idle"]), (&"hello-forward".into(), &"pause".into()));
    assert_eq!((&status["is_plausible"], &status["dropped"]), (&true.into(), &0.into()));
    assert_eq!(status["cores"][0]["core"], "core 0");
    let (received, sent) = (status["received"].as_u64().unwrap(), status["sent"].as_u64().unwrap());
    assert!(received >= sent, "{status}");
    let inside = |bound: &str| status[bound].as_u64().unwrap();
    assert!(inside("in_flight_least") <= inside("in_flight_most"), "{status}");
    assert!(inside("in_flight_most") <= inside("in_flight_max"), "{status}");

    let asked = output(folder.path(), &["ctl", "--control", control[1], "--json", "counters"]);
    assert_eq!(asked.status.code(), Some(0), "{}", errors(&asked));
    let counters: Value = serde_json::from_slice(&asked.stdout).unwrap();
    assert!(counters["received"].as_u64() >= Some(received), "{counters}");
    let mempools = status["mempools"].as_array().unwrap();
    assert!(mempools.iter().all(|it| it["page_bytes"] == 4096), "{status}");
    assert!(!mempools.is_empty() && mempools[0]["mbufs"].as_u64() > Some(0), "{status}");

    let names: Vec<_> = counters["places"].as_array().unwrap().iter().collect();
    let names: Vec<_> = names.iter().map(|place| place["place"].as_str().unwrap()).collect();
    assert_eq!(names, ["source", "stage", "sink"]);

    for (command, heads) in [("status", "core    cpu"), ("counters", "core    cpu  place   name")] {
        let asked = output(folder.path(), &["ctl", command, "--control", control[1]]);
        let text = String::from_utf8(asked.stdout).unwrap();
        let line = text.lines().find(|line| line.starts_with("core 0  "));
        assert!(text.contains(heads) && line.is_some(), "{text}");
    }

    let asked = output(folder.path(), &["ctl", "--control", control[1], "xstats"]);
    let text = String::from_utf8(asked.stdout).unwrap();
    assert!(text.contains("net_null0  rx_good_packets") && text.contains("net_null1"), "{text}");

    let ended = running.end("TERM");
    assert_eq!(ended.status.code(), Some(0), "{}", errors(&ended));
    assert!(String::from_utf8_lossy(&ended.stdout).contains("balanced, pools whole"));
    assert!(!path.exists(), "the socket goes with the program");
}

#[test]
fn a_second_instance_runs_without_a_socket_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let first = Running::start(folder.path(), &[]);
    let process = status(folder.path(), &[])["process"].clone();

    let second = output(folder.path(), &["--duration", "0.05"]);
    let message = errors(&second);
    assert_eq!(second.status.code(), Some(0), "{message}");
    assert!(message.contains(" WARN hello-forward: runs without a control socket"), "{message}");
    assert!(
        message.contains("hotloop/hello-forward.sock") && message.contains("--control"),
        "{message}"
    );

    // An explicit path must be available.
    let path = folder.path().join("hotloop/hello-forward.sock");
    let second = output(folder.path(), &["--control", path.to_str().unwrap()]);
    assert_eq!(second.status.code(), Some(2));
    assert!(errors(&second).contains("a running program has its control socket here"));
    assert_eq!(status(folder.path(), &[])["process"], process, "the first one is still asked");

    // The remains of a killed program are in nobody's way.
    first.end("KILL");
    assert!(path.exists());
    assert_eq!(output(folder.path(), &["ctl", "status"]).status.code(), Some(2));
    let third = output(folder.path(), &["--duration", "0.05"]);
    let errors = errors(&third);
    let mut warnings = errors.lines().filter(|line| line.contains("WARN"));
    // Warnings about the machine are another matter.
    assert_eq!(third.status.code(), Some(0));
    assert!(warnings.all(|line| line.contains("hotloop-doctor")), "{errors}");
    assert!(!path.exists());
}

#[test]
fn a_path_that_cannot_be_had_is_a_warning_only_where_nobody_asked_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let ended = output(&missing, &["--duration", "0.05"]);
    assert_eq!(ended.status.code(), Some(0), "{}", errors(&ended));
    assert!(errors(&ended).contains("WARN"), "{}", errors(&ended));
    let path = missing.join("folder/one.sock");
    let ended = output(folder.path(), &["--control", path.to_str().unwrap()]);
    assert_eq!((ended.status.code(), ended.stdout.len()), (Some(2), 0));
    assert!(errors(&ended).contains("missing/folder"), "{}", errors(&ended));
}

#[test]
fn what_cannot_be_asked_ends_in_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, expected) in [
        (&["ctl", "status"][..], "hotloop/hello-forward.sock"),
        (&["ctl", "counters", "--control", "/nowhere/x.sock"], "/nowhere/x.sock"),
        (
            &["ctl"],
            "requires a subcommand but one was not provided [subcommands: status, counters, load, \
             xstats, capture]",
        ),
        (&["ctl", "explode"], "unrecognized subcommand 'explode'"),
        (&["ctl", "status", "--control"], "a value is required"),
    ] {
        let asked = output(folder.path(), arguments);
        let message = errors(&asked);
        assert_eq!(
            (asked.status.code(), asked.stdout.len()),
            (Some(2), 0),
            "{arguments:?}: {message}"
        );
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
    let message = errors(&output(folder.path(), &["ctl", "status"]));
    assert!(
        message.contains("no program listens") && message.contains("--control PATH"),
        "{message}"
    );
    let help = output(folder.path(), &["ctl", "--help"]);
    assert_eq!((help.status.code(), help.stderr.len()), (Some(0), 0));
    assert!(String::from_utf8_lossy(&help.stdout).contains("counters"));
}

#[test]
fn a_signal_that_comes_before_it_runs_ends_it_with_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let command = hello_forward(folder.path(), &["--report", "json"]);
    let socket = folder.path().join("hotloop/hello-forward.sock");
    // EAL starts after that.
    let (report, errors) = Program::begin(command, |_| socket.exists()).end();
    assert_eq!(
        (&report["balanced"], &report["pools_whole"]),
        (&true.into(), &true.into()),
        "{errors}"
    );
}
