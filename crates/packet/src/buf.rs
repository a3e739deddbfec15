//! What a network function needs of a packet's memory.

/// A packet in memory: DPDK's mbuf, or plain memory in tests.
///
/// A packet lies in one or more segments. [`data`](Self::data) is the first of them, which is where
/// headers are; [`len_bytes`](Self::len_bytes) counts all.
///
/// Each packet carries eight bytes of metadata beside its data, in which a stage leaves what it
/// found for later stages. They hold anything when a packet arrives.
pub trait PacketBuf {
    /// The bytes of the first segment.
    fn data(&self) -> &[u8];

    /// Addresses of what code that is handed the packet reads first, for it to be fetched into the cache early. None is
    /// read to find them out where the packet's header lies in memory that another core has just written.
    #[inline(always)]
    fn first_places(&self) -> impl Iterator<Item = *const u8>
    where
        Self: Sized,
    {
        std::iter::once(self.data().as_ptr())
    }

    /// The address of memory that is read later than that of [`first_places`](Self::first_places), when a driver sends or
    /// frees the packet, or `None`.
    #[inline(always)]
    fn later_place(&self) -> Option<*const u8>
    where
        Self: Sized,
    {
        None
    }

    /// Drops packets, which lie one after the other in memory. A kind of packet for which that is faster together than
    /// one by one implements this.
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
    /// new bytes hold anything.
    ///
    /// # Errors
    /// [`NoRoom`] if the headroom is smaller; the packet is as it was.
    fn prepend(&mut self, count: usize) -> Result<&mut [u8], NoRoom>;

    /// Makes the packet `count` bytes longer at its end and returns the new bytes, which hold
    /// anything.
    ///
    /// # Errors
    /// [`NoRoom`] if the tailroom of the last segment is smaller; the packet is as it was.
    fn append(&mut self, count: usize) -> Result<&mut [u8], NoRoom>;

    /// Takes `count` bytes off the front of the first segment.
    ///
    /// # Errors
    /// [`NoRoom`] if the first segment is shorter; the packet is as it was.
    fn trim_front(&mut self, count: usize) -> Result<(), NoRoom>;

    /// Cuts the packet to `len_bytes` bytes; a packet that is no longer stays as it is. Segments
    /// that fall away are freed.
    fn truncate(&mut self, len_bytes: usize);

    /// A new packet that holds `len_bytes` bytes of this one, from `offset_bytes` on, over all
    /// segments. It comes from where this packet's memory came from, has the headroom that new
    /// packets have, and this one's metadata, ingress port and time of arrival.
    ///
    /// `None` if that memory has run out, if there are fewer bytes, and if `len_bytes` is 0.
    fn copied(&self, offset_bytes: usize, len_bytes: usize) -> Option<Self>
    where
        Self: Sized;

    /// The eight bytes of metadata.
    fn metadata(&self) -> [u8; 8];

    /// Writes the eight bytes of metadata.
    fn set_metadata(&mut self, metadata: [u8; 8]);

    /// The port that received the packet. `None` for a packet that was created here, and where its
    /// memory does not know.
    #[inline(always)]
    fn ingress(&self) -> Option<PortId> {
        None
    }

    /// When the packet was received, in nanoseconds since the epoch, where its device says so: a
    /// capture file does.
    fn timestamp_ns(&self) -> Option<u64>;
}

/// The number of a port, by which a packet knows the one that [received](PacketBuf::ingress) it.
///
/// `hotloop_dpdk::Port::id` returns that of a port.
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
    /// The number of bytes that were wanted.
    pub wanted_bytes: usize,
    /// The number of bytes that there are.
    pub available_bytes: usize,
    /// Which room it is.
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
