//! A capture's filter has a name that the resolver never answers: only its client waits.
#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

use hotloop_tests::network::{Network, ip};
use hotloop_tests::{Program, wait_until};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Ten times the documented time.
const END_WAIT_MAX: Duration = Duration::from_secs(3);

/// The name server that the machine asks first. Without one, it asks itself: resolv.conf(5).
fn name_server() -> IpAddr {
    let text = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let mut named =
        text.lines().filter_map(|line| line.strip_prefix("nameserver")?.trim().parse().ok());
    named.next().unwrap_or(Ipv4Addr::LOCALHOST.into())
}

/// A client that captures with an expression, and is killed if a test fails.
struct Client(Child);

impl Client {
    fn begin(folder: &Path, expression: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hello-forward"));
        command.args(["ctl", "capture", "--count", "1", "-w", "-", expression, "--control"]);
        command.arg(folder.join("hf.sock")).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    fn is_waiting(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Number of the program's threads with this name.
fn thread_count(program: &Program, name: &str) -> usize {
    let tasks = fs::read_dir(format!("/proc/{}/task", program.id())).unwrap();
    let name_of = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).ok();
    let names = tasks.filter_map(|task| name_of(task.ok()?));
    names.filter(|it| it.trim_end() == name).count()
}

#[test]
fn neither_the_end_nor_another_client_waits_for_a_name() {
    let network = match Network::with_ipv6() {
        Ok(network) => network,
        Err(problem) => return println!("skipped: {problem}"),
    };
    let name_server = name_server();
    if !name_server.is_loopback() {
        ip(&["address", "add", &name_server.to_string(), "dev", "lo"]).unwrap();
    }
    let resolver = UdpSocket::bind((name_server, 53)).unwrap();
    resolver.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let is_asked = || resolver.recv(&mut [0; 512]).is_ok();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let control = folder.join("hf.sock");
    let mut command = Command::new(env!("CARGO_BIN_EXE_hello-forward"));
    command.env("RES_OPTIONS", "timeout:30 attempts:2");
    command.args(["--idle", "pause", "--report", "json", "--control"]).arg(&control);
    let program = Program::start(command, &control);

    let mut silent = Client::begin(folder, "host silent.hotloop.example");
    assert!(is_asked(), "the program asks for the name");
    let mut other = Client::begin(folder, "udp or not udp");
    assert!(other.0.wait().unwrap().success());
    assert!(silent.is_waiting());
    drop(silent);
    wait_until("the capture of a client that has gone ends", || {
        thread_count(&program, "capture") == 0
    });
    assert_eq!(thread_count(&program, "filter"), 1, "the resolver has not answered yet");

    let mut silent = Client::begin(folder, "host silent.hotloop.example");
    wait_until("the name is asked for", || thread_count(&program, "filter") == 2);
    let since = Instant::now();
    let (report, errors) = program.end();
    let took = since.elapsed();
    println!("ended {took:?} after SIGTERM, while two filters wait for a name");
    assert!(took < END_WAIT_MAX, "{took:?}: {errors}");
    assert_eq!(report["balanced"], true, "{report}");
    wait_until("the client ends", || !silent.is_waiting());
    drop(network);
}
