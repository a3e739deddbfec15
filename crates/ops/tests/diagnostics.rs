//! Messages of a program, whatever standard error does. Each test is the parent of a copy of
//! itself.
#![allow(clippy::print_stdout, reason = "what the parent waits for")]

use hotloop_ops::{EXIT_WAIT, LogArgs, LogFormat, lost_count, program};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, PipeWriter, Read as _, Write as _};
use std::os::linux::fs::MetadataExt as _;
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

const PART: &str = "HOTLOOP_TEST_PART";

/// How much longer than promised a program may take: machines that test are busy.
const MARGIN: u32 = 10;

/// The part of a copy of this program.
#[test]
fn copy() {
    let Ok(part) = std::env::var(PART) else { return };
    let format = |format| LogArgs { log_format: Some(format) }.begin();
    let code = program("nf", || {
        match part.as_str() {
            "command" => tracing::error!("no such device \"eth\u{1b}[2J0\"\nat all"),
            "text" => format(LogFormat::Text),
            "json" => format(LogFormat::Json),
            "automatic" => LogArgs::default().begin(),
            "flood" => (0..1_000).for_each(|number| tracing::warn!("message {number}")),
            "much" => much(),
            "panic" => {
                std::thread::spawn(|| panic!("on purpose")).join().unwrap_err();
            }
            "abort" => without_unwinding(),
            other => panic!("{other} is no part"),
        }
        tracing::info!(port = 7, "the last message");
        ExitCode::from(3)
    });
    assert_eq!(code, ExitCode::from(3));
}

/// A panic that aborts the process.
extern "C" fn without_unwinding() {
    panic!("on purpose");
}

/// Logs more than a pipe and the queue hold, and goes on when the parent allows it.
fn much() {
    let started = Instant::now();
    (0..100).for_each(|number| tracing::info!("{number:0>20000}"));
    assert!(started.elapsed() < MARGIN * Duration::from_millis(500), "{:?}", started.elapsed());
    assert!(lost_count() > 0);
    println!("said");
    std::io::stdin().lines().next();
}

fn command(part: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["copy", "--exact", "--nocapture"]).env(PART, part).env_remove("JOURNAL_STREAM");
    command
}

/// The messages of a copy that ended well.
fn said(part: &str) -> Vec<String> {
    let Output { status, stdout, stderr } = command(part).output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert!(status.success(), "{said}{}", String::from_utf8_lossy(&stdout));
    said.lines().map(str::to_owned).collect()
}

#[test]
fn a_command_says_what_is_wrong_on_one_line_that_steers_no_terminal() {
    let said = said("command");
    assert_eq!(said[0], r#"nf: no such device "eth\x1b[2J0"\nat all"#);
    assert_eq!(said[1..], ["nf: the last message port=7"]);
}

#[test]
fn a_program_that_runs_says_when_and_how_serious() {
    let [line] = &said("text")[..] else { panic!("not one line") };
    let (time, message) = line.split_once(' ').unwrap();
    assert!(time.starts_with("20") && time.ends_with('Z') && time.len() == 27, "{line}");
    assert_eq!(message, " INFO nf: the last message port=7");

    let [line] = &said("json")[..] else { panic!("not one line") };
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!((&line["level"], &line["message"]), (&"INFO".into(), &"the last message".into()));
    assert_eq!(line["port"], 7);
    assert!(line["timestamp"].as_str().unwrap().starts_with("20"), "{line}");
}

#[test]
fn journald_gets_its_own_format_where_it_reads() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let file = std::fs::File::create(&path).unwrap();
    let metadata = file.metadata().unwrap();
    let own = format!("{}:{}", metadata.st_dev(), metadata.st_ino());
    for (stream, expected) in
        [(own.as_str(), "<6>the last message port=7\n"), ("1:2", "Z  INFO nf")]
    {
        std::fs::write(&path, "").unwrap();
        let mut command = command("automatic");
        let to_file = std::fs::File::options().append(true).open(&path).unwrap();
        let status = command.env("JOURNAL_STREAM", stream).stderr(to_file).stdout(Stdio::null());
        assert!(status.status().unwrap().success());
        let said = std::fs::read_to_string(&path).unwrap();
        assert!(said.contains(expected), "{stream}: {said}");
    }
}

