//! A program with two links, and a gateway on one of them.

use hotloop_neighbours::{Learn, Link, LinkId, Neighbours, NextHop, Resolve};
use hotloop_packet::build::udp;
use hotloop_packet::ethernet::MacAddress;
use hotloop_packet::memory::MemPacket;
use hotloop_packet::{PacketBuf, PortId, arp, nd};
use hotloop_stage::{Gauge, Instant, Stage};
use hotloop_testing::{Bench, OneByOne, bench, bench_burst};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

pub const OWN: MacAddress = MacAddress::new([2, 0, 0, 0, 0, 0x99]);
pub const OWN_V4: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
pub const OWN_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x99);
pub const GATEWAY: MacAddress = MacAddress::new([2, 0, 0, 0, 0, 1]);
pub const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
pub const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
pub const EVIL: MacAddress = MacAddress::new([2, 0, 0, 0, 0xde, 0xad]);

pub const BACKS: Link<Ipv4Addr> =
    Link { port: PortId::new(0), vlan: None, mac: OWN, address: OWN_V4 };
pub const BACKS_V6: Link<Ipv6Addr> =
    Link { port: BACKS.port, vlan: None, mac: OWN, address: OWN_V6 };
pub const CLIENTS: Link<Ipv4Addr> = Link {
    port: PortId::new(1),
    vlan: None,
    mac: MacAddress::new([2, 0, 0, 0, 1, 0x99]),
    address: OWN_V4,
};
/// The same addresses are used on this link, too.
pub const CLIENTS_V6: Link<Ipv6Addr> =
    Link { port: CLIENTS.port, vlan: None, mac: CLIENTS.mac, address: OWN_V6 };

const START: Instant = Instant::from_ns(1_000_000_000);
const STEP: Duration = Duration::from_millis(10);

type Hop = fn(&MemPacket) -> Option<NextHop>;

pub struct Net {
    neighbours: Arc<Neighbours>,
    links: Vec<Link>,
    learn: Bench<OneByOne<Learn>>,
    gauges: Vec<Gauge>,
    resolve: Bench<Resolve<MemPacket, Hop>>,
    next_hop: NextHop,
    now_ns: u64,
    next_ns: u64,
    asked_count: u64,
    /// The station that has the gateway's address, and answers for it.
    pub gateway: MacAddress,
    /// The time between two packets to the gateway.
    pause: Duration,
}

impl Net {
    pub fn v4() -> Self {
        Self::new(|_| Some(NextHop::v4(GATEWAY_V4, BACKS)), [BACKS.into(), CLIENTS.into()])
    }

    pub fn v6() -> Self {
        Self::new(|_| Some(NextHop::v6(GATEWAY_V6, BACKS_V6)), [BACKS_V6.into(), CLIENTS_V6.into()])
    }

    fn new(hop: Hop, links: [Link; 2]) -> Self {
        let neighbours = Neighbours::new(8);
        let learn = Learn::new(Arc::clone(&neighbours), links);
        let gauges = Stage::<MemPacket>::gauges(&learn);
        let resolve = bench_burst(Resolve::new(Arc::clone(&neighbours), 1_024, hop)).at(START);
        Self {
            neighbours,
            links: links.to_vec(),
            learn: bench(learn).at(START),
            gauges,
            resolve,
            next_hop: hop(&MemPacket::new(&[])).unwrap(),
            now_ns: START.as_ns(),
            next_ns: 0,
            asked_count: 0,
            gateway: GATEWAY,
            pause: STEP,
        }
    }

    pub fn now(&self) -> Instant {
        Instant::from_ns(self.now_ns)
    }

    /// Sends a packet to the gateway at once, and then one after each pause.
    pub const fn send_each(&mut self, pause: Duration) {
        (self.pause, self.next_ns) = (pause, 0);
    }

    /// Adds another own address on a link.
    pub fn listen(&mut self, link: Link) {
        self.links.push(link);
        let learn = Learn::new(Arc::clone(&self.neighbours), self.links.iter().copied());
        self.gauges = Stage::<MemPacket>::gauges(&learn);
        self.learn = bench(learn).at(self.now());
    }

    /// Asks for a neighbour without a packet for it.
    pub fn ask_for(&mut self, link: Link<Ipv6Addr>, address: Ipv6Addr) {
        assert!(self.neighbours.question(&NextHop::v6(address, link), self.now()).is_some());
    }

    /// Receives a frame from one of the links, at the learning stage.
    pub fn receive(&mut self, is_from_backs: bool, frame: &[u8]) {
        let port = if is_from_backs { BACKS.port } else { CLIENTS.port };
        let packet = MemPacket::new(frame).with_ingress(port);
        assert_eq!(self.learn.feed_items([packet]).packets().len(), 1);
    }

    /// Lets time pass while packets are sent to the gateway. Returns the stations that got them,
    /// without repetitions in a row.
    pub fn run(&mut self, duration: Duration) -> Vec<MacAddress> {
        let (end_ns, mut reached) = (self.now_ns + duration.as_nanos() as u64, Vec::new());
        while self.now_ns < end_ns {
            self.now_ns += STEP.as_nanos() as u64;
            self.learn.advance(STEP);
            self.resolve.advance(STEP);
            let mut sent = self.resolve.tick::<MemPacket>().into_packets();
            if self.now_ns >= self.next_ns {
                self.next_ns = self.now_ns + self.pause.as_nanos() as u64;
                sent.extend(self.resolve.feed([udp().packet_in_memory()]).into_packets());
            }
            for packet in sent {
                let to = MacAddress::new(*packet.data().first_chunk().unwrap());
                if packet.data()[14..] == udp().build()[14..] {
                    reached.push(to);
                } else {
                    self.asked_count += 1;
                    self.answer(packet, to);
                }
            }
        }
        reached.dedup();
        reached
    }

    /// Answers for the gateway, if the question reaches it.
    fn answer(&mut self, mut question: MemPacket, to: MacAddress) {
        if (to != self.gateway && !to.is_multicast()) || self.gateway == MacAddress::default() {
            return;
        }
        let is_answered = arp::reply(&mut question, self.gateway)
            || nd::advertise(&mut question, self.gateway).unwrap();
        assert!(is_answered, "a question");
        self.receive(true, question.data());
    }

    pub const fn question_count(&self) -> u64 {
        self.asked_count
    }

    /// The gateway's address, if known.
    pub fn known(&self) -> Option<MacAddress> {
        self.known_on(self.next_hop.link(), self.next_hop.address())
    }

    pub fn known_on(&self, link: LinkId, address: IpAddr) -> Option<MacAddress> {
        self.neighbours.mac(link, address, self.now())
    }

    pub fn state(&self) -> String {
        let (link, address) = (self.next_hop.link(), self.next_hop.address());
        self.neighbours.get(link, address, self.now()).unwrap().state.to_string()
    }

    /// A gauge of the learning stage.
    pub fn count(&self, name: &str) -> u64 {
        self.gauges.iter().find(|gauge| gauge.name.bare() == name).unwrap().counter.count()
    }
}
