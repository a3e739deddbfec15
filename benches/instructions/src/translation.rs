//! nat44 on one core, from source to sink: a call is one turn of the core.

use crate::buffer::Buffer;
use crate::chains::{FRAME_BYTES, IntoTank, fill_tank, take_from_tank};
use crate::connections::Connections;
use crate::fragments::Fragments;
use crate::nat::{Nat, Settings, Side};
use crate::{CALLS_MAX, Case};
use hotloop::flow::Backend;
use hotloop::packet::arp::Neighbour;
use hotloop::packet::build::{PacketBuilder, tcp, udp};
use hotloop::packet::ethernet::MacAddress;
use hotloop::packet::tcp::flags::{ACK, SYN};
use hotloop::prelude::*;
use std::time::Duration;

const BURST: usize = 64;
const CONNECTION_COUNT: u16 = 2048;

/// Number of connections that are opened in a call.
const OPENED: usize = 16;

const LAN_PORT: PortId = PortId::new(0);
const WAN_PORT: PortId = PortId::new(1);
const HOST_MAC: MacAddress = MacAddress::new([2, 0, 0, 0, 1, 7]);
const LAN_MAC: MacAddress = MacAddress::new([2, 0, 0, 0, 1, 0xfe]);
const WAN_MAC: MacAddress = MacAddress::new([2, 0, 0, 0, 2, 0xfe]);
const GATEWAY_MAC: MacAddress = MacAddress::new([2, 0, 0, 0, 2, 1]);

const NOW: Instant = Instant::from_ns(1);

type Frame = ([u8; FRAME_BYTES], PortId);

/// The cases of this module.
pub fn cases() -> Vec<Case> {
    let sides = [("LAN", Side::Lan), ("WAN", Side::Wan)];
    let case = |(name, side)| {
        let name = format!("nat44, 64 packets of known connections, from the {name}");
        (name, Box::new(move |calls| translate(calls, side)) as Box<dyn Fn(usize)>)
    };
    let mut cases: Vec<Case> = sides.map(case).into();
    let name = format!("nat44, {OPENED} packets that open connections by new ports");
    cases.push((name, Box::new(|calls| open_and_expire(calls, 0))));
    let name = "nat44, 15 places of a full table in which all connections expire";
    cases.push((name.into(), Box::new(|calls| open_and_expire(CALLS_MAX, calls))));
    cases
}

/// Opens connections, and then translates packets from one side.
fn translate(calls: usize, side: Side) {
    let mut frames: Vec<Frame> = (0..CONNECTION_COUNT).map(|i| from_host(i, SYN)).collect();
    frames.extend((0..CONNECTION_COUNT).map(|i| from_server(i, SYN | ACK)));
    let opening = frames.len() / BURST;
    frames.extend((0..CONNECTION_COUNT).map(|i| match side {
        Side::Lan => from_host(i, ACK),
        _ => from_server(i, ACK),
    }));
    let frames = Frames { frames, next: 0, burst: BURST, repeated: CONNECTION_COUNT.into() };
    run(frames, 1 << 18, [(opening + calls, NOW), (0, NOW)]);
}

/// Opens connections, each by a port of its own, in a table that becomes full at the end; and then
/// waits in turns of the core until they have expired.
fn open_and_expire(opening: usize, expiring: usize) {
    let connection_count = CALLS_MAX * OPENED;
    let frames = (0..connection_count).map(|i| from_host(i as u16, SYN)).collect();
    let frames = Frames { frames, next: 0, burst: OPENED, repeated: 0 };
    run(frames, connection_count, [(opening, NOW), (expiring, NOW + Duration::from_secs(3600))]);
}

