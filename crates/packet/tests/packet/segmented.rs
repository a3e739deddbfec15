//! A packet of two segments that counts its copies.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use hotloop_packet::{NoRoom, PacketBuf, memory::MemPacket};

/// Two segments; the headers are in the first. Counts how many copies may still be made of the
/// packet and of its copies.
#[derive(Clone, Debug)]
pub struct Segmented {
    first: MemPacket,
    rest: Vec<u8>,
    copies_left: Arc<AtomicUsize>,
}

impl Segmented {
    /// Puts the first `first_bytes` bytes of a frame into the first segment.
    pub fn new(frame: &[u8], first_bytes: usize) -> Self {
        let (first, rest) = frame.split_at(first_bytes.min(frame.len()));
        let copies_left = Arc::new(AtomicUsize::new(usize::MAX));
        Self { first: MemPacket::new(first), rest: rest.to_vec(), copies_left }
    }

    pub fn with_copies(self, count: usize) -> Self {
        self.copies_left.store(count, Relaxed);
        self
    }

    /// All bytes of both segments.
    pub fn bytes(&self) -> Vec<u8> {
        [self.first.data(), &self.rest].concat()
    }
}

impl PacketBuf for Segmented {
    fn data(&self) -> &[u8] {
        self.first.data()
    }
    fn data_mut(&mut self) -> &mut [u8] {
        self.first.data_mut()
    }
    fn len_bytes(&self) -> usize {
        self.first.len_bytes() + self.rest.len()
    }
    fn segments(&self) -> impl Iterator<Item = &[u8]> {
        [self.first.data(), &self.rest].into_iter()
    }
    fn prepend(&mut self, count: usize) -> Result<&mut [u8], NoRoom> {
        self.first.prepend(count)
    }
    fn append(&mut self, count: usize) -> Result<&mut [u8], NoRoom> {
        self.first.append(count)
    }
    fn trim_front(&mut self, count: usize) -> Result<(), NoRoom> {
        self.first.trim_front(count)
    }
    fn truncate(&mut self, len_bytes: usize) {
        self.rest.truncate(len_bytes.saturating_sub(self.first.len_bytes()));
        self.first.truncate(len_bytes);
    }
    fn copied(&self, offset_bytes: usize, len_bytes: usize) -> Option<Self> {
        let first = MemPacket::new(&self.bytes()).copied(offset_bytes, len_bytes)?;
        let copies_left = self.copies_left.clone();
        copies_left.store(copies_left.load(Relaxed).checked_sub(1)?, Relaxed);
        let mut copy = Self { first, rest: Vec::new(), copies_left };
        copy.set_metadata(self.metadata());
        Some(copy)
    }
    fn metadata(&self) -> [u8; 8] {
        self.first.metadata()
    }
    fn set_metadata(&mut self, metadata: [u8; 8]) {
        self.first.set_metadata(metadata);
    }
    fn timestamp_ns(&self) -> Option<u64> {
        None
    }
}
