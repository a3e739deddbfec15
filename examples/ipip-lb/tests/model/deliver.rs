//! The last rules: wrapped and sent, or answered, or back to the client.

use super::net::{Target, tunnel_source};
use super::packet::Packet;
use super::rules::{Model, Sent};
use super::table::Connection;
use super::wire::{self, Piece, TCP, is_quoting};

/// The content of an ICMP error.
#[derive(Clone, Copy, Debug)]
pub enum Error {
    TimeExceeded,
    TooBig { mtu_bytes: usize },
    Limit { pointer: u32 },
}

impl Model {
    /// Rule 8.
    pub fn deliver(&mut self, packet: Packet, target: Target, hash: u32) {
        let ip = packet.ip();
        if ip.ttl <= 1 {
            self.dropped("ttl_expired");
            return self.error(&packet, Error::TimeExceeded);
        }
        let outer_bytes = if target.address.is_ipv4() { 20 } else { 40 };
        let room = usize::from(self.net.balancer.mtu) - outer_bytes;
        if ip.total_bytes <= room {
            self.wrap(packet, target, hash);
        } else if ip.dont_fragment {
            self.dropped("too_big");
            self.error(&packet, Error::TooBig { mtu_bytes: room });
        } else {
            self.met(if ip.piece == Piece::Whole { "fragmented" } else { "fragment: again" });
            let pieces = packet.fragments(room);
            self.outcome.created += pieces.len() as u64 - 1;
            for piece in pieces {
                self.wrap(piece, target, hash);
            }
        }
    }

    fn wrap(&mut self, packet: Packet, target: Target, hash: u32) {
        let balancer = &self.net.balancer;
        let is_v4 = target.address.is_ipv4();
        let source_v6 = balancer.source_v6.expect("scenes have one");
        let prefix = if is_v4 { balancer.source_v4 } else { source_v6 };
        let source = tunnel_source(prefix, target.address, hash);
        if packet.headroom_bytes < if is_v4 { 20 } else { 40 } {
            return self.dropped("no_headroom");
        }
        let mut identification = 0;
        if is_v4 && !packet.ip().dont_fragment {
            let (worker_count, worker) = self.workers;
            identification =
                self.identification.wrapping_mul(worker_count as u16).wrapping_add(worker as u16);
            self.identification = self.identification.wrapping_add(1);
        }
        self.met(match (packet.ip().is_v6(), is_v4) {
            (false, true) => "wrapped: IPv4 in IPv4",
            (false, false) => "wrapped: IPv4 in IPv6",
            (true, true) => "wrapped: IPv6 in IPv4",
            (true, false) => "wrapped: IPv6 in IPv6",
        });
        let wrapped = packet.wrapped((source, target.address), identification);
        let frame = wrapped.frame(self.stations.backend);
        self.outcome.sent.push(Sent { to_client: false, frame });
    }

    /// The ICMP error about a packet, if one is permitted.
    pub fn error(&mut self, packet: &Packet, error: Error) {
        let answer = packet.error(packet.ip().destination, error);
        let is_too_big = matches!(error, Error::TooBig { .. });
        let Some(answer) = answer else { return self.met("answer: not allowed") };
        let (errors, to) = (&mut self.errors[usize::from(is_too_big)], packet.ip().source);
        match errors.have_room(self.now, to) {
            [true, true] => errors.count(self.now, to),
            [false, _] => return self.met("answer: too many"),
            [true, false] => return self.met("answer: too many to its network"),
        }
        self.met(match error {
            Error::TimeExceeded => "answer: time exceeded",
            Error::TooBig { .. } => "answer: too big",
            Error::Limit { .. } => "answer: parameter problem",
        });
        self.answer(answer);
    }

    pub fn answer(&mut self, answer: Packet) {
        self.outcome.created += 1;
        self.outcome.answered += 1;
        let frame = answer.frame(self.stations.client);
        self.outcome.sent.push(Sent { to_client: true, frame });
    }

    /// Rule 9.
    pub fn for_client(&mut self, mut packet: Packet) {
        let ip = packet.ip();
        if !ip.is_v6() && !wire::is_sum_right(&packet.bytes) {
            self.met("return: wrong checksum");
            return self.dropped("bad_checksum");
        }
        let flags = (ip.protocol == TCP && ip.piece != Piece::Later).then(|| packet.payload()[13]);
        let is_error = packet.icmp_kind().is_some_and(|kind| is_quoting(kind, ip.is_v6()));
        let connection = if is_error {
            self.met("return: an error");
            None
        } else {
            self.replied(&ip.key(packet.payload()).reversed(), flags)
        };
        if ip.ttl <= 1 {
            self.met("return: expired");
            return self.dropped("ttl_expired");
        }
        wire::spend_hop(&mut packet.bytes);
        if self.net.balancer.clamp_mss && flags.is_some_and(|flags| flags & 0x17 == 0x12) {
            self.clamp_mss(&mut packet, connection);
        }
        self.outcome.to_clients += 1;
        let frame = packet.frame(self.stations.client);
        self.outcome.sent.push(Sent { to_client: true, frame });
    }

    /// Rule 9, for a SYN with ACK of a connection, if it is a known one.
    fn clamp_mss(&mut self, packet: &mut Packet, connection: Option<Connection>) {
        let inner_bytes = if packet.ip().is_v6() { 40 } else { 20 };
        let room = self.net.balancer.mtu - inner_bytes - 20;
        let target = connection.map(|it| it.target).filter(|it| self.net.exists(*it));
        let is_v4 = target.is_some_and(|it| it.address.is_ipv4());
        let mut clamped = packet.clone();
        let mut is_lowered = clamped.clamp_mss(room - if is_v4 { 20 } else { 40 });
        if connection.is_some_and(|it| !it.is_sure) {
            // It may be unknown: then the longer header counts.
            let mut other = packet.clone();
            let is_other_lowered = other.clamp_mss(room - 40);
            let seen = self.observed.get(self.outcome.sent.len());
            if seen.is_some_and(|it| it.frame == other.clone().frame(self.stations.client)) {
                (clamped, is_lowered) = (other, is_other_lowered);
            }
        }
        *packet = clamped;
        self.met(if is_lowered { "return: MSS lowered" } else { "return: MSS as it was" });
    }
}
