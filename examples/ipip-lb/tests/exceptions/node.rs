//! A node of a cluster: a balancer on the bench, and control's part of sharing exceptions.

use crate::bench::{self, Lb};
use hotloop::packet::build::{PacketBuilder, tcp};
use hotloop::packet::flow_key::FlowKey;
use hotloop::packet::tcp::flags::{ACK, SYN};
use hotloop_agreement::Birth;
use hotloop_balancer::connection::{Connection, State};
use hotloop_balancer::exception_mover::{ExceptionMover, Pulled};
use hotloop_balancer::exceptions::{Change, Record};
use hotloop_balancer::services::{ServiceTable, TargetName};
use ipip_lb::config::Config;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
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
    heard: Vec<Record>,
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

    /// Makes the present table the reference table.
    pub fn refer_to_own(&mut self) {
        self.refer_to([Some(self.lb.built()), None]);
    }

    /// Compares connections with the planned table, too.
    pub fn refer_beside_to_planned(&mut self) {
        let next = self.lb.built();
        self.refer_to([self.lb.references[0].clone(), Some(next)]);
    }

    /// Exchanges both reference tables.
    pub fn turn_references(&mut self) {
        let [first, second] = self.lb.references.clone();
        self.refer_to([second, first]);
    }

    /// Compares connections with the first reference table alone.
    pub fn forget_other_reference(&mut self) {
        self.refer_to([self.lb.references[0].clone(), None]);
    }

    fn refer_to(&mut self, references: [Option<Arc<ServiceTable>>; 2]) {
        self.lb.refer_to(references);
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
    pub fn live(&mut self, duration: Duration) -> Vec<Record> {
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

    /// The claims since the last call.
    pub fn changes(&mut self) -> Vec<Record> {
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

    /// Claims to all connections that nodes know or have to know.
    pub fn snapshot(&mut self) -> Vec<Record> {
        self.exceptions.begin_walk();
        let mut claims = Vec::new();
        while self.exceptions.is_walking() {
            self.exceptions.turn(|pulled| {
                let (Pulled::Changes(found) | Pulled::Exceptions(found)) = pulled;
                claims.extend_from_slice(found);
                true
            });
            self.lb.tick();
        }
        claims
    }

    /// Takes another node's claims.
    pub fn import(&mut self, claims: &[Record]) {
        let changes: Vec<_> = claims.iter().copied().map(Change::Claim).collect();
        let mut changes = &changes[..];
        while !changes.is_empty() {
            let taken = self.exceptions.import(self.lb.services(), changes);
            changes = &changes[taken..];
            self.settle();
        }
        self.settle();
    }

    /// Claims a connection again, since the peer that claimed it is gone.
    pub fn inherit(&mut self, key: FlowKey) {
        assert_eq!(self.exceptions.import(self.lb.services(), &[Change::Inherit(key)]), 1);
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

    /// The time by its clock, in steps.
    pub fn clock(&mut self) -> u64 {
        self.heard = self.changes();
        self.exceptions.clock()
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

/// A claim to a TCP connection, with its remaining time in milliseconds. It began earlier than all others with
/// a known birth.
pub fn claim(client: &str, backend: &str, state: State, left_ms: u32) -> Record {
    let (key, backend) = (key(client, WEB, 6), backend.parse().unwrap());
    Record { key, backend, state, birth: Birth::new(1), left_ms }
}
