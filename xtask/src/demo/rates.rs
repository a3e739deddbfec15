//! The UDP source into the UDP sink: two processes, joined by shared memory (net_memif).

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::failure::Failure;
use crate::process;
use crate::workspace::Workspace;

use super::cpus;

/// How long the two run together.
const RUN: Duration = Duration::from_secs(5);

/// How long the sink may take to open its socket, and each to end after its signal.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs both, shows what they print, and makes sure that datagrams arrived.
pub fn run(workspace: &Workspace) -> Result<(), Failure> {
    let folder = tempfile::tempdir()
        .map_err(|error| Failure::failed(format!("can't make a temporary folder: {error}")))?;
    let socket = folder.path().join("memif.sock");
    let program = |name: &str, role: &str| {
        let mut command = Command::new(workspace.release_program(name));
        command.args(["--trust-memif-peer", "--port", &device(role, &socket)]);
        command
    };
    join(program("udp-sink", "server"), program("udp-source", "client"), &socket, RUN)
}

/// The sink first, which makes the socket; the source ends first, so that the sink counts all.
fn join(sink: Command, source: Command, socket: &Path, run: Duration) -> Result<(), Failure> {
    let halves = cpus::halves();
    let [of_sink, of_source] = halves.as_ref().map_or([None; 2], |[a, b]| [Some(a), Some(b)]);
    let mut sink = cpus::on(of_sink, || Program::start("udp-sink", sink))?;
    sink.wait_for(socket)?;
    let mut source = cpus::on(of_source, || Program::start("udp-source", source))?;
    thread::sleep(run);
    source.stop()?;
    let lines = sink.stop()?;

    let rate_max = lines.iter().filter_map(|line| rate(line)).fold(0.0, f64::max);
    if rate_max > 0.0 {
        return Ok(());
    }
    Err(Failure::failed("udp-sink showed no line with a rate above 0"))
}

fn device(role: &str, socket: &Path) -> String {
    format!("net_memif0,role={role},id=0,socket={},socket-abstract=no", socket.display())
}

/// Millions of packets a second in a line such as `  1.147M pps  34.990MiB / 293.518Mb`.
fn rate(line: &str) -> Option<f64> {
    line.split_once("M pps")?.0.split_whitespace().next_back()?.parse().ok()
}

/// A program that runs until it is told to stop. Dropping it ends it at once.
struct Program {
    name: &'static str,
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
}

impl Program {
    fn start(name: &'static str, mut command: Command) -> Result<Self, Failure> {
        println!("  {}", process::line(&command));
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(|error| {
                Failure::failed(format!("{name} could not be started: {error}"))
            })?;
        let lines = Arc::new(Mutex::new(Vec::new()));
        let reader = child.stdout.take().map(|output| {
            let lines = Arc::clone(&lines);
            thread::spawn(move || show(name, output, &lines))
        });
        Ok(Self { name, child, lines, reader })
    }

    /// Waits for the file that shows that the program is ready.
    fn wait_for(&mut self, file: &Path) -> Result<(), Failure> {
        let deadline = Instant::now() + PATIENCE;
        while !file.exists() {
            if let Some(status) = self.status()? {
                return Err(Failure::failed(format!("{} ended early: {status}", self.name)));
            }
            if Instant::now() > deadline {
                let waited = PATIENCE.as_secs();
                return Err(Failure::failed(format!("{} not ready in {waited} s", self.name)));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Asks it to end, waits until it has, and returns what it printed.
    fn stop(&mut self) -> Result<Vec<String>, Failure> {
        if let Some(status) = self.status()? {
            return Err(Failure::failed(format!("{} ended early: {status}", self.name)));
        }
        kill_process(Pid::from_child(&self.child), Signal::INT)
            .map_err(|error| Failure::failed(format!("{} takes no signal: {error}", self.name)))?;
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.status()? {
                break status;
            }
            if Instant::now() > deadline {
                let waited = PATIENCE.as_secs();
                return Err(Failure::failed(format!(
                    "{} ignored SIGINT for {waited} s",
                    self.name
                )));
            }
            thread::sleep(Duration::from_millis(10));
        };
        if let Some(reader) = self.reader.take() {
            reader.join().ok();
        }
        if !status.success() {
            return Err(Failure::failed(format!("{} failed: {status}", self.name)));
        }
        Ok(std::mem::take(&mut *self.lines.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    fn status(&mut self) -> Result<Option<ExitStatus>, Failure> {
        let name = self.name;
        let lost = |error| Failure::failed(format!("{name} can't be waited for: {error}"));
        self.child.try_wait().map_err(lost)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Both fail where it has ended already, which is as well.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Prints each line as it comes, and keeps it.
fn show(name: &str, output: ChildStdout, lines: &Mutex<Vec<String>>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        println!("  {name:>10} | {line}");
        lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read_from_a_line() {
        assert_eq!(rate("  1.147M pps  34.990MiB / 293.518Mb"), Some(1.147));
        assert_eq!(rate("queue 0:  0.500M pps   1.000MiB /   8.000Mb"), Some(0.5));
        assert_eq!(rate("received 12 datagrams"), None);
    }

    /// Runs two shell scripts in place of the programs; `$1` is the socket.
    fn joined(sink: &str, source: &str) -> Result<(), String> {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let shell = |script: &str| {
            // A shell that was started with SIGINT ignored, as in the background of another, can't
            // trap it.
            let mut command = Command::new("env");
            command.args(["--default-signal=INT", "/bin/sh", "-c", script, "sh"]).arg(&socket);
            command
        };
        join(shell(sink), shell(source), &socket, Duration::from_millis(200))
            .map_err(|failure| failure.to_string())
    }

    const RUNS: &str = "trap 'exit 0' INT; while :; do sleep 0.02; done";
    const COUNTS: &str = "trap 'echo \"  1.5M pps  1MiB / 8Mb\"; exit 0' INT; >$1
        while :; do sleep 0.02; done";

    #[test]
    fn a_sink_that_counts_passes() {
        assert_eq!(joined(COUNTS, RUNS), Ok(()));
    }

    #[test]
    fn a_sink_that_counts_nothing_fails() {
        let failure = joined(&COUNTS.replace("1.5M", "0.0M"), RUNS).unwrap_err();
        assert!(failure.contains("no line with a rate"), "{failure}");
    }

    #[test]
    fn a_program_that_ends_early_or_badly_fails() {
        let early = joined(COUNTS, "exit 0").unwrap_err();
        assert!(early.contains("udp-source ended early"), "{early}");
        let unready = joined("exit 2", RUNS).unwrap_err();
        assert!(unready.contains("udp-sink ended early"), "{unready}");
        let bad = joined(&COUNTS.replace("exit 0", "exit 1"), RUNS).unwrap_err();
        assert!(bad.contains("udp-sink failed"), "{bad}");
    }

    #[test]
    fn both_ends_name_one_socket() {
        let server = device("server", Path::new("/tmp/x/memif.sock"));
        assert_eq!(
            server,
            "net_memif0,role=server,id=0,socket=/tmp/x/memif.sock,socket-abstract=no"
        );
    }
}
