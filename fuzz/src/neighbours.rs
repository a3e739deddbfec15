//! Neighbours: frames, questions and time, against a plain model of the tables of RFC 826 and RFC 4861.

mod model;
mod said;

use crate::script::Script;
use hotloop::packet::memory::MemPacket;
use hotloop::packet::{PacketBuf, PortId};
use hotloop::stage::Instant;
use hotloop::stage::neighbours::{Lesson, Link, Neighbours, NextHop, Question};
use model::Model;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// A station's Ethernet address.
type Mac = [u8; 6];

const OWN_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OWN_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// Addresses in frames and questions, the own ones first.
const V4: [Ipv4Addr; 6] = [
    OWN_V4,
    Ipv4Addr::new(10, 0, 0, 2),
    Ipv4Addr::new(10, 0, 0, 3),
    Ipv4Addr::UNSPECIFIED,
    Ipv4Addr::BROADCAST,
    Ipv4Addr::new(224, 0, 0, 1),
];
const V6: [Ipv6Addr; 8] = [
    OWN_V6,
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2),
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 3),
    Ipv6Addr::UNSPECIFIED,
    said::ALL_NODES,
    said::OWN_GROUP,
    V4[1].to_ipv6_mapped(),
    Ipv6Addr::LOCALHOST,
];

/// Ethernet addresses in frames: of the ports, of other stations, of groups, and all zeroes.
const MACS: [Mac; 8] = [
    [2, 0, 0, 0, 0, 1],
    [2, 0, 0, 0, 1, 1],
    [2, 0, 0, 0, 9, 2],
    [2, 0, 0, 0, 9, 3],
    [0xff; 6],
    [0x33, 0x33, 0, 0, 0, 1],
    [0x33, 0x33, 0xff, 0, 0, 1],
    [0; 6],
];

/// Links: two ports, each with an address of either family.
fn link(number: u8) -> Link {
    let port = PortId::new(u16::from(number & 1));
    let address: IpAddr = if number & 2 == 0 { OWN_V4.into() } else { OWN_V6.into() };
    Link { port, vlan: None, mac: MACS[usize::from(number & 1)].into(), address }
}

fn next_hop(link: Link, number: u8) -> NextHop {
    let Link { port, vlan, mac, address } = link;
    match address {
        IpAddr::V4(address) => {
            // Only hosts other than this one are asked for.
            NextHop::v4(V4[1 + usize::from(number & 1)], Link { port, vlan, mac, address })
        }
        IpAddr::V6(address) => {
            NextHop::v6(V6[1 + usize::from(number & 1)], Link { port, vlan, mac, address })
        }
    }
}

/// Plays the bytes as a script: frames from links, questions, and time that passes. The neighbours
/// must teach, ask and know the same as the model.
pub fn run(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let mut lab =
        Lab { neighbours: Neighbours::new(8), model: Model::default(), now_ns: 1_000_000_000 };
    while lab.step(&mut script).is_some() {
        lab.check();
    }
}

struct Lab {
    neighbours: Arc<Neighbours>,
    model: Model,
    now_ns: u64,
}

impl Lab {
    /// Plays a step, if there is one.
    fn step(&mut self, script: &mut Script<'_>) -> Option<()> {
        let step = script.byte()?;
        let link = link(step >> 3);
        match step % 8 {
            0 => self.now_ns += u64::from(script.byte()?) * 25_000_000,
            1 => self.now_ns += u64::from(script.byte()?) * 1_000_000_000,
            2 => self.ask(&next_hop(link, step >> 5)),
            3 => self.hear(link, &script.frame()?),
            4 => {
                let (hop, mac) =
                    (next_hop(link, step >> 5), MACS[2 + usize::from(script.byte()? & 1)]);
                let now = Instant::from_ns(self.now_ns);
                self.neighbours.learn(hop.link(), hop.address(), mac.into(), now);
                self.model.learn((link.port.number(), hop.address()), mac, self.now_ns);
            }
            _ => {
                let frame = composed(link, script)?;
                self.hear(link, &frame);
            }
        }
        Some(())
    }

