//! A NAT on the bench, with a host on one side and a gateway on the other.

use hotloop::packet::PortId;
use hotloop::packet::arp::Neighbour;
use hotloop::packet::build::PacketBuilder;
use hotloop::packet::ethernet::MacAddress;
use hotloop::packet::memory::MemPacket;
use hotloop::prelude::*;
use hotloop::stage::DropReason;
use hotloop::testing::{Bench, Outcome};
use nat44::nat::{Nat, NatDrop, Settings, Side};
use std::time::Duration;

pub const LAN_PORT: PortId = PortId::new(0);
pub const WAN_PORT: PortId = PortId::new(1);

pub const HOST_MAC: MacAddress = MacAddress::new([2, 0, 0, 0, 1, 7]);
pub const LAN_MAC: MacAddress = MacAddress::new([2, 0, 0, 0, 1, 0xfe]);
pub const WAN_MAC: MacAddress = MacAddress::new([2, 0, 0, 0, 2, 0xfe]);
pub const GATEWAY_MAC: MacAddress = MacAddress::new([2, 0, 0, 0, 2, 1]);

/// A host of the LAN, a server of the WAN, and the NAT's ports for its first and second connection.
pub const HOST: &str = "10.0.0.7:5000";
pub const SERVER: &str = "192.0.2.1:80";
pub const FIRST: &str = "203.0.113.1:1024";
pub const SECOND: &str = "203.0.113.1:1025";

pub fn settings() -> Settings {
    Settings {
        lan_port: LAN_PORT,
        lan: Neighbour { mac: LAN_MAC, address: [10, 0, 0, 254].into() },
        wan: Neighbour { mac: WAN_MAC, address: [203, 0, 113, 1].into() },
        gateway: GATEWAY_MAC,
    }
}

/// The NAT of one core.
pub struct Lab(Bench<Nat>);

type Out = Outcome<Routed<MemPacket, Side>, NatDrop>;

impl Lab {
    /// The NAT of the only core.
    pub fn new() -> Self {
        Self::on(&Core::new(0, 1))
    }

    pub fn on(core: &Core) -> Self {
        Self(bench_burst(Nat::new(core, settings()).unwrap()))
    }

    /// Feeds unmodified frames.
    pub fn feed(&mut self, side: Side, frames: impl IntoIterator<Item = Vec<u8>>) -> Out {
        let port = if side == Side::Lan { LAN_PORT } else { WAN_PORT };
        let packets = frames.into_iter().map(|frame| MemPacket::new(&frame).with_ingress(port));
        let classified = bench(Classify::outermost().seeded(0)).feed_items(packets).into_packets();
        self.0.feed_items(classified)
    }

    /// The result of a packet from the host: a frame, and the side that it leaves by.
    pub fn host_sends(&mut self, packet: PacketBuilder) -> (Side, Vec<u8>) {
        sent(&self.feed(Side::Lan, [packet.macs(HOST_MAC, LAN_MAC).build()]))
    }

    /// The result of a packet from the gateway.
    pub fn gateway_sends(&mut self, packet: PacketBuilder) -> (Side, Vec<u8>) {
        sent(&self.feed(Side::Wan, [packet.macs(GATEWAY_MAC, WAN_MAC).build()]))
    }

    /// The reason why a packet from this side is dropped.
    pub fn dropped(&mut self, side: Side, packet: PacketBuilder) -> NatDrop {
        let out = match side {
            Side::Lan => self.feed(side, [packet.macs(HOST_MAC, LAN_MAC).build()]),
            Side::Wan => self.feed(side, [packet.macs(GATEWAY_MAC, WAN_MAC).build()]),
        };
        reason(&out)
    }

    /// Lets time pass with enough turns of the core to check each connection.
    pub fn wait(&mut self, duration: Duration) {
        self.0.advance(duration);
        for _ in 0..10_000 {
            self.0.tick::<Classified<MemPacket>>();
        }
    }

    /// Lets time pass without a turn of the core.
    pub fn jump(&mut self, duration: Duration) {
        self.0.advance(duration);
    }

    /// The gauge of the NAT.
    pub fn connections(&mut self) -> u64 {
        self.0.tick::<Classified<MemPacket>>();
        let gauges = BurstStage::<Classified<MemPacket>>::gauges(self.0.stage());
        let [gauge] = &gauges[..] else { panic!("one gauge") };
        assert_eq!(gauge.name.bare(), "connections");
        gauge.counter.count()
    }
}

/// The single packet that came out.
fn sent(out: &Out) -> (Side, Vec<u8>) {
    let [Routed { packet, route }] = out.packets() else { panic!("{:?}", reason(out)) };
    (*route, packet.data().to_vec())
}

/// The reason why the single packet that went in was dropped.
pub fn reason(out: &Out) -> NatDrop {
    assert_eq!((out.received(), out.packets().len()), (1, 0));
    let mut reasons = NatDrop::ALL.iter().copied();
    reasons.find(|reason| out.dropped(*reason) == 1).expect("it was dropped")
}

/// The frame that the gateway gets: a packet after one hop.
pub fn at_gateway(packet: PacketBuilder) -> (Side, Vec<u8>) {
    (Side::Wan, packet.ttl(63).macs(WAN_MAC, GATEWAY_MAC).build())
}

/// The frame that the host gets.
pub fn at_host(packet: PacketBuilder) -> (Side, Vec<u8>) {
    (Side::Lan, packet.ttl(63).macs(LAN_MAC, HOST_MAC).build())
}
