//! On the way out: into the tunnel, in pieces where it must be, or back to the sender as an answer.

use super::{BalanceDrop, Own, Route, Turn};
use crate::own_header::OwnHeader;
use crate::services::{Found, Target, TargetId};
use hotloop::engine::Routed;
use hotloop::packet::PacketBuf;
use hotloop::packet::answer::{self, AnswerError};
use hotloop::packet::classify::Layout;
use hotloop::packet::ethernet::{self, ETHERTYPE_IPV4};
use hotloop::packet::fragment::{self, FragmentError};
use hotloop::packet::ipip::EncapsulateError;
use hotloop::stage::Carries;

impl<P: PacketBuf> Turn<'_, '_, '_, P> {
    #[inline]
    pub(super) fn send(&mut self, packet: P, route: Route) {
        self.out.push(Routed { packet, route });
    }

    #[inline]
    fn send_created(&mut self, packet: P, route: Route) {
        self.out.push_created(Routed { packet, route });
    }
}

impl<P: PacketBuf + Carries> Own<P> {
    /// Sends a packet to a target that it had a moment ago.
    pub(super) fn send_to(
        &mut self,
        turn: &mut Turn<'_, '_, '_, P>,
        packet: P,
        id: TargetId,
        layout: Layout,
    ) {
        match turn.services.target(id) {
            Found::Active(target) => self.send_to_target(turn, packet, id, target, layout),
            Found::Removed => turn.reject(packet, BalanceDrop::NoBackend),
            Found::Flushed => turn.reject(packet, BalanceDrop::Flushed),
        }
    }

    /// Wraps a packet and sends it to its target.
    #[inline]
    pub(super) fn send_to_target(
        &mut self,
        turn: &mut Turn<'_, '_, '_, P>,
        mut packet: P,
        id: TargetId,
        target: &Target,
        layout: Layout,
    ) {
        let hash = layout.hash();
        if layout.is_fast_v4() && self.wrap_fast(turn, &mut packet, id, target, hash) {
            return turn.send(packet, self.egresses.backends.route);
        }
        // Of a frame that is short enough, VLAN tags and padding included, so is the packet.
        let frame_bytes_max =
            ethernet::HEADER_BYTES + usize::from(turn.services.settings.mtu_bytes);
        if packet.len_bytes() + target.tunnel.outer_header_bytes() > frame_bytes_max {
            return self.send_by_size(turn, packet, id, target, hash);
        }
        match self.wrap(turn, &mut packet, id, target, hash) {
            Ok(()) => turn.send(packet, self.egresses.backends.route),
            Err(error) => self.cannot_wrap(turn, packet, error),
        }
    }

    /// Makes a packet of the [fast path](Layout::is_fast_v4) ready to leave for its target. Returns
    /// whether it did: a packet that the fast path cannot take is as it was.
    #[inline(always)]
    pub(super) fn wrap_fast(
        &mut self,
        turn: &Turn<'_, '_, '_, P>,
        packet: &mut P,
        id: TargetId,
        target: &Target,
        hash: u32,
    ) -> bool {
        let (identification, mtu_bytes) = (self.identification, turn.services.settings.mtu_bytes);
        let tunnel = &target.tunnel;
        let wrapped = tunnel.wrap_fast(packet, &self.link, hash, identification, mtu_bytes);
        let Some(is_identification_used) = wrapped else { return false };
        self.spend_identification(is_identification_used);
        turn.counts.target(id).packets.add(1);
        true
    }

    /// Makes a packet ready to leave for its target.
    #[inline]
    fn wrap(
        &mut self,
        turn: &Turn<'_, '_, '_, P>,
        packet: &mut P,
        id: TargetId,
        target: &Target,
        hash: u32,
    ) -> Result<(), EncapsulateError> {
        target.tunnel.wrap_flow(packet, hash, self.identification)?;
        self.spend_identification(may_be_fragmented(packet.data()));
        let egress = self.egresses.backends;
        ethernet::set_addresses(packet, egress.source, egress.destination);
        turn.counts.target(id).packets.add(1);
        Ok(())
    }

    /// Goes on to the next identification, where a packet had the last.
    #[inline(always)]
    pub(super) fn spend_identification(&mut self, is_used: bool) {
        if is_used {
            self.identification = self.identification.wrapping_add(self.worker_count);
        }
    }

    /// [`send_to_target`](Self::send_to_target) for packets that may be too big.
    #[inline(never)]
    fn send_by_size(
        &mut self,
        turn: &mut Turn<'_, '_, '_, P>,
        mut packet: P,
        id: TargetId,
        target: &Target,
        hash: u32,
    ) {
        let Some(header) = OwnHeader::of(packet.data()) else {
            return turn.reject(packet, BalanceDrop::Malformed);
        };
        let mtu_bytes = usize::from(turn.services.settings.mtu_bytes);
        let room_bytes = mtu_bytes.saturating_sub(target.tunnel.outer_header_bytes());
        if header.total_bytes <= room_bytes || header.ttl <= 1 {
            return match self.wrap(turn, &mut packet, id, target, hash) {
                Ok(()) => turn.send(packet, self.egresses.backends.route),
                Err(error) => self.cannot_wrap(turn, packet, error),
            };
        }
        if header.dont_fragment {
            let answer = Answer::TooBig { mtu_bytes: room_bytes as u16 };
            return self.answer(turn, packet, BalanceDrop::TooBig, answer);
        }
        self.send_in_pieces(turn, packet, room_bytes, |own, turn, piece| {
            own.wrap(turn, piece, id, target, hash)
        });
    }

