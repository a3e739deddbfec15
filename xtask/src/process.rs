//! Running other programs.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::failure::Failure;

/// Subcommands of cargo that build or resolve dependencies: with the versions in `Cargo.lock` alone.
const LOCKED: [&str; 6] = ["bench", "build", "clippy", "doc", "metadata", "test"];

/// The cargo that runs this task, with its subcommand first.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let (subcommand, rest) = arguments.split_at(arguments.len().min(1));
    command.args(subcommand);
    if subcommand.iter().any(|subcommand| LOCKED.contains(subcommand)) {
        command.arg("--locked");
    }
    command.args(rest);
    command
}

/// Runs a program with this one's input and output; anything but exit code 0 is a failure.
pub fn run(command: &mut Command) -> Result<(), Failure> {
    let status = command.status().map_err(|error| not_started(command, &error))?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::failed(format!("`{}` failed: {status}", line(command))))
}

/// Runs a program for what it prints; its errors go to this one's. Anything but exit code 0 is a
/// failure.
pub fn output(command: &mut Command) -> Result<String, Failure> {
    let output =
        command.stderr(Stdio::inherit()).output().map_err(|error| not_started(command, &error))?;
    if !output.status.success() {
        return Err(Failure::failed(format!("`{}` failed: {}", line(command), output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What a program prints, or nothing where it is absent or fails; its errors are not shown.
pub fn quiet_output(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Where a program stands in `PATH`; the folders that hold system programs are looked through too,
/// as an ordinary user's `PATH` may lack them.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/bin", "/usr/sbin", "/bin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| {
            fs::metadata(file)
                .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        })
}

/// A command as one would type it.
pub fn line(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    if let Some(name) = words[0].rsplit('/').next() {
        words[0] = name.to_owned();
    }
    words.join(" ")
}

/// That a program could not even be started.
pub fn not_started(command: &Command, error: &std::io::Error) -> Failure {
    Failure::failed(format!("`{}` could not be started: {error}", line(command)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_those_of_the_lock_file() {
        for subcommand in LOCKED {
            let typed = line(&cargo(&[subcommand, "--workspace"]));
            assert!(typed.ends_with(&format!("{subcommand} --locked --workspace")), "{typed}");
        }
        let format = line(&cargo(&["fmt", "--all"]));
        assert!(format.ends_with("fmt --all"), "rustfmt has no such flag: {format}");
        let clippy = line(&cargo(&["clippy", "--", "-D", "warnings"]));
        assert!(clippy.ends_with("clippy --locked -- -D warnings"), "{clippy}");
    }

    #[test]
    fn a_failing_program_is_named_with_its_arguments() {
        let failure = run(Command::new("/bin/sh").args(["-c", "exit 3"])).unwrap_err();
        assert!(failure.to_string().contains("`sh -c exit 3` failed"), "{failure}");
        assert_eq!(failure.exit_code, 1);
    }

    #[test]
    fn a_missing_program_is_a_failure_and_not_found() {
        assert!(run(&mut Command::new("no-such-program-here")).is_err());
        assert_eq!(quiet_output(&mut Command::new("no-such-program-here")), None);
        assert_eq!(find_program("no-such-program-here"), None);
        assert!(find_program("sh").is_some());
    }
}
