//! Standard output that fails, blocks, or has lost its reader: the exit code reports it, and
//! nothing waits.

use hotloop_tests::tool;
use std::fs::File;
use std::io::{Write as _, pipe};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Time limit for a program's start: test machines are busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the end of a program waits for files that take nothing, with a tenfold margin.
const END: Duration = Duration::from_secs(25);

fn udp_sink(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_udp-sink"));
    command.args(arguments);
    command
}

fn dev_full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

/// Waits for the end, which must come within `time_limit`.
fn end(mut child: Child, time_limit: Duration) -> Output {
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(started.elapsed() < time_limit, "it does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

#[test]
fn help_that_cannot_be_written_is_an_error_in_words() {
    for arguments in [&["--help"][..], &["--version"], &["ctl", "--help"]] {
        let output = udp_sink(arguments).stdout(dev_full()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.starts_with("udp-sink: standard output: No space left"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let status = udp_sink(&["--nonsense"]).stderr(dev_full()).status().unwrap();
    assert_eq!(status.code(), Some(2));
}

#[test]
fn a_reader_that_has_seen_enough_ends_it_quietly() {
    let folder = tempfile::tempdir().unwrap();
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let mut command = udp_sink(&["--port", "net_null0"]);
    command.env("XDG_RUNTIME_DIR", folder.path()).stdout(writer).stderr(Stdio::piped());
    let output = end(command.spawn().unwrap(), PATIENCE);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(!said.contains("ERROR"), "{said}");
}

#[test]
fn a_full_disk_is_an_error_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = udp_sink(&["--port", "net_null0", "--duration", "1.2"]);
    command.env("XDG_RUNTIME_DIR", folder.path()).stdout(dev_full());
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("standard output: No space left"), "{said}");
}

#[test]
fn a_reader_that_does_not_read_delays_neither_control_nor_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let (_reader, mut writer) = pipe().unwrap();
    let capacity = rustix::pipe::fcntl_getpipe_size(&writer).unwrap();
    writer.write_all(&vec![b'\n'; capacity]).unwrap();
    let mut command = udp_sink(&["--port", "net_null0"]);
    let both = (writer.try_clone().unwrap(), writer);
    command.env("XDG_RUNTIME_DIR", folder.path()).stdout(both.0).stderr(both.1);
    let child = command.spawn().unwrap();
    drop(command);

    // After two lines of rates the program still answers.
    let started = Instant::now();
    let uptime_s = || {
        let mut command = udp_sink(&["ctl", "status", "--json"]);
        let asked = command.env("XDG_RUNTIME_DIR", folder.path()).output().unwrap();
        let status = serde_json::from_slice::<serde_json::Value>(&asked.stdout).ok()?;
        status["uptime_s"].as_f64()
    };
    while uptime_s() < Some(2.5) {
        assert!(started.elapsed() < PATIENCE, "it does not answer");
        std::thread::sleep(Duration::from_millis(50));
    }
    let kill = format!("kill -TERM {}", child.id());
    assert!(tool("sh").unwrap().args(["-c", &kill]).status().unwrap().success());
    assert_eq!(end(child, END).status.code(), Some(1), "nobody read what it counted");
}
