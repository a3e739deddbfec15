//! An mbuf as a packet in memory.

use super::HEADROOM_BYTES;
use super::Mbuf;
use super::segment::{Segments, data, data_mut, last, tailroom};
use super::shared::copy_part;
use crate::timestamp;
use hotloop_dpdk_sys as sys;
use hotloop_packet::{NoRoom, PacketBuf, PortId, Room};
use std::mem::offset_of;
use std::ptr;

/// Nanoseconds per unit of net_pcap's timestamps.
const NS_PER_US: u64 = 1000;

impl PacketBuf for Mbuf {
    /// The header, and the data's start in a fresh mbuf of the pool: computed from the address, so
    /// that nothing waits for the header.
    #[inline(always)]
    fn first_places(&self) -> impl Iterator<Item = *const u8> {
        let header = self.raw.as_ptr().cast_const().cast::<u8>();
        let data = header.wrapping_add(size_of::<sys::RawMbuf>() + usize::from(HEADROOM_BYTES));
        [header, data].into_iter()
    }

    /// The link to the next segment, in the second cache line of the header: drivers read it to free the mbuf.
    #[inline(always)]
    fn later_place(&self) -> Option<*const u8> {
        let next = self.raw.as_ptr().wrapping_byte_add(offset_of!(sys::RawMbuf, next));
        Some(next.cast_const().cast())
    }

    #[inline]
    fn drop_all(packets: impl Iterator<Item = Self> + AsRef<[Self]>) {
        super::free::all(packets);
    }

    #[inline(always)]
    fn data(&self) -> &[u8] {
        data(self.head())
    }

    #[inline(always)]
    fn data_mut(&mut self) -> &mut [u8] {
        data_mut(self.head_mut())
    }

    #[inline(always)]
    fn len_bytes(&self) -> usize {
        self.head().pkt_len as usize
    }

    #[inline]
    fn segments(&self) -> impl Iterator<Item = &[u8]> {
        // SAFETY: 1. The chain is valid: invariants 1 and 3. 2. It doesn't change while `self` is
        // borrowed: invariant 2.
        unsafe { Segments::new(self.raw) }
    }

    #[inline]
    fn prepend(&mut self, count: usize) -> Result<&mut [u8], NoRoom> {
        let head = self.head_mut();
        let available = usize::from(head.data_off);
        if count > available {
            return Err(no_room(count, available, Room::Headroom));
        }
        head.data_off -= count as u16;
        head.data_len += count as u16;
        head.pkt_len += count as u32;
        Ok(data_mut(head))
    }

    #[inline]
    fn append(&mut self, count: usize) -> Result<&mut [u8], NoRoom> {
        let segment = last(self.head_mut());
        let available = tailroom(segment);
        if count > available {
            return Err(no_room(count, available, Room::Tailroom));
        }
        segment.data_len += count as u16;
        self.head_mut().pkt_len += count as u32;
        let data = data_mut(last(self.head_mut()));
        let start = data.len() - count;
        Ok(&mut data[start..])
    }

    #[inline]
    fn trim_front(&mut self, count: usize) -> Result<(), NoRoom> {
        let head = self.head_mut();
        let available = usize::from(head.data_len);
        if count > available {
            return Err(no_room(count, available, Room::Data));
        }
        head.data_off += count as u16;
        head.data_len -= count as u16;
        head.pkt_len -= count as u32;
        Ok(())
    }

    #[inline]
    fn truncate(&mut self, len_bytes: usize) {
        let head = self.head_mut();
        if len_bytes >= head.pkt_len as usize {
            return;
        }
        if head.next.is_null() {
            head.data_len = at_most(head.data_len, len_bytes);
            head.pkt_len = u32::from(head.data_len);
        } else {
            truncate_chain(self, len_bytes);
        }
    }

    /// Copies into fresh mbufs of the pool of this packet's first segment.
    fn copied(&self, offset_bytes: usize, len_bytes: usize) -> Option<Self> {
        let end = offset_bytes.checked_add(len_bytes)?;
        if len_bytes == 0 || end > self.len_bytes() {
            return None;
        }
        // Both fit 32 bits, as the packet's own length does.
        let (offset_bytes, len_bytes) = (offset_bytes as u32, len_bytes as u32);
        // SAFETY: 1. The chain is valid: invariants 1 and 3 of `Mbuf`. 2. While `self` is borrowed,
        // nobody changes it: invariant 2.
        unsafe { copy_part(self.raw, offset_bytes, len_bytes) }
    }

    #[inline(always)]
    fn metadata(&self) -> [u8; 8] {
        self.head().hash
    }

    #[inline(always)]
    fn set_metadata(&mut self, metadata: [u8; 8]) {
        self.head_mut().hash = metadata;
    }

