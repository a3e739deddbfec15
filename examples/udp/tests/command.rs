//! Runs of a program to its end.

use std::process::{Command, Output};

/// Runs a program with its control socket in a folder of its own: tests run side by side.
pub fn run(program: &str, arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(program);
    command.env("XDG_RUNTIME_DIR", folder.path());
    command.args(arguments).output().expect("the program starts")
}

/// Checks that the program refuses the arguments in one line that contains `expected`.
pub fn assert_refused(program: &str, arguments: &[&str], expected: &str) {
    let output = run(program, arguments);
    let errors = String::from_utf8(output.stderr).unwrap();
    let matching: Vec<_> = errors.lines().filter(|line| line.contains(expected)).collect();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
    assert_eq!(matching.len(), 1, "{arguments:?}: {errors}");
    assert!(output.stdout.is_empty());
}
