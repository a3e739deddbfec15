//! A program that runs in the live demo's network, and what it leaves behind.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::failure::Failure;
use crate::process;

use super::interrupt;

/// How long anything may take that is waited for.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// How often is looked.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// How many of a program's last lines are shown when it fails.
const LINES_SHOWN: usize = 5;

/// A program that runs until it is told to stop. What it prints goes into files. Dropping it ends it
/// at once.
pub struct Running {
    name: String,
    child: Child,
    output: PathBuf,
    errors: PathBuf,
}

impl Running {
    /// Starts it; `folder` is where its files are made, by its name.
    pub fn start(name: &str, folder: &Path, command: &mut Command) -> Result<Self, Failure> {
        let file = |ending: &str| {
            let path = folder.join(format!("{name}.{ending}"));
            File::create(&path)
                .map(|file| (path.clone(), file))
                .map_err(Failure::file("make", &path))
        };
        let ((output, to_output), (errors, to_errors)) = (file("out")?, file("err")?);
        command.stdin(Stdio::null()).stdout(to_output).stderr(to_errors);
        let child = command.spawn().map_err(|error| process::not_started(command, &error))?;
        Ok(Self { name: name.to_owned(), child, output, errors })
    }

    /// Waits until `is_ready`.
    pub fn wait_until(&mut self, is_ready: impl FnMut() -> bool) -> Result<(), Failure> {
        let mut is_ready = is_ready;
        wait_until(&format!("{} to be ready", self.name), || {
            if let Some(status) = self.status()? {
                return Err(self.failed(&format!("ended early: {status}")));
            }
            Ok(is_ready())
        })
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> Result<(), Failure> {
        kill_process(Pid::from_child(&self.child), signal)
            .map_err(|error| self.failed(&format!("takes no signal: {error}")))
    }

    /// Asks it to end, waits until it has, and returns what it printed to standard output.
    pub fn stop(mut self) -> Result<String, Failure> {
        if let Some(status) = self.status()? {
            return Err(self.failed(&format!("ended early: {status}")));
        }
        self.signal(Signal::INT)?;
        let mut ended = None;
        wait_until(&format!("{} to end", self.name), || {
            ended = self.status()?;
            Ok(ended.is_some())
        })?;
        match ended {
            Some(status) if !status.success() => Err(self.failed(&status.to_string())),
            _ => fs::read_to_string(&self.output).map_err(Failure::file("read", &self.output)),
        }
    }

    fn status(&mut self) -> Result<Option<ExitStatus>, Failure> {
        self.child.try_wait().map_err(|error| self.failed(&format!("can't be waited for: {error}")))
    }

    /// That it failed, with the last that it said.
    fn failed(&self, what: &str) -> Failure {
        let said = fs::read_to_string(&self.errors).unwrap_or_default();
        let lines: Vec<_> = said.lines().collect();
        let last = &lines[lines.len().saturating_sub(LINES_SHOWN)..];
        Failure::failed(format!("{} {what}\n{}", self.name, last.join("\n")))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail where it has ended already, which is as well.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Looks until `has_come` says so.
pub fn wait_until(
    what: &str,
    mut has_come: impl FnMut() -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let deadline = Instant::now() + PATIENCE;
    while !has_come()? {
        interrupt::check()?;
        if Instant::now() > deadline {
            let waited = PATIENCE.as_secs();
            return Err(Failure::failed(format!("waited {waited} s for {what}, in vain")));
        }
        thread::sleep(LOOK_INTERVAL);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> (tempfile::TempDir, Running) {
        let folder = tempfile::tempdir().unwrap();
        // A shell that was started with SIGINT ignored, as in the background of another, can't trap it.
        let mut command = Command::new("env");
        command.args(["--default-signal=INT", "/bin/sh", "-c", script]);
        let running = Running::start("shell", folder.path(), &mut command).unwrap();
        (folder, running)
    }

    #[test]
    fn what_a_program_prints_is_there_when_it_has_ended() {
        let (folder, mut running) =
            shell("trap 'echo done; exit 0' INT; echo ready; while :; do sleep 0.02; done");
        let output = folder.path().join("shell.out");
        running.wait_until(|| fs::read_to_string(&output).unwrap() == "ready\n").unwrap();
        assert_eq!(running.stop().unwrap(), "ready\ndone\n");
    }

    #[test]
    fn a_program_that_ends_early_or_badly_is_told_with_what_it_said() {
        let (_folder, mut running) = shell("echo 'no such device' >&2; exit 2");
        let failure = running.wait_until(|| false).unwrap_err().to_string();
        assert!(failure.contains("shell ended early"), "{failure}");
        assert!(failure.ends_with("no such device"), "{failure}");

        let (folder, mut running) =
            shell("trap 'exit 3' INT; echo ready; while :; do sleep 0.02; done");
        let output = folder.path().join("shell.out");
        running.wait_until(|| fs::read_to_string(&output).unwrap() == "ready\n").unwrap();
        let failure = running.stop().unwrap_err().to_string();
        assert!(failure.contains("exit status: 3"), "{failure}");
    }
}
