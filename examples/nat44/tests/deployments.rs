//! The whole graph in both deployments, on threads and simulated: a conversation of many hosts with one
//! server.

use crate::lab::{
    GATEWAY_MAC, HAIRPIN_PORT, LAN_MAC, LAN_PORT, WAN_MAC, WAN_PORT, lister, settings,
};
#[allow(dead_code, reason = "the tests of connections use it all")]
use hotloop::engine::Graph;
use hotloop::packet::PacketBuf;
use hotloop::packet::build::{PacketBuilder, echo_reply, echo_request, tcp, udp};
use hotloop::packet::ethernet::{EthernetView, MacAddress};
use hotloop::packet::ip::protocol;
use hotloop::packet::ipv4::Ipv4View;
use hotloop::packet::memory::MemPacket;
use hotloop::packet::tcp::{TcpView, flags};
use hotloop::packet::udp::UdpView;
use hotloop::prelude::*;
use hotloop::testing::simulator::{Scenario, Settings as Setup, Simulated, World, simulate_seeds};
use hotloop::testing::{FaultRates, Frame, MemoryPort, PortConfig, Rng};
use nat44::nat::{Settings, Side, nat};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::{Duration, Instant};

const HOST_COUNT: u16 = 300;
const ROUND_COUNT: usize = 4;
const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 80);
const PATIENCE: Duration = Duration::from_secs(20);

fn graph<S, Z>(
    receive: impl Fn(&Core) -> hotloop::Result<[S; 3]> + Sync,
    send: impl Fn(&Core) -> hotloop::Result<[Z; 3]> + Sync,
    settings: &Settings,
) -> impl Graph
where
    S: Source<Item: PacketBuf>,
    Z: Sink<Item = S::Item>,
{
    let received = source(move |core| receive(core).map(sources));
    nat(received, *settings, lister).sink(move |core| {
        let sides = [Side::Lan, Side::Wan, Side::Hairpin];
        send(core).map(|sinks| outlets(sides.into_iter().zip(sinks)))
    })
}

fn host(number: u16) -> SocketAddrV4 {
    let [high, low] = number.to_be_bytes();
    // Different hosts use the same few source ports, so that only the NAT tells them apart.
    SocketAddrV4::new(Ipv4Addr::new(10, 1, high, low), 5000 + number % 3)
}

fn station(number: u16) -> MacAddress {
    let [high, low] = number.to_be_bytes();
    MacAddress::new([2, 0, 0, 1, high, low])
}

/// A host's message in a round: its number and the round's, with a protocol that depends on the
/// host.
fn request(number: u16, round: usize) -> PacketBuilder {
    let packet = match number % 3 {
        0 if round == 0 => tcp(),
        0 => tcp().tcp_flags(flags::ACK),
        1 => udp(),
        _ => echo_request(5000, round as u16),
    };
    let payload = format!("{number} {round}");
    packet.from(host(number)).to(SERVER).payload(payload).macs(station(number), LAN_MAC)
}

/// The server's answer to a frame: the same payload, to its sender.
fn answer(frame: &[u8]) -> PacketBuilder {
    let ip = Ipv4View::of_frame(frame).expect("an IPv4 packet");
    assert!(ip.is_checksum_right() && ip.ttl() == 63);
    let key = FlowKey::of(frame, frame.len(), Depth::Outermost).expect("a flow");
    let packet = match ip.protocol() {
        protocol::TCP => {
            let view = TcpView::parse(ip.payload()).unwrap();
            let is_first = view.flags() == flags::SYN;
            tcp().tcp_flags(if is_first { flags::SYN | flags::ACK } else { flags::ACK })
        }
        protocol::UDP => udp(),
        _ => {
            let view = hotloop::packet::icmp::IcmpView::parse(ip.payload()).unwrap();
            echo_reply(view.echo_identifier().unwrap(), view.echo_sequence().unwrap())
        }
    };
    let to = std::net::SocketAddr::new(key.source(), key.source_port());
    packet.from(SERVER).to(to).payload(said(frame)).macs(GATEWAY_MAC, WAN_MAC)
}

