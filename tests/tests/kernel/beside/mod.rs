//! The kernel goes on working beside busy cores: pings, HTTP, neighbours and a BGP session over a
//! TAP interface, while the same worker carries a million packets per second of another port, and
//! half of the wire's capacity.

mod bird;
mod http;
mod load;
mod peer;

use super::ping::ping;
use super::said::json;
use super::{WITHIN, network, run};
use bird::Bird;
use hotloop::prelude::*;
use hotloop::stage::{Core, Error};
use hotloop_kernel::{KernelPort, Mbufs, PortOrKernel, PuntLimits, PuntReason, TapConfig};
use hotloop_tests::network::{kernel_received, kernel_send_dropped, kernel_sent, mac, reassembled};
use hotloop_tests::{Host, alone, device, eal, tool, wait_until};
use http::{Server, fetch};
use load::{Load, Rated, is_load, turn_round};
use serde_json::Value;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Packets per second on the other port.
const FAST_PER_SECOND: u64 = 1_000_000;

/// Number of pings to each address of the host.
const PING_COUNT: u16 = 200;

/// Number of fetches from each address of the host.
const FETCH_COUNT: usize = 20;

/// How often the load on the wire is reduced if the kernel loses packets before the port because
/// CPU time is short.
const RETRY_COUNT: usize = 4;

/// Number of silent seconds after which the BGP session ends: each end sends something in a third
/// of that.
const HOLD_SECONDS: u64 = 6;

const HOST: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
const PEER: [&str; 2] = ["192.0.2.2", "2001:db8::2"];

#[test]
fn the_kernel_works_beside_a_busy_worker_over_af_packet() {
    // Room for arrivals while the worker has no CPU.
    beside("net_af_packet", ",iface=a0,blocksz=4096,framesz=2048,framecnt=8192");
}

#[test]
fn the_kernel_works_beside_a_busy_worker_over_af_xdp() {
    beside("net_af_xdp", ",iface=a0,force_copy=1");
}

/// The port that a packet leaves by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Way {
    Wire,
    Fast,
    Kernel,
}

fn beside(driver: &str, arguments: &str) {
    if let Err(why) = tool("ethtool") {
        return println!("skipped: {why}");
    }
    alone(|| {
        let _network = match network() {
            Ok(network) => network,
            Err(why) => return println!("skipped: {why}"),
        };
        let peer = peer::start();
        // The kernel must not use the wire: it answers by the port.
        run("link set dev a0 arp off");
        std::fs::write("/proc/sys/net/ipv6/conf/a0/disable_ipv6", "1").unwrap();
        let wire = match Port::open(eal(), &device(driver, arguments)) {
            Ok(port) => port,
            Err(error) => return println!("skipped: {driver}: {error}"),
        };
        let fast = Port::open(eal(), &device("net_null", ",size=64,copy=0")).unwrap();
        let mbufs = Mbufs::new(eal(), 2_048, 4_096, false);
        let tap = TapConfig::named("k0");
        let kernel = KernelPort::open(&tap, PuntLimits::default(), mbufs).unwrap();
        for (address, bits) in HOST.iter().zip([24, 64]) {
            run(&format!("address add {address}/{bits} dev k0"));
        }
        let load = peer::load_to(&peer, kernel.mac());
        let beside = Beside { name: driver, wire, fast, kernel, peer: &peer, load: &load };
        let report = beside.carry();
        println!("{report}\n{:?}", beside.kernel.counters());
        assert!(report.is_whole(), "{report}");
    });
}

/// State of the whole test.
struct Beside<'a> {
    name: &'a str,
    wire: Port,
    fast: Port,
    kernel: KernelPort<Mbufs>,
    peer: &'a Host,
    load: &'a Load,
}

/// Counts outside the engine up to a moment, on both sides of the wire and of the interface.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Counts {
    /// Sent by the peer's kernel, and received or lost by the port.
    to_host: (u64, u64),
    /// Sent by the port, and received by the peer or dropped on the way.
    to_peer: (u64, u64),
    /// Counted by the port, and by the kernel's side of the TAP interface.
    punted: (u64, u64),
}

