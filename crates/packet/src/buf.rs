//! The interface to a packet's memory.

/// A packet in memory: DPDK's mbuf, or plain memory in tests.
///
/// A packet lies in one or more segments. [`data`](Self::data) is the first of them, which holds
/// the headers; [`len_bytes`](Self::len_bytes) counts all.
///
/// Each packet carries eight bytes of metadata beside its data. A stage leaves results there for
/// later stages. They are unspecified when a packet arrives.
pub trait PacketBuf: Send {
    /// The bytes of the first segment.
    fn data(&self) -> &[u8];

    /// Addresses of the memory that code reads first when it handles the packet, to be prefetched.
    /// Finding them reads no memory in the packet's header, which another core may have just
    /// written.
    #[inline(always)]
    fn first_places(&self) -> impl Iterator<Item = *const u8>
    where
        Self: Sized,
    {
        std::iter::once(self.data().as_ptr())
    }

    /// The address of memory that is read after [`first_places`](Self::first_places), when a driver
    /// sends or frees the packet, or `None`.
    #[inline(always)]
    fn later_place(&self) -> Option<*const u8>
    where
        Self: Sized,
    {
        None
    }

    /// Drops packets that lie one after the other in memory. Implement this if dropping a batch is
    /// faster than dropping each packet.
    fn drop_all(packets: impl Iterator<Item = Self> + AsRef<[Self]>)
    where
        Self: Sized,
    {
        packets.for_each(drop);
    }

    /// The bytes of the first segment, to be written.
    fn data_mut(&mut self) -> &mut [u8];

    /// Length of the whole packet in bytes, over all segments.
    fn len_bytes(&self) -> usize;

    /// The bytes of each segment, in order. A packet that may have several implements this.
    fn segments(&self) -> impl Iterator<Item = &[u8]>
    where
        Self: Sized,
    {
        std::iter::once(self.data())
    }

    /// Makes the packet `count` bytes longer at its front and returns the whole first segment. The
    /// new bytes have unspecified values.
    ///
    /// # Errors
    /// [`NoRoom`] if the headroom is smaller; the packet is unchanged.
    fn prepend(&mut self, count: usize) -> Result<&mut [u8], NoRoom>;

    /// Makes the packet `count` bytes longer at its end and returns the new bytes, which have
    /// unspecified values.
    ///
    /// # Errors
    /// [`NoRoom`] if the tailroom of the last segment is smaller; the packet is unchanged.
    fn append(&mut self, count: usize) -> Result<&mut [u8], NoRoom>;

    /// Removes `count` bytes from the front of the first segment.
    ///
    /// # Errors
    /// [`NoRoom`] if the first segment is shorter; the packet is unchanged.
    fn trim_front(&mut self, count: usize) -> Result<(), NoRoom>;

    /// Makes the packet `count` bytes longer after its first `offset` bytes, which move into the
    /// headroom, and returns the gap. Its bytes have unspecified values.
    ///
    /// ```
    /// use hotloop_packet::{PacketBuf, memory::MemPacket};
    ///
    /// let mut packet = MemPacket::new(b"front, back");
    /// packet.insert(5, 8)?.copy_from_slice(b", middle");
    /// assert_eq!(packet.data(), b"front, middle, back");
    /// packet.remove(0, 7)?;
    /// assert_eq!(packet.data(), b"middle, back");
    /// # Ok::<(), hotloop_packet::NoRoom>(())
    /// ```
    ///
    /// # Errors
    /// [`NoRoom`] if the headroom is smaller, or if the first segment is shorter than `offset`; the
    /// packet is unchanged.
    #[inline]
    fn insert(&mut self, offset: usize, count: usize) -> Result<&mut [u8], NoRoom> {
        has_first(self.data(), offset)?;
        let bytes = self.prepend(count)?;
        bytes.copy_within(count..count + offset, 0);
        Ok(&mut bytes[offset..offset + count])
    }

    /// Removes `count` bytes after the packet's first `offset` bytes.
    ///
    /// # Errors
    /// [`NoRoom`] if the first segment has fewer bytes than both together; the packet is unchanged.
    #[inline]
    fn remove(&mut self, offset: usize, count: usize) -> Result<(), NoRoom> {
        has_first(self.data(), offset.saturating_add(count))?;
        self.data_mut().copy_within(..offset, count);
        self.trim_front(count)
    }

    /// Cuts the packet to `len_bytes` bytes and frees segments beyond that. A packet that is no
    /// longer than that is unchanged.
    fn truncate(&mut self, len_bytes: usize);

    /// Copies `len_bytes` bytes of this packet, from `offset_bytes` on, over all segments, into a
    /// new packet from the same memory pool. The copy has the headroom of new packets, and this
    /// packet's metadata, ingress port and time of arrival.
    ///
    /// `None` if the pool is exhausted, if the packet has fewer bytes, or if `len_bytes` is 0.
    fn copied(&self, offset_bytes: usize, len_bytes: usize) -> Option<Self>
    where
        Self: Sized;

    /// The eight bytes of metadata.
    fn metadata(&self) -> [u8; 8];

    /// Writes the eight bytes of metadata.
    fn set_metadata(&mut self, metadata: [u8; 8]);

    /// The port that received the packet. `None` for a packet that was created here, or if its
    /// memory does not record the port.
    #[inline(always)]
    fn ingress(&self) -> Option<PortId> {
        None
    }

    /// When the packet was received, in nanoseconds since the epoch, if its source records times,
    /// as capture files do.
    fn timestamp_ns(&self) -> Option<u64>;
}

/// Checks that the first segment has at least `wanted_bytes` bytes.
#[inline]
pub(crate) fn has_first(data: &[u8], wanted_bytes: usize) -> Result<(), NoRoom> {
    let available_bytes = data.len();
    if available_bytes < wanted_bytes {
        return Err(NoRoom { wanted_bytes, available_bytes, side: Room::Data });
    }
    Ok(())
}

/// The number of a port: a packet's [`ingress`](PacketBuf::ingress).
///
/// `hotloop_dpdk::Port::id` returns a port's number.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PortId(u16);

impl PortId {
    /// The id with this number: DPDK counts ports from 0.
    pub const fn new(number: u16) -> Self {
        Self(number)
    }

    /// The number.
    #[inline(always)]
    pub const fn number(self) -> u16 {
        self.0
    }
}

impl std::fmt::Display for PortId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The packet's memory has too little room.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{wanted_bytes} bytes wanted, room for {available_bytes}: {side}")]
pub struct NoRoom {
    /// Number of bytes requested.
    pub wanted_bytes: usize,
    /// Number of bytes available.
    pub available_bytes: usize,
    /// The part of the memory that is too small.
    pub side: Room,
}

/// A part of a packet's memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Room {
    /// The unused bytes before the first segment's data.
    Headroom,
    /// The unused bytes after the last segment's data.
    Tailroom,
    /// The data of the first segment.
    Data,
}

impl std::fmt::Display for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Headroom => "headroom (ask for more with the mempool)",
            Self::Tailroom => "tailroom (ask for larger buffers with the mempool)",
            Self::Data => "data in the first segment",
        })
    }
}
