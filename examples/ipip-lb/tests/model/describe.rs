//! Packets and outcomes in words, for finding the cause of a difference.

use super::packet::Packet;
use super::rules::{Outcome, Sent};
use super::wire::{self, Ip, Piece, TCP, UDP};
use hotloop::packet::classify::{Depth, Kind, Summary};
use std::fmt::Write;

/// The differences between the outcomes of a burst, and the number of waiting fragments in both.
pub fn difference(outcome: &Outcome, expected: &Outcome, held: (usize, usize)) -> String {
    let mut text = String::from("the balancer and the model differ\n");
    let counts = |it: &Outcome| {
        let Outcome { dropped, created, admitted, stateless, to_clients, replies_known, .. } = it;
        format!(
            "sent {}, dropped {dropped:?}, created {created}, admitted {admitted}, stateless \
             {stateless}, to clients {to_clients}, known {replies_known}, answered {}",
            it.sent.len(),
            it.answered
        )
    };
    let _ = writeln!(text, "  balancer: {}, held {}", counts(outcome), held.0);
    let _ = writeln!(text, "  model:    {}, held {}", counts(expected), held.1);
    let pairs = outcome.sent.len().max(expected.sent.len());
    for index in 0..pairs {
        let (sent, due) = (outcome.sent.get(index), expected.sent.get(index));
        if sent != due {
            let shown = |it: Option<&Sent>| match it {
                Some(it) => {
                    let side = if it.to_client { "client" } else { "backend" };
                    format!("to {side}: {} | {}", described(&it.frame), hex(&it.frame))
                }
                None => "nothing".to_owned(),
            };
            let _ = writeln!(text, "  frame {index} of the balancer: {}", shown(sent));
            let _ = writeln!(text, "  frame {index} of the model:    {}", shown(due));
            break;
        }
    }
    text
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A frame in a line.
pub fn described(frame: &[u8]) -> String {
    let kind = Summary::of(frame, frame.len(), Depth::Innermost).kind;
    if !matches!(kind, Kind::Ipv4 | Kind::Ipv6) {
        return format!("{kind:?}, {} bytes", frame.len());
    }
    let packet = Packet::of(frame, 0);
    let link = match packet.link.len() {
        14 => "",
        18 => "VLAN ",
        _ => "QinQ ",
    };
    format!("{link}{}", described_packet(&packet))
}

fn described_packet(packet: &Packet) -> String {
    let ip = packet.ip();
    let mut text = described_header(&ip);
    let payload = packet.payload();
    if packet.is_tunnel() {
        let inner = Packet { bytes: payload.to_vec(), ..packet.clone() };
        let _ = write!(text, " [{}]", described_packet(&inner));
    } else if let Some(kind) = packet.icmp_kind() {
        let _ = write!(text, " ICMP {kind}.{}", payload[1]);
        if wire::is_quoting(kind, ip.is_v6()) {
            let (quoted, ports) = Ip::read_quote(&payload[8..], ip.is_v6());
            let _ = write!(text, " about [{:?} {:?}]", quoted.key(ports), quoted.piece);
        }
    } else if ip.piece != Piece::Later && matches!(ip.protocol, TCP | UDP) {
        let _ = write!(text, " {:?}", ip.key(payload));
        if ip.protocol == TCP {
            let _ = write!(text, " flags {:#04x}", payload[13]);
        }
    }
    text
}

fn described_header(ip: &Ip) -> String {
    let piece = match ip.piece {
        Piece::Whole => String::new(),
        piece => format!(" {piece:?} of {:?}", ip.datagram),
    };
    let fragments = if ip.dont_fragment { " DF" } else { "" };
    format!(
        "{} > {} protocol {} TTL {} class {:#04x} {} bytes{fragments}{piece}",
        ip.source, ip.destination, ip.protocol, ip.ttl, ip.traffic_class, ip.total_bytes
    )
}
