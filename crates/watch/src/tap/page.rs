//! The memory for copied records: pages, which circulate between a core and the capture.

use super::Record;
use hotloop_stage::Instant;
use hotloop_stage::tap::{Seen, TapPoint};

/// The size of a page, in bytes of packets: the longest snap length fits into one page.
pub const PAGE_BYTES: usize = 256 << 10;

/// Minimum number of a page's bytes per record.
const BYTES_PER_RECORD: usize = 64;

/// Records, in sequence. A page never grows.
#[derive(Debug)]
pub struct Page {
    heads: Vec<Head>,
    bytes: Vec<u8>,
}

/// The head of a record.
#[derive(Clone, Copy, Debug)]
struct Head {
    /// The number of the place on its core.
    place: u32,
    point: TapPoint,
    at: Instant,
    total_bytes: u32,
    captured_bytes: u32,
}

impl Page {
    /// An empty page with memory that the system has already provided.
    pub fn new() -> Self {
        let head = Head {
            place: 0,
            point: TapPoint::Receive,
            at: Instant::from_ns(0),
            total_bytes: 0,
            captured_bytes: 0,
        };
        let mut page = Self { heads: Vec::new(), bytes: Vec::new() };
        page.heads.resize(PAGE_BYTES / BYTES_PER_RECORD, head);
        // Written to, so that no core takes a page fault. The system would provide zeroes lazily.
        page.bytes.resize(PAGE_BYTES, 1);
        page.clear();
        page
    }

    pub fn clear(&mut self) {
        self.heads.clear();
        self.bytes.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Copies a packet up to `snap_bytes`. Returns whether there was room.
    pub fn push(
        &mut self,
        place: u32,
        point: TapPoint,
        at: Instant,
        seen: &Seen<'_>,
        snap_bytes: usize,
    ) -> bool {
        let captured_bytes = seen.total_bytes().min(snap_bytes);
        let has_room = self.bytes.len() + captured_bytes <= PAGE_BYTES
            && self.heads.len() < PAGE_BYTES / BYTES_PER_RECORD;
        if !has_room {
            return false;
        }
        let before = self.bytes.len();
        let bytes = &mut self.bytes;
        seen.each_segment(captured_bytes, &mut |segment| bytes.extend_from_slice(segment));
        let total_bytes = u32::try_from(seen.total_bytes()).unwrap_or(u32::MAX);
        let captured_bytes = (self.bytes.len() - before) as u32;
        self.heads.push(Head { place, point, at, total_bytes, captured_bytes });
        true
    }

    /// The records in their order, with the number of their place as their interface.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let mut rest = self.bytes.as_slice();
        self.heads.iter().map(move |head| {
            let (data, after) = rest.split_at(head.captured_bytes as usize);
            rest = after;
            Record {
                interface: head.place as usize,
                point: head.point,
                at: head.at,
                total_bytes: head.total_bytes,
                data,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop_stage::Carries;

    struct Bytes(Vec<u8>);

    impl Carries for Bytes {
        fn bytes(&self) -> &[u8] {
            &self.0
        }
    }

    fn push(page: &mut Page, bytes: &[u8], snap_bytes: usize) -> bool {
        let packet = Bytes(bytes.to_vec());
        page.push(3, TapPoint::Send, Instant::from_ns(7), &Seen::of(&packet), snap_bytes)
    }

    #[test]
    fn what_is_copied_comes_back_cut_and_in_order() {
        let mut page = Page::new();
        assert!(page.is_empty());
        for length in [0, 1, 60, 100] {
            assert!(push(&mut page, &vec![length; length.into()], 60));
        }
        let records: Vec<_> = page.records().collect();
        assert_eq!(records.len(), 4);
        for (record, length) in records.iter().zip([0_u8, 1, 60, 100]) {
            assert_eq!(record.data, vec![length; length.min(60).into()]);
            assert_eq!((record.total_bytes, record.interface), (length.into(), 3));
            assert_eq!((record.point, record.at), (TapPoint::Send, Instant::from_ns(7)));
        }
        page.clear();
        assert!(page.is_empty() && page.records().next().is_none());
    }

    #[test]
    fn a_page_is_full_by_bytes_or_by_records_and_never_grows() {
        for (length, count) in [(1000, PAGE_BYTES / 1000), (0, PAGE_BYTES / BYTES_PER_RECORD)] {
            let mut page = Page::new();
            let (heads, bytes) = (page.heads.capacity(), page.bytes.capacity());
            while push(&mut page, &vec![7; length], usize::MAX) {}
            assert_eq!(page.records().count(), count);
            assert_eq!((page.heads.capacity(), page.bytes.capacity()), (heads, bytes));
        }
    }
}
