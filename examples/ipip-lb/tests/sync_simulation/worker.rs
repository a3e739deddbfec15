//! A node's workers, which are the balancer's own code: packets go in as frames, and control requests
//! their exceptions.

use super::Setup;
use super::model::{
    BACKENDS, CLOSING_MS, Configuration, ESTABLISHED_MS, OPENING_MS, Packet, SERVICES, address,
    backend, is_udp, key, vip,
};
use crate::bench::{Lb, tunnel_of};
use hotloop::packet::build::{PacketBuilder, tcp, udp, unreachable};
use hotloop::packet::tcp::flags::{ACK, FIN, PSH, RST, SYN};
use hotloop::stage::Instant;
use hotloop_agreement::Birth;
use hotloop_balancer::classify::worker_of;
use hotloop_balancer::connection::{Connection, State};
use hotloop_balancer::exception_mover::ExceptionMover;
use hotloop_balancer::exceptions::Change;
use hotloop_balancer::services::TargetName;
use ipip_lb::config::Config;
use std::fmt;
use std::net::IpAddr;
use std::sync::LazyLock;
use std::time::Duration;

/// The node's own address, which backends send answers to that come back through balancers.
const OWN: &str = "192.0.2.1";

/// Maximum number of connections that a worker enters per second, if there is no room for all.
const CROWDED_PER_SECOND_MAX: u32 = 4;

static CONFIG: LazyLock<Config> = LazyLock::new(|| {
    let mut text = format!(
        r#"
[balancer]
source_v4 = "{OWN}"
mtu = 1500
decapsulate = ["{OWN}"]
connections_max = 1024
maglev_slots = 251
[balancer.timeouts_s]
tcp_opening = {}
tcp_established = {}
tcp_closing = {}
udp = {}
[cluster]
node = "this"
listen = "{OWN}:4790"
peers = [{{ name = "other", address = "192.0.2.2:4790" }}]
trusted_network = true
prepare_ms_max = 10
[[port]]
name = "uplink"
device = "net_null0"
next_hop_mac = "02:00:00:00:09:02"
"#,
        OPENING_MS / 1000,
        ESTABLISHED_MS / 1000,
        CLOSING_MS / 1000,
        ESTABLISHED_MS / 1000
    );
    for (name, protocol_and_ports) in SERVICES
        .into_iter()
        .zip(["protocol = \"tcp\"\nports = \"80\"", "protocol = \"udp\"\nports = \"53\""])
    {
        text += &format!(
            "[[service]]\nname = \"{name}\"\naddress = \"203.0.113.10\"\n{protocol_and_ports}\n"
        );
        for number in 0..BACKENDS {
            text += &format!("[[service.backend]]\naddress = \"{}\"\n", backend(number));
        }
    }
    Config::parse("lb.toml", &text).unwrap()
});

/// A node's entry for a connection.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    pub backend: Option<IpAddr>,
    pub state: State,
    pub birth: Birth,
    /// Whether it is this node's own, not a peer's.
    pub is_own: bool,
    pub is_exception: bool,
    pub is_shared: bool,
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { backend, state, birth, is_own, is_exception, is_shared } = self;
        let origin = if *is_own { "own" } else { "remote" };
        let shared = if *is_shared { ", shared" } else { "" };
        let kind = if *is_exception { "exception" } else { "as configured" };
        let backend = backend.map_or_else(|| "gone".into(), |it| it.to_string());
        write!(f, "{backend} {state:?} {origin}, {kind}{shared}, {:#x}", birth.to_bits())
    }
}

impl Known {
    pub fn is_closing(&self) -> bool {
        self.state == State::Closing
    }
}

pub struct Workers {
    lb: Lb,
    count: usize,
    pub exceptions: ExceptionMover,
    now_ms: u64,
    /// The round after which control has all of its changes.
    heard_round: u64,
}

impl Workers {
    /// Workers that begin now, with a configuration.
    pub fn new(setup: Setup, configuration: Configuration, now_ms: u64) -> Self {
        let count = setup.worker_count;
        let mut config = CONFIG.clone();
        config.balancer.connections_max = setup.connections_max;
        if setup.is_crowded() {
            config.balancer.new_connections_per_second_max = CROWDED_PER_SECOND_MAX;
        }
        let (lb, asker) = Lb::sharing_by(config, setup.journal_max, count);
        let exceptions = ExceptionMover::new(asker, count);
        let mut workers = Self { lb, count, exceptions, now_ms: 0, heard_round: 0 };
        workers.advance(now_ms);
        workers.go_by(configuration);
        workers
    }

    /// The worker that owns a client's connection.
    pub fn owner(&self, client: u32) -> usize {
        worker_of(&key(client), &self.lb.services().settings.hashes, self.count)
    }