#[test]
fn one_place_in_the_source_does_not_flood_the_rest() {
    let said = said("flood");
    assert_eq!(said.iter().filter(|line| line.starts_with("nf: message ")).count(), 100);
    assert_eq!(said[99], "nf: message 99");
    assert_eq!(said[100], "nf: the last message port=7");
    assert!(said[101].starts_with("nf: 900 more messages of diagnostics, line "), "{}", said[101]);
    assert_eq!(said.len(), 102);
}

/// A full pipe without a reader.
fn full_pipe() -> (std::io::PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let capacity = rustix::pipe::fcntl_getpipe_size(&writer).unwrap();
    writer.write_all(&vec![b'\n'; capacity]).unwrap();
    (reader, writer)
}

#[test]
fn a_reader_that_does_not_read_delays_the_end_by_a_bounded_time() {
    let started = Instant::now();
    let start = |part| {
        let (reader, writer) = full_pipe();
        (part, reader, command(part).stderr(writer).stdout(Stdio::null()).spawn().unwrap())
    };
    for (part, _reader, mut child) in ["flood"].map(start) {
        assert!(child.wait().unwrap().success());
        let elapsed = started.elapsed();
        println!("{part} ended after {elapsed:?}; promised: {EXIT_WAIT:?}");
        assert!(elapsed >= EXIT_WAIT && elapsed < MARGIN * EXIT_WAIT, "{part}: {elapsed:?}");
    }
}

#[test]
fn what_ends_a_program_is_written_in_full_however_late_it_is_read() {
    let start = |part| {
        let (reader, writer) = full_pipe();
        let mut command = command(part);
        let child = command.stderr(writer).stdout(Stdio::null()).spawn().unwrap();
        drop(command);
        (part, reader, child)
    };
    let children = ["command", "flood", "panic", "abort"].map(start);
    // The writing thread waits for a reader meanwhile, and the program comes to its end.
    std::thread::sleep(Duration::from_secs(2));
    for (part, mut reader, mut child) in children {
        let mut said = String::new();
        reader.read_to_string(&mut said).unwrap();
        assert_eq!(child.wait().unwrap().success(), part != "abort");
        let said: Vec<_> = said.lines().filter(|line| !line.is_empty()).collect();
        let (first, last) = match part {
            "command" => ("nf: no such device", "nf: the last message port=7"),
            "flood" => ("nf: message 0", "nf: 900 more messages of diagnostics, line "),
            "panic" => ("nf: thread without a name panicked at ", "nf: the last message port=7"),
            _ => ("nf: thread copy panicked at ", ": panic in a function that cannot unwind"),
        };
        assert!(said.first().is_some_and(|line| line.starts_with(first)), "{part}: {said:?}");
        assert!(said.iter().any(|line| line.contains(last)), "{part}: {said:?}");
    }
}

#[test]
fn a_reader_that_has_gone_away_and_a_full_disk_change_nothing() {
    for part in ["flood", "panic", "command"] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = command(part).stderr(full).output().unwrap();
        assert!(output.status.success(), "{part}: {}", String::from_utf8_lossy(&output.stdout));
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command(part).stderr(writer).output().unwrap();
        assert!(output.status.success(), "{part}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn what_was_lost_is_counted_and_said_once_somebody_reads_again() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut command = command("much");
    command.stderr(writer).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.ends_with("said\n") {
        assert!(stdout.read_line(&mut line).unwrap() > 0, "{line}");
    }
    let reading = std::thread::spawn(move || {
        let mut said = String::new();
        reader.read_to_string(&mut said).unwrap();
        said
    });
    child.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    assert!(child.wait().unwrap().success(), "{stdout:?}");
    let said = reading.join().unwrap();
    let written = said.lines().filter(|line| line.len() > 20_000).count();
    let lost = said.lines().filter_map(|line| line.strip_prefix("nf: "));
    let lost: Vec<_> = lost.filter_map(|line| line.split_once(" messages were lost")).collect();
    let sum: usize = lost.iter().map(|(count, _)| count.parse::<usize>().unwrap()).sum();
    assert_eq!((written + sum, sum > 0), (100, true), "{lost:?}");
    assert!(said.contains("nf: the last message port=7\n"));
}

#[test]
fn a_panic_is_a_message_like_any_other() {
    let said = said("panic");
    let expected = "nf: thread without a name panicked at crates/ops/tests/diagnostics.rs:";
    assert!(said[0].starts_with(expected) && said[0].contains(": on purpose"), "{said:?}");
    assert_eq!(said[1], "nf: the last message port=7");
}