impl Beside<'_> {
    /// Runs an engine with one worker, and everything else meanwhile.
    fn carry(&self) -> Report {
        let Self { wire, fast, kernel, .. } = self;
        let (wire_id, fast_id) = (wire.id().unwrap(), fast.id().unwrap());
        let graph = source(|core: &Core| {
            let wire = Rated::unlimited(wire.rx_queue(core)?);
            let fast = Rated::new(fast.rx_queue(core)?, FAST_PER_SECOND);
            Ok::<_, Error>(sources([
                PortOrKernel::Port(wire),
                PortOrKernel::Port(fast),
                PortOrKernel::Kernel(kernel.source(core)?),
            ]))
        })
        .stage(|_| {
            each(move |mut packet: Packet| {
                let route = match packet.ingress() {
                    Some(port) if port == fast_id => Way::Fast,
                    Some(port) if port == wire_id && !is_load(packet.data()) => Way::Kernel,
                    Some(_) => {
                        turn_round(&mut packet);
                        Way::Wire
                    }
                    None => Way::Wire,
                };
                Routed { packet, route }
            })
        })
        .sink(|core: &Core| {
            Ok::<_, Error>(outlets([
                (Way::Wire, PortOrKernel::Port(wire.tx_queue(core)?)),
                (Way::Fast, PortOrKernel::Port(fast.tx_queue(core)?)),
                (Way::Kernel, PortOrKernel::Kernel(kernel.sink(core)?)),
            ]))
        });
        let plan = Engine::plan(graph, Deployment::run_to_completion(1)).unwrap();
        let plan = plan.idle(Idle::Adaptive);
        plan.run(|_| self.work()).unwrap_or_else(|error| panic!("{error}"))
    }

    fn work(&self) {
        let before = self.when_quiet();
        self.resolve_neighbours();
        let session = Session::begin(self.peer);
        let flood = self.measure_flood();
        let mut load = flood / 2;
        for attempt in 0.. {
            self.load.set(load);
            let Outcome { problems, lost, seconds, wire, fast } = self.exercise();
            println!(
                "{}: the wire carries up to {flood} packets/s there and back; during {seconds:.1} s it \
                 carried {wire} packets/s, {lost} lost before the port; the other port carried {fast} packets/s",
                self.name
            );
            if problems.is_empty() {
                break;
            }
            println!("{problems:#?}");
            assert!(lost > 0 && attempt < RETRY_COUNT, "not by loss before the port: {problems:?}");
            load /= 2;
        }
        if let Some(session) = session {
            session.end();
        }
        self.load.set(0);
        self.check(before);
    }

    /// The wire's capacity in both directions per second, with the peer's maximum load.
    fn measure_flood(&self) -> u64 {
        let sent = || self.wire.stats().unwrap().sent;
        self.load.set(Load::FLOOD);
        std::thread::sleep(Duration::from_millis(300));
        let (begun, before) = (Instant::now(), sent());
        std::thread::sleep(Duration::from_secs(1));
        let count = sent() - before;
        (count as f64 / begun.elapsed().as_secs_f64()) as u64
    }

    /// Starting from empty neighbour tables, each side finds the other.
    fn resolve_neighbours(&self) {
        let flush = || {
            run("neigh flush dev k0");
            self.peer.does(|| run("neigh flush dev b0"));
        };
        self.load.set(10_000);
        flush();
        for address in PEER {
            assert_eq!(ping(address.parse().unwrap(), 1), 1, "{address}");
        }
        check_neighbours(&json("neigh show dev k0"), PEER, &self.peer.does(|| mac("b0")));
        flush();
        for address in HOST {
            assert_eq!(self.pings_of_peer(address, 1), 1, "{address}");
        }
        let known = self.peer.does(|| json("neigh show dev b0"));
        check_neighbours(&known, HOST, &self.kernel.mac().to_string());
    }

    fn pings_of_peer(&self, to: &'static str, count: u16) -> usize {
        let to: IpAddr = to.parse().unwrap();
        self.peer.does(move || ping(to, count))
    }

    /// Pings and fetches, for at least two hold times of the BGP session.
    fn exercise(&self) -> Outcome {
        let counts = || {
            let wire = self.wire.stats().unwrap();
            (wire.sent, wire.imissed.unwrap_or(0), self.fast.stats().unwrap().sent)
        };
        let server = Server::start();
        let port = server.port();
        let (begun, before) = (Instant::now(), counts());
        let mut problems = Vec::new();
        for host in HOST {
            let answered = self.pings_of_peer(host, PING_COUNT);
            if answered != usize::from(PING_COUNT) {
                problems.push(format!("{host}: {answered} of {PING_COUNT} pings were answered"));
            }
            let address: IpAddr = host.parse().unwrap();
            for _ in 0..FETCH_COUNT {
                let fetched = self.peer.does(move || fetch((address, port).into()));
                problems.extend(fetched.err().map(|error| format!("{host}: {error}")));
            }
        }
        let left = Duration::from_secs(2 * HOLD_SECONDS).saturating_sub(begun.elapsed());
        std::thread::sleep(left);
        let (after, seconds) = (counts(), begun.elapsed().as_secs_f64());
        let rate = |count: u64| (count as f64 / seconds) as u64;
        let (wire, fast) = (rate(after.0 - before.0), rate(after.2 - before.2));
        Outcome { problems, lost: after.1 - before.1, seconds, wire, fast }
    }

    fn counts(&self) -> Counts {
        let wire = self.wire.stats().unwrap();
        let kernel = self.kernel.counters();
        let punted: u64 = kernel.punted.iter().map(|(_, count)| count).sum();
        let [sent, received] = self.peer.does(|| [kernel_sent("b0"), kernel_received("b0")]);
        Counts {
            to_host: (sent, wire.received + wire.imissed.unwrap() + wire.rx_nombuf + reassembled()),
            to_peer: (wire.sent, received + kernel_send_dropped("a0")),
            punted: (punted - kernel.write_failed, kernel_received("k0")),
        }
    }

    /// The counts at a moment without packets in flight.
    fn when_quiet(&self) -> Counts {
        let mut before = self.counts();
        wait_until("nothing is under way", || {
            std::thread::sleep(Duration::from_millis(200));
            let now = self.counts();
            std::mem::replace(&mut before, now) == now
        });
        before
    }

    /// Checks that every packet is accounted for: the other side received it, or it was counted as
    /// lost.
    fn check(&self, before: Counts) {
        let mut now = self.counts();
        let is_equal = |now: Counts| {
            let grown = |of: fn(Counts) -> (u64, u64)| {
                (of(now).0 - of(before).0) == (of(now).1 - of(before).1)
            };
            grown(|it| it.to_host) && grown(|it| it.to_peer) && grown(|it| it.punted)
        };
        let deadline = Instant::now() + WITHIN;
        while !is_equal(now) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
            now = self.counts();
        }
        println!("{}: {before:?} to {now:?}", self.name);
        assert!(is_equal(now), "{before:?} {now:?}");
        let counters = self.kernel.counters();
        assert!(counters.limited.iter().all(|(_, count)| *count == 0), "{counters:?}");
        let punted = |reason| counters.punted[reason as usize].1;
        assert!(punted(PuntReason::Icmp) >= 2 * u64::from(PING_COUNT), "{counters:?}");
        assert!(punted(PuntReason::Neighbour) >= 2, "{counters:?}");
    }
}