    /// Ids are reused after a port was closed, so a packet that outlives its port may have the id
    /// of another.
    #[inline(always)]
    fn ingress(&self) -> Option<PortId> {
        let port = self.head().port;
        (port != sys::SH_MBUF_PORT_INVALID).then_some(PortId::new(port))
    }

    /// The time that net_pcap reads from its file, to the microsecond.
    #[inline]
    fn timestamp_ns(&self) -> Option<u64> {
        let (offset, flag) = timestamp::place();
        let head = ptr::from_ref(self.head());
        if self.head().ol_flags & flag == 0 {
            return None;
        }
        // SAFETY: 1. `timestamp_place`: eight bytes at that offset lie within the mbuf, as
        // `register_timestamp` checked.
        let field = unsafe { head.byte_add(offset) }.cast::<u64>();
        // SAFETY: 1. As above. 2. Nobody else writes to memory that this value owns: invariant 2 of
        // `Mbuf`.
        // 3. An mbuf's header is initialised: DPDK zeroed it when it made the pool.
        let time_us = unsafe { field.read_unaligned() };
        Some(time_us.saturating_mul(NS_PER_US))
    }
}

impl Mbuf {
    /// Joins the segments into the first one, if its tailroom suffices. The packet's bytes don't
    /// change.
    ///
    /// # Errors
    /// [`NoRoom`] if the first segment's tailroom is smaller than the others' data; the packet is
    /// unchanged.
    pub fn linearize(&mut self) -> Result<(), NoRoom> {
        let len_bytes = self.len_bytes();
        let head = self.head_mut();
        let rest_bytes = len_bytes - usize::from(head.data_len);
        if head.next.is_null() {
            return Ok(());
        }
        if rest_bytes > tailroom(head) {
            return Err(no_room(rest_bytes, tailroom(head), Room::Tailroom));
        }
        let Some(rest) = detach(head) else { return Ok(()) };
        let mut end = usize::from(head.data_len);
        head.nb_segs = 1;
        head.data_len = len_bytes as u16;
        head.pkt_len = len_bytes as u32;
        let data = data_mut(head);
        for segment in rest.segments() {
            data[end..end + segment.len()].copy_from_slice(segment);
            end += segment.len();
        }
        Ok(())
    }
}

/// Cuts a chain that is longer than `len_bytes`.
#[cold]
fn truncate_chain(mbuf: &mut Mbuf, len_bytes: usize) {
    let (mut left, mut count) = (len_bytes, 1);
    let mut segment = &mut *mbuf.head_mut();
    while left > usize::from(segment.data_len) && !segment.next.is_null() {
        left -= usize::from(segment.data_len);
        count += 1;
        // SAFETY: 1. The pointer is not null, so it is the next segment of a valid chain: invariant
        // 1 of `Mbuf`. 2. The one reference to the head stands for the whole chain: invariant 2.
        segment = unsafe { &mut *segment.next };
    }
    segment.data_len = at_most(segment.data_len, left);
    drop(detach(segment));
    let head = mbuf.head_mut();
    head.nb_segs = count;
    // Less than the old `pkt_len`.
    head.pkt_len = len_bytes as u32;
}

/// The smaller of the two.
#[inline(always)]
fn at_most(data_len: u16, len_bytes: usize) -> u16 {
    usize::from(data_len).min(len_bytes) as u16
}

/// Detaches the segments after this one from an `Mbuf`'s chain. The caller must update the head's
/// count and length.
fn detach(segment: &mut sys::RawMbuf) -> Option<Mbuf> {
    let mut next = ptr::NonNull::new(std::mem::replace(&mut segment.next, ptr::null_mut()))?;
    let (mut count, mut len_bytes, mut last) = (0, 0, next.as_ptr());
    while !last.is_null() {
        // SAFETY: 1. A segment of the chain of an `Mbuf`: its invariant 1. 2. The chain is only
        // reached through the caller's exclusive reference, and no longer through that.
        let segment = unsafe { &*last };
        (count, len_bytes) = (count + 1, len_bytes + u32::from(segment.data_len));
        last = segment.next;
    }
    // SAFETY: 1 and 2. As above.
    let head = unsafe { next.as_mut() };
    (head.nb_segs, head.pkt_len) = (count, len_bytes);
    // SAFETY: 1. The segments were the last of an `Mbuf`'s chain: its invariant 1. 2. Only that
    // `Mbuf` owned them, by its invariant 2, and they are detached from it. 3. Each fits its
    // buffer, by its invariant 3; count and length were set to those of the chain.
    Some(unsafe { Mbuf::from_raw(next) })
}

const fn no_room(wanted_bytes: usize, available_bytes: usize, side: Room) -> NoRoom {
    NoRoom { wanted_bytes, available_bytes, side }
}