/// Runs the NAT for numbers of turns, each at a time.
fn run(frames: Frames, connections: usize, turns: [(usize, Instant); 2]) {
    let packet_count = turns[0].0 * frames.burst;
    fill_tank(frames.burst, &[0; FRAME_BYTES]);
    let graph = source(|_| Ok::<_, hotloop::Error>(frames.clone()))
        .stage(|_| Classify::outermost())
        .try_stage(|core| Fragments::new(core, LAN_PORT))
        .try_burst_stage(move |core| nat(core, connections))
        .sink(|_| Ok::<_, hotloop::Error>(outlets([(Side::Lan, IntoTank), (Side::Wan, IntoTank)])));
    let plan = Engine::plan(graph, Deployment::run_to_completion(1)).expect("one core");
    let mut assembly = plan.assemble().expect("a graph in memory");
    for (count, now) in turns {
        (0..count).for_each(|_| _ = assembly.step(0, now));
    }
    let report = assembly.finish(NOW);
    assert!(report.is_whole(), "{report}");
    assert_eq!(
        (report.sent, report.received),
        (packet_count as u64, packet_count as u64),
        "{report}"
    );
}

fn nat(core: &Core, connections: usize) -> hotloop::Result<Nat> {
    let settings = Settings {
        lan_port: LAN_PORT,
        lan: Neighbour { mac: LAN_MAC, address: [10, 0, 0, 254].into() },
        wan: Neighbour { mac: WAN_MAC, address: [203, 0, 113, 1].into() },
        gateway: GATEWAY_MAC,
        filters: true,
        connections,
        ports_per_host: 1024,
    };
    let table = |arena, config| {
        // Not AVX2, which not every processor of an architecture has.
        let mut backends = Backend::ALL.into_iter().rev();
        let backend = backends.find(|backend| backend.is_available() && *backend != Backend::Avx2);
        Table::with_backend(arena, config, 42, backend.expect("a scalar one"))
    };
    let lister = Lister::new(mailbox(1).1.open(core)?);
    Ok(Nat::of(settings, Connections::new(core, &settings, table)?, lister))
}

/// Every other connection is UDP.
fn builder(connection: u16, flags: u8) -> PacketBuilder {
    if connection.is_multiple_of(2) { udp() } else { tcp().tcp_flags(flags) }
}

fn from_host(connection: u16, flags: u8) -> Frame {
    let from = format!("10.1.0.{}:{}", 1 + (connection >> 8), 50_000 + (connection & 0xff));
    let packet = builder(connection, flags).macs(HOST_MAC, LAN_MAC);
    (frame(packet.from(from).to("192.0.2.1:443")), LAN_PORT)
}

/// Hosts get their blocks in order, from the first that is not reserved for services; and the
/// parity of a host's ports alternates, so each gets the ports of a block in order.
fn from_server(connection: u16, flags: u8) -> Frame {
    let to = format!("203.0.113.1:{}", 1024 + connection);
    let packet = builder(connection, flags).macs(GATEWAY_MAC, WAN_MAC);
    (frame(packet.from("192.0.2.1:443").to(to)), WAN_PORT)
}

fn frame(packet: PacketBuilder) -> [u8; FRAME_BYTES] {
    let mut frame = packet.build();
    frame.resize(FRAME_BYTES, 0);
    frame.try_into().expect("it has been resized")
}

/// Receives frames in order, and then the last ones again, if any are repeated.
#[derive(Clone)]
struct Frames {
    frames: Vec<Frame>,
    next: usize,
    burst: usize,
    repeated: usize,
}

impl Source for Frames {
    type Item = Buffer;

    #[inline]
    fn poll(&mut self, burst: &mut Burst<Buffer>) -> usize {
        if self.next == self.frames.len() {
            if self.repeated == 0 {
                return 0;
            }
            self.next -= self.repeated;
        }
        let mut frames = self.frames[self.next..self.next + self.burst].iter();
        self.next += self.burst;
        take_from_tank(burst, |buffer| {
            let (frame, ingress) = frames.next().expect("a frame for each packet");
            *buffer.begin(FRAME_BYTES) = *frame;
            buffer.set_ingress(*ingress);
        });
        burst.len()
    }
}
