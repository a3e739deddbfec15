//! Wrong configurations: each ends in exit code 2 and one line that names the file, the line, the
//! key and a correct form.

mod cases;
mod living;
mod notes;
mod understood;

use cases::{SOUND, WRONG};
use living::WRONG_LIVING;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn check(folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ipip-lb"));
    command.current_dir(folder).args(["check", "--config", "lb.toml"]).output().unwrap()
}

/// The one line on standard error of a run that must have ended with exit code 2.
fn complaint(output: &Output) -> String {
    let message = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(output.stdout.is_empty(), "{output:?}");
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

#[test]
fn each_wrong_one_is_named_by_file_line_key_and_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let mut unexpected = Vec::new();
    for (number, line, expected) in WRONG.iter().chain(WRONG_LIVING) {
        let mut lines: Vec<&str> = SOUND.lines().collect();
        match number {
            0 => lines.insert(0, line),
            number => lines[number - 1] = line,
        }
        fs::write(folder.path().join("lb.toml"), lines.join("\n")).unwrap();
        let message = complaint(&check(folder.path()));
        let as_expected = message.starts_with("ipip-lb: lb.toml:")
            && expected.iter().all(|part| message.contains(part));
        if !as_expected {
            unexpected.push(format!("line {number} as {line}:\n  {message}  wanted {expected:?}"));
        }
    }
    assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
}

#[test]
fn what_is_left_out_altogether_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for (from, to, expected) in [
        (6, 12, "lb.toml:1: balancer: missing; write [balancer]"),
        (14, 18, "lb.toml:1: port: missing; write at least one [[port]]"),
        (20, 30, "lb.toml:1: service: missing; write at least one [[service]]"),
    ] {
        let kept =
            SOUND.lines().enumerate().filter(|(index, _)| !(from..=to).contains(&(index + 1)));
        let text: Vec<_> = kept.map(|(_, line)| line).collect();
        fs::write(folder.path().join("lb.toml"), text.join("\n")).unwrap();
        let message = complaint(&check(folder.path()));
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_file_that_is_no_text_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let message = complaint(&check(folder.path()));
    assert!(message.contains("lb.toml: --config: No such file"), "{message}");
    assert!(message.contains("name a readable file"), "{message}");

    fs::write(folder.path().join("lb.toml"), b"[engine]\nworkers = \xFF\n").unwrap();
    let message = complaint(&check(folder.path()));
    assert!(message.contains("lb.toml:2: (text): not UTF-8"), "{message}");

    fs::remove_file(folder.path().join("lb.toml")).unwrap();
    fs::create_dir(folder.path().join("lb.toml")).unwrap();
    let message = complaint(&check(folder.path()));
    assert!(message.contains("lb.toml: --config: Is a directory"), "{message}");
}
