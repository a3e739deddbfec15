//! The packet inside an item of a burst.

use super::Drain;
use crate::Instant;
use hotloop_packet::PacketBuf;
use hotloop_ring::prefetch;

/// The packet inside an item, for code that looks at packets on their way: a capture of drops reads
/// it. Items are [`Send`]: a boundary moves them to other cores.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no item of a graph",
    label = "a packet, or an item that implements `Carries`, belongs here"
)]
pub trait Carries: Send {
    /// The bytes of the packet's first segment.
    fn bytes(&self) -> &[u8];

    /// The length of the whole packet in bytes, over all segments. A type with packets of several
    /// segments implements this and [`each_segment`](Self::each_segment).
    fn total_bytes(&self) -> usize {
        self.bytes().len()
    }

    /// Calls `take` with the bytes of each segment, in order.
    fn each_segment(&self, take: &mut dyn FnMut(&[u8])) {
        take(self.bytes());
    }

    /// The time of reception, if the packet's device records it. The engine's capture clock uses
    /// it.
    fn arrival(&self) -> Option<Instant> {
        None
    }

    /// Starts fetching the data that a stage reads first into the cache, without waiting. If
    /// `is_ahead` is true, other packets are processed meanwhile, so there is time to fetch data
    /// that is read later, too. An item that carries a [`PacketBuf`] forwards this call to the
    /// packet, which may know the addresses without reading its header.
    #[inline(always)]
    fn prefetch(&self, is_ahead: bool) {
        let _ = is_ahead;
        prefetch(self.bytes().as_ptr());
    }

    /// Drops packets. An item that carries a [`PacketBuf`] collects the packets in a
    /// [`Burst`](crate::Burst) and clears it, which may be faster than dropping them one by one.
    fn drop_all(packets: Drain<'_, Self>)
    where
        Self: Sized,
    {
        packets.for_each(drop);
    }
}

impl<P: PacketBuf> Carries for P {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self.data()
    }

    #[inline]
    fn total_bytes(&self) -> usize {
        self.len_bytes()
    }

    fn each_segment(&self, take: &mut dyn FnMut(&[u8])) {
        self.segments().for_each(take);
    }

    #[inline]
    fn arrival(&self) -> Option<Instant> {
        self.timestamp_ns().map(Instant::from_ns)
    }

    #[inline(always)]
    fn prefetch(&self, is_ahead: bool) {
        self.first_places().for_each(prefetch);
        if is_ahead {
            self.later_place().into_iter().for_each(prefetch);
        }
    }

    #[inline]
    fn drop_all(packets: Drain<'_, Self>) {
        <P as PacketBuf>::drop_all(packets);
    }
}
