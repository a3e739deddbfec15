//! ICMP to the senders of packets: errors and echo replies. Uses the packet's own buffer, the
//! service table and this worker's budgets for errors. Never sends an error about an ICMP error,
//! and never more errors than the budgets allow.

use super::{BalanceDrop, Turn, Worker};
use hotloop::packet::answer::{self, AnswerError, IcmpError};
use hotloop::packet::own_header::OwnHeader;
use hotloop::packet::{PacketBuf, ethernet};

impl<P: PacketBuf> Worker<P> {
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
            _ => &mut self.other_errors,
        };
        let header = OwnHeader::of(packet.data());
        let Some(header) = header.filter(|header| budget.has_room(now, header.source)) else {
            return turn.reject(packet, reason);
        };
        let (mut packet, vip) = (turn.cx.reuse(packet, reason), header.destination);
        if answer::icmp_error(&mut packet, vip, error).is_ok() {
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