/// The payload of a frame.
fn said(frame: &[u8]) -> Vec<u8> {
    let ip = Ipv4View::of_frame(frame).expect("an IPv4 packet");
    match ip.protocol() {
        protocol::TCP => TcpView::parse(ip.payload()).unwrap().payload().to_vec(),
        protocol::UDP => UdpView::parse(ip.payload()).unwrap().payload().to_vec(),
        _ => hotloop::packet::icmp::IcmpView::parse(ip.payload()).unwrap().payload().to_vec(),
    }
}

/// The frames that a port has sent, once there is one for each host.
fn take(port: &MemoryPort) -> Vec<Frame> {
    let (mut sent, started) = (Vec::new(), Instant::now());
    while sent.len() < usize::from(HOST_COUNT) {
        assert!(started.elapsed() < PATIENCE, "{} of {HOST_COUNT} packets came", sent.len());
        std::thread::sleep(Duration::from_millis(1));
        sent.extend(port.take_all_sent());
    }
    assert_eq!(sent.len(), usize::from(HOST_COUNT));
    sent
}

/// Checks the frames that the hosts got in a round: each gets its own message, at its address, port
/// and station.
fn check(frames: &[Frame], round: usize) {
    let mut numbers = BTreeSet::new();
    for Frame { bytes, .. } in frames {
        let text = String::from_utf8(said(bytes)).unwrap();
        let (number, of_round) = text.split_once(' ').unwrap();
        let number: u16 = number.parse().unwrap();
        assert_eq!(of_round, round.to_string());
        // Except for the hop, the host gets the server's answer as if there were no NAT.
        let direct = MemPacket::new(&answered_directly(number, round));
        assert_eq!(bytes, direct.data(), "host {number}");
        let view = EthernetView::parse(bytes).unwrap();
        assert_eq!((view.source(), view.destination()), (LAN_MAC, station(number)));
        assert!(numbers.insert(number), "host {number} got two packets");
    }
}

/// The server's answer to a host without a NAT, one hop later.
fn answered_directly(number: u16, round: usize) -> Vec<u8> {
    let seen = request(number, round).ttl(63).build();
    answer(&seen).ttl(63).macs(LAN_MAC, station(number)).build()
}

#[test]
fn each_packet_comes_back_to_the_host_that_sent_in_every_deployment() {
    for (deployment, receivers, workers) in [
        (Deployment::run_to_completion(1), 1, 1),
        (Deployment::run_to_completion(2), 2, 2),
        (Deployment::pipeline([1, 1]), 1, 1),
        (Deployment::pipeline([1, 2]), 1, 2),
    ] {
        let port = |name, number: hotloop::packet::PortId| {
            MemoryPort::with_config(name, PortConfig { id: Some(number), ..Default::default() })
        };
        let (lan, wan) = (port("lan", LAN_PORT), port("wan", WAN_PORT));
        let hairpin = port("hairpin", HAIRPIN_PORT);
        let settings = settings();
        let nf = graph(
            |core| Ok([lan.rx_queue(core)?, wan.rx_queue(core)?, hairpin.rx_queue(core)?]),
            |core| Ok([lan.tx_queue(core)?, wan.tx_queue(core)?, hairpin.tx_queue(core)?]),
            &settings,
        );
        let plan = Engine::plan(nf, deployment).unwrap();
        let report = plan
            .run(|control| {
                let mut ports = Vec::new();
                for round in 0..ROUND_COUNT {
                    for number in 0..HOST_COUNT {
                        lan.feed(usize::from(number) % receivers, [request(number, round)]);
                    }
                    // The server's answers come by any queue, whichever core has the connection.
                    let reached = take(&wan);
                    for (index, frame) in reached.iter().enumerate() {
                        wan.feed(index % receivers, [answer(&frame.bytes)]);
                        let key =
                            FlowKey::of(&frame.bytes, frame.bytes.len(), Depth::Outermost).unwrap();
                        ports.push(key.source_port());
                    }
                    check(&take(&lan), round);
                }
                ports.sort_unstable();
                ports.dedup();
                assert_eq!(ports.len(), usize::from(HOST_COUNT), "a port for each connection");
                for worker in 0..workers {
                    let leads_there = |port: &&u16| usize::from(**port / 64) % workers == worker;
                    let count = ports.iter().filter(leads_there).count();
                    assert!(count * workers > usize::from(HOST_COUNT) / 2, "{count} at {worker}");
                }
                lan.end_input();
                wan.end_input();
                hairpin.end_input();
                control.wait_until_finished();
            })
            .unwrap();
        let expected = 2 * u64::from(HOST_COUNT) * ROUND_COUNT as u64;
        assert!(report.is_whole(), "{report}");
        assert_eq!((report.received, report.sent), (expected, expected), "{deployment}: {report}");
        let stage = report.stages.iter().find(|stage| stage.name == "Nat").unwrap();
        assert_eq!(stage.gauges["connections"], u64::from(HOST_COUNT));
    }
}

