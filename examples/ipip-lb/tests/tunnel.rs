//! Probes through a tunnel to a kernel that answers by direct return, and what `ctl backends` says of
//! faults that are planted there.
//!
//! The balancer's port is a TAP interface, the other end of which is the backend: the kernel of a network
//! namespace. Where this kernel has no device for IP in IP, a raw socket is the tunnel's end,
//! and hands what it unwraps to the kernel by a wire: the kernel refuses protocol 4 by ICMP as soon as
//! the socket is gone, looks at rp_filter, and answers from the VIP where it has it.
#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

use hotloop_tests::network::{Network, Peer, ip, mac};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long anything may take, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(60);

const CONFIG: &str = r#"
[engine]
workers = 1
idle = "adaptive"
[balancer]
source_v4 = "192.0.2.1"
mtu = 1500
decapsulate = []
[health]
probe_source = ["192.0.2.9"]
[[port]]
name = "wire"
device = "net_tap0,iface=be0"
next_hop_mac = "02:00:00:00:00:01"
accept_any_mac = true
[[service]]
name = "web"
address = "203.0.113.10"
protocol = "tcp"
ports = "80"
  [service.health]
  kind = "http"
  via = "both"
  interval_ms = 300
  timeout_ms = 250
  rise = 1
  fall = 2
  [[service.backend]]
  address = "10.0.0.1"
"#;

/// A balancer that runs, in a folder of its own.
struct Balancer {
    folder: tempfile::TempDir,
    child: Child,
}

