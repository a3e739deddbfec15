//! Packets of connections that don't exist: they displace no existing connection, and prevent no
//! new client from being remembered.

use crate::bench::Lb;
use crate::config::{preamble, service};
use hotloop::packet::PacketBuf;
use hotloop::packet::build::{tcp, udp};
use hotloop::packet::flow_key::FlowKey;
use hotloop::packet::memory::MemPacket;
use hotloop::packet::seed::Seed;
use hotloop::packet::tcp::flags::{ACK, PSH, SYN};
use hotloop_balancer::balance::SEED;
use hotloop_balancer::services::TargetId;
use ipip_lb::config::Config;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

const EIGHT: [&str; 8] = [
    "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7", "10.0.0.8",
];

/// Number of spoofed flows, at a thousand a second: more than the table has room for.
const SPOOFED: u32 = 66_000;
const CONNECTIONS_MAX: u32 = 65_536;

const WEB: u16 = 80;
const DNS: u16 = 53;

/// Number of clients before the flood: 1,000 and more of them are exceptions.
const EARLIER: u32 = 2_400;
/// Clients after it.
const LATER: u32 = 1_000;

/// The packets of spoofed flows.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flood {
    Acks,
    SynsAndAcks,
    Udp,
}

/// How backends answer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Answers {
    ThroughTheBalancer,
    Directly,
}

fn config(scheduler: &str, backends: &[&str]) -> Config {
    let keys = format!("scheduler = \"{scheduler}\"");
    let balancer = format!(
        "connections_max = {CONNECTIONS_MAX}\nmaglev_slots = 65537\n\
                            timeouts_s = {{ udp = 300 }}"
    );
    let services = ["tcp 80", "udp 53"]
        .map(|it| service(&it.replace(' ', "-"), &format!("203.0.113.10 {it}"), &keys, backends));
    Config::parse("lb.toml", &(preamble(&balancer) + &services.concat())).unwrap()
}

/// Packets to the service that differ in their clients: made once, and patched.
struct Templates {
    tcp: Vec<u8>,
    udp: Vec<u8>,
}

/// Offsets of source, source port and TCP's flags in a frame.
const SOURCE: std::ops::Range<usize> = 26..30;
const SOURCE_PORT: std::ops::Range<usize> = 34..36;
const FLAGS: usize = 47;

impl Templates {
    fn new() -> Self {
        let tcp = tcp().from("0.0.0.1:1").to("203.0.113.10:80").build();
        Self { tcp, udp: udp().from("0.0.0.1:1").to("203.0.113.10:53").build() }
    }

    fn of(&self, port: u16, client: u32, flags: u8) -> MemPacket {
        let mut packet = MemPacket::new(if port == WEB { &self.tcp } else { &self.udp });
        let (address, source_port) = client_of(client);
        let frame = packet.data_mut();
        frame[SOURCE].copy_from_slice(&address);
        frame[SOURCE_PORT].copy_from_slice(&source_port.to_be_bytes());
        if port == WEB {
            frame[FLAGS] = flags;
        }
        packet
    }
}

fn client_of(client: u32) -> ([u8; 4], u16) {
    ((0x0A40_0000 + client).to_be_bytes(), 1024 + (client % 50_000) as u16)
}

fn key(client: u32) -> FlowKey {
    let (address, port) = client_of(client);
    let vip = "203.0.113.10:80".parse().unwrap();
    FlowKey::new((IpAddr::from(address), port).into(), vip, 6).unwrap()
}

/// Feeds packets; returns those that leave.
fn feed(lb: &mut Lb, packets: impl Iterator<Item = MemPacket>) -> Vec<MemPacket> {
    let out = lb.feed_packets(packets);
    out.packets().iter().map(|it| it.packet.clone()).collect()
}

/// The existing connections, with their targets.
fn known(lb: &Lb) -> HashMap<FlowKey, TargetId> {
    lb.balance().connections().iter().map(|(key, it)| (key, it.target)).collect()
}

/// Whether the configuration chooses another target for a TCP flow.
fn is_exception(lb: &Lb, key: &FlowKey, target: TargetId) -> bool {
    let service = lb.services().service_of_flow(key).expect("the service");
    service.by_hash(Seed::new(SEED).hash(key)) != Some(target)
}

