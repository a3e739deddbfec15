//! A balancer that runs on virtual devices, and queries to it.

use crate::deployed::service;
use crate::namespace::with_operator_file;
use hotloop::packet::build::{tcp, udp};
use hotloop::packet::tcp::flags::{ACK, SYN};
use hotloop_capture::write_frames;
use hotloop_tests::tool;
use serde_json::Value;
use std::cell::RefCell;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Maximum time for any step, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Number of TCP connections to the web service, the first ten of them established, and of UDP
/// flows to the name service.
pub const TCP_COUNT: u64 = 40;
pub const UDP_COUNT: u64 = 12;

const ENGINE: &str = r#"
    [engine]
    deployment = "pipeline"
    workers = 2
    idle = "adaptive"
    [balancer]
    source_v4 = "192.0.2.1"
    source_v6 = "2001:db8::1"
    mtu = 1500
    decapsulate = ["192.0.2.1"]
    connections_max = 4096
    timeouts_s = { tcp_opening = 600 }
    [[port]]
    name = "clients"
    device = "net_pcap0,rx_pcap=clients.pcap,tx_pcap=first.pcap,tx_pcap=second.pcap"
    next_hop_mac = "02:00:00:00:01:01"
    side = "client"
    mbufs = 20_000
    [[port]]
    name = "backends"
    device = "net_null0,no-rx=1"
    next_hop_mac = "02:00:00:00:02:01"
    side = "backend"
"#;

pub fn config() -> String {
    ENGINE.to_owned()
        + &service("web", "203.0.113.10 tcp 80", "", &["10.0.0.1", "10.0.0.2*2"])
        + &service("dns", "203.0.113.0/24 udp 53", "", &["10.0.0.1"])
        + &service("turns", "203.0.113.11 tcp 80", "scheduler = \"round-robin\"", &["10.0.0.3"])
}

pub fn client(number: u64) -> String {
    format!("198.51.100.{number}:4000")
}

fn frames() -> Vec<Vec<u8>> {
    let web = |number, flags| tcp().from(client(number)).to("203.0.113.10:80").tcp_flags(flags);
    let syns = (1..=TCP_COUNT).map(|number| web(number, SYN).build());
    let acks = (1..=10).map(|number| web(number, ACK).build());
    let queries =
        (1..=UDP_COUNT).map(|number| udp().from(client(number)).to("203.0.113.7:53").build());
    let strays =
        [tcp().from(client(1)).to("203.0.113.10:81").build(), udp().to("8.8.8.8:1").build()];
    syns.chain(acks).chain(queries).chain(strays).collect()
}

/// Writes the configuration of a balancer that keeps operators' changes in `folder`.
fn write_config(folder: &Path, config: &str) {
    let config = with_operator_file(config, &folder.join("kept.json"));
    fs::write(folder.join("lb.toml"), config).unwrap();
}

/// A running balancer in a folder of its own.
pub struct Program {
    pub folder: tempfile::TempDir,
    child: RefCell<Child>,
    /// Its lines on standard error.
    said: Arc<Mutex<Vec<String>>>,
}

impl Program {
    /// Starts it, and waits until it has taken all frames.
    pub fn start() -> Self {
        Self::start_and_take_all(&config())
    }

    /// Like [`start`](Self::start), with services that take the same frames.
    pub fn start_and_take_all(config: &str) -> Self {
        let program = Self::start_with(config);
        program.wait_until("all frames", |it| {
            let admitted = it.json(&["status"])["balancer"]["admitted"].as_u64();
            let received = it.json(&["status"])["engine"]["sent"].as_u64();
            (admitted, received) == (Some(TCP_COUNT + UDP_COUNT), Some(TCP_COUNT + 10 + UDP_COUNT))
        });
        program
    }

    pub fn start_with(config: &str) -> Self {
        Self::start_with_frames(config, frames())
    }

