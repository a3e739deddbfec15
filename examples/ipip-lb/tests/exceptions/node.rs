//! A node of a cluster: a balancer on the bench, and control's part of sharing exceptions.

use crate::bench::{self, Lb};
use hotloop::packet::build::{PacketBuilder, tcp};
use hotloop::packet::flow_key::FlowKey;
use hotloop::packet::tcp::flags::{ACK, SYN};
use hotloop_balancer::connection::{Connection, State};
use hotloop_balancer::exception_mover::{ExceptionMover, Pulled};
use hotloop_balancer::exceptions::{Change, Record};
use hotloop_balancer::services::TargetName;
use ipip_lb::config::Config;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Three backends by hash, and three in turns; each of both IP versions.
const CONFIG: &str = r#"
[balancer]
source_v4 = "192.0.2.1"
source_v6 = "2001:db8::1"
mtu = 1500
decapsulate = ["192.0.2.1", "2001:db8::1"]
connections_max = 4096

[[port]]
name = "uplink"
device = "net_null0"
next_hop_mac = "02:00:00:00:09:02"
"#;

pub const WEB: &str = "203.0.113.10:80";
pub const WEB6: &str = "[2001:db8:f::10]:80";
pub const TURNS: &str = "203.0.113.11:53";

pub const BACKENDS: [&str; 3] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];

fn config(connections_max: usize) -> Config {
    let services = [
        ("web", "203.0.113.10", "maglev"),
        ("web6", "2001:db8:f::10", "maglev"),
        ("turns", "203.0.113.11", "round-robin"),
    ];
    let mut text = CONFIG.replace("4096", &connections_max.to_string());
    for (name, address, scheduler) in services {
        text += &format!(
            "[[service]]\nname = \"{name}\"\naddress = \"{address}\"\nprotocol = \"any\"\n\
             ports = \"any\"\nscheduler = \"{scheduler}\"\n"
        );
        for backend in BACKENDS {
            text += &format!("[[service.backend]]\naddress = \"{backend}\"\n");
        }
    }
    Config::parse("lb.toml", &text).unwrap()
}

pub struct Node {
    pub lb: Lb,
    pub exceptions: ExceptionMover,
    /// Changes that came while it took the other nodes' changes.
    heard: Vec<Change>,
}

impl Node {
    pub fn new() -> Self {
        Self::of_size(4096, 4096)
    }

    pub fn of_size(connections_max: usize, journal_max: usize) -> Self {
        let (lb, asker) = Lb::sharing(config(connections_max), journal_max);
        Self { lb, exceptions: ExceptionMover::new(asker, 1), heard: Vec::new() }
    }

    /// The backend that a packet goes to.
    pub fn backend(&mut self, packet: PacketBuilder) -> IpAddr {
        bench::tunnel_of(&self.lb.one(&packet.build())).destination
    }

    /// The backend of a connection that is opened and continues.
    pub fn open(&mut self, client: &str, vip: &str) -> IpAddr {
        self.backend(tcp().from(client).to(vip).tcp_flags(SYN));
        self.backend(tcp().from(client).to(vip).tcp_flags(ACK))
    }

    /// Sets a backend's weight in all services, and waits until exceptions are marked.
    pub fn weigh(&mut self, backend: &str, weight: u32) {
        self.plan_weight(backend, weight);
        self.lb.reload();
        self.await_marked();
    }

    /// Sets a backend's weight in all services, for the next reload.
    pub fn plan_weight(&mut self, backend: &str, weight: u32) {
        for service in ["web", "web6", "turns"] {
            let name = TargetName::new(service, backend.parse().unwrap());
            self.lb.standing.weights.insert(name, weight);
        }
    }

    /// Prepares the planned change.
    pub fn prepare(&mut self) {
        let next = self.lb.built();
        self.lb.go_beside(Some(next));
        self.await_marked();
    }

    pub fn await_marked(&mut self) {
        for _ in 0..100_000 {
            if self.lb.balance().are_exceptions_marked() {
                return;
            }
            self.lb.tick();
        }
        panic!("exceptions are never marked");
    }

    pub fn advance(&mut self, duration: Duration) {
        self.lb.advance(duration);
    }

