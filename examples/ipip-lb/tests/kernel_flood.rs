//! A BGP session of the host's, through a port with a `kernel_interface`, outlasts floods of
//! packets that the port passes to the kernel. `HOTLOOP_FLOOD_SECONDS` sets the duration of each
//! flood, by default a little more than the session's hold time.

#![allow(clippy::print_stdout, reason = "a test says what it skips, or has seen")]

use crate::bird::Bird;
use crate::namespace::{BALANCER, dns, start};
use crate::ping::ping;
use hotloop::packet::build::{PacketBuilder, echo_request, protocol, tcp};
use hotloop::packet::ethernet::MacAddress;
use hotloop::packet::tcp::flags::{ACK, SYN};
use hotloop_tests::network::{Network, Peer, ip, mac};
use hotloop_tests::{Host, Program, alone, tool, wait_until};
use std::fs;
use std::net::Ipv4Addr;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const HOST: &str = "192.0.2.1";
const PEER: &str = "192.0.2.2";
const HOST_AS: u32 = 64_513;
const PEER_AS: u32 = 64_512;

/// Seconds of silence after which the session ends. Each end sends something every second.
const HOLD_S: u64 = 9;

/// Number of packets per second of a flood, if the machine can send them.
const FLOOD_PER_SECOND: u64 = 50_000;

/// Number of different frames of a flood.
const FRAME_COUNT: u32 = 1 << 16;

fn config(peers: &str) -> String {
    let port = format!(
        "[[port]]\nname = \"uplink\"\ndevice = \"net_af_packet0,iface=a0,blocksz=4096,framesz=2048,framecnt=8192\"\n\
         kernel_interface = \"edge0\"\n{peers}\n"
    );
    BALANCER.to_owned() + &port + &dns("dns", "203.0.113.10", &["10.0.0.1"])
}

fn flood_time() -> Duration {
    let given = std::env::var("HOTLOOP_FLOOD_SECONDS").ok();
    Duration::from_secs(given.map_or(HOLD_S + 3, |it| it.parse().expect("a number of seconds")))
}

/// The packets and the duration of a flood.
type Sent = (u64, Duration);

/// Sends frames from the calling thread's network, at a fixed rate.
fn flood(frames: Vec<Vec<u8>>, time: Duration) -> JoinHandle<Sent> {
    std::thread::spawn(move || {
        let mut peer = Peer::new("b0");
        let mut frames = frames.iter().map(Vec::as_slice).cycle();
        let (begun, mut sent, mut due) = (Instant::now(), 0, 0.0);
        let mut last = begun;
        while begun.elapsed() < time {
            // A delay of more than 20 ms is not made up for.
            let passed = last.elapsed().min(Duration::from_millis(20));
            last = Instant::now();
            due += passed.as_secs_f64() * FLOOD_PER_SECOND as f64;
            sent += peer.send(frames.by_ref().take(due as usize));
            due = due.fract();
            std::thread::sleep(Duration::from_micros(200));
        }
        (sent, begun.elapsed())
    })
}

/// Frames to the host from addresses everywhere.
fn from_anywhere(to: MacAddress, packet: impl Fn() -> PacketBuilder) -> Vec<Vec<u8>> {
    let source = |number: u32| Ipv4Addr::from_bits(number.wrapping_mul(0x9e37_79b1) | 1 << 24);
    let frame = |number| packet().from(format!("{}:{}", source(number), 1_024 + number % 50_000));
    let station = MacAddress::new([2, 0, 0, 0, 0, 9]);
    (0..FRAME_COUNT).map(|number| frame(number).macs(station, to).build()).collect()
}

/// A balancer with a kernel interface, and the other end of its wire.
struct Scene {
    peer: Host,
    program: Program,
    _folder: tempfile::TempDir,
    _network: Network,
}

impl Scene {
    /// Sets the scene up, or returns `None` and prints the reason.
    fn set(peers: &str) -> Option<Self> {
        if let Some(why) = ["bird", "ethtool"].into_iter().find_map(|name| tool(name).err()) {
            println!("skipped: {why}");
            return None;
        }
        let wired = Network::with_ipv6().and_then(|it| it.pair("a0", "b0").map(|()| it));
        let network = wired.map_err(|why| println!("skipped: {why}")).ok()?;
        // The kernel must not use the wire: it receives and answers through `edge0`. So it drops
        // packets from `a0` with sources that it has no route to there (ip-sysctl, `rp_filter`).
        ip(&["link", "set", "dev", "a0", "arp", "off"]).unwrap();
        fs::write("/proc/sys/net/ipv6/conf/a0/disable_ipv6", "1").unwrap();
        fs::write("/proc/sys/net/ipv4/conf/a0/rp_filter", "1").unwrap();
        let peer = Host::start(&["b0"]);
        peer.does(|| {
            run("ethtool -K b0 tx off");
            run("ip link set dev b0 up");
            run(&format!("ip address add {PEER}/24 dev b0"));
        });
        let folder = tempfile::tempdir().unwrap();
        let program = start(folder.path(), &config(peers));
        run(&format!("ip address add {HOST}/24 dev edge0"));
        Some(Self { peer, program, _folder: folder, _network: network })
    }

    fn flood(&self, frames: Vec<Vec<u8>>) -> JoinHandle<Sent> {
        let time = flood_time();
        self.peer.does(move || flood(frames, time))
    }

    /// Returns a session between the host and the peer, once it is established: both ends, and
    /// since when.
    fn session(&self, options: &'static str) -> Session {
        let options = format!("hold time {HOLD_S}; keepalive time 1; {options}");
        let (host, peer) = ((HOST_AS, HOST), (PEER_AS, PEER));
        let own = Bird::start(host, peer, &options);
        let ends = [own, self.peer.does(move || Bird::start(peer, host, &options))];
        let mut since = [None; 2];
        wait_until("the session is established", || {
            since = ends.each_ref().map(Bird::established_s);
            since.iter().all(Option::is_some)
        });
        Session { ends, since_s: since.map(Option::unwrap) }
    }