    /// Sends a packet in fragments of `room_bytes` at most before they are wrapped.
    fn send_in_pieces(
        &mut self,
        turn: &mut Turn<'_, '_, '_, P>,
        packet: P,
        room_bytes: usize,
        wrap: impl Fn(&mut Self, &Turn<'_, '_, '_, P>, &mut P) -> Result<(), EncapsulateError>,
    ) {
        let route = self.egresses.backends.route;
        // The last piece is the packet itself: all ahead of it are created.
        let mut last: Option<P> = None;
        let split = fragment::split(packet, room_bytes, |piece| {
            if let Some(mut created) = last.replace(piece)
                && wrap(self, turn, &mut created).is_ok()
            {
                turn.send_created(created, route);
            }
        });
        match (split, last) {
            (Ok(()), Some(mut packet)) => match wrap(self, turn, &mut packet) {
                Ok(()) => turn.send(packet, route),
                Err(error) => self.cannot_wrap(turn, packet, error),
            },
            (Ok(()), None) => {}
            (Err((packet, error)), created) => {
                if let Some(mut created) = created
                    && wrap(self, turn, &mut created).is_ok()
                {
                    turn.send_created(created, route);
                }
                turn.reject(packet, drop_of_fragmentation(error));
            }
        }
    }

    #[cold]
    fn cannot_wrap(&mut self, turn: &mut Turn<'_, '_, '_, P>, packet: P, error: EncapsulateError) {
        let reason = match error {
            EncapsulateError::TtlExpired => {
                return self.answer(turn, packet, BalanceDrop::TtlExpired, Answer::TimeExceeded);
            }
            EncapsulateError::TooBig { .. } => BalanceDrop::TooBig,
            EncapsulateError::NoRoom(_) => BalanceDrop::NoHeadroom,
            EncapsulateError::NotIp { .. }
            | EncapsulateError::Malformed(_)
            | EncapsulateError::MixedFamilies { .. } => BalanceDrop::Malformed,
        };
        turn.reject(packet, reason);
    }

    /// Drops a packet, and sends its sender the error that says why, where ICMP's rules and what is left
    /// of this second's errors allow that.
    fn answer(
        &mut self,
        turn: &mut Turn<'_, '_, '_, P>,
        packet: P,
        reason: BalanceDrop,
        answer: Answer,
    ) {
        let now = turn.now();
        let budget = match answer {
            Answer::TooBig { .. } => &mut self.too_big_errors,
            Answer::TimeExceeded | Answer::ParameterProblem { .. } => &mut self.other_errors,
        };
        let header = OwnHeader::of(packet.data());
        let Some(header) = header.filter(|header| budget.has_room(now, header.source)) else {
            return turn.reject(packet, reason);
        };
        let (mut packet, vip) = (turn.cx.reuse(packet, reason), header.destination);
        let answered = match answer {
            Answer::TimeExceeded => answer::time_exceeded(&mut packet, vip),
            Answer::TooBig { mtu_bytes } => answer::too_big(&mut packet, vip, mtu_bytes),
            Answer::ParameterProblem { pointer } => {
                answer::parameter_problem(&mut packet, vip, pointer)
            }
        };
        if answered.is_ok() {
            budget.count(now, header.source);
            self.send_answer(turn, packet);
        }
    }

    /// Drops a packet that may enter no further tunnel, as it states at this place.
    pub(super) fn answer_limit(&mut self, turn: &mut Turn<'_, '_, '_, P>, packet: P, pointer: u32) {
        let answer = Answer::ParameterProblem { pointer };
        self.answer(turn, packet, BalanceDrop::EncapsulationLimit, answer);
    }

    /// Answers an echo request.
    pub(super) fn answer_echo(&mut self, turn: &mut Turn<'_, '_, '_, P>, mut packet: P) {
        match answer::echo_reply(&mut packet) {
            Ok(()) => {
                let packet = turn.cx.reuse(packet, BalanceDrop::IcmpEcho);
                self.send_answer(turn, packet);
            }
            Err(AnswerError::Checksum) => turn.reject(packet, BalanceDrop::BadChecksum),
            Err(_) => turn.reject(packet, BalanceDrop::IcmpEcho),
        }
    }

    fn send_answer(&mut self, turn: &mut Turn<'_, '_, '_, P>, mut packet: P) {
        let egress = self.egresses.clients;
        ethernet::set_addresses(&mut packet, egress.source, egress.destination);
        turn.counts.answered.add(1);
        turn.send_created(packet, egress.route);
    }
}

/// An ICMP error to the sender of a packet.
#[derive(Clone, Copy, Debug)]
enum Answer {
    TimeExceeded,
    TooBig { mtu_bytes: u16 },
    ParameterProblem { pointer: u32 },
}

/// Whether the outermost header of a frame is IPv4's and leaves it to routers to fragment the packet:
/// then its identification counts (RFC 6864, section 4).
#[inline]
fn may_be_fragmented(frame: &[u8]) -> bool {
    let Some((ETHERTYPE_IPV4, l3_offset)) = ethernet::network_layer(frame) else { return false };
    frame.get(l3_offset + 6).is_some_and(|flags| flags & 0x40 == 0)
}

const fn drop_of_fragmentation(error: FragmentError) -> BalanceDrop {
    match error {
        FragmentError::NoMemory => BalanceDrop::NoMbuf,
        FragmentError::Checksum => BalanceDrop::BadChecksum,
        FragmentError::Forbidden { .. } | FragmentError::MtuTooSmall { .. } => BalanceDrop::TooBig,
        FragmentError::NotIpv4 { .. } | FragmentError::Malformed(_) => BalanceDrop::Malformed,
    }
}
