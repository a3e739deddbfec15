//! How the connections of a burst are found, which is the same for all of its packets.

use super::{Connections, FlowHash};
use crate::connection::Connection;
use crate::services::TargetId;
use hotloop::flow::{Hinted, Unhinted};
use hotloop::packet::PacketBuf;
use hotloop::packet::classify::Layout;

/// A way to find the connections of packets that the [fast path](Layout::is_fast_v4) takes.
pub trait Finding: Copy {
    /// The connection of the packet at `index` of the burst, which is one of the fast path, and the hash of its flow. It
    /// has a packet now. One that an earlier packet of the burst began may be left to [`Connections::find`].
    ///
    /// With hints, `on_ahead` is called with the likely target of the packet that comes
    /// [`VALUES_AHEAD`](hotloop::flow::VALUES_AHEAD) packets later, so that it can be prefetched. Near the end of the
    /// burst, it may be any target.
    fn find<'c, P: PacketBuf>(
        self,
        connections: &'c mut Connections,
        packet: (&P, Layout),
        index: usize,
        on_ahead: impl FnOnce(TargetId),
    ) -> Option<&'c (Connection, FlowHash)>;
}

/// By the hint and the key that the burst has left.
impl Finding for Hinted {
    #[inline(always)]
    fn find<'c, P: PacketBuf>(
        self,
        connections: &'c mut Connections,
        _: (&P, Layout),
        index: usize,
        on_ahead: impl FnOnce(TargetId),
    ) -> Option<&'c (Connection, FlowHash)> {
        let Connections { v4, keys, .. } = connections;
        let (key, hint) = (keys.get(index)?, v4.hints.at(index));
        if let Some((ahead, _)) = v4.table.value_ahead(hint) {
            on_ahead(ahead.target);
        }
        let found = v4.table.find_hinted(key, hint, self);
        found.map(|(_, connection)| connection)
    }
}

/// By the packet alone.
impl Finding for Unhinted {
    #[inline(always)]
    fn find<'c, P: PacketBuf>(
        self,
        connections: &'c mut Connections,
        (packet, layout): (&P, Layout),
        _: usize,
        _: impl FnOnce(TargetId),
    ) -> Option<&'c (Connection, FlowHash)> {
        let key = layout.fast_key_v4(packet.data())?;
        let found = connections.v4.table.find_unhinted(&key, self);
        found.map(|(_, connection)| connection)
    }
}