    /// Number of segments that the peer's TCP has sent again.
    fn retransmitted(&self) -> u64 {
        self.peer.does(|| {
            let table = fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
            let mut lines = table.lines().filter_map(|line| line.strip_prefix("Tcp: "));
            let (names, counts) = (lines.next().unwrap(), lines.next().unwrap());
            let at = names.split(' ').position(|name| name == "RetransSegs").unwrap();
            counts.split(' ').nth(at).unwrap().parse().unwrap()
        })
    }

    /// Ends the flood: some of it was refused, and every packet is accounted for. Returns whether
    /// the port received nine tenths of it: on a machine that is too busy for that, packets may be
    /// lost before the port.
    fn end(self, (sent, time): Sent) -> bool {
        let per_second = sent as f64 / time.as_secs_f64();
        let (report, errors) = self.program.end();
        let refused: u64 = report["stages"].as_array().unwrap().iter().map(refused).sum();
        let seconds = time.as_secs_f64();
        let lost = report["nic_loss"]["imissed"].as_u64().expect("a count");
        println!(
            "{sent} packets in {seconds:.1} s, {per_second:.0}/s; {refused} refused, {lost} lost"
        );
        assert_eq!(report["balanced"], true, "{report:#}\n{errors}");
        assert!(refused > 0, "{report:#}");
        lost < sent / 10
    }
}

/// Number of packets that the kernel's sink has refused.
fn refused(stage: &serde_json::Value) -> u64 {
    stage["dropped"]["tx_refused"].as_u64().unwrap_or(0)
}

struct Session {
    ends: [Bird; 2],
    since_s: [f64; 2],
}

impl Session {
    /// Whether it has been up ever since it was established.
    fn is_the_same(&self) -> bool {
        let ends = self.ends.iter().zip(self.since_s);
        ends.fold(true, |is_the_same, (bird, before_s)| {
            let now_s = bird.established_s();
            println!("established at {before_s:.3} s, and at the end since {now_s:?}");
            // A new session takes a second at least.
            is_the_same && now_s.is_some_and(|now_s| (now_s - before_s).abs() < 0.5)
        })
    }
}

fn outlasts(packet: impl Fn() -> PacketBuilder + Send, station: fn() -> MacAddress) {
    alone(|| {
        let Some(scene) = Scene::set("") else { return };
        let frames = from_anywhere(station(), packet);
        let session = scene.session("");
        let before = scene.retransmitted();
        let sent = scene.flood(frames).join().unwrap();
        let has_outlasted = session.is_the_same();
        println!("{} segments were sent again", scene.retransmitted() - before);
        drop(session);
        assert!(!scene.end(sent) || has_outlasted, "the session has ended");
    });
}

#[test]
fn a_session_outlasts_syns_to_its_port() {
    outlasts(|| tcp().to(format!("{HOST}:179")), || mac("edge0").parse().unwrap());
}

#[test]
fn a_session_outlasts_ospf() {
    let all_routers = || MacAddress::new([1, 0, 0x5e, 0, 0, 5]);
    outlasts(|| protocol(89).ttl(1).to("224.0.0.5").payload([0; 44]), all_routers);
}

#[test]
fn pings_are_answered_during_a_flood_of_pings() {
    alone(|| {
        let Some(scene) = Scene::set("") else { return };
        let station = mac("edge0").parse().unwrap();
        let frames = from_anywhere(station, || echo_request(1, 1).to(HOST));
        // The peer has a share before the flood begins.
        let pinged = |_| {
            std::thread::sleep(Duration::from_secs(1));
            scene.peer.does(|| ping(HOST.parse().unwrap(), 1))
        };
        assert_eq!((0..3).map(pinged).sum::<usize>(), 3);
        let flood = scene.flood(frames);
        let pings: Vec<_> = (0..).map(pinged).take_while(|_| !flood.is_finished()).collect();
        let has_got_it = scene.end(flood.join().unwrap());
        let (answered, count) = (pings.iter().sum::<usize>(), pings.len());
        println!("{answered} of {count} pings were answered");
        assert!(!has_got_it || count >= 2 && answered * 2 >= count, "{answered} of {count}");
    });
}

/// The flood has the neighbour's address, but another TTL than a packet that no router has
/// forwarded.
#[test]
fn a_peer_connects_and_stays_during_a_flood_in_its_name() {
    alone(|| {
        let peers = format!("kernel_peers = [{{ address = \"{PEER}\", gtsm = true }}]");
        let Some(scene) = Scene::set(&peers) else { return };
        let (station, to) = (MacAddress::new([2, 0, 0, 0, 0, 9]), mac("edge0").parse().unwrap());
        let frame = |number: u32| {
            let flags = if number.is_multiple_of(2) { SYN } else { ACK };
            let from = format!("{PEER}:{}", 1_024 + number % 60_000);
            let packet = tcp().tcp_flags(flags).ttl(63).from(from).to(format!("{HOST}:179"));
            packet.macs(station, to).build()
        };
        let flood = scene.flood((0..FRAME_COUNT).map(frame).collect());
        let session = scene.session("ttl security on;");
        let sent = flood.join().unwrap();
        let has_outlasted = session.is_the_same();
        drop(session);
        assert!(!scene.end(sent) || has_outlasted, "the session has ended");
    });
}

/// Runs a tool with arguments in one line.
fn run(line: &str) {
    let mut words = line.split(' ');
    let output = tool(words.next().unwrap()).unwrap().args(words).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}
