//! A packet in plain memory that costs as little as an mbuf does.

use hotloop::packet::{NoRoom, PacketBuf, PortId, Room};
use std::mem::offset_of;

/// Bytes before a packet's data, like those of a fresh mbuf.
pub const HEADROOM_BYTES: usize = 128;

/// Size of a buffer with headroom: an odd number of lines, so that consecutive packets don't share
/// a few sets of the cache.
const BUFFER_BYTES: usize = 2048 + 128;

/// Stands for no port's number.
const NO_PORT: u16 = u16::MAX;

/// A packet in a buffer of its own: one segment, and like an mbuf a pointer to two lines with its
/// fields, and the bytes after them.
#[derive(Debug)]
pub struct Buffer(Box<Memory>);

#[derive(Debug)]
#[repr(C, align(64))]
struct Memory {
    /// Start of the data. Invariant: `start <= end`.
    start: usize,
    /// End of the data. Invariant: `end <= BUFFER_BYTES`.
    end: usize,
    metadata: [u8; 8],
    /// The port that received the packet, as in an mbuf, or [`NO_PORT`].
    ingress: u16,
    rest: [u8; 38],
    bytes: [u8; BUFFER_BYTES],
}

impl Buffer {
    /// An empty packet.
    #[must_use]
    pub fn new() -> Self {
        Self(Box::new(Memory {
            start: HEADROOM_BYTES,
            end: HEADROOM_BYTES,
            metadata: [0; 8],
            ingress: NO_PORT,
            rest: [0; 38],
            bytes: [0; BUFFER_BYTES],
        }))
    }

    /// Makes this a packet of `len_bytes` bytes after the headroom. Returns its first bytes to
    /// write; the rest has unspecified values.
    ///
    /// # Panics
    /// If there is no room for `len_bytes`.
    #[inline(always)]
    pub fn begin<const N: usize>(&mut self, len_bytes: usize) -> &mut [u8; N] {
        assert!(N <= len_bytes && len_bytes <= BUFFER_BYTES - HEADROOM_BYTES, "no such packet");
        self.0.start = HEADROOM_BYTES;
        self.0.end = HEADROOM_BYTES + len_bytes;
        self.0.bytes[HEADROOM_BYTES..].first_chunk_mut().expect("it has room for as many")
    }

    /// Sets the receiving port.
    #[inline(always)]
    pub fn set_ingress(&mut self, port: PortId) {
        self.0.ingress = port.number();
    }

    fn no_room(wanted_bytes: usize, available_bytes: usize, side: Room) -> NoRoom {
        NoRoom { wanted_bytes, available_bytes, side }
    }
}

impl Default for Buffer {
    fn default() -> Self {
        Self::new()
    }
}

impl PacketBuf for Buffer {
    /// As for an mbuf: the header, and the data's start in a fresh buffer, computed from the
    /// address.
    #[inline(always)]
    fn first_places(&self) -> impl Iterator<Item = *const u8> {
        let header = (&raw const *self.0).cast::<u8>();
        let data = header.wrapping_add(offset_of!(Memory, bytes) + HEADROOM_BYTES);
        [header, data].into_iter()
    }

    #[inline(always)]
    fn data(&self) -> &[u8] {
        let Memory { start, end, bytes, .. } = &*self.0;
        // SAFETY: 1. `start <= end <= BUFFER_BYTES`.
        unsafe { bytes.get_unchecked(*start..*end) }
    }

    #[inline(always)]
    fn data_mut(&mut self) -> &mut [u8] {
        let Memory { start, end, bytes, .. } = &mut *self.0;
        // SAFETY: 1. `start <= end <= BUFFER_BYTES`.
        unsafe { bytes.get_unchecked_mut(*start..*end) }
    }

    #[inline(always)]
    fn len_bytes(&self) -> usize {
        self.0.end - self.0.start
    }

    #[inline]
    fn prepend(&mut self, count: usize) -> Result<&mut [u8], NoRoom> {
        let available = self.0.start;
        if count > available {
            return Err(Self::no_room(count, available, Room::Headroom));
        }
        self.0.start -= count;
        Ok(self.data_mut())
    }

    #[inline]
    fn append(&mut self, count: usize) -> Result<&mut [u8], NoRoom> {
        let available = BUFFER_BYTES - self.0.end;
        if count > available {
            return Err(Self::no_room(count, available, Room::Tailroom));
        }
        let from = self.0.end;
        self.0.end += count;
        Ok(&mut self.0.bytes[from..from + count])
    }

    #[inline]
    fn trim_front(&mut self, count: usize) -> Result<(), NoRoom> {
        let available = self.len_bytes();
        if count > available {
            return Err(Self::no_room(count, available, Room::Data));
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
        let mut copy = Self::new();
        copy.append(bytes.len()).ok()?.copy_from_slice(bytes);
        copy.set_metadata(self.metadata());
        Some(copy)
    }

    #[inline(always)]
    fn metadata(&self) -> [u8; 8] {
        self.0.metadata
    }

    #[inline(always)]
    fn set_metadata(&mut self, metadata: [u8; 8]) {
        self.0.metadata = metadata;
    }

    #[inline(always)]
    fn ingress(&self) -> Option<PortId> {
        let port = self.0.ingress;
        (port != NO_PORT).then_some(PortId::new(port))
    }

    #[inline(always)]
    fn timestamp_ns(&self) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_and_its_ends_hold() {
        let mut buffer = Buffer::new();
        for _ in 0..2 {
            *buffer.begin(60) = [1, 2, 3];
            assert_eq!((&buffer.data()[..3], buffer.len_bytes()), (&[1, 2, 3][..], 60));
            buffer.prepend(HEADROOM_BYTES).unwrap()[..HEADROOM_BYTES].fill(7);
            assert_eq!(buffer.prepend(1).unwrap_err().available_bytes, 0);
            buffer.trim_front(HEADROOM_BYTES + 1).unwrap();
            assert_eq!(buffer.copied(0, 2).unwrap().data(), [2, 3]);
            buffer.truncate(2);
            let tailroom = buffer.append(3000).unwrap_err().available_bytes;
            buffer.append(tailroom).unwrap();
            assert!(buffer.append(1).is_err() && buffer.trim_front(3000).is_err());
        }
    }
}