    fn ask(&mut self, hop: &NextHop) {
        let port = hop.station().expect("a link").port.number();
        let question = self.neighbours.question(hop, Instant::from_ns(self.now_ns));
        let asked = question.map(|question| match question {
            Question::ToAll => None,
            Question::To(mac) => Some(mac.bytes()),
        });
        assert_eq!(asked, self.model.ask((port, hop.address()), self.now_ns), "{hop:?}");
        if let Some(question) = question {
            let mut packet = MemPacket::new(&[]);
            hop.write_question(question, &mut packet).expect("room");
            let to = asked.expect("a question");
            assert_eq!(to.is_none(), packet.data()[0] & 1 == 1);
            to.iter().for_each(|mac| assert_eq!(packet.data()[..6], *mac));
        }
    }

    fn hear(&mut self, link: Link, frame: &[u8]) {
        let lesson = self.neighbours.learn_from(&link, frame, Instant::from_ns(self.now_ns));
        let expected = match said::said(link, frame) {
            said::Heard::Nothing => Lesson::Nothing,
            said::Heard::Forbidden => Lesson::Refused,
            said::Heard::Said(said) => self.model.hear(link.port.number(), &said, self.now_ns),
        };
        assert_eq!(lesson, expected, "{link:?} {frame:02x?}");
    }

    /// Checks that both know the same neighbours, and no others.
    fn check(&self) {
        let now = Instant::from_ns(self.now_ns);
        let known = self.neighbours.known(now).into_iter().map(|neighbour| {
            let port = if neighbour.link == link(0).id() { 0 } else { 1 };
            ((port, neighbour.address), neighbour.mac.bytes(), neighbour.confirmed.as_ns())
        });
        let mut known: Vec<_> = known.collect();
        known.sort_unstable();
        assert_eq!(known, self.model.known(self.now_ns));
    }
}

/// A frame of fields that plausibly fit together, with some of its bits changed.
fn composed(link: Link, script: &mut Script<'_>) -> Option<Vec<u8>> {
    let [form, addresses, macs, more] = [(); 4].map(|()| script.byte());
    let (form, addresses, macs, more) = (form?, usize::from(addresses?), usize::from(macs?), more?);
    let [to, mac] = [MACS[macs & 7], MACS[macs >> 3 & 7]];
    let mut frame = [&to[..], &MACS[2]].concat();
    if form & 0x80 != 0 {
        // A tag with VLAN 0 or another.
        frame.extend([0x81, 0, 0, more & 1]);
    }
    if link.address.is_ipv4() {
        frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1 + (form & 3) % 3]);
        frame.extend(mac);
        frame.extend(V4[addresses % 6].octets());
        frame.extend(to);
        frame.extend(V4[addresses / 6 % 6].octets());
    } else {
        let [source, destination] = [V6[addresses & 7], V6[addresses >> 3 & 7]];
        let is_advertisement = form & 1 == 1;
        let target = V6[usize::from(form >> 1 & 7)];
        let mut message =
            vec![if is_advertisement { 136 } else { 135 }, 0, 0, 0, more & 0xe0, 0, 0, 0];
        message.extend(target.octets());
        if form & 0x10 == 0 {
            message.extend([if is_advertisement { 2 } else { 1 }, 1]);
            message.extend(mac);
        }
        let sum = said::checksum(source, destination, &message);
        message[2..4].copy_from_slice(&(!sum).to_be_bytes());
        let hop_limit = if more & 2 == 0 { 255 } else { 254 };
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, message.len() as u8, 58, hop_limit]);
        frame.extend([source.octets(), destination.octets()].concat());
        frame.extend(message);
    }
    for _ in 0..more >> 2 & 3 {
        let (at, bits) = (usize::from(script.byte()?), script.byte()?);
        let len = frame.len();
        frame[at % len] ^= bits;
    }
    Some(frame)
}