/// The graph on a world's ports.
fn simulated<'a>(world: &'a World, settings: &'a Settings) -> impl Graph + 'a {
    let [lan, wan, hairpin] = [0, 1, 2].map(|port| world.port(port));
    graph(
        |core| Ok([lan.rx_queue(core)?, wan.rx_queue(core)?, hairpin.rx_queue(core)?]),
        |core| Ok([lan.tx_queue(core)?, wan.tx_queue(core)?, hairpin.tx_queue(core)?]),
        settings,
    )
}

/// Twenty hosts, with cores in any order and any losses.
struct Conversation(Settings);

/// Number of hosts that take part.
const FEW: u64 = 20;

impl Scenario for Conversation {
    fn settings(&self, rng: &mut Rng) -> Setup {
        Setup { rates: FaultRates::default(), ..Setup::drawn(rng) }
    }

    fn port_count(&self) -> usize {
        3
    }

    fn is_fed(&self, port: usize) -> bool {
        port == 0
    }

    fn frame(&self, _: usize, _: usize, number: u64, _: &mut Rng) -> Frame {
        Frame::new(request((number % FEW) as u16, (number / FEW) as usize).build())
    }

    fn peer(&self, port: usize) -> Option<impl FnMut(&Frame, &mut Rng) -> Vec<Frame>> {
        (port == 1).then_some(|frame: &Frame, _: &mut Rng| vec![answer(&frame.bytes).into()])
    }

    fn graph<'a>(&'a self, world: &'a World) -> impl Graph + 'a {
        simulated(world, &self.0)
    }

    /// Each host gets the server's answer to its own question, and at most one.
    fn check(&self, run: &Simulated) -> Result<(), String> {
        let [lan, wan] = [0, 1].map(|port| run.sent[port].iter().flatten().collect::<Vec<_>>());
        for frame in &lan {
            let text = String::from_utf8(said(&frame.bytes)).map_err(|error| error.to_string())?;
            let numbers: Option<(u16, usize)> = text
                .split_once(' ')
                .and_then(|(number, round)| Some((number.parse().ok()?, round.parse().ok()?)));
            let (number, round) = numbers.ok_or(format!("a host gets {text:?}"))?;
            if frame.bytes != answered_directly(number, round) {
                return Err(format!("what host {number} gets in round {round} is changed"));
            }
        }
        let is_whole = lan.len() <= wan.len() && run.answered_count <= wan.len() as u64;
        if is_whole { Ok(()) } else { Err("more answers than questions".to_owned()) }
    }
}

