//! nat44 on one core, from source to sink: a call is one burst of packets of known connections.

use crate::Case;
use crate::buffer::Buffer;
use crate::chains::{FRAME_BYTES, IntoTank, fill_tank, take_from_tank};
use crate::connections::Connections;
use crate::fragments::Fragments;
use crate::nat::{Nat, Policy, Settings, Side};
use hotloop::flow::Backend;
use hotloop::packet::arp::Neighbour;
use hotloop::packet::build::{PacketBuilder, tcp, udp};
use hotloop::packet::ethernet::MacAddress;
use hotloop::packet::tcp::flags::{ACK, SYN};
use hotloop::prelude::*;

const BURST: usize = 64;
const CONNECTION_COUNT: u16 = 2048;

const LAN_PORT: PortId = PortId::new(0);
const WAN_PORT: PortId = PortId::new(1);
const HOST_MAC: MacAddress = MacAddress::new([2, 0, 0, 0, 1, 7]);
const LAN_MAC: MacAddress = MacAddress::new([2, 0, 0, 0, 1, 0xfe]);
const WAN_MAC: MacAddress = MacAddress::new([2, 0, 0, 0, 2, 0xfe]);
const GATEWAY_MAC: MacAddress = MacAddress::new([2, 0, 0, 0, 2, 1]);

type Frame = ([u8; FRAME_BYTES], PortId);

/// The cases of this module.
pub fn cases() -> Vec<Case> {
    let sides = [("LAN", Side::Lan), ("WAN", Side::Wan)];
    let case = |(name, side)| {
        let name = format!("nat44, 64 packets of known connections, from the {name}");
        (name, Box::new(move |calls| translate(calls, side)) as Box<dyn Fn(usize)>)
    };
    sides.map(case).into()
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
    fill_tank(BURST, &[0; FRAME_BYTES]);
    let graph = source(|_| Ok::<_, hotloop::Error>(Frames { frames: frames.clone(), next: 0 }))
        .stage(|_| Classify::outermost())
        .try_stage(|core| Fragments::new(core, LAN_PORT))
        .try_burst_stage(nat)
        .sink(|_| Ok::<_, hotloop::Error>(outlets([(Side::Lan, IntoTank), (Side::Wan, IntoTank)])));
    let plan = Engine::plan(graph, Deployment::run_to_completion(1)).expect("one core");
    let mut assembly = plan.assemble().expect("a graph in memory");
    for _ in 0..opening + calls {
        assert_eq!(assembly.step(0, Instant::from_ns(1)), BURST);
    }
    let report = assembly.finish(Instant::from_ns(1));
    assert!(report.is_whole(), "{report}");
    assert_eq!(report.sent, report.received, "{report}");
}

fn nat(core: &Core) -> hotloop::Result<Nat> {
    let settings = Settings {
        lan_port: LAN_PORT,
        lan: Neighbour { mac: LAN_MAC, address: [10, 0, 0, 254].into() },
        wan: Neighbour { mac: WAN_MAC, address: [203, 0, 113, 1].into() },
        gateway: GATEWAY_MAC,
        policy: Policy::default(),
    };
    let table = |arena, config| {
        // Not AVX2, which not every processor of an architecture has.
        let mut backends = Backend::ALL.into_iter().rev();
        let backend = backends.find(|backend| backend.is_available() && *backend != Backend::Avx2);
        Table::with_backend(arena, config, 42, backend.expect("a scalar one"))
    };
    Ok(Nat::of(settings, Connections::new(core, settings.policy, table)?))
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

/// Receives frames in order, repeating the ones after the opening of connections.
struct Frames {
    frames: Vec<Frame>,
    next: usize,
}

impl Source for Frames {
    type Item = Buffer;

    #[inline]
    fn poll(&mut self, burst: &mut Burst<Buffer>) -> usize {
        if self.next == self.frames.len() {
            self.next -= usize::from(CONNECTION_COUNT);
        }
        let mut frames = self.frames[self.next..self.next + BURST].iter();
        self.next += BURST;
        take_from_tank(burst, |buffer| {
            let (frame, ingress) = frames.next().expect("a frame for each packet");
            *buffer.begin(FRAME_BYTES) = *frame;
            buffer.set_ingress(*ingress);
        });
        burst.len()
    }
}
