//! Whole packets of TCP and UDP in IPv4 without options: of these, nearly all that are not forwarded at once
//! are the first of their connections.

use super::serve::FromClient;
use super::{Turn, Worker, refusal};
use crate::config::Scheduler;
use crate::connection::Connection;
use crate::connections::{Place, Vacancy};
use crate::own_header::fast_flags;
use crate::services::Service;
use hotloop::flow::Handle;
use hotloop::packet::PacketBuf;
use hotloop::packet::classify::Layout;
use hotloop::packet::flow_key::{FlowKey, FlowKeyV4};
use hotloop::packet::ip::protocol;
use hotloop::stage::Carries;

impl<P: PacketBuf + Carries> Worker<P> {
    /// A whole packet of TCP or UDP to a service, in IPv4 without options.
    #[inline(always)]
    pub(super) fn serve_plain(
        &mut self,
        turn: &mut Turn<'_, '_, '_, P>,
        packet: P,
        (key, layout, index): (FlowKeyV4, Layout, usize),
        service: &Service,
    ) {
        let (services, now) = (turn.services, turn.now());
        let hash = self.seed.hash_v4(&key);
        // First of all, as the Maglev table is seldom in the first-level cache.
        let chosen = match service.scheduler {
            Scheduler::Maglev => service.by_hash(hash),
            _ => None,
        };
        let client = key.source().into();
        if let Some(reason) = refusal::of_addresses(services, client, key.destination().into()) {
            return turn.reject(packet, reason);
        }
        let is_tcp = key.protocol() == protocol::TCP;
        let front = packet.data().first_chunk().filter(|_| is_tcp);
        let flags = front.map_or(0, fast_flags);
        let from_client = (key, flags, hash);
        let chosen = chosen.and_then(|id| Some((id, services.active(id)?)));
        let Some((id, target)) = chosen.filter(|(_, target)| target.address() != client) else {
            return self.follow_plain(turn, packet, (layout, index), from_client, None, service);
        };
        match self.connections.find_v4(key, index, now) {
            Err(vacancy) => {
                let connection = Connection::new(id, key.protocol(), flags, now);
                if self.place(turn, (Vacancy::V4(vacancy), hash), connection).is_some() {
                    self.schedule.connection_added(id, turn.counts);
                }
                self.send_plain(turn, packet, (id, target, layout), hash);
            }
            Ok(found) => {
                let found = Some(found);
                self.follow_plain(turn, packet, (layout, index), from_client, found, service);
            }
        }
    }

    /// A packet as [`serve_plain`](Self::serve_plain) takes it, of a connection that was `found`, or whose
    /// target is not chosen by the hash of its flow alone: it was not searched for yet.
    #[inline(never)]
    fn follow_plain(
        &mut self,
        turn: &mut Turn<'_, '_, '_, P>,
        packet: P,
        (layout, index): (Layout, usize),
        (key, flags, hash): (FlowKeyV4, u8, u32),
        found: Option<(Handle, u64)>,
        service: &Service,
    ) {
        let found = match found {
            Some(found) => Ok(found),
            None => self.connections.find_v4(key, index, turn.now()),
        };
        let found = found.map(|(handle, silent_ns)| (Place::V4(handle), silent_ns));
        let from_client = FromClient { key: &FlowKey::V4(key), hash, flags };
        match self.follow_found(turn, &from_client, found.map_err(Vacancy::V4), || Ok(service)) {
            Ok(id) => match turn.services.active(id) {
                Some(target) => self.send_plain(turn, packet, (id, target, layout), hash),
                None => self.send_to(turn, packet, id, hash),
            },
            Err(reason) => turn.reject(packet, reason),
        }
    }
}
