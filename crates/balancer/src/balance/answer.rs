//! ICMP to the senders of packets: errors and echo replies. Uses the packet's own buffer, the
//! service table and this worker's budgets for errors. Never sends an error about an ICMP error,
//! and never more errors than the budgets allow.

use super::{BalanceDrop, Turn, Worker};
use crate::own_header::OwnHeader;
use hotloop::packet::answer::{self, AnswerError};
use hotloop::packet::{PacketBuf, ethernet};
use hotloop::stage::Carries;

/// An ICMP error to the sender of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) enum IcmpError {
    TimeExceeded,
    /// The packet exceeds the path's MTU, which the error carries.
    TooBig {
        mtu_bytes: u16,
    },
    /// A field is wrong, at this offset in bytes from the IPv6 header.
    ParameterProblem {
        pointer: u32,
    },
}

impl<P: PacketBuf + Carries> Worker<P> {
    /// Drops a packet, and sends an error to its sender if ICMP's rules and the limits on errors
    /// allow it.
    pub(super) fn answer(
        &mut self,
        turn: &mut Turn<'_, '_, '_, P>,
        packet: P,
        reason: BalanceDrop,
        error: IcmpError,
    ) {
        let now = turn.now();
        let budget = match error {
            IcmpError::TooBig { .. } => &mut self.too_big_errors,
            IcmpError::TimeExceeded | IcmpError::ParameterProblem { .. } => &mut self.other_errors,
        };
        let header = OwnHeader::of(packet.data());
        let Some(header) = header.filter(|header| budget.has_room(now, header.source)) else {
            return turn.reject(packet, reason);
        };
        let (mut packet, vip) = (turn.cx.reuse(packet, reason), header.destination);
        let answered = match error {
            IcmpError::TimeExceeded => answer::time_exceeded(&mut packet, vip),
            IcmpError::TooBig { mtu_bytes } => answer::too_big(&mut packet, vip, mtu_bytes),
            IcmpError::ParameterProblem { pointer } => {
                answer::parameter_problem(&mut packet, vip, pointer)
            }
        };
        if answered.is_ok() {
            budget.count(header.source);
            self.send_answer(turn, packet);
        }
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
