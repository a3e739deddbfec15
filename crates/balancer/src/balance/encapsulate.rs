//! Encapsulation: sends packets to their targets, in fragments if they are too long. Uses the
//! service table's outer headers and the egresses. A packet that can't be sent is left unchanged
//! until it is dropped or answered.

use super::{BalanceDrop, Turn, Worker};
use crate::services::{Found, Target, TargetId};
use hotloop::packet::PacketBuf;
use hotloop::packet::answer::IcmpError;
use hotloop::packet::classify::Layout;
use hotloop::packet::fragment::{self, FragmentError};
use hotloop::packet::ipip::EncapsulateError;
use hotloop::packet::own_header::OwnHeader;
use hotloop::stage::Counter;

impl<P: PacketBuf> Worker<P> {
    /// Sends a packet of the [fast path](Layout::is_fast_v4) to a target.
    pub(super) fn send_fast(
        &mut self,
        turn: &mut Turn<'_, '_, '_, P>,
        mut packet: P,
        id: TargetId,
        layout: Layout,
        hash: u32,
    ) {
        let Self { link, identifications, .. } = self;
        let mtu_bytes = turn.services.settings.mtu_bytes;
        if let Some(target) = turn.services.active(id)
            && let Some(header) = target.tunnel.flow_header(hash)
            && header.wrap_fast(&mut packet, layout, mtu_bytes, link, identifications)
        {
            turn.counts.target(id).packets.add(1);
            return turn.send(packet, self.egresses.backends.route);
        }
        self.send_to(turn, packet, id, hash);
    }

    /// Sends a packet to a target.
    #[inline(never)]
    pub(super) fn send_to(
        &mut self,
        turn: &mut Turn<'_, '_, '_, P>,
        mut packet: P,
        id: TargetId,
        hash: u32,
    ) {
        let target = match turn.services.target(id) {
            Found::Active(target) => target,
            Found::Removed => return turn.reject(packet, BalanceDrop::NoBackend),
            Found::Flushed => return turn.reject(packet, BalanceDrop::Flushed),
        };
        if !target.takes_frame(packet.len_bytes()) {
            let Some(header) = OwnHeader::of(packet.data()) else {
                return turn.reject(packet, BalanceDrop::Malformed);
            };
            if header.total_bytes > usize::from(target.packet_bytes_max) && header.ttl > 1 {
                if header.dont_fragment {
                    let error = IcmpError::TooBig { mtu_bytes: target.packet_bytes_max };
                    return self.answer(turn, packet, BalanceDrop::TooBig, error);
                }
                return self.send_fragments(turn, packet, id, target, hash);
            }
        }
        let count = &turn.counts.target(id).packets;
        match self.encapsulate(&mut packet, target, hash, count) {
            Ok(()) => turn.send(packet, self.egresses.backends.route),
            Err(error) => self.cannot_encapsulate(turn, packet, error),
        }
    }

    /// Makes a packet ready to be sent to its target, and counts it. On an error, the packet is
    /// unchanged. Not inlined, because few packets take this path.
    #[inline(never)]
    pub(super) fn encapsulate(
        &mut self,
        packet: &mut P,
        target: &Target,
        hash: u32,
        count: &Counter,
    ) -> Result<(), EncapsulateError> {
        target.tunnel.wrap_flow(packet, &self.link, hash, &mut self.identifications)?;
        count.add(1);
        Ok(())
    }

    /// Sends a packet in fragments that fit the path's MTU once they are encapsulated.
    fn send_fragments(
        &mut self,
        turn: &mut Turn<'_, '_, '_, P>,
        packet: P,
        id: TargetId,
        target: &Target,
        hash: u32,
    ) {
        let route = self.egresses.backends.route;
        let counts = turn.counts;
        let count = &counts.target(id).packets;
        // The last fragment is the packet itself; all fragments before it are created.
        let mut last: Option<P> = None;
        let split = fragment::split(packet, target.packet_bytes_max.into(), |fragment| {
            if let Some(mut created) = last.replace(fragment)
                && self.encapsulate(&mut created, target, hash, count).is_ok()
            {
                turn.send_created(created, route);
            }
        });
        match (split, last) {
            (Ok(()), Some(mut packet)) => {
                match self.encapsulate(&mut packet, target, hash, count) {
                    Ok(()) => turn.send(packet, route),
                    Err(error) => self.cannot_encapsulate(turn, packet, error),
                }
            }
            (Ok(()), None) => {}
            (Err((packet, error)), created) => {
                if let Some(mut created) = created
                    && self.encapsulate(&mut created, target, hash, count).is_ok()
                {
                    turn.send_created(created, route);
                }
                turn.reject(packet, drop_of_fragmentation(error));
            }
        }
    }

    #[cold]
    fn cannot_encapsulate(
        &mut self,
        turn: &mut Turn<'_, '_, '_, P>,
        packet: P,
        error: EncapsulateError,
    ) {
        let reason = match error {
            EncapsulateError::TtlExpired => {
                let error = IcmpError::TimeExceeded;
                return self.answer(turn, packet, BalanceDrop::TtlExpired, error);
            }
            EncapsulateError::TooBig { .. } => BalanceDrop::TooBig,
            EncapsulateError::NoRoom(_) => BalanceDrop::NoHeadroom,
            EncapsulateError::NotIp { .. }
            | EncapsulateError::Malformed(_)
            | EncapsulateError::MixedFamilies { .. } => BalanceDrop::Malformed,
        };
        turn.reject(packet, reason);
    }
}

const fn drop_of_fragmentation(error: FragmentError) -> BalanceDrop {
    match error {
        FragmentError::NoMemory => BalanceDrop::NoMbuf,
        FragmentError::Checksum => BalanceDrop::BadChecksum,
        FragmentError::Forbidden { .. } | FragmentError::MtuTooSmall { .. } => BalanceDrop::TooBig,
        FragmentError::NotIpv4 { .. } | FragmentError::Malformed(_) => BalanceDrop::Malformed,
    }
}
