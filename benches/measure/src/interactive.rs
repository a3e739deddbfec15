//! A process that is controlled by lines.

use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A process that reads lines and writes lines. Killed when dropped: it may be stopped, and has
/// nothing to save.
#[derive(Debug)]
pub struct Interactive {
    /// The process.
    pub process: Child,
    /// Its input.
    pub input: ChildStdin,
    /// The lines that it writes.
    pub lines: Lines<BufReader<ChildStdout>>,
}

impl Interactive {
    /// Starts the process.
    ///
    /// # Errors
    /// If it can't be started.
    pub fn start(command: &mut Command) -> std::io::Result<Self> {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = process.stdin.take().expect("it was piped");
        let lines = BufReader::new(process.stdout.take().expect("it was piped")).lines();
        Ok(Self { process, input, lines })
    }
}

impl Drop for Interactive {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
