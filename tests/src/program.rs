//! A program that runs during a test.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit for a program's start, and for conditions that a test waits for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program with a control socket, which does not outlive the test.
#[derive(Debug)]
pub struct Program {
    name: OsString,
    control: PathBuf,
    child: Child,
}

impl Program {
    /// Starts the program, and waits until it answers at its control socket.
    ///
    /// # Panics
    /// If the program ends instead.
    #[must_use]
    pub fn start(mut command: Command, control: &Path) -> Self {
        let name = command.get_program().to_owned();
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let child = child.expect("the program starts");
        let mut program = Self { name, control: control.to_owned(), child };
        wait_until("it answers", || {
            program.assert_runs();
            program.ask("status").is_some()
        });
        program
    }

    /// Starts the program, and waits for a moment before it runs: until `is_early` returns true for
    /// its process number. The only further operation is ending it.
    ///
    /// # Panics
    /// If the program ends before, or if the moment does not come within a minute.
    #[must_use]
    pub fn begin(mut command: Command, mut is_early: impl FnMut(u32) -> bool) -> Self {
        let name = command.get_program().to_owned();
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let child = child.expect("the program starts");
        let (mut program, started) =
            (Self { name, control: PathBuf::new(), child }, Instant::now());
        while !is_early(program.id()) {
            program.assert_runs();
            assert!(started.elapsed() < PATIENCE, "it does not start");
            std::thread::sleep(Duration::from_micros(100));
        }
        program
    }

    /// Fails with the program's standard error if the program has ended.
    fn assert_runs(&mut self) {
        let Some(status) = self.child.try_wait().expect("it is a child") else { return };
        let mut errors = String::new();
        let stderr = self.child.stderr.as_mut().expect("it is a pipe");
        stderr.read_to_string(&mut errors).expect("it writes text");
        panic!("{:?} has ended: {status}: {errors}", self.name);
    }

    /// The process number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The signal that killed the program.
    ///
    /// # Panics
    /// If that can't be determined.
    pub fn killed_by(&mut self) -> Option<Signal> {
        let status = self.child.try_wait().expect("it is a child")?;
        Signal::from_named_raw(status.signal()?)
    }

    /// The answer to a command without arguments. If there is none, prints a line for the failing
    /// test and returns `None`.
    #[must_use]
    #[allow(clippy::print_stdout, reason = "why there is no answer")]
    pub fn ask(&self, command: &str) -> Option<Value> {
        let mut asking = Command::new(&self.name);
        asking.args(["ctl", command, "--json", "--control"]).arg(&self.control);
        let output = asking.output().ok()?;
        let answer = serde_json::from_slice(&output.stdout);
        if answer.is_err() {
            println!("{command}: {}", String::from_utf8_lossy(&output.stderr));
        }
        answer.ok()
    }

    /// Asks the program to end, and returns its report and its standard error.
    ///
    /// # Panics
    /// If the program fails.
    #[must_use]
    pub fn end(self) -> (Value, String) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it still runs");
        self.said()
    }

    /// Waits until the program ends by itself, and returns the same.
    ///
    /// # Panics
    /// If the program fails, or does not end within a minute.
    #[must_use]
    pub fn wait(mut self) -> (Value, String) {
        wait_until("it ends", || self.child.try_wait().expect("it is a child").is_some());
        self.said()
    }

    fn said(mut self) -> (Value, String) {
        let (mut report, mut errors) = (String::new(), String::new());
        let stdout = self.child.stdout.as_mut().expect("it is a pipe");
        stdout.read_to_string(&mut report).expect("it writes text");
        let stderr = self.child.stderr.as_mut().expect("it is a pipe");
        stderr.read_to_string(&mut errors).expect("it writes text");
        let status = self.child.wait().expect("it is a child");
        assert!(status.success(), "{status}: {report} {errors}");
        (serde_json::from_str(&report).expect("a report"), errors)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a condition holds, and returns how long that took.
///
/// # Panics
/// If the condition doesn't hold within a minute.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "not within {} s: {what}", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(50));
    }
    started.elapsed()
}
