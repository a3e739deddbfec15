//! Runs other programs.

use std::env;
use std::process::{Command, Stdio};

use crate::failure::Failure;

/// Subcommands of cargo that take `--locked`, which fixes the versions to those in `Cargo.lock`.
const LOCKED: [&str; 8] = ["bench", "build", "clippy", "doc", "metadata", "run", "test", "tree"];

/// The cargo that runs this task. The subcommand is the first argument.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let (subcommand, rest) = arguments.split_at(1);
    command.args(subcommand);
    if LOCKED.contains(&subcommand[0]) {
        command.arg("--locked");
    }
    if subcommand[0] == "test" && env::var_os("CARGO_INCREMENTAL").is_none() {
        // With all tests together, incremental data that speeds up the next build of one package is
        // a third of the disk usage.
        command.env("CARGO_INCREMENTAL", "0");
    }
    command.args(rest);
    command
}

/// Runs a program with this one's input and output. Any exit code but 0 is a failure.
pub fn run(command: &mut Command) -> Result<(), Failure> {
    let status = command.status().map_err(|error| not_started(command, &error))?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::failed(format!("`{}` failed: {status}", line(command))))
}

/// Runs a program and returns its output; its errors are shown. Any exit code but 0 is a failure.
pub fn output(command: &mut Command) -> Result<String, Failure> {
    let output =
        command.stderr(Stdio::inherit()).output().map_err(|error| not_started(command, &error))?;
    if !output.status.success() {
        return Err(Failure::failed(format!("`{}` failed: {}", line(command), output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The trimmed output of a program, or `None` if it is absent or fails; its errors are hidden.
pub fn quiet_output(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The path of a program. Also searches the folders of system programs: the `PATH` of an ordinary
/// user may lack them.
pub fn find_program(name: &str) -> Option<String> {
    let script = "PATH=$PATH:/usr/sbin:/sbin; command -v \"$1\"";
    quiet_output(Command::new("sh").args(["-c", script, "sh", name]))
}

/// A command as a person would type it.
pub fn line(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    if let Some(name) = words[0].rsplit('/').next() {
        words[0] = name.to_owned();
    }
    words.join(" ")
}

/// The failure of a program that could not be started.
pub fn not_started(command: &Command, error: &std::io::Error) -> Failure {
    Failure::failed(format!("`{}` could not be started: {error}", line(command)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop_test_tools::tool;

    #[test]
    fn only_subcommands_that_know_it_get_locked() {
        let clippy = line(&cargo(&["clippy", "--", "-D", "warnings"]));
        assert!(clippy.ends_with("clippy --locked -- -D warnings"), "{clippy}");
        assert!(line(&cargo(&["fmt", "--all"])).ends_with("fmt --all"));
    }

    #[test]
    fn a_failing_or_absent_program_is_a_failure() {
        let failure = run(tool("sh").unwrap().args(["-c", "exit 3"])).unwrap_err();
        assert!(failure.to_string().contains("`sh -c exit 3` failed"), "{failure}");
        assert_eq!(failure.exit_code, 1);
        assert!(run(&mut Command::new(env::temp_dir().join("no-such-program-here"))).is_err());
        assert_eq!(find_program("no-such-program-here"), None);
        assert!(find_program("sh").is_some());
    }
}
