//! How the connections of a burst are found, which is the same for all of its packets.

use super::{Connections, Kept};
use crate::connection::Connection;
use hotloop::flow::{Hinted, Unhinted};
use hotloop::packet::PacketBuf;
use hotloop::packet::classify::Layout;

/// A way to find the connections of packets that the [fast path](Layout::is_fast_v4) takes.
pub trait Finding: Copy {
    /// The connection of the packet at `index` of the burst, which is one of the fast path, and what is kept with it. It
    /// has a packet now. One that an earlier packet of the burst began may be left to [`Connections::find`].
    fn find<'c, P: PacketBuf>(
        self,
        connections: &'c mut Connections,
        packet: (&P, Layout),
        index: usize,
    ) -> Option<&'c (Connection, Kept)>;
}

/// By the hint and the key that the burst has left.
impl Finding for Hinted {
    #[inline(always)]
    fn find<'c, P: PacketBuf>(
        self,
        connections: &'c mut Connections,
        _: (&P, Layout),
        index: usize,
    ) -> Option<&'c (Connection, Kept)> {
        let Connections { v4, keys, .. } = connections;
        let found = v4.table.find_hinted(keys.get(index)?, v4.hints.at(index), self);
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
    ) -> Option<&'c (Connection, Kept)> {
        let key = layout.fast_key_v4(packet.data())?;
        let found = connections.v4.table.find_unhinted(&key, self);
        found.map(|(_, connection)| connection)
    }
}
