//! No event on standard error or standard output ends or delays a balancer, and neither does a
//! SIGHUP before it has started.

use crate::web_config::WEB;
use hotloop_tests::tool;
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write as _;
use std::io::{PipeReader, PipeWriter, pipe};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The configuration of one worker and one backend.
fn config() -> String {
    format!("[engine]\nworkers = 1\n{WEB}[[service.backend]]\naddress = \"10.0.0.1\"\n")
}

/// Maximum time for a program to start or to end: test machines are busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the end of a program waits for a file that accepts nothing, with a tenfold margin.
const END: Duration = Duration::from_secs(120);

struct Running {
    child: Child,
    folder: tempfile::TempDir,
}

impl Running {
    fn start(stderr: impl Into<Stdio>, stdout: impl Into<Stdio>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("lb.toml"), config()).unwrap();
        let args = ["run", "--config", "lb.toml", "--control", "lb.sock", "--report", "json"];
        let mut command = program(folder.path(), &args);
        let child = command.stderr(stderr).stdout(stdout).spawn().unwrap();
        Self { child, folder }
    }

    /// The answer to `ctl status`, if there is one.
    fn status(&self) -> Option<Value> {
        let args = ["ctl", "--control", "lb.sock", "status", "--json"];
        let output = program(self.folder.path(), &args).output().unwrap();
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    /// Waits until its status meets the condition.
    fn wait(&mut self, what: &str, is_so: impl Fn(&Value) -> bool) {
        let started = Instant::now();
        while !self.status().as_ref().is_some_and(&is_so) {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("{what}: it has ended: {status}");
            }
            assert!(started.elapsed() < PATIENCE, "{what}: in vain");
        }
    }

    /// Requests `count` reloads, one after the other.
    fn reload(&mut self, count: u64) {
        for _ in 0..count {
            let before = self.status().unwrap()["reloads"].as_u64();
            self.signal("HUP");
            self.wait("a reload", |status| status["reloads"].as_u64() > before);
        }
    }

    fn signal(&self, signal: &str) {
        let kill = format!("kill -{signal} {}", self.child.id());
        assert!(tool("sh").unwrap().args(["-c", &kill]).status().unwrap().success());
    }

    /// Ends it with SIGTERM. Returns its exit status and its standard output.
    fn end(mut self) -> Output {
        self.signal("TERM");
        let started = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(started.elapsed() < END, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        self.child.wait_with_output().unwrap()
    }
}

fn program(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ipip-lb"));
    command.current_dir(folder).args(args);
    command
}

fn dev_full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

/// A full pipe without a reader.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    let capacity = rustix::pipe::fcntl_getpipe_size(&writer).unwrap();
    writer.write_all(&vec![b'\n'; capacity]).unwrap();
    (reader, writer)
}

fn is_whole(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["balanced"], &report["pools_whole"]), (&true.into(), &true.into()));
}

#[test]
fn a_standard_error_that_fails_ends_nothing() {
    let (reader, gone) = pipe().unwrap();
    drop(reader);
    for stderr in [Stdio::from(gone), Stdio::from(dev_full())] {
        let mut running = Running::start(stderr, Stdio::piped());
        running.wait("it runs", |_| true);
        running.reload(2);
        let lost = running.status().unwrap()["engine"]["messages_lost"].as_u64();
        assert!(lost >= Some(3), "{lost:?}");
        is_whole(&running.end());
    }
}

#[test]
fn a_standard_error_that_blocks_delays_neither_packets_nor_control() {
    let (_reader, writer) = full_pipe();
    let mut running = Running::start(writer, Stdio::piped());
    running.wait("packets", |status| status["engine"]["received"].as_u64() > Some(0));
    let status = running.status().unwrap();
    let device = &status["engine"]["devices"][0];
    assert_eq!((&device["name"], &device["imissed"]), (&"net_null0".into(), &0.into()), "{status}");
    let received = device["received"].as_u64().unwrap();
    // Its driver counts bytes or, in older versions, doesn't, which is different from 0 bytes.
    assert!(device["received_bytes"] != 0 && device["sent_bytes"] == 0, "{status}");
    assert!(received > 0 && device["rx_nombuf"].is_u64(), "{status}");
    let args = ["ctl", "--control", "lb.sock", "xstats", "--json"];
    let output = program(running.folder.path(), &args).output().unwrap();
    let devices: Value = serde_json::from_slice(&output.stdout).unwrap();
    let figures = &devices[0]["xstats"];
    assert!(figures["rx_good_packets"].as_u64() >= Some(received), "{devices}");
    assert!(figures["rx_good_bytes"].is_u64() && figures["rx_missed_errors"].is_u64());
    running.reload(3);
    let received = running.status().unwrap()["engine"]["received"].as_u64();
    running.wait("packets", |status| status["engine"]["received"].as_u64() > received);
    is_whole(&running.end());
}

#[test]
fn a_standard_output_that_blocks_or_fails_is_an_error_at_the_end() {
    let (_reader, writer) = full_pipe();
    let cases = [(Stdio::from(writer), "nobody read all of it"), (dev_full().into(), "No space")];
    for (stdout, expected) in cases {
        let mut running = Running::start(Stdio::piped(), stdout);
        running.wait("it runs", |_| true);
        let output = running.end();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{}: {said}", output.status);
        assert!(said.contains("standard output: ") && said.contains(expected), "{said}");
    }
}

#[test]
fn commands_have_the_right_exit_code_whatever_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("lb.toml"), config()).unwrap();
    let check = ["check", "--config", "lb.toml"];
    for (args, expected) in [
        (&["--help"][..], 1),
        (&["run", "--help"], 1),
        (&check, 1),
        // Nothing is written to standard output here.
        (&["check", "--config", "missing.toml"], 2),
        (&["ctl", "--control", "missing.sock", "status"], 2),
        (&["nonsense"], 2),
    ] {
        let mut command = program(folder.path(), args);
        let output = command.stdout(dev_full()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(expected), "{args:?}: {said}");
        assert_eq!((said.lines().count(), said.contains("panicked")), (1, false), "{said}");

        let mut command = program(folder.path(), args);
        let status = command.stdout(dev_full()).stderr(dev_full()).status().unwrap();
        assert_eq!(status.code(), Some(expected), "{args:?}");
    }
    // A reader that has gone away has seen enough.
    for args in [&["--help"][..], &check] {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let output = program(folder.path(), args).stdout(writer).output().unwrap();
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{args:?}");
    }
}

#[test]
fn a_hangup_that_comes_while_it_starts_becomes_a_reload() {
    let mut running = Running::start(Stdio::null(), Stdio::piped());
    // DPDK starts on a thread of its own, as the first or as a later one.
    let threads = format!("/proc/{}/task", running.child.id());
    let started = Instant::now();
    while fs::read_dir(&threads).unwrap().count() < 2 {
        assert!(started.elapsed() < PATIENCE, "it does not start");
    }
    assert!(running.status().is_none(), "it answers already: that is too late for this test");
    running.signal("HUP");
    running.wait("the reload", |status| status["reloads"].as_u64() == Some(1));
    is_whole(&running.end());
}
