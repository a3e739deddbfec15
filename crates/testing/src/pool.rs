//! Packets with an identity, so that lost, forgotten and duplicated ones are found.

use crate::Frame;
use hotloop_packet::memory::{HEADROOM_BYTES, MemPacket, TAILROOM_BYTES};
use hotloop_packet::{NoRoom, PacketBuf, PortId};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Number of data bytes that a buffer holds before it is replaced by a larger one.
const BUFFER_BYTES: usize = 2048;

/// A pool of numbered packets. A packet returns to the pool when it is dropped, and
/// [`check_whole`](Self::check_whole) checks that each number is there exactly once.
///
/// A clone is another handle of the same pool.
///
/// ```
/// use hotloop_testing::{Frame, PacketPool};
///
/// let pool = PacketPool::of(1);
/// let packet = pool.take(&Frame::new([1, 2, 3])).unwrap();
/// assert!(pool.take(&Frame::default()).is_none());
/// assert!(pool.check_whole().is_err());
/// drop(packet);
/// assert!(pool.check_whole().is_ok());
/// ```
#[derive(Clone)]
pub struct PacketPool(Arc<Pool>);

struct Pool {
    count_max: Option<usize>,
    state: Mutex<State>,
}

struct State {
    /// Unused packets. Invariant unless a fault was planted: each index below `made_count` is here
    /// or with one `PooledPacket`.
    #[expect(clippy::vec_box, reason = "a slot keeps its box on its way out and back")]
    home: Vec<Box<Slot>>,
    made_count: usize,
}

struct Slot {
    index: usize,
    memory: MemPacket,
    timestamp_ns: Option<u64>,
    /// The port that received the packet.
    ingress: Option<PortId>,
    /// The pool to return to, while the packet is out.
    pool: Option<Arc<Pool>>,
}

/// A pool with packet numbers that are missing or duplicated.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("of {made_count} packets {} never came back {missing:?}, {} came back twice {doubled:?}",
    missing.len(), doubled.len())]
pub struct NotWhole {
    /// Number of packets that the pool made.
    pub made_count: usize,
    /// The missing numbers.
    pub missing: Vec<usize>,
    /// The duplicated numbers.
    pub doubled: Vec<usize>,
}

impl PacketPool {
    /// A pool of `count` packets, all made now: taking and returning them allocates nothing, as long
    /// as no frame is longer than 2,048 bytes.
    #[must_use]
    pub fn of(count: usize) -> Self {
        let home = (0..count).map(|index| Box::new(Slot::new(index))).collect();
        let state = Mutex::new(State { home, made_count: count });
        Self(Arc::new(Pool { count_max: Some(count), state }))
    }

    /// A pool that makes packets as they are needed.
    #[must_use]
    pub fn unbounded() -> Self {
        let state = Mutex::new(State { home: Vec::new(), made_count: 0 });
        Self(Arc::new(Pool { count_max: None, state }))
    }

    /// A packet that holds the frame's bytes, with 128 bytes of headroom and of tailroom; `None` if
    /// all are out. The metadata is left over from its last user.
    #[must_use]
    pub fn take(&self, frame: &Frame) -> Option<PooledPacket> {
        Pool::take(&self.0, &frame.bytes, frame.timestamp_ns)
    }

    /// Number of packets that are out.
    #[must_use]
    pub fn out_count(&self) -> usize {
        let state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.made_count.saturating_sub(state.home.len())
    }

    /// Checks that every packet is in the pool exactly once.
    ///
    /// # Errors
    /// The numbers that are missing or duplicated. A count would not detect one of each.
    pub fn check_whole(&self) -> Result<(), NotWhole> {
        let state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut seen_counts = vec![0_usize; state.made_count];
        for slot in &state.home {
            seen_counts[slot.index] += 1;
        }
        let numbers = |wanted: fn(usize) -> bool| {
            (0..state.made_count).filter(|&index| wanted(seen_counts[index])).collect::<Vec<_>>()
        };
        let (missing, doubled) = (numbers(|count| count == 0), numbers(|count| count > 1));
        if missing.is_empty() && doubled.is_empty() {
            return Ok(());
        }
        Err(NotWhole { made_count: state.made_count, missing, doubled })
    }
}

