//! A UDP source into a UDP sink: two processes, joined by shared memory (net_memif).

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::process;
use crate::workspace::Workspace;

use super::replay::Report;

/// How long the source sends, in seconds.
const RUN_S: &str = "5";

/// How long the sink may take to open its socket, and to end after its signal.
const PATIENCE: Duration = Duration::from_secs(20);

/// Ends a program at once when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail where it has ended, which is fine.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Runs both, and checks that the sink received what the source sent.
pub fn run(workspace: &Workspace) -> Result<(), Failure> {
    let folder = tempfile::tempdir()
        .map_err(|error| Failure::failed(format!("cannot make a temporary folder: {error}")))?;
    let socket = folder.path().join("memif.sock");
    let [sink_cpus, source_cpus] = halves()?;
    let program = |name: &str, role: &str, cpus: &str| {
        let socket = socket.display();
        let device = format!("net_memif0,role={role},id=0,socket={socket},socket-abstract=no");
        let program = workspace.release_program(name);
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", cpus]).arg(program);
        command.args(["--trust-memif-peer", "--report", "json", "--port", &device]);
        println!("  {}", process::line(&command));
        command
    };
    // The sink makes the socket, and ends after the source, so that it receives everything.
    let mut sink = program("udp-sink", "server", &sink_cpus);
    let child = sink.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut sink = Running(child.map_err(|error| process::not_started(&sink, &error))?);
    wait_until("udp-sink to open its socket", || Ok(socket.exists() || sink.is_over()?))?;
    let mut source = program("udp-source", "client", &source_cpus);
    let sent = process::output(source.args(["--duration", RUN_S]))?;
    let received = sink.stop()?;
    let sent = Report::read("udp-source", &sent)?.sent;
    let received = Report::read("udp-sink", &received)?.received;
    println!("  sent {sent} datagrams in {RUN_S} s, received {received}");
    if received == 0 {
        return Err(Failure::failed("udp-sink received no datagram"));
    }
    Ok(())
}

impl Running {
    fn is_over(&mut self) -> Result<bool, Failure> {
        let status = self.0.try_wait();
        let status = status.map_err(|error| Failure::failed(format!("udp-sink: {error}")))?;
        Ok(status.is_some())
    }

    /// Asks it to end, waits until it has, and returns what it printed.
    fn stop(&mut self) -> Result<String, Failure> {
        if self.is_over()? {
            return Err(Failure::failed("udp-sink ended early"));
        }
        let line = format!("kill -INT {}", self.0.id());
        process::run(Command::new("sh").args(["-c", &line]))?;
        wait_until("udp-sink to end", || self.is_over())?;
        let failed = |error| Failure::failed(format!("udp-sink: {error}"));
        let status = self.0.wait().map_err(failed)?;
        if !status.success() {
            return Err(Failure::failed(format!("udp-sink failed: {status}")));
        }
        let mut output = String::new();
        let mut stdout = self.0.stdout.take();
        stdout.as_mut().map_or(Ok(0), |it| it.read_to_string(&mut output)).map_err(failed)?;
        Ok(output)
    }
}

fn wait_until(
    what: &str,
    mut is_true: impl FnMut() -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let deadline = Instant::now() + PATIENCE;
    while !is_true()? {
        if Instant::now() > deadline {
            let waited = PATIENCE.as_secs();
            return Err(Failure::failed(format!("waited {waited} s for {what}")));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// The CPUs of this process in two halves, as lists: two programs that poll do not share one.
fn halves() -> Result<[String; 2], Failure> {
    let path = Path::new("/proc/self/status");
    let status = fs::read_to_string(path).map_err(Failure::file("read", path))?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    split(list.unwrap_or_default())
        .ok_or_else(|| Failure::failed(format!("{} lists no CPUs", path.display())))
}

/// Splits a list such as `0-3,6`. A single CPU is both halves.
fn split(list: &str) -> Option<[String; 2]> {
    let mut cpus = Vec::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cpus.extend(first.parse::<u32>().ok()?..=last.parse().ok()?);
    }
    let (lower, upper) = cpus.split_at(cpus.len() / 2);
    let lower = if lower.is_empty() { upper } else { lower };
    let text = |cpus: &[u32]| cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    Some([text(lower), text(upper)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_halves_share_no_cpu_where_there_are_two() {
        let halves = |list| split(list).unwrap();
        assert_eq!(halves("\t0-3,6"), ["0,1", "2,3,6"]);
        assert_eq!(halves("3"), ["3", "3"]);
        assert_eq!(split(""), None);
    }
}