/// Opens connections of all earlier clients, which are then known to be established.
fn establish(lb: &mut Lb, templates: &Templates, answers: Answers) {
    for flags in [SYN, ACK] {
        let sent = feed(lb, (0..EARLIER).map(|it| templates.of(WEB, it, flags)));
        assert_eq!(sent.len(), EARLIER as usize);
        if flags == SYN && answers == Answers::ThroughTheBalancer {
            let tunnels = sent.iter().map(crate::bench::tunnel_of);
            let replies = (0..EARLIER).zip(tunnels).map(|(client, tunnel)| {
                let (address, port) = client_of(client);
                let client = format!("{}:{port}", IpAddr::from(address));
                let reply = tcp().from("203.0.113.10:80").to(client).tcp_flags(SYN | ACK);
                reply.tunnelled(tunnel.destination, tunnel.source).build()
            });
            let replies: Vec<_> = replies.collect();
            assert_eq!(lb.feed(&replies).packets().len(), replies.len());
        }
    }
    if answers == Answers::Directly {
        for _ in 0..12 {
            lb.advance(Duration::from_secs(5));
            feed(lb, (0..EARLIER).map(|it| templates.of(WEB, it, ACK | PSH)));
        }
    }
}

fn flood(lb: &mut Lb, templates: &Templates, flood: Flood) {
    let spoofed = EARLIER + LATER..EARLIER + LATER + SPOOFED;
    for clients in spoofed.collect::<Vec<_>>().chunks(50) {
        lb.advance(Duration::from_millis(50));
        let clients = || clients.iter().copied();
        match flood {
            Flood::Acks => feed(lb, clients().map(|it| templates.of(WEB, it, ACK))),
            Flood::SynsAndAcks => {
                let pair = |it| [SYN, ACK].map(|flags| templates.of(WEB, it, flags));
                feed(lb, clients().flat_map(pair))
            }
            Flood::Udp => feed(lb, clients().map(|it| templates.of(DNS, it, 0))),
        };
        lb.tick();
    }
}

/// Takes enough turns to examine all connections after a change.
fn turn_often(lb: &mut Lb) {
    for _ in 0..CONNECTIONS_MAX {
        lb.tick();
    }
}

/// Number of 1,000 flows after the flood that are remembered, and of 1,000 exceptions from before
/// it.
fn remembered(scheduler: &str, answers: Answers, of: Flood) -> (usize, usize) {
    let templates = Templates::new();
    let mut lb = Lb::of_config(config(scheduler, &EIGHT[..4]));
    establish(&mut lb, &templates, answers);
    // The configuration's choice is now another backend for half of them.
    lb.config = config(scheduler, &EIGHT);
    lb.reload();
    turn_often(&mut lb);
    let exceptions: Vec<_> = known(&lb)
        .into_iter()
        .filter(|(key, it)| is_exception(&lb, key, *it))
        .take(1_000)
        .collect();
    assert_eq!(exceptions.len(), 1_000);

    flood(&mut lb, &templates, of);
    assert_eq!(lb.connections(), CONNECTIONS_MAX as usize);
    for client in EARLIER..EARLIER + LATER {
        lb.advance(Duration::from_millis(1));
        feed(&mut lb, std::iter::once(templates.of(WEB, client, SYN)));
    }
    let known = known(&lb);
    let later = (EARLIER..EARLIER + LATER).filter(|it| known.contains_key(&key(*it))).count();
    let there = exceptions.iter().filter(|(key, target)| known.get(key) == Some(target));
    (later, there.count())
}

fn check(of: Flood) {
    let mut all = Vec::new();
    for scheduler in ["maglev", "least-connections"] {
        for answers in [Answers::ThroughTheBalancer, Answers::Directly] {
            let remembered = remembered(scheduler, answers, of);
            all.push((scheduler, answers, remembered));
        }
    }
    assert!(all.iter().all(|it| it.2 == (1_000, 1_000)), "{of:?}: {all:?} of (1000, 1000)");
}

#[test]
fn after_66_000_spoofed_acks_new_flows_are_remembered_and_exceptions_are_still_there() {
    check(Flood::Acks);
}

#[test]
fn after_66_000_spoofed_pairs_of_syn_and_ack_too() {
    check(Flood::SynsAndAcks);
}

#[test]
fn after_66_000_spoofed_datagrams_too() {
    check(Flood::Udp);
}