/// Checks that both addresses are among the neighbours, with this Ethernet address.
fn check_neighbours(known: &[Value], addresses: [&str; 2], mac: &str) {
    for address in addresses {
        let is_known = known.iter().any(|it| it["dst"] == address && it["lladdr"] == mac);
        assert!(is_known, "{address} {mac}: {known:?}");
    }
}

/// The results of pings and fetches, and the other traffic meanwhile.
struct Outcome {
    problems: Vec<String>,
    lost: u64,
    seconds: f64,
    /// Packets per second that left by the wire, and by the other port.
    wire: u64,
    fast: u64,
}

/// A BGP session between the host and the peer.
struct Session {
    ends: [Bird; 2],
    /// When each end established the session, in seconds.
    since_s: [f64; 2],
}

impl Session {
    /// A session that is established; `None` if there is no BIRD.
    fn begin(peer: &Host) -> Option<Self> {
        tool("bird").inspect_err(|why| println!("skipped: {why}")).ok()?;
        let (own, other) = ((PEER_AS + 1, HOST[0]), (PEER_AS, PEER[0]));
        let hold = format!("hold time {HOLD_SECONDS};");
        let host = Bird::start(own, other, &hold);
        let peer = peer.does(move || Bird::start(other, own, &hold));
        let ends = [host, peer];
        let mut since = [None; 2];
        wait_until("the session is established", || {
            since = ends.each_ref().map(Bird::established_s);
            since.iter().all(Option::is_some)
        });
        Some(Self { since_s: since.map(Option::unwrap), ends })
    }

    /// Checks that the session has been up ever since.
    fn end(&self) {
        for (bird, before_s) in self.ends.iter().zip(self.since_s) {
            let now_s = bird.established_s();
            println!("established at {before_s:.3} s, and at the end since {now_s:?}");
            // A new session takes at least a second.
            assert!(now_s.is_some_and(|now_s| (now_s - before_s).abs() < 0.5));
        }
    }
}

/// The peer's AS number; the host's is the next.
const PEER_AS: u32 = 64_512;