/// Hosts that learn their port of the WAN address from the server, and then send to each other's.
struct Meeting(Settings);

impl Meeting {
    /// The server's answer: the sender's end, as text.
    fn reflected(frame: &Frame) -> Frame {
        let key = FlowKey::of(&frame.bytes, frame.bytes.len(), Depth::Outermost).expect("a flow");
        let end = SocketAddr::new(key.source(), key.source_port());
        let answer = udp().from(SERVER).to(end).payload(end.to_string());
        answer.macs(GATEWAY_MAC, WAN_MAC).build().into()
    }

    /// A message from the host that got a frame to the one that was known last: both ends of the
    /// LAN and of the WAN, as text.
    fn message(frame: &Frame, last: &mut Option<(SocketAddr, String)>) -> Option<Frame> {
        let key = FlowKey::of(&frame.bytes, frame.bytes.len(), Depth::Outermost).expect("a flow");
        let (host, own) =
            (SocketAddr::new(key.destination(), key.destination_port()), said(&frame.bytes));
        if key.source() != *SERVER.ip() {
            return None;
        }
        let own = String::from_utf8(own).expect("text");
        let (other, end) = last.replace((host, own.clone()))?;
        let message = udp().from(host).to(&end).payload(format!("{own} {other}"));
        Some(message.macs(station(1), LAN_MAC).build().into())
    }
}

impl Scenario for Meeting {
    fn settings(&self, rng: &mut Rng) -> Setup {
        Setup { rates: FaultRates::default(), ..Setup::drawn(rng) }
    }

    fn port_count(&self) -> usize {
        3
    }

    fn is_fed(&self, port: usize) -> bool {
        port == 0
    }

    fn frame(&self, _: usize, _: usize, number: u64, _: &mut Rng) -> Frame {
        let number = (number % FEW) as u16;
        let packet = udp().from(host(number)).to(SERVER).macs(station(number), LAN_MAC);
        Frame::new(packet.build())
    }

    fn peer(&self, port: usize) -> Option<impl FnMut(&Frame, &mut Rng) -> Vec<Frame>> {
        let mut last = None;
        Some(move |frame: &Frame, _: &mut Rng| match port {
            0 => Self::message(frame, &mut last).into_iter().collect(),
            1 => vec![Self::reflected(frame)],
            // The loop.
            _ => vec![frame.clone()],
        })
    }

    fn graph<'a>(&'a self, world: &'a World) -> impl Graph + 'a {
        simulated(world, &self.0)
    }

    /// Each message reaches its host, from the sender's port of the WAN address.
    fn check(&self, run: &Simulated) -> Result<(), String> {
        for Frame { bytes, .. } in run.sent[0].iter().flatten() {
            let key = FlowKey::of(bytes, bytes.len(), Depth::Outermost).ok_or("no flow")?;
            let [from, to] =
                [key, key.reversed()].map(|key| SocketAddr::new(key.source(), key.source_port()));
            let text = String::from_utf8(said(bytes)).map_err(|error| error.to_string())?;
            if from != SERVER.into() && text != format!("{from} {to}") {
                return Err(format!("{text:?} came from {from} to {to}"));
            }
        }
        Ok(())
    }
}

#[test]
fn hosts_meet_by_their_wan_ports_whatever_the_order_of_the_cores() {
    let settings = Settings { filters: false, connections: 1000, ..settings() };
    let totals = simulate_seeds(0..300, &Meeting(settings));
    let totals = totals.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(totals.crossed > 0 && totals.answered > 0, "{totals:?}");
}

#[test]
fn answers_come_back_whatever_the_order_of_the_cores() {
    let settings = Settings { connections: 1000, ..settings() };
    let totals = simulate_seeds(0..2_000, &Conversation(settings));
    let totals = totals.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(totals.crossed > 0 && totals.answered > 0, "{totals:?}");
    assert!(totals.sent > totals.received / 2, "{totals:?}");
}
