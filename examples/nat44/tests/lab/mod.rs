//! A NAT on the bench, with a host on one side and a gateway on the other.

use hotloop::packet::PortId;
use hotloop::packet::arp::Neighbour;
use hotloop::packet::build::PacketBuilder;
use hotloop::packet::ethernet::MacAddress;
use hotloop::packet::memory::MemPacket;
use hotloop::prelude::*;
use hotloop::stage::DropReason;
use hotloop::testing::{Bench, OneByOne, Outcome};
use nat44::connections::ConnectionLister;
use nat44::fragments::{Fragments, Keyed};
use nat44::nat::{Nat, NatDrop, Settings, Side};
use std::time::Duration;

pub const LAN_PORT: PortId = PortId::new(0);
pub const WAN_PORT: PortId = PortId::new(1);
pub const HAIRPIN_PORT: PortId = PortId::new(2);

pub const HOST_MAC: MacAddress = MacAddress::new([2, 0, 0, 0, 1, 7]);
pub const LAN_MAC: MacAddress = MacAddress::new([2, 0, 0, 0, 1, 0xfe]);
pub const WAN_MAC: MacAddress = MacAddress::new([2, 0, 0, 0, 2, 0xfe]);
pub const GATEWAY_MAC: MacAddress = MacAddress::new([2, 0, 0, 0, 2, 1]);

/// A host of the LAN, a server of the WAN, and the NAT's port for it and for a second host.
pub const HOST: &str = "10.0.0.7:5000";
pub const OTHER_HOST: &str = "10.0.0.8:5000";
pub const SERVER: &str = "192.0.2.1:80";
pub const FIRST: &str = "203.0.113.1:1024";
pub const SECOND: &str = "203.0.113.1:1088";

pub fn settings() -> Settings {
    Settings {
        lan_port: LAN_PORT,
        lan: Neighbour { mac: LAN_MAC, address: [10, 0, 0, 254].into() },
        wan: Neighbour { mac: WAN_MAC, address: [203, 0, 113, 1].into() },
        gateway: GATEWAY_MAC,
        filters: true,
        connections: 1 << 18,
        ports_per_host: 1024,
    }
}

/// A core's end of a listing for which no request comes.
pub fn lister(core: &Core) -> hotloop::Result<ConnectionLister> {
    Ok(Lister::new(mailbox(1).1.open(core)?))
}

/// The NAT of one core.
pub struct Lab {
    fragments: Bench<OneByOne<Fragments>>,
    nat: Bench<Nat>,
}

type Out = Outcome<Routed<MemPacket, Side>, NatDrop>;

impl Lab {
    /// The NAT of the only core.
    pub fn new() -> Self {
        Self::on(&Core::new(0, 1))
    }

    pub fn on(core: &Core) -> Self {
        Self::with(core, settings())
    }

    pub fn with(core: &Core, settings: Settings) -> Self {
        let fragments = bench(Fragments::new(core, LAN_PORT).unwrap());
        let nat = Nat::new(core, settings, lister(core).unwrap()).unwrap();
        Self { fragments, nat: bench_burst(nat) }
    }

    /// The NAT of the only core, which lets all packets in.
    pub fn open() -> Self {
        Self::with(&Core::new(0, 1), Settings { filters: false, ..settings() })
    }

    /// Feeds unmodified frames.
    pub fn feed(&mut self, side: Side, frames: impl IntoIterator<Item = Vec<u8>>) -> Out {
        let port = match side {
            Side::Lan => LAN_PORT,
            Side::Wan => WAN_PORT,
            Side::Hairpin => HAIRPIN_PORT,
        };
        let packets = frames.into_iter().map(|frame| MemPacket::new(&frame).with_ingress(port));
        let classified = bench(Classify::outermost()).feed_items(packets).into_packets();
        let keyed = self.fragments.feed_items(classified).into_packets();
        self.nat.feed_items(keyed)
    }

    /// The results of a packet's fragments, frames of at most this length.
    pub fn fragments(
        &mut self,
        side: Side,
        packet: PacketBuilder,
        length: usize,
    ) -> Vec<(Side, Vec<u8>)> {
        let macs = if side == Side::Lan { (HOST_MAC, LAN_MAC) } else { (GATEWAY_MAC, WAN_MAC) };
        let frames = packet.macs(macs.0, macs.1).build_fragments(length);
        frames.into_iter().map(|frame| sent(&self.feed(side, [frame]))).collect()
    }

    /// The result of a packet from one host to another's port of the WAN address.
    pub fn host_hairpins(&mut self, packet: PacketBuilder) -> (Side, Vec<u8>) {
        let (side, frame) = self.host_sends(packet);
        assert_eq!(side, Side::Hairpin);
        sent(&self.feed(side, [frame]))
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
            _ => self.feed(side, [packet.macs(GATEWAY_MAC, WAN_MAC).build()]),
        };
        reason(&out)
    }

    fn advance(&mut self, duration: Duration) {
        self.fragments.advance(duration);
        self.nat.advance(duration);
    }

    /// Lets time pass with enough turns of the core to check each connection.
    pub fn wait(&mut self, duration: Duration) {
        self.advance(duration);
        for _ in 0..25_000 {
            self.nat.tick::<Keyed<MemPacket>>();
        }
    }

    /// Lets time pass without a turn of the core.
    pub fn jump(&mut self, duration: Duration) {
        self.advance(duration);
    }

    /// The gauge of the NAT.
    pub fn connections(&mut self) -> u64 {
        self.nat.tick::<Keyed<MemPacket>>();
        let gauges = BurstStage::<Keyed<MemPacket>>::gauges(self.nat.stage());
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