    /// Like [`start_with`](Self::start_with), with these frames in the capture.
    pub fn start_with_frames(config: &str, frames: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write_config(folder.path(), config);
        write_frames(&folder.path().join("clients.pcap"), frames).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_ipip-lb"))
            .current_dir(folder.path())
            .args(["run", "--config", "lb.toml", "--control", "lb.sock", "--report", "json"])
            .args(["--metrics", "0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Arc::<Mutex<Vec<String>>>::default();
        let errors = BufReader::new(child.stderr.take().unwrap());
        let lines = Arc::clone(&said);
        std::thread::spawn(move || {
            errors.lines().map_while(Result::ok).for_each(|line| lines.lock().unwrap().push(line));
        });
        let program = Self { folder, child: RefCell::new(child), said };
        program.wait_until("it runs", |it| it.has_said("ipip-lb: running: "));
        program
    }

    pub fn has_said(&self, part: &str) -> bool {
        self.said.lock().unwrap().iter().any(|line| line.contains(part))
    }

    /// The messages with all of these parts.
    pub fn messages(&self, parts: &[&str]) -> Vec<String> {
        let said = self.said.lock().unwrap();
        let has_all = |line: &&String| parts.iter().all(|part| line.contains(part));
        said.iter().filter(has_all).cloned().collect()
    }

    /// The address that serves its metrics.
    pub fn metrics_address(&self) -> SocketAddr {
        let said = self.said.lock().unwrap();
        let said = said.iter().find_map(|line| line.split_once("metrics at http://"));
        said.unwrap().1.strip_suffix("/metrics").unwrap().parse().unwrap()
    }

    pub fn wait_until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !is_so(self) {
            let said = self.said.lock().unwrap();
            let has_ended = self.child.borrow_mut().try_wait().unwrap().is_some();
            assert!(!has_ended && start.elapsed() < PATIENCE, "in vain: {what}: {said:#?}");
            drop(said);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn ctl(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ipip-lb"));
        command.current_dir(self.folder.path()).args(["ctl", "--control", "lb.sock"]);
        command.args(args).output().unwrap()
    }

    /// The output of `ctl` for people, only on standard output.
    pub fn text(&self, args: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.ctl(args);
        let errors = String::from_utf8(stderr).unwrap();
        assert_eq!((status.code(), errors.as_str()), (Some(0), ""), "{args:?}");
        String::from_utf8(stdout).unwrap()
    }

    /// The output of `ctl` for programs: one line.
    pub fn json(&self, args: &[&str]) -> Value {
        let text = self.text(&[&["--json"], args].concat());
        assert_eq!(text.lines().count(), 1, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    /// The error of `ctl`, on one line of standard error, with this exit code.
    pub fn refusal(&self, args: &[&str], code: i32) -> String {
        let Output { status, stdout, stderr } = self.ctl(args);
        let errors = String::from_utf8(stderr).unwrap();
        assert_eq!((status.code(), stdout.len()), (Some(code), 0), "{args:?}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{args:?}: {errors}");
        assert!(errors.starts_with("ipip-lb: "), "{args:?}: {errors}");
        errors
    }

    /// The rows of a table: the first line has the headings, in capital letters or not.
    pub fn rows(&self, args: &[&str]) -> Vec<Vec<String>> {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        self.text(args).lines().map(words).collect()
    }

    pub fn configure(&self, config: &str) {
        write_config(self.folder.path(), config);
    }

    pub fn signal(&self, signal: &str) {
        // Every shell has it, but not every machine has a program of this name.
        let kill = format!("kill {signal} {}", self.child.borrow().id());
        assert!(tool("sh").unwrap().args(["-c", &kill]).status().unwrap().success());
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("lb.sock")
    }

    /// Ends it with a signal; its report must be whole.
    pub fn end(self, signal: &str) -> Value {
        self.signal(signal);
        let mut report = String::new();
        let output = self.child.borrow_mut().stdout.take();
        output.unwrap().read_to_string(&mut report).unwrap();
        let status = self.child.borrow_mut().wait().unwrap();
        let said = self.said.lock().unwrap().clone();
        assert_eq!(status.code(), Some(0), "{report} {said:#?}");
        assert!(!self.socket().exists());
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["balanced"], true, "{report}");
        assert_eq!(report["pools_whole"], true, "{report}");
        assert_eq!(report["in_flight"], 0, "{report}");
        report
    }

    /// The state and weight of a backend of a service.
    pub fn backend(&self, service: &str, address: &str) -> (String, u64) {
        let backends = self.json(&["backends"]);
        let mut rows = backends.as_array().unwrap().iter();
        let row = rows.find(|row| row["service"] == service && row["address"] == address).unwrap();
        (row["state"].as_str().unwrap().to_owned(), row["weight"].as_u64().unwrap())
    }

    /// The backends of new TCP connections to the web service: all of them.
    pub fn new_connections_go_to(&self) -> Vec<String> {
        let mut backends: Vec<_> = (1..20)
            .map(|port| {
                let client = format!("198.51.100.99:{port}");
                let answer = self.json(&["lookup", "tcp", &client, "203.0.113.10:80"]);
                answer["backend"].as_str().unwrap().to_owned()
            })
            .collect();
        backends.sort();
        backends.dedup();
        backends
    }

    /// Number of connections that a filter finds.
    pub fn matching(&self, filter: &str) -> u64 {
        let answer = self.json(&["connections", "--filter", filter]);
        assert_eq!(answer["connections"].as_array().unwrap().len() as u64, answer["matching"]);
        answer["matching"].as_u64().unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // After a failed test; otherwise the process has ended.
        let child = self.child.get_mut();
        let _ = child.kill();
        let _ = child.wait();
    }
}
