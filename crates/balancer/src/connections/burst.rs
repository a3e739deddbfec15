//! The connections of a burst's packets. Uses prefetch hints, made for the whole burst before the
//! first lookup.

use super::{Connections, Family, Kept};
use crate::connection::Connection;
use crate::services::{ServiceTable, TargetId};
use hotloop::flow::{Hint, SeenAt};
use hotloop::packet::PacketBuf;
use hotloop::packet::classify::{Kind, Layout};
use hotloop::packet::flow_key::{FlowKey, FlowKeyV4, FlowKeyV6};
use hotloop::packet::ip::protocol;
use hotloop::packet::ipv6;
use hotloop::stage::{Classified, Instant};

/// Prefetch distance for slots of new connections, in packets. Prefetching those of a whole burst
/// at once is slower: that is more lines than a core can have in flight.
const AHEAD: usize = 8;

impl Connections {
    /// Prefetches the memory of the connections of a burst of at most 64 packets, before they are
    /// looked up. `key_of` stores each packet's layout in the packet, and returns its key if the
    /// [fast path](Layout::is_fast_v4) takes it. Returns whether the caller must call
    /// [`hint_burst_v6`](Self::hint_burst_v6) next.
    #[inline]
    #[must_use]
    pub fn hint_burst<'a, P: PacketBuf + 'a>(
        &mut self,
        burst: impl ExactSizeIterator<Item = &'a mut Classified<P>>,
        mut key_of: impl FnMut(&mut Classified<P>) -> Option<FlowKeyV4>,
    ) -> bool {
        (self.burst_len, self.prefetched_end) = (burst.len(), 0);
        let mut any_v6 = false;
        let Family { table, hints, .. } = &mut self.v4;
        let v4_keys = burst.zip(&mut self.keys).map(|(packet, place)| match key_of(packet) {
            Some(key) => {
                *place = key;
                Some(key)
            }
            None => has_any_v4(packet, place, &mut any_v6).then_some(*place),
        });
        table.hint_burst(v4_keys, hints);
        any_v6
    }

    /// The rest of [`hint_burst`](Self::hint_burst), which must stay small because it is inlined.
    #[inline(never)]
    pub fn hint_burst_v6<P: PacketBuf>(&mut self, burst: &[Classified<P>]) {
        let v6_keys = burst.iter().map(|packet| {
            let key = packet.tag().fast_key_v6(packet.packet.data());
            key.or_else(|| any_key_v6(packet))
        });
        self.v6.table.hint_burst(v6_keys, &mut self.v6.hints);
    }

    /// Prefetches slots for new IPv4 connections among the next few packets of the burst that hints
    /// were made for, starting at `index`.
    #[inline]
    pub fn prefetch_new(&mut self, index: usize) {
        // Half of the prefetch distance at a time.
        if self.prefetched_end <= index + AHEAD / 2 {
            self.prefetch_next(index);
        }
    }

    /// Separate from [`prefetch_new`](Self::prefetch_new), which usually has nothing to do.
    #[cold]
    #[inline(never)]
    fn prefetch_next(&mut self, index: usize) {
        let end = self.burst_len.min(index + AHEAD);
        let Family { table, hints, .. } = &mut self.v4;
        for index in self.prefetched_end.max(index)..end {
            if let Some(key) = self.keys.get(index) {
                table.prefetch_insert(key, hints, index);
            }
        }
        // At the end of the burst nothing is left to prefetch.
        self.prefetched_end = if end == self.burst_len { usize::MAX } else { end };
    }

    /// The probable target of the packet at `index` of the burst that hints were made for, to
    /// prefetch it.
    #[must_use]
    pub fn likely_target(&self, index: usize, layout: Layout) -> Option<TargetId> {
        match layout.kind() {
            Kind::Ipv6 => self.v6.likely_target(index),
            _ => self.v4.likely_target(index),
        }
    }

    /// Sets the clock of the IPv4 connections to the time of a burst, for [`found_fast`](Self::found_fast).
    #[inline(always)]
    pub fn seen_at(&mut self, now: Instant) -> SeenAt {
        self.v4.table.seen_at(now)
    }

    /// The connection of the packet at `index` of the burst that hints were made for, and the value
    /// stored with it. The [fast path](Layout::is_fast_v4) must take the packet. The connection
    /// counts as seen now. A connection that an earlier packet of the burst began may be left to
    /// [`find`](Self::find).
    #[inline(always)]
    pub fn found_fast(&mut self, index: usize, seen_at: SeenAt) -> Option<&(Connection, Kept)> {
        let found =
            self.v4.table.find_hinted(self.keys.get(index)?, self.v4.hints.at(index), seen_at);
        found.map(|(_, connection)| connection)
    }

    /// The connection of the packet at `index` of the burst that hints were made for, which counts
    /// as seen now. Only for whole TCP and UDP packets outside tunnels: other packets may not
    /// belong to their key's connection, and looking it up would keep it from being forgotten. Also
    /// `None` for a packet with extension headers, which may state an encapsulation limit.
    #[inline]
    #[must_use]
    pub fn found(
        &mut self,
        index: usize,
        layout: Layout,
        frame: &[u8],
        now: Instant,
    ) -> Option<&Connection> {
        if let Some(key) = layout.fast_key_v6(frame) {
            return self.v6.found(&key, index, now);
        }
        match layout.key(frame).filter(|key| is_followed(layout, key.protocol()))? {
            FlowKey::V4(key) => self.v4.found(&key, index, now),
            FlowKey::V6(key) => {
                // The packet still belongs to its connection, which counts as seen.
                let connection = self.v6.found(&key, index, now)?;
                let header_end = layout.l3_offset() + ipv6::HEADER_BYTES;
                (layout.l4_offset(frame)? <= header_end).then_some(connection)
            }
        }
    }

    /// Renews the header that a connection keeps. `frame` is one of its packets, which the [fast
    /// path](Layout::is_fast_v4) must take.
    #[cold]
    #[inline(never)]
    pub fn renew_header(
        &mut self,
        services: &ServiceTable,
        layout: Layout,
        frame: &[u8],
        now: Instant,
    ) {
        let Some(key) = layout.fast_key_v4(frame) else { return };
        let Ok((handle, _)) = self.v4.table.peek(&key, Hint::NONE, now) else { return };
        let (connection, kept) = &mut self.v4.table[handle];
        kept.renew(services, connection.target);
    }
}

/// Whether a packet belongs to the connection of its key, whatever its kind.
#[inline(always)]
const fn is_followed(layout: Layout, protocol: u8) -> bool {
    layout.is_plain() && matches!(protocol, protocol::TCP | protocol::UDP)
}

/// Whether a packet of any kind has the key of an IPv4 connection, which is then stored in `place`;
/// notes if it has one of IPv6.
#[cold]
#[inline(never)]
fn has_any_v4<P: PacketBuf>(
    packet: &Classified<P>,
    place: &mut FlowKeyV4,
    any_v6: &mut bool,
) -> bool {
    let layout = packet.tag();
    if layout.kind() == Kind::Ipv6 {
        *any_v6 = true;
        return false;
    }
    let Some(FlowKey::V4(key)) = layout.key(packet.packet.data()) else { return false };
    *place = key;
    is_followed(layout, key.protocol())
}

/// The key of an IPv6 connection from a packet of any kind.
#[inline(never)]
fn any_key_v6<P: PacketBuf>(packet: &Classified<P>) -> Option<FlowKeyV6> {
    let layout = packet.tag();
    let FlowKey::V6(key) = layout.key(packet.packet.data())? else { return None };
    is_followed(layout, key.protocol()).then_some(key)
}
