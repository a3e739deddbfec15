//! Probes through a tunnel to a kernel that answers by direct return or by a tunnel back, and the
//! output of `ctl backends` for faults that are planted there, for both IP versions.
//!
//! The balancer's port is a TAP interface with the backend at its other end: the kernel of a
//! network namespace. If this kernel has no device for IP in IP, a raw socket is the tunnel's end,
//! and passes unwrapped packets to the kernel through a wire: the kernel refuses protocol 4 by ICMP
//! as soon as the socket is gone, checks rp_filter, and answers from the VIP if it has it.
#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

use hotloop::dpdk::Port;
use hotloop::packet::PacketBuf;
use hotloop::stage::{Burst, Core, Limits, Source};
use hotloop_tests::network::{Network, Peer, ip, mac};
use hotloop_tests::{device, eal, tool};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Maximum time for any step, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(60);

const CONFIG: &str = r#"
[engine]
workers = 1
idle = "adaptive"
[balancer]
source_v4 = "192.0.2.1"
source_v6 = "2001:db8:1::1"
mtu = 1500
decapsulate = ["192.0.2.1", "2001:db8:1::1"]
[health]
probe_source = ["192.0.2.9", "2001:db8:1::9"]
[[port]]
name = "wire"
device = "net_tap0,iface=be0"
next_hop_mac = "02:00:00:00:00:01"
accept_any_mac = true
[[service]]
name = "web"
address = "VIP"
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
  address = "BACKEND"
"#;

/// The addresses of one IP version.
struct Addresses {
    balancer: &'static str,
    probe_source: &'static str,
    vip: &'static str,
    backend: &'static str,
    /// The length of a prefix that holds a single address.
    host_bits: u8,
}

const V4: Addresses = Addresses {
    balancer: "192.0.2.1",
    probe_source: "192.0.2.9",
    vip: "203.0.113.10",
    backend: "10.0.0.1",
    host_bits: 32,
};

const V6: Addresses = Addresses {
    balancer: "2001:db8:1::1",
    probe_source: "2001:db8:1::9",
    vip: "2001:db8:f::10",
    backend: "2001:db8:b::1",
    host_bits: 128,
};

impl Addresses {
    const fn is_v4(&self) -> bool {
        self.host_bits == 32
    }

    fn config(&self) -> String {
        CONFIG.replace("VIP", self.vip).replace("BACKEND", self.backend)
    }

    /// Adds the VIP to the host, or removes it.
    fn vip(&self, command: &str) {
        let vip = format!("{}/{}", self.vip, self.host_bits);
        ip(&["address", command, &vip, "dev", "lo"]).unwrap();
    }

    /// Sets the kernel's route for replies to probes.
    fn replies(&self, command: &str, way: &[&str]) {
        ip(&[&["route", command], way, &[self.probe_source]].concat()).unwrap();
    }

    /// The verdict on a backend that lacks the VIP: only IPv6 kernels report it, if they don't
    /// forward.
    fn without_vip(&self) -> String {
        match self.is_v4() {
            true => SILENT.to_owned(),
            false => {
                let backend = self.backend;
                format!("the tunnel is refused: ICMP no route to destination from {backend}")
            }
        }
    }

    /// A socket of packets in tunnels.
    fn tunnel_socket(&self) -> Result<UdpSocket, String> {
        let (family, protocol) = match self.is_v4() {
            true => (AddressFamily::INET, ipproto::IPIP),
            false => (AddressFamily::INET6, ipproto::IPV6),
        };
        let raw = socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, Some(protocol));
        let socket = UdpSocket::from(raw.map_err(|error| format!("no raw sockets: {error}"))?);
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        Ok(socket)
    }
}

const SILENT: &str = "the tunnel is silent, though the server answers";

/// A running balancer, in a folder of its own.
struct Balancer {
    folder: tempfile::TempDir,
    child: Child,
}