impl Pool {
    fn take(this: &Arc<Self>, bytes: &[u8], timestamp_ns: Option<u64>) -> Option<PooledPacket> {
        let mut slot = this.slot()?;
        slot.fill(bytes, timestamp_ns);
        slot.pool = Some(Arc::clone(this));
        Some(PooledPacket { slot: Some(slot) })
    }

    fn slot(&self) -> Option<Box<Slot>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = state.home.pop() {
            return Some(slot);
        }
        if self.count_max.is_some() {
            return None;
        }
        let index = state.made_count;
        state.made_count += 1;
        Some(Box::new(Slot::new(index)))
    }
}

impl Slot {
    fn new(index: usize) -> Self {
        let memory = MemPacket::with_room(&[], HEADROOM_BYTES, BUFFER_BYTES + TAILROOM_BYTES);
        Self { index, memory, timestamp_ns: None, ingress: None, pool: None }
    }

    /// Copies these bytes into the packet's data, in the same memory if that is large enough.
    fn fill(&mut self, bytes: &[u8], timestamp_ns: Option<u64>) {
        (self.timestamp_ns, self.ingress) = (timestamp_ns, None);
        let memory = &mut self.memory;
        let room_bytes = memory.headroom_bytes() + memory.len_bytes() + memory.tailroom_bytes();
        if room_bytes < HEADROOM_BYTES + bytes.len() + TAILROOM_BYTES {
            *memory = MemPacket::with_room(bytes, HEADROOM_BYTES, TAILROOM_BYTES);
            return;
        }
        let fits = "each step asks for room that is there";
        memory.prepend(memory.headroom_bytes()).expect(fits);
        memory.append(memory.tailroom_bytes()).expect(fits);
        memory.trim_front(HEADROOM_BYTES).expect(fits);
        memory.truncate(bytes.len());
        memory.data_mut().copy_from_slice(bytes);
    }
}

/// A packet of a [`PacketPool`], to which it returns when dropped.
pub struct PooledPacket {
    /// `None` only once `drop` has begun.
    slot: Option<Box<Slot>>,
}

impl PooledPacket {
    /// The packet's number in its pool.
    #[must_use]
    pub fn index(&self) -> usize {
        self.slot().index
    }

    /// The frame, as it would be sent now.
    #[must_use]
    pub(crate) fn to_frame(&self) -> Frame {
        Frame { bytes: self.data().to_vec(), timestamp_ns: self.timestamp_ns() }
    }

    /// A second packet with the same number, like two owners of one buffer: a planted fault, which
    /// [`PacketPool::check_whole`] finds once both have returned.
    #[must_use]
    pub fn doubled(&self) -> Self {
        let Slot { index, ref memory, timestamp_ns, ingress, ref pool } = *self.slot();
        let (memory, pool) = (memory.clone(), pool.clone());
        let slot = Slot { index, memory, timestamp_ns, ingress, pool };
        Self { slot: Some(Box::new(slot)) }
    }

    /// Sets the port that received the packet.
    pub(crate) fn set_ingress(&mut self, ingress: Option<PortId>) {
        self.slot.as_mut().expect("there until dropped").ingress = ingress;
    }

    fn slot(&self) -> &Slot {
        self.slot.as_ref().expect("there until dropped")
    }

    fn memory_mut(&mut self) -> &mut MemPacket {
        &mut self.slot.as_mut().expect("there until dropped").memory
    }
}

impl Drop for PooledPacket {
    fn drop(&mut self) {
        let Some(mut slot) = self.slot.take() else { return };
        let Some(pool) = slot.pool.take() else { return };
        pool.state.lock().unwrap_or_else(PoisonError::into_inner).home.push(slot);
    }
}

impl PacketBuf for PooledPacket {
    fn data(&self) -> &[u8] {
        self.slot().memory.data()
    }

    fn data_mut(&mut self) -> &mut [u8] {
        self.memory_mut().data_mut()
    }

    fn len_bytes(&self) -> usize {
        self.slot().memory.len_bytes()
    }

    fn prepend(&mut self, count: usize) -> Result<&mut [u8], NoRoom> {
        self.memory_mut().prepend(count)
    }

    fn append(&mut self, count: usize) -> Result<&mut [u8], NoRoom> {
        self.memory_mut().append(count)
    }

    fn trim_front(&mut self, count: usize) -> Result<(), NoRoom> {
        self.memory_mut().trim_front(count)
    }

    fn truncate(&mut self, len_bytes: usize) {
        self.memory_mut().truncate(len_bytes);
    }

