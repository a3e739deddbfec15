//! A packet in plain memory, for tests and tools.

use crate::{NoRoom, PacketBuf, PortId, Room};

/// Headroom in bytes that [`MemPacket::new`] leaves: as much as DPDK's mbufs have.
pub const HEADROOM_BYTES: usize = 128;

/// Tailroom in bytes that [`MemPacket::new`] leaves.
pub const TAILROOM_BYTES: usize = 128;

/// A packet in plain memory: one segment with headroom and tailroom of fixed size.
///
/// A `MemPacket` is one pointer wide, so that it moves through stages as cheaply as an mbuf does.
///
/// ```
/// use hotloop_packet::{PacketBuf, memory::MemPacket};
///
/// let mut packet = MemPacket::with_room(b"payload", 8, 0);
/// packet.prepend(3)?[..3].copy_from_slice(b"my ");
/// assert_eq!(packet.data(), b"my payload");
/// assert_eq!(packet.prepend(6).unwrap_err().available_bytes, 5);
/// # Ok::<(), hotloop_packet::NoRoom>(())
/// ```
#[derive(Clone)]
pub struct MemPacket(Box<Memory>);

#[derive(Clone)]
struct Memory {
    bytes: Box<[u8]>,
    /// Start of the data: at most `end`.
    start: usize,
    /// End of the data: at most `bytes.len()`.
    end: usize,
    metadata: [u8; 8],
    ingress: Option<PortId>,
    timestamp_ns: Option<u64>,
    has_copies: bool,
}

impl MemPacket {
    /// A packet that holds `data`, with [`HEADROOM_BYTES`] before and [`TAILROOM_BYTES`] after it.
    pub fn new(data: &[u8]) -> Self {
        Self::with_room(data, HEADROOM_BYTES, TAILROOM_BYTES)
    }

    /// A packet that holds `data`, with this much room before and after it.
    pub fn with_room(data: &[u8], headroom_bytes: usize, tailroom_bytes: usize) -> Self {
        let end = headroom_bytes + data.len();
        let mut bytes = vec![0; end + tailroom_bytes].into_boxed_slice();
        bytes[headroom_bytes..end].copy_from_slice(data);
        Self(Box::new(Memory {
            bytes,
            start: headroom_bytes,
            end,
            metadata: [0; 8],
            ingress: None,
            timestamp_ns: None,
            has_copies: true,
        }))
    }

    /// The packet, received by this port.
    #[must_use]
    pub fn with_ingress(mut self, port: PortId) -> Self {
        self.0.ingress = Some(port);
        self
    }

    /// The packet, received at this time: nanoseconds since the epoch.
    #[must_use]
    pub fn received_at(mut self, timestamp_ns: u64) -> Self {
        self.0.timestamp_ns = Some(timestamp_ns);
        self
    }

    /// The packet, with [`copied`](PacketBuf::copied) always failing, as if the pool were
    /// exhausted.
    #[must_use]
    pub fn without_copies(mut self) -> Self {
        self.0.has_copies = false;
        self
    }

    /// The number of free bytes before the data.
    pub fn headroom_bytes(&self) -> usize {
        self.0.start
    }

    /// The number of free bytes after the data.
    pub fn tailroom_bytes(&self) -> usize {
        self.0.bytes.len() - self.0.end
    }
}

impl PacketBuf for MemPacket {
    #[inline]
    fn data(&self) -> &[u8] {
        &self.0.bytes[self.0.start..self.0.end]
    }

    #[inline]
    fn data_mut(&mut self) -> &mut [u8] {
        let Memory { bytes, start, end, .. } = &mut *self.0;
        &mut bytes[*start..*end]
    }

    #[inline]
    fn len_bytes(&self) -> usize {
        self.0.end - self.0.start
    }

    #[inline]
    fn prepend(&mut self, count: usize) -> Result<&mut [u8], NoRoom> {
        let available_bytes = self.headroom_bytes();
        if count > available_bytes {
            return Err(NoRoom { wanted_bytes: count, available_bytes, side: Room::Headroom });
        }
        self.0.start -= count;
        Ok(self.data_mut())
    }

    #[inline]
    fn append(&mut self, count: usize) -> Result<&mut [u8], NoRoom> {
        let available_bytes = self.tailroom_bytes();
        if count > available_bytes {
            return Err(NoRoom { wanted_bytes: count, available_bytes, side: Room::Tailroom });
        }
        let from = self.0.end;
        self.0.end += count;
        let Memory { bytes, end, .. } = &mut *self.0;
        Ok(&mut bytes[from..*end])
    }

    #[inline]
    fn trim_front(&mut self, count: usize) -> Result<(), NoRoom> {
        let available_bytes = self.len_bytes();
        if count > available_bytes {
            return Err(NoRoom { wanted_bytes: count, available_bytes, side: Room::Data });
        }
        self.0.start += count;
        Ok(())
    }