impl Balancer {
    fn start(config: &str) -> Result<Self, String> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("lb.toml"), config).unwrap();
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

    /// Waits until the only backend is in this state, with a verdict that contains this text.
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

    /// Ends it; its report must be whole.
    fn end(mut self) -> Value {
        let kill = format!("kill -INT {}", self.child.id());
        assert!(tool("sh").unwrap().args(["-c", &kill]).status().unwrap().success());
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

/// A thread of the backend, which ends when this value is dropped.
struct Running {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// `turn` must return after a short time, whatever work there is.
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
fn server(addresses: &Addresses) -> Running {
    let any = if addresses.is_v4() { "0.0.0.0:80" } else { "[::]:80" };
    let listener = TcpListener::bind(any).unwrap();
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

/// The end of the tunnel: its packets are received on `tun1`.
fn tunnel_end(addresses: &Addresses) -> Result<Running, String> {
    let socket = addresses.tunnel_socket()?;
    let (mut peer, to) = (Peer::new("tun0"), mac_bytes("tun1"));
    let (is_v4, ethertype) =
        (addresses.is_v4(), if addresses.is_v4() { [8, 0] } else { [0x86, 0xDD] });
    Ok(Running::start(move || {
        let mut packet = [0; 2048];
        let Ok(count) = socket.recv(&mut packet) else { return };
        // Raw sockets of IPv6 leave the header out.
        let outer_bytes = if is_v4 { usize::from(packet[0] & 15) * 4 } else { 0 };
        let inner = &packet[outer_bytes..count];
        peer.send([&[&to[..], &[2, 0, 0, 0, 0, 9], &ethertype, inner].concat()[..]]);
    }))
}

/// The way back: packets from the kernel to the probe source leave through an interface `back`, and
/// go to the balancer in a tunnel.
fn way_back(addresses: &Addresses) -> Running {
    let socket = addresses.tunnel_socket().unwrap();
    let balancer: IpAddr = addresses.balancer.parse().unwrap();
    let wire = Port::open(eal(), &device("net_tap", ",iface=back")).unwrap();
    let mut queue = wire.rx_queue(&Core::new(0, 1)).unwrap();
    queue.start(&Limits { in_flight_max: 64, thread_count: 1, is_pipeline: false }).unwrap();
    ip(&["link", "set", "dev", "back", "up"]).unwrap();
    ip(&["route", "add", addresses.probe_source, "dev", "back"]).unwrap();
    let host = [addresses.probe_source, "lladdr", "02:00:00:00:00:08", "dev", "back"];
    ip(&[&["neighbour", "replace"], &host[..]].concat()).unwrap();
    let is_v4 = addresses.is_v4();
    let probe_source: IpAddr = addresses.probe_source.parse().unwrap();
    Running::start(move || {
        // It is open for as long as the queue.
        let _wire = &wire;
        let mut burst = Burst::new();
        if queue.poll(&mut burst) == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        while let Some(frame) = burst.pop() {
            let packet = frame.data().get(14..).unwrap_or_default();
            let to = match is_v4 {
                true => {
                    packet.get(16..20).and_then(|it| <[u8; 4]>::try_from(it).ok()).map(IpAddr::from)
                }
                false => packet
                    .get(24..40)
                    .and_then(|it| <[u8; 16]>::try_from(it).ok())
                    .map(IpAddr::from),
            };
            if to == Some(probe_source) {
                let _ = socket.send_to(packet, (balancer, 0));
            }
        }
    })
}

fn mac_bytes(interface: &str) -> [u8; 6] {
    let mac = mac(interface);
    let bytes: Vec<_> = mac.split(':').map(|it| u8::from_str_radix(it, 16).unwrap()).collect();
    bytes.try_into().unwrap()
}

fn sysctl(name: &str, value: &str) {
    fs::write(format!("/proc/sys/net/ipv4/{name}"), value).unwrap();
}

/// A network that allows the balancer's TAP interface, and the wire behind the tunnel's end.
fn network(addresses: &Addresses) -> Result<(Network, Balancer), String> {
    let network = Network::enter()?;
    if !addresses.is_v4() {
        fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "0")
            .map_err(|error| format!("no IPv6: {error}"))?;
    }
    ip(&["link", "set", "dev", "lo", "up"])?;
    network.pair("tun0", "tun1")?;
    let balancer = Balancer::start(&addresses.config());
    let balancer = balancer.map_err(|said| format!("no TAP interface: {said}"))?;
    ip(&["link", "set", "dev", "be0", "address", "02:00:00:00:00:01"]).unwrap();
    ip(&["link", "set", "dev", "be0", "up"]).unwrap();
    let backend = format!("{}/{}", addresses.backend, addresses.host_bits);
    // Usable at once: no other host can have it.
    let nodad: &[_] = if addresses.is_v4() { &[] } else { &["nodad"] };
    ip(&[&["address", "add", &backend, "dev", "be0"], nodad].concat()).unwrap();
    for host in [addresses.balancer, addresses.probe_source] {
        ip(&["route", "add", host, "dev", "be0", "src", addresses.backend]).unwrap();
        ip(&["neighbour", "replace", host, "lladdr", "02:00:00:00:00:07", "dev", "be0"]).unwrap();
    }
    Ok((network, balancer))
}

fn faults_are_told_apart(addresses: &Addresses) {
    let (_network, balancer) = match network(addresses) {
        Ok(made) => made,
        Err(why) => return println!("skipped: {why}"),
    };
    let tunnel = match tunnel_end(addresses) {
        Ok(tunnel) => tunnel,
        Err(why) => return println!("skipped: {why}"),
    };
    let web = server(addresses);
    addresses.vip("add");
    balancer.wait_for("all is well", "up", "");

    addresses.vip("del");
    balancer.wait_for("no VIP", "down", &addresses.without_vip());
    addresses.vip("add");
    balancer.wait_for("the VIP is back", "up", "");

    if addresses.is_v4() {
        sysctl("conf/tun1/rp_filter", "1");
        balancer.wait_for("rp_filter", "down", SILENT);
        sysctl("conf/tun1/rp_filter", "0");
        balancer.wait_for("no rp_filter", "up", "");
    }

    // Simulates a firewall: packets for the probe source don't leave.
    addresses.replies("del", &[]);
    addresses.replies("add", &["blackhole"]);
    balancer.wait_for("a firewall", "down", SILENT);
    let text = balancer.ctl(&["backends"]);
    let address = format!("ip address show to {}", addresses.vip);
    let rp_filter = if addresses.is_v4() { "sysctl net.ipv4" } else { "ip6tables-save" };
    for command in ["ip -d link show type ip", &address, rp_filter, "nft"] {
        assert!(text.contains(command), "{command}: {text}");
    }
    addresses.replies("del", &["blackhole"]);
    ip(&["route", "add", addresses.probe_source, "dev", "be0"]).unwrap();
    balancer.wait_for("no firewall", "up", "");

    drop(tunnel);
    let what = if addresses.is_v4() { "protocol unreachable" } else { "next header unknown" };
    let refused = format!("the tunnel is refused: ICMP {what} from {}", addresses.backend);
    balancer.wait_for("no tunnel", "down", &refused);
    let _tunnel = tunnel_end(addresses).unwrap();
    balancer.wait_for("the tunnel is back", "up", "");

    drop(web);
    balancer.wait_for("no server", "down", "the server: it answers neither");
    let _web = server(addresses);
    balancer.wait_for("the server is back", "up", "");

    let report = balancer.end();
    assert!(report["dropped"]["probe_reply"].as_u64() > Some(10), "{report}");
    assert!(report["created"].as_u64() > Some(10), "{report}");
}

#[test]
fn the_two_probes_tell_faults_of_the_tunnel_from_those_of_the_server() {
    faults_are_told_apart(&V4);
}

#[test]
fn they_do_so_over_ipv6() {
    faults_are_told_apart(&V6);
}

fn replies_come_by_the_return_path(addresses: &Addresses) {
    let (_network, balancer) = match network(addresses) {
        Ok(made) => made,
        Err(why) => return println!("skipped: {why}"),
    };
    let _tunnel = match tunnel_end(addresses) {
        Ok(tunnel) => tunnel,
        Err(why) => return println!("skipped: {why}"),
    };
    let _web = server(addresses);
    addresses.vip("add");
    addresses.replies("del", &[]);
    balancer.wait_for("no way back", "down", SILENT);
    let back = way_back(addresses);
    balancer.wait_for("replies come in a tunnel", "up", "");
    addresses.vip("del");
    balancer.wait_for("no VIP", "down", &addresses.without_vip());
    addresses.vip("add");
    balancer.wait_for("the VIP is back", "up", "");
    drop(back);
    balancer.wait_for("no way back again", "down", SILENT);
    let report = balancer.end();
    assert!(report["dropped"]["probe_reply"].as_u64() > Some(10), "{report}");
}

#[test]
fn replies_may_come_by_a_tunnel_back() {
    replies_come_by_the_return_path(&V4);
}

#[test]
fn replies_may_come_by_a_tunnel_back_over_ipv6() {
    replies_come_by_the_return_path(&V6);
}