    /// Another packet of the pool; `None` if all are out.
    fn copied(&self, offset_bytes: usize, len_bytes: usize) -> Option<Self> {
        let bytes = self.data().get(offset_bytes..offset_bytes.checked_add(len_bytes)?)?;
        let pool = self.slot().pool.as_ref().filter(|_| !bytes.is_empty())?;
        let mut copy = Pool::take(pool, bytes, self.timestamp_ns())?;
        copy.set_metadata(self.metadata());
        Some(copy)
    }

    fn metadata(&self) -> [u8; 8] {
        self.slot().memory.metadata()
    }

    fn set_metadata(&mut self, metadata: [u8; 8]) {
        self.memory_mut().set_metadata(metadata);
    }

    fn ingress(&self) -> Option<PortId> {
        self.slot().ingress
    }

    fn timestamp_ns(&self) -> Option<u64> {
        self.slot().timestamp_ns
    }
}

impl fmt::Debug for PooledPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slot = self.slot();
        f.debug_struct("PooledPacket")
            .field("index", &slot.index)
            .field("memory", &slot.memory)
            .field("timestamp_ns", &slot.timestamp_ns)
            .finish()
    }
}

impl fmt::Debug for PacketPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketPool")
            .field("count_max", &self.0.count_max)
            .field("out_count", &self.out_count())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_used_again_holds_the_new_frame_and_full_headroom() {
        let pool = PacketPool::of(1);
        for frame in [
            Frame::new(vec![7; 60]).captured_at(5),
            Frame::new(vec![]),
            Frame::new(vec![8; 9000]),
            Frame::new(vec![9; 2048]),
        ] {
            let mut packet = pool.take(&frame).unwrap();
            assert_eq!(packet.to_frame(), frame);
            packet.prepend(HEADROOM_BYTES).unwrap();
            assert!(packet.prepend(1).is_err());
            packet.append(TAILROOM_BYTES).unwrap();
            packet.trim_front(100).unwrap();
        }
        assert_eq!(pool.check_whole(), Ok(()));
    }

    #[test]
    fn a_copy_is_another_packet_of_the_pool() {
        let pool = PacketPool::of(2);
        let mut packet = pool.take(&Frame::new([1, 2, 3]).captured_at(9)).unwrap();
        packet.set_metadata(*b"metadata");
        assert!(packet.copied(0, 0).is_none() && packet.copied(1, 3).is_none());
        let copy = packet.copied(1, 2).unwrap();
        assert_eq!((copy.data(), &copy.metadata()), (&[2, 3][..], b"metadata"));
        assert_eq!((copy.timestamp_ns(), copy.index() == packet.index()), (Some(9), false));
        assert!(packet.copied(0, 1).is_none(), "both are out");
        drop((packet, copy));
        assert_eq!(pool.check_whole(), Ok(()));
    }

    #[test]
    fn a_forgotten_packet_is_named() {
        let pool = PacketPool::unbounded();
        let packets: Vec<_> = (0..3).map(|_| pool.take(&Frame::default()).unwrap()).collect();
        assert_eq!(pool.out_count(), 3);
        for packet in packets {
            if packet.index() == 1 { std::mem::forget(packet) } else { drop(packet) }
        }
        let expected = NotWhole { made_count: 3, missing: vec![1], doubled: vec![] };
        assert_eq!(pool.check_whole(), Err(expected));
    }

    #[test]
    fn a_doubled_packet_is_named_though_the_count_is_right() {
        let pool = PacketPool::of(2);
        let (first, second) = (pool.take(&Frame::default()), pool.take(&Frame::default()));
        let (first, second) = (first.unwrap(), second.unwrap());
        let (doubled, missing) = (vec![first.index()], vec![second.index()]);
        drop(first.doubled());
        drop(first);
        std::mem::forget(second);
        assert_eq!(pool.out_count(), 0);
        assert_eq!(pool.check_whole(), Err(NotWhole { made_count: 2, missing, doubled }));
    }

    #[test]
    fn packets_come_home_from_other_threads() {
        let pool = PacketPool::of(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                let packet = pool.take(&Frame::new([1])).unwrap();
                scope.spawn(move || drop(packet));
            }
        });
        assert_eq!(pool.check_whole(), Ok(()));
        assert_eq!(size_of::<PooledPacket>(), 8);
    }
}
