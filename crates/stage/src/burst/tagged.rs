//! An item that is a packet with a tag in its metadata.

use super::{Carries, Drain};
use crate::Instant;
use hotloop_packet::PacketBuf;
use std::marker::PhantomData;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A packet with a value of type `M` in its metadata.
///
/// A value is made by writing the tag, so a stage that takes `Tagged<P, M>` comes after one that
/// has determined it. The tag is in the packet's own memory: the item is no larger than the
/// packet's handle. `M` takes at most eight bytes, and any bytes are a valid `M`: code that
/// overwrites the metadata of [`packet`](Self::packet) leads to a wrong tag, never to an undefined
/// one.
#[derive(Debug)]
#[repr(transparent)]
pub struct Tagged<P, M> {
    /// The packet.
    pub packet: P,
    tag: PhantomData<M>,
}

impl<P: PacketBuf, M: Copy + FromBytes + Immutable + IntoBytes> Tagged<P, M> {
    const TAG_BYTES: usize = {
        assert!(size_of::<M>() <= 8, "a tag takes at most eight bytes");
        size_of::<M>()
    };

    /// Writes `tag` into the packet's metadata.
    #[inline]
    pub fn new(mut packet: P, tag: M) -> Self {
        let mut metadata = [0; 8];
        metadata[..Self::TAG_BYTES].copy_from_slice(tag.as_bytes());
        packet.set_metadata(metadata);
        Self { packet, tag: PhantomData }
    }

    /// Uses the packet's present metadata as the tag: for a packet that has its tag already, or
    /// gets it before [`tag`](Self::tag) is called.
    #[inline(always)]
    pub const fn assume(packet: P) -> Self {
        Self { packet, tag: PhantomData }
    }

    /// Reads the tag.
    #[inline]
    pub fn tag(&self) -> M {
        let metadata = self.packet.metadata();
        M::read_from_bytes(&metadata[..Self::TAG_BYTES]).expect("TAG_BYTES is the size of the type")
    }
}

impl<P: PacketBuf, M: Send> Carries for Tagged<P, M> {
    fn bytes(&self) -> &[u8] {
        self.packet.data()
    }

    #[inline]
    fn total_bytes(&self) -> usize {
        self.packet.len_bytes()
    }

    fn each_segment(&self, take: &mut dyn FnMut(&[u8])) {
        self.packet.each_segment(take);
    }

    #[inline]
    fn arrival(&self) -> Option<Instant> {
        self.packet.arrival()
    }

    #[inline(always)]
    fn prefetch(&self, is_ahead: bool) {
        self.packet.prefetch(is_ahead);
    }

    #[inline]
    fn drop_all(packets: Drain<'_, Self>) {
        <P as PacketBuf>::drop_all(packets.untagged());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop_packet::memory::MemPacket;

    #[test]
    fn a_tag_travels_in_the_packet() {
        let packet = Tagged::new(MemPacket::new(&[1, 2, 3]), 0x0102_0304_u32);
        assert_eq!(packet.tag(), 0x0102_0304);
        assert_eq!(packet.bytes(), [1, 2, 3]);
        assert_eq!(size_of::<Tagged<MemPacket, u64>>(), size_of::<MemPacket>());
    }
}
