//! Whole packets of TCP and UDP in IPv4 without options: of these, nearly all that are not forwarded at once
//! are the first of their connections.

use super::serve::FromClient;
use super::{Turn, Worker, refusal};
use crate::connection::Connection;
use crate::connections::{Kept, Place, Vacancy};
use crate::counts::WorkerCounts;
use crate::own_header::fast_flags;
use crate::services::{Service, ServiceTable};
use crate::spec::Scheduler;
use hotloop::flow::Handle;
use hotloop::packet::PacketBuf;
use hotloop::packet::classify::Layout;
use hotloop::packet::flow_key::{FlowKey, FlowKeyV4};
use hotloop::packet::ip::protocol;
use hotloop::stage::{Carries, Instant};

impl<P: PacketBuf + Carries> Worker<P> {
    /// Encapsulates the packet at `index` of the burst, and enters its connection, where it is the first one of
    /// it and its service chooses by the hash of the flow. Connections [begin plainly](ServiceTable::begins_plainly).
    ///
    /// # Errors
    /// It is another packet, and is as it was. If its connection was found, it counts as seen now: this is its
    /// handle, and for how long it had no packet.
    #[inline(never)]
    pub(super) fn begin(
        &mut self,
        (services, counts): (&ServiceTable, &WorkerCounts),
        (packet, layout): (&mut P, Layout),
        index: usize,
        now: Instant,
    ) -> Result<(), Option<(Handle, u64)>> {
        self.connections.prefetch_new(index + 1);
        let Some(front) = packet.data().first_chunk() else { return Err(None) };
        let Some(key) = layout.fast_key_v4(front) else { return Err(None) };
        let flags = if key.protocol() == protocol::TCP { fast_flags(front) } else { 0 };
        let Some(service) = services.service_of_v4(&key) else { return Err(None) };
        if service.scheduler != Scheduler::Maglev {
            return Err(None);
        }
        let hash = self.seed.hash_v4(&key);
        // First of all, as the Maglev table is seldom in the first-level cache.
        let Some(id) = service.by_hash(hash) else { return Err(None) };
        let (client, destination) = (key.source().into(), key.destination().into());
        if refusal::of_addresses(services, client, destination).is_some() {
            return Err(None);
        }
        let Some(target) = services.active(id) else { return Err(None) };
        let vacancy = match self.connections.find_v4(key, index, now) {
            Ok(found) => return Err(Some(found)),
            Err(vacancy) => Vacancy::V4(vacancy),
        };
        let Self { link, identifications, .. } = self;
        let mtu_bytes = services.settings.mtu_bytes;
        let Some(header) = target.tunnel.flow_header(hash) else { return Err(None) };
        if target.address() == client {
            return Err(None);
        }
        if !header.wrap_fast(packet, layout, mtu_bytes, link, identifications) {
            return Err(None);
        }
        let target_counts = counts.target(id);
        target_counts.packets.add(1);
        let connection = Connection::new(id, key.protocol(), flags, now);
        let kept = Kept::new(hash, services.targets_serial(), header);
        if self.place((services, counts), (vacancy, kept), connection, now).is_some() {
            self.schedule.connection_added(id, target_counts);
        }
        Ok(())
    }

    /// A packet to a service, of a connection that was `found`, or was not searched for.
    pub(super) fn serve_plain(
        &mut self,
        turn: &mut Turn<'_, '_, '_, P>,
        packet: P,
        (key, layout, index): (FlowKeyV4, Layout, usize),
        found: Option<(Handle, u64)>,
        service: &Service,
    ) {
        let (client, destination) = (key.source().into(), key.destination().into());
        if let Some(reason) = refusal::of_addresses(turn.services, client, destination) {
            return turn.reject(packet, reason);
        }
        let hash = self.seed.hash_v4(&key);
        let flags = flags(&key, &packet);
        let found = match found {
            Some(found) => Ok(found),
            None => self.connections.find_v4(key, index, turn.now()),
        };
        let found = found.map(|(handle, silent_ns)| (Place::V4(handle), silent_ns));
        let from_client = FromClient { key: &FlowKey::V4(key), hash, flags };
        match self.follow_found(turn, &from_client, found.map_err(Vacancy::V4), || Ok(service)) {
            Ok(id) => self.send_plain(turn, packet, (id, layout), hash),
            Err(reason) => turn.reject(packet, reason),
        }
    }
}

/// TCP's flags; 0 elsewhere.
#[inline(always)]
fn flags<P: PacketBuf>(key: &FlowKeyV4, packet: &P) -> u8 {
    let is_tcp = key.protocol() == protocol::TCP;
    packet.data().first_chunk().filter(|_| is_tcp).map_or(0, fast_flags)
}
