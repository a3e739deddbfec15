//! Checks of the lengths that drivers write into mbufs.
//!
//! Lengths agree if in each segment `data_off + data_len <= buf_len`, and if the head has the
//! chain's number of segments (`nb_segs`) and bytes (`pkt_len`). The rest of this crate relies on
//! that, as DPDK does.

use hotloop_dpdk_sys::RawMbuf;
use std::mem::offset_of;
use std::ptr::NonNull;

/// Whether each of these mbufs is a single segment with lengths that agree. Checks all of them with
/// one comparison of combined fields, so it may return `false` even if they agree.
///
/// # Safety
/// 1. Each pointer is to an mbuf that came fresh from a mempool; since then only its data, the
///    fields that describe it, and links to segments that were counted in `nb_segs` have been
///    written; 2. its buffer has `buffer_bytes`. 3. Nobody writes to it meanwhile.
#[inline(always)]
pub(crate) unsafe fn agree_in_burst(heads: &[NonNull<RawMbuf>], buffer_bytes: u32) -> bool {
    let (mut unequal, mut lengths, mut fields) = (0, 0, 0);
    let mut add = |head: NonNull<RawMbuf>| {
        // SAFETY: 1. An mbuf's header is initialised, by premise 1. 2. Nobody writes, by premise 3.
        let header = unsafe { head.as_ref() };
        let data_len = u32::from(header.data_len);
        lengths |= data_len;
        unequal |= header.pkt_len ^ data_len;
        // SAFETY: 1. The eight bytes lie in the header: `FIELDS`.
        let four = unsafe { head.byte_add(FIELDS) }.cast::<u64>();
        // SAFETY: 1. As above, and they are aligned: `FIELDS`. 2. Nobody changes the refcnt among
        // them, as nobody else knows the mbuf.
        fields |= unsafe { four.read() };
    };
    // Four at a time: a loop over single ones would cost a third of the total.
    let (fours, rest) = heads.as_chunks::<4>();
    for four in fours {
        four.iter().copied().for_each(&mut add);
    }
    rest.iter().copied().for_each(&mut add);
    // A bitwise or is at least as large as each of its parts.
    let [off_0, off_1, _, _, segments_0, segments_1, _, _] = fields.to_ne_bytes();
    let offset = u32::from(u16::from_ne_bytes([off_0, off_1]));
    // A fresh mbuf's count of segments is 1, and grows with each linked segment.
    let is_single = u16::from_ne_bytes([segments_0, segments_1]) == 1;
    unequal == 0 && is_single && offset + lengths <= buffer_bytes
}

/// Offset of `data_off`, `refcnt`, `nb_segs` and `port`, which lie one after another, two bytes
/// each.
const FIELDS: usize = offset_of!(RawMbuf, data_off);
const _: () = {
    assert!(FIELDS.is_multiple_of(align_of::<u64>()));
    assert!(offset_of!(RawMbuf, refcnt) == FIELDS + 2);
    assert!(offset_of!(RawMbuf, nb_segs) == FIELDS + 4);
    assert!(offset_of!(RawMbuf, port) == FIELDS + 6);
};

/// Whether the lengths of any chain agree.
///
/// # Safety
/// 1. Following `next` from `head` leads through mbufs, and to a null pointer unless past `nb_segs`
///    of them. 2. Nobody writes to them meanwhile, except to their refcnts.
pub(crate) unsafe fn agree(head: NonNull<RawMbuf>) -> bool {
    // SAFETY: 1. The head is an mbuf. 2. Nobody writes to it.
    let RawMbuf { nb_segs, pkt_len, .. } = *unsafe { head.as_ref() };
    let (mut count, mut len_bytes) = (0, 0);
    let mut next = head.as_ptr().cast_const();
    // SAFETY: 1. The pointer is null or one to an mbuf, by premise 1. 2. Nobody writes to it.
    while let Some(segment) = unsafe { next.as_ref() } {
        let end = u32::from(segment.data_off) + u32::from(segment.data_len);
        if count == nb_segs || end > u32::from(segment.buf_len) {
            return false;
        }
        count += 1;
        // 65,535 segments of 65,535 bytes are fewer than 2^32.
        len_bytes += u32::from(segment.data_len);
        next = segment.next;
    }
    (count, len_bytes) == (nb_segs, pkt_len)
}