    /// Lets time pass in steps, and returns the changes meanwhile.
    pub fn live(&mut self, duration: Duration) -> Vec<Change> {
        let mut changes = Vec::new();
        for _ in 0..200 {
            self.lb.advance(duration / 200);
            for _ in 0..20 {
                self.lb.tick();
            }
            changes.extend(self.changes());
        }
        changes
    }

    /// The changes since the last call.
    pub fn changes(&mut self) -> Vec<Change> {
        let mut changes = std::mem::take(&mut self.heard);
        let mut quiet = 0;
        while quiet < 3 {
            let before = changes.len();
            self.exceptions.turn(|pulled| {
                let Pulled::Changes(found) = pulled else { panic!("there is no walk") };
                changes.extend_from_slice(found);
                true
            });
            // Enough for 400 connections: no time passes, so each turn handles one.
            for _ in 0..400 {
                self.lb.tick();
            }
            let is_quiet = changes.len() == before && self.exceptions.waiting_count() == 0;
            quiet = if is_quiet { quiet + 1 } else { 0 };
        }
        changes
    }

    /// All exceptions.
    pub fn snapshot(&mut self) -> Vec<Change> {
        self.exceptions.begin_walk();
        self.walked()
    }

    /// All exceptions, including those of other nodes.
    pub fn whole_snapshot(&mut self) -> Vec<Change> {
        self.exceptions.begin_whole_walk();
        self.walked()
    }

    fn walked(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        while self.exceptions.is_walking() {
            self.exceptions.turn(|pulled| {
                match pulled {
                    Pulled::Changes(found) => changes.extend_from_slice(found),
                    Pulled::Exceptions { own, entered } => {
                        changes.extend([own, entered].concat().into_iter().map(Change::Claim));
                    }
                }
                true
            });
            self.lb.tick();
        }
        changes
    }

    /// Takes another node's changes.
    pub fn import(&mut self, mut changes: &[Change]) {
        while !changes.is_empty() {
            let taken = self.exceptions.import(self.lb.services(), changes);
            changes = &changes[taken..];
            self.settle();
        }
        self.settle();
    }

    fn settle(&mut self) {
        // Each exchange is one turn of control, and several of the worker.
        for _ in 0..6 {
            self.exceptions.turn(|pulled| {
                let Pulled::Changes(found) = pulled else { panic!("there is no walk") };
                self.heard.extend_from_slice(found);
                true
            });
            for _ in 0..1000 {
                self.lb.tick();
            }
        }
    }

    /// Its entry for a connection.
    pub fn connection(&self, client: &str, vip: &str) -> Option<Connection> {
        let wanted = key(client, vip, 6);
        let mut all = self.lb.balance().connections().iter();
        all.find(|(key, _)| *key == wanted).map(|(_, connection)| connection)
    }

    /// The backend of a connection, if the node knows it.
    pub fn known(&self, client: &str, vip: &str) -> Option<IpAddr> {
        let target = self.connection(client, vip)?.target;
        self.lb.services().active(target).map(|target| target.address())
    }
}

pub fn key(client: &str, vip: &str, protocol: u8) -> FlowKey {
    let [client, vip]: [SocketAddr; 2] = [client, vip].map(|it| it.parse().unwrap());
    FlowKey::new(client, vip, protocol).unwrap()
}

/// A claim to a TCP connection that has not moved yet.
pub fn claim(client: &str, backend: &str, state: State, times_ms: (u32, u32)) -> Change {
    Change::Claim(record(client, backend, state, times_ms))
}

/// The claim's record, with the connection's age and remaining time.
pub fn record(client: &str, backend: &str, state: State, (age_ms, left_ms): (u32, u32)) -> Record {
    let (key, backend) = (key(client, WEB, 6), backend.parse().unwrap());
    Record { key, backend, state, age_ms, left_ms, moves: 0, wins_ties: false }
}

/// The claims, by key.
pub fn claims(changes: &[Change]) -> Vec<Record> {
    let claims = changes.iter().filter_map(|change| match change {
        Change::Claim(record) => Some(*record),
        Change::End(_) => None,
    });
    claims.collect()
}

/// The keys of ended connections.
pub fn ends(changes: &[Change]) -> Vec<FlowKey> {
    let ends = changes.iter().filter_map(|change| match change {
        Change::Claim(_) => None,
        Change::End(key) => Some(*key),
    });
    ends.collect()
}
