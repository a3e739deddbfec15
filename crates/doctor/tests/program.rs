//! Runs the program and checks its output and exit code.

#[expect(dead_code, reason = "the tests of the checks use the rest")]
#[path = "../../machine/tests/examine/machine.rs"]
mod machine;

use hotloop_machine::ids;
use machine::{CPU, Files, machine};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn doctor(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hotloop-doctor")).args(args).output().unwrap()
}

/// The program's exit code and output on a machine.
fn of(files: &Files, args: &[&str]) -> (Option<i32>, String) {
    let root = tempfile::tempdir().unwrap();
    files.write(root.path());
    let all = [&["--root", root.path().to_str().unwrap(), "--device", "41:00.0"], args].concat();
    let output = doctor(&all);
    assert!(output.stderr.is_empty(), "{output:?}");
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn the_exit_code_is_that_of_the_worst() {
    let mut files = machine();
    let (code, text) = of(&files, &["--cpus", "2-3"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.ends_with("\n0 cost safety, 0 speed; 28 are right, 0 unknown\n"), "{text}");

    // The unknown does not count.
    files.remove("proc/meminfo");
    assert_eq!(of(&files, &["--cpus", "2,3"]).0, Some(0));
    files.file(format!("{CPU}/cpu2/cpufreq/scaling_governor"), "powersave");
    let (code, text) = of(&files, &["--cpus", "2-3"]);
    assert_eq!(code, Some(3), "{text}");
    let line = "speed    governor               the frequency governor is powersave on CPU 2\n         why: ";
    assert!(text.contains(line), "{text}");
    files.file("proc/sys/kernel/sched_rt_runtime_us", "-1");
    let (code, text) = of(&files, &["--cpus", "2-3"]);
    assert_eq!(code, Some(4), "{text}");
    assert!(text.ends_with("\n1 cost safety, 1 speed; 25 are right, 1 unknown\n"), "{text}");
}

#[test]
fn programs_read_one_line_of_json() {
    let mut files = machine();
    files.file(format!("{CPU}/cpu2/cpufreq/scaling_governor"), "powersave");
    let (code, text) = of(&files, &["--cpus", "2-3", "--json"]);
    assert_eq!((code, text.lines().count()), (Some(3), 1), "{text}");
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&json["version"], &json["worst"]), (&1.into(), &"speed".into()));
    let findings = json["findings"].as_array().unwrap();
    let governor = findings.iter().find(|found| found["id"] == "governor").unwrap();
    let keys: Vec<_> = governor.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["fix", "id", "severity", "what", "why"]);
    assert!(findings.iter().all(|found| found["severity"] == "ok" || found == governor), "{text}");
}

#[test]
fn what_is_wrong_on_the_command_line_has_the_exit_code_of_every_program() {
    for args in [
        &["--cpus", "x"][..],
        &["--cpus", ""],
        &["--cpus", "5-2"],
        &["--root", "/no/such/folder"],
        &["--no-such-flag"],
        &["eth0"],
    ] {
        let output = doctor(args);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{args:?}");
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(message.starts_with("hotloop-doctor: "), "{message}");
    }
    let help = doctor(&["--help"]);
    assert_eq!((help.status.code(), help.stderr.len()), (Some(0), 0));
    assert!(String::from_utf8(help.stdout).unwrap().contains("3 if something costs speed"));
}

#[test]
fn the_book_lists_every_check() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/programs/doctor.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut listed: Vec<_> = page
        .lines()
        .filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0))
        .collect();
    listed.dedup();
    assert_eq!(listed, ids());
}