    #[inline]
    fn truncate(&mut self, len_bytes: usize) {
        if len_bytes < self.len_bytes() {
            self.0.end = self.0.start + len_bytes;
        }
    }

    fn copied(&self, offset_bytes: usize, len_bytes: usize) -> Option<Self> {
        let bytes = self.data().get(offset_bytes..offset_bytes.checked_add(len_bytes)?)?;
        if bytes.is_empty() || !self.0.has_copies {
            return None;
        }
        let mut copy = Self::new(bytes);
        copy.0.metadata = self.0.metadata;
        copy.0.ingress = self.0.ingress;
        copy.0.timestamp_ns = self.0.timestamp_ns;
        Some(copy)
    }

    #[inline]
    fn metadata(&self) -> [u8; 8] {
        self.0.metadata
    }

    #[inline]
    fn set_metadata(&mut self, metadata: [u8; 8]) {
        self.0.metadata = metadata;
    }

    #[inline]
    fn ingress(&self) -> Option<PortId> {
        self.0.ingress
    }

    #[inline]
    fn timestamp_ns(&self) -> Option<u64> {
        self.0.timestamp_ns
    }
}

impl std::fmt::Debug for MemPacket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemPacket")
            .field("data", &format_args!("{:02x?}", self.data()))
            .field("headroom_bytes", &self.headroom_bytes())
            .field("tailroom_bytes", &self.tailroom_bytes())
            .field("timestamp_ns", &self.0.timestamp_ns)
            .finish_non_exhaustive()
    }
}

impl From<Vec<u8>> for MemPacket {
    fn from(data: Vec<u8>) -> Self {
        Self::new(&data)
    }
}

impl From<&[u8]> for MemPacket {
    fn from(data: &[u8]) -> Self {
        Self::new(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_and_shrinks_within_its_room() {
        let mut packet = MemPacket::with_room(&[1, 2, 3], 2, 1).received_at(9);
        assert_eq!(packet.timestamp_ns(), Some(9));
        let front = packet.prepend(2).unwrap();
        front[..2].copy_from_slice(&[8, 9]);
        assert_eq!(front, [8, 9, 1, 2, 3]);
        packet.append(1).unwrap()[0] = 4;
        assert_eq!(packet.data(), [8, 9, 1, 2, 3, 4]);
        assert_eq!(
            (packet.len_bytes(), packet.headroom_bytes(), packet.tailroom_bytes()),
            (6, 0, 0)
        );

        packet.trim_front(5).unwrap();
        assert_eq!(packet.data(), [4]);
        packet.truncate(2);
        assert_eq!(packet.data(), [4]);
        packet.truncate(0);
        assert_eq!((packet.data(), packet.tailroom_bytes()), (&[][..], 1));
    }

    #[test]
    fn refuses_what_there_is_no_room_for_and_stays_as_it_was() {
        let mut packet = MemPacket::with_room(&[1, 2, 3], 2, 1);
        for (error, side, available_bytes) in [
            (packet.prepend(3).unwrap_err(), Room::Headroom, 2),
            (packet.append(2).unwrap_err(), Room::Tailroom, 1),
            (packet.trim_front(4).unwrap_err(), Room::Data, 3),
        ] {
            assert_eq!((error.side, error.available_bytes), (side, available_bytes));
            assert_eq!(error.wanted_bytes, available_bytes + 1);
        }
        assert_eq!(packet.data(), [1, 2, 3]);
    }

    #[test]
    fn metadata_travels_with_the_packet() {
        let mut packet = MemPacket::new(&[]);
        packet.set_metadata([1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(packet.clone().metadata(), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(size_of::<MemPacket>(), size_of::<usize>());
    }

    #[test]
    fn a_copy_is_a_packet_of_its_own() {
        let port = PortId::new(3);
        let mut packet =
            MemPacket::with_room(&[1, 2, 3, 4], 0, 0).received_at(9).with_ingress(port);
        packet.set_metadata(*b"metadata");
        let mut copy = packet.copied(1, 2).unwrap();
        assert_eq!((copy.data(), copy.timestamp_ns()), (&[2, 3][..], Some(9)));
        assert_eq!((&copy.metadata(), copy.headroom_bytes()), (b"metadata", HEADROOM_BYTES));
        assert_eq!((copy.ingress(), MemPacket::new(&[]).ingress()), (Some(port), None));
        copy.data_mut()[0] = 7;
        assert_eq!(packet.data(), [1, 2, 3, 4]);
        assert_eq!(packet.copied(0, 4).unwrap().data(), packet.data());
        for (offset_bytes, len_bytes) in [(0, 5), (4, 1), (5, 0), (0, 0), (usize::MAX, 2)] {
            assert!(packet.copied(offset_bytes, len_bytes).is_none());
        }
        assert!(packet.without_copies().copied(0, 1).is_none());
    }
}
