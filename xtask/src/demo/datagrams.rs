//! A UDP source into a UDP sink: two processes, joined by shared memory (net_memif).

use std::fs;
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

/// How long the sink may take to open its socket.
const PATIENCE: Duration = Duration::from_secs(20);

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
    let mut child = child.map_err(|error| process::not_started(&sink, &error))?;
    let sent = wait_for(&socket, &mut child).and_then(|()| {
        let mut source = program("udp-source", "client", &source_cpus);
        process::output(source.args(["--duration", RUN_S]))
    });
    // It may have ended early; its exit code then tells.
    process::quiet_output(Command::new("sh").args(["-c", &format!("kill -INT {}", child.id())]));
    let failed = |what: String| Failure::failed(format!("udp-sink: {what}"));
    let received = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    let sent = Report::read("udp-source", &sent?)?.sent;
    if !received.status.success() {
        return Err(failed(received.status.to_string()));
    }
    let received = String::from_utf8_lossy(&received.stdout);
    let received = Report::read("udp-sink", &received)?.received;
    println!("  sent {sent} datagrams in {RUN_S} s, received {received}");
    if received == 0 {
        return Err(failed("it received no datagram".into()));
    }
    Ok(())
}

fn wait_for(socket: &Path, sink: &mut Child) -> Result<(), Failure> {
    let deadline = Instant::now() + PATIENCE;
    while !socket.exists() {
        let is_over = sink.try_wait().is_ok_and(|status| status.is_some());
        if is_over || Instant::now() > deadline {
            return Err(Failure::failed("udp-sink did not open its socket"));
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