    /// Number of connections that found no room, or were evicted.
    pub fn lost_count(&self) -> u64 {
        self.lb.stateless() + self.exceptions.evicted_count()
    }

    /// Lets time pass.
    pub fn advance(&mut self, now_ms: u64) {
        self.lb.advance(Duration::from_millis(now_ms - self.now_ms));
        self.now_ms = now_ms;
    }

    /// Takes peers' changes. Returns the number taken.
    pub fn import(&mut self, changes: &[Change]) -> usize {
        self.exceptions.import(self.lb.services(), changes)
    }

    fn has_news(&mut self) {
        // The round under way may have begun before.
        self.heard_round = self.exceptions.round_count() + 2;
    }

    /// The backend of a client's packet; `None` if it is dropped.
    pub fn packet(&mut self, client: u32, packet: Packet) -> Option<IpAddr> {
        let flags = match packet {
            Packet::Syn => SYN,
            Packet::Data => PSH | ACK,
            Packet::Fin => FIN | ACK,
            Packet::Rst => RST,
        };
        let message = if is_udp(client) { udp() } else { tcp().tcp_flags(flags) };
        self.backend_of(message.from(address(client)).to(vip(client)))
    }

    /// The backend of a router's error about an answer to a client.
    pub fn error(&mut self, client: u32) -> Option<IpAddr> {
        let about = answer(client, ACK).payload([7; 100]).build();
        self.backend_of(unreachable(&about).from("192.88.99.1"))
    }

    fn backend_of(&mut self, packet: PacketBuilder) -> Option<IpAddr> {
        self.has_news();
        let sent = self.lb.feed_sharded(&packet.build());
        sent.packets().first().map(|it| tunnel_of(&it.packet).destination)
    }

    /// Passes a backend's answer to a client through this balancer.
    pub fn answer(&mut self, client: u32, packet: Packet, from: IpAddr) {
        let flags = match packet {
            Packet::Syn => SYN | ACK,
            Packet::Data => ACK,
            Packet::Fin => FIN | ACK,
            Packet::Rst => RST,
        };
        self.has_news();
        let sent = self.lb.feed_sharded(&answer(client, flags).tunnelled(from, OWN).build());
        assert_eq!(sent.packets().len(), 1, "an answer of {from} is dropped");
    }

    /// Its entry for a client's connection.
    pub fn knows(&self, client: u32) -> Option<Known> {
        let now = Instant::from_ns(self.now_ms * 1_000_000);
        let connections = self.lb.balances().nth(self.owner(client))?.connections();
        let it: Connection = connections.peek(&key(client), now)?;
        let target = self.lb.services().active(it.target);
        Some(Known {
            backend: target.map(|target| target.address()),
            state: it.state(),
            birth: it.birth(connections.clock(now)),
            is_own: !it.is_remote(),
            is_exception: it.is_exception(),
            is_shared: it.is_shared(),
        })
    }

    fn weigh(&mut self, configuration: Configuration) {
        for number in 0..BACKENDS {
            let weight = u32::from(configuration.active[usize::from(number)]);
            for service in SERVICES {
                let name = TargetName::new(service, backend(number));
                self.lb.standing.weights.insert(name, weight);
            }
        }
    }

    /// Switches to a configuration.
    pub fn go_by(&mut self, configuration: Configuration) {
        self.weigh(configuration);
        self.has_news();
        self.lb.reload();
    }

    /// Compares connections with these reference tables from now on, the one in use first.
    pub fn refer_to(&mut self, references: &[Configuration], configuration: Configuration) {
        let table = |reference: &Configuration| {
            self.weigh(*reference);
            self.lb.built()
        };
        let mut tables = references.iter().map(table).collect::<Vec<_>>().into_iter();
        self.weigh(configuration);
        self.has_news();
        self.lb.refer_to([tables.next(), tables.next()]);
    }

    /// Does its work between bursts, a few times.
    pub fn tick(&mut self) {
        if !self.exceptions.has_entered_all() {
            // The imports may lead to new changes.
            self.has_news();
        }
        for _ in 0..2 {
            self.lb.tick();
        }
    }

    /// Whether all exceptions are marked, and control has them.
    pub fn is_marked(&self) -> bool {
        self.exceptions.is_marked(self.lb.services())
    }

    /// Whether control has all of its changes.
    pub fn is_heard(&self) -> bool {
        let rounds = self.exceptions.round_count();
        rounds >= self.heard_round && self.exceptions.has_entered_all() && self.is_marked()
    }
}

/// An answer to a client.
fn answer(client: u32, flags: u8) -> PacketBuilder {
    let message = if is_udp(client) { udp() } else { tcp().tcp_flags(flags) };
    message.from(vip(client)).to(address(client)).ttl(64)
}