impl Balancer {
    fn start() -> Result<Self, String> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("lb.toml"), CONFIG).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_ipip-lb"))
            .current_dir(folder.path())
            .args(["run", "--config", "lb.toml", "--control", "lb.sock", "--report", "json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains("running: ") {
            if errors.read_line(&mut said).unwrap() == 0 {
                let _ = child.wait();
                return Err(said);
            }
        }
        thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        Ok(Self { folder, child })
    }

    fn ctl(&self, args: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ipip-lb"));
        command.current_dir(self.folder.path()).args(["ctl", "--control", "lb.sock"]).args(args);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    }

    fn backend(&self) -> Value {
        let rows: Value = serde_json::from_str(&self.ctl(&["--json", "backends"])).unwrap();
        rows[0].clone()
    }

    /// Waits until the only backend is in this state, with a verdict that holds this.
    fn wait_for(&self, what: &str, state: &str, verdict: &str) {
        let start = Instant::now();
        loop {
            let row = self.backend();
            let is_so = match row["verdict"].as_str() {
                Some(text) => !verdict.is_empty() && text.contains(verdict),
                None => verdict.is_empty() && !row["probe"].is_null(),
            };
            if is_so && row["state"] == state {
                return println!("{what}: {}", row["verdict"]);
            }
            assert!(start.elapsed() < PATIENCE, "in vain: {what}: {row}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends it; what it reports must be whole.
    fn end(mut self) -> Value {
        let kill = format!("kill -INT {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        let mut report = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut report).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{report}");
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["balanced"], true, "{report}");
        assert_eq!(report["pools_whole"], true, "{report}");
        report
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A thread of the backend, which ends with this.
struct Running {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// `turn` returns after a short time, whatever there is to do.
    fn start(mut turn: impl FnMut() + Send + 'static) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let seen = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            while !seen.load(Relaxed) {
                turn();
            }
        });
        Self { is_over, thread: Some(thread) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A web server at all addresses.
fn server() -> Running {
    let listener = TcpListener::bind("0.0.0.0:80").unwrap();
    listener.set_nonblocking(true).unwrap();
    Running::start(move || match listener.accept() {
        Ok((mut client, _)) => {
            let _ = client.set_nonblocking(false);
            let _ = client.set_read_timeout(Some(Duration::from_millis(200)));
            let _ = client.read(&mut [0; 1024]);
            let _ = client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
        Err(_) => thread::sleep(Duration::from_millis(1)),
    })
}

/// The end of the tunnel: what comes by it is received on `tun1`.
fn tunnel_end() -> Result<Running, String> {
    let raw = socket_with(
        AddressFamily::INET,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(ipproto::IPIP),
    );
    let socket = UdpSocket::from(raw.map_err(|error| format!("no raw sockets: {error}"))?);
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let (mut peer, to) = (Peer::new("tun0"), mac_bytes("tun1"));
    Ok(Running::start(move || {
        let mut packet = [0; 2048];
        let Ok(count) = socket.recv(&mut packet) else { return };
        let outer_bytes = usize::from(packet[0] & 15) * 4;
        let frame = [&to[..], &[2, 0, 0, 0, 0, 9, 8, 0], &packet[outer_bytes..count]].concat();
        peer.send([&frame[..]]);
    }))
}

fn mac_bytes(interface: &str) -> [u8; 6] {
    let mac = mac(interface);
    let bytes: Vec<_> = mac.split(':').map(|it| u8::from_str_radix(it, 16).unwrap()).collect();
    bytes.try_into().unwrap()
}

fn sysctl(name: &str, value: &str) {
    fs::write(format!("/proc/sys/net/ipv4/{name}"), value).unwrap();
}

/// A network in which a balancer's TAP interface can be made, and the wire behind the tunnel's end.
fn network() -> Result<(Network, Balancer), String> {
    let network = Network::enter()?;
    ip(&["link", "set", "dev", "lo", "up"])?;
    network.pair("tun0", "tun1")?;
    let balancer = Balancer::start().map_err(|said| format!("no TAP interface: {said}"))?;
    ip(&["link", "set", "dev", "be0", "address", "02:00:00:00:00:01"])?;
    ip(&["link", "set", "dev", "be0", "up"])?;
    ip(&["address", "add", "10.0.0.1/24", "dev", "be0"])?;
    ip(&["route", "add", "192.0.2.0/24", "dev", "be0"])?;
    for host in ["192.0.2.1", "192.0.2.9"] {
        ip(&["neighbour", "add", host, "lladdr", "02:00:00:00:00:07", "dev", "be0"])?;
    }
    Ok((network, balancer))
}

const VIP: [&str; 4] = ["203.0.113.10/32", "dev", "lo", ""];

fn vip(command: &str) {
    ip(&["address", command, VIP[0], VIP[1], VIP[2]]).unwrap();
}

#[test]
fn the_two_probes_tell_faults_of_the_tunnel_from_those_of_the_server() {
    let (_network, balancer) = match network() {
        Ok(made) => made,
        Err(why) => return println!("skipped: {why}"),
    };
    let tunnel = match tunnel_end() {
        Ok(tunnel) => tunnel,
        Err(why) => return println!("skipped: {why}"),
    };
    let web = server();
    vip("add");
    balancer.wait_for("all is well", "up", "");

    vip("del");
    balancer.wait_for("no VIP", "down", "the tunnel is silent, though the server answers");
    let text = balancer.ctl(&["backends"]);
    for command in
        ["ip -d link show type ipip", "ip address show to 203.0.113.10", "rp_filter", "nft"]
    {
        assert!(text.contains(command), "{command}: {text}");
    }
    vip("add");
    balancer.wait_for("the VIP is back", "up", "");

    sysctl("conf/tun1/rp_filter", "1");
    balancer.wait_for("rp_filter", "down", "the tunnel is silent, though the server answers");
    sysctl("conf/tun1/rp_filter", "0");
    balancer.wait_for("no rp_filter", "up", "");

    // Stands for a firewall: what would leave for the probe source does not.
    ip(&["route", "add", "blackhole", "192.0.2.9"]).unwrap();
    balancer.wait_for("a firewall", "down", "the tunnel is silent, though the server answers");
    ip(&["route", "del", "blackhole", "192.0.2.9"]).unwrap();
    balancer.wait_for("no firewall", "up", "");

    drop(tunnel);
    let refused = "the tunnel is refused: ICMP protocol unreachable from 10.0.0.1";
    balancer.wait_for("no tunnel", "down", refused);
    let _tunnel = tunnel_end().unwrap();
    balancer.wait_for("the tunnel is back", "up", "");

    drop(web);
    balancer.wait_for("no server", "down", "the server: it answers neither");
    let _web = server();
    balancer.wait_for("the server is back", "up", "");

    let report = balancer.end();
    assert!(report["dropped"]["probe_reply"].as_u64() > Some(10), "{report}");
    assert!(report["created"].as_u64() > Some(10), "{report}");
}
