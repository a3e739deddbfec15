//! Whole packets of TCP and UDP in IPv4 without options. Of the ones that are not forwarded at
//! once, nearly all are the first of their connections. Uses the fast key only, not the full header
//! parser, and treats each packet exactly as `serve` would.

use super::serve::FromClient;
use super::{Tables, Turn, Worker, admission};
use crate::connection::Connection;
use crate::connections::{Kept, Position, Vacancy};
use crate::services::Service;
use crate::tcp_flags::fast_flags;
use hotloop::flow::Handle;
use hotloop::packet::PacketBuf;
use hotloop::packet::classify::Layout;
use hotloop::packet::flow_key::{FlowKey, FlowKeyV4};
use hotloop::packet::ip::protocol;
use hotloop::stage::Instant;

/// A packet of the [fast path](Layout::is_fast_v4): its flow, and its index in the burst.
#[derive(Clone, Copy)]
pub(super) struct FastFlow {
    pub key: FlowKeyV4,
    pub layout: Layout,
    pub index: usize,
}

impl<P: PacketBuf> Worker<P> {
    /// Encapsulates the packet at `index` of the burst and enters its connection, if it is the
    /// first packet, its service chooses by the flow's hash, and all reference tables choose alike.
    /// There must be no [limits](ServiceTable::has_limits).
    ///
    /// # Errors
    /// Otherwise the packet is unchanged. If its connection was found, the error has the
    /// connection's handle and its silence before this packet, which counts as seen now.
    #[inline(never)]
    pub(super) fn forward_first(
        &mut self,
        tables: Tables<'_>,
        packet: &mut P,
        layout: Layout,
        index: usize,
        now: Instant,
    ) -> Result<(), Option<(Handle, u64)>> {
        let Tables { services, counts } = tables;
        self.connections.prefetch_new(index + 1);
        let Some(front) = packet.data().first_chunk() else { return Err(None) };
        let Some(key) = layout.fast_key_v4(front) else { return Err(None) };
        let flags = if key.protocol() == protocol::TCP { fast_flags(front) } else { 0 };
        let Some(service) = services.service_of_v4(&key) else { return Err(None) };
        let hash = self.seed.hash_v4(&key);
        // Read first, because the Maglev table is seldom in the first-level cache.
        let Some(id) = service.by_hash(hash) else { return Err(None) };
        if !service.begins_plainly() && !services.all_choose(service, &key, hash, id) {
            return Err(None);
        }
        let (client, destination) = (key.source().into(), key.destination().into());
        if admission::of_addresses(services, client, destination).is_some() {
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
        let clock = self.connections.clock(now);
        let connection = Connection::new(id, key.protocol(), flags, clock);
        let kept = Kept::new(hash, services.targets_serial(), header);
        if self.insert_new(tables, vacancy, kept, connection, now).is_some() {
            self.schedule.connection_added(id, target_counts);
        }
        Ok(())
    }

    /// Serves a packet to a service. `found` is its connection, if the table was searched.
    pub(super) fn serve_fast(
        &mut self,
        turn: &mut Turn<'_, '_, '_, P>,
        packet: P,
        flow: FastFlow,
        found: Option<(Handle, u64)>,
        service: &Service,
    ) {
        let FastFlow { key, layout, index } = flow;
        let (client, destination) = (key.source().into(), key.destination().into());
        if let Some(reason) = admission::of_addresses(turn.services, client, destination) {
            return turn.reject(packet, reason);
        }
        let hash = self.seed.hash_v4(&key);
        let flags = flags(&key, &packet);
        let found = match found {
            Some(found) => Ok(found),
            None => self.connections.find_v4(key, index, turn.now()),
        };
        let found = found.map(|(handle, silent_ns)| (Position::V4(handle), silent_ns));
        let from_client = FromClient { key: &FlowKey::V4(key), hash, flags };
        match self.follow_found(turn, &from_client, found.map_err(Vacancy::V4), || Ok(service)) {
            Ok(id) => self.send_fast(turn, packet, id, layout, hash),
            Err(reason) => turn.reject(packet, reason),
        }
    }
}

/// TCP's flags; 0 for other protocols.
#[inline(always)]
fn flags<P: PacketBuf>(key: &FlowKeyV4, packet: &P) -> u8 {
    let is_tcp = key.protocol() == protocol::TCP;
    packet.data().first_chunk().filter(|_| is_tcp).map_or(0, fast_flags)
}
