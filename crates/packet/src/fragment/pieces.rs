//! The pieces of a datagram that have come.

use crate::fragment::{FragmentView, split::UNIT_BYTES};

/// Number of units in the longest datagram: an offset has 13 bits.
const UNITS: usize = 1 << 13;

/// The pieces of one datagram that have come, a bit for each unit of eight bytes: 1 KiB.
///
/// A filter that decides by a datagram's first fragment must let no byte pass twice, because a
/// receiver of IPv4 may use either (RFC 1858, section 4; RFC 3128).
///
/// ```
/// use hotloop_packet::{build::udp, fragment::{FragmentView, Pieces}};
///
/// let frames = udp().payload([1; 2000]).build_fragments(820);
/// let [first, second, third] = [0, 1, 2].map(|index| FragmentView::of_frame(&frames[index]).unwrap());
/// let mut pieces = Pieces::default();
/// assert!(pieces.add(&first) && pieces.add(&third) && !pieces.are_complete());
/// assert!(!pieces.add(&first));
/// assert!(pieces.add(&second) && pieces.are_complete());
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Pieces([u64; UNITS / 64]);

/// No pieces.
impl Default for Pieces {
    fn default() -> Self {
        Self([0; UNITS / 64])
    }
}

impl Pieces {
    /// Adds a fragment's piece; after the piece of the last fragment, nothing may come. Returns
    /// false, and adds nothing, if the piece overlaps one that is there, if it is empty, or if its
    /// end is beyond the longest datagram's.
    ///
    /// Call [`FragmentView::check`] before: a fragment in front of others that doesn't fill its last
    /// unit counts as if it did.
    pub fn add(&mut self, fragment: &FragmentView<'_>) -> bool {
        let start = fragment.offset_bytes() / UNIT_BYTES;
        let end = if fragment.more_fragments() {
            start + fragment.len_bytes().div_ceil(UNIT_BYTES)
        } else {
            UNITS
        };
        let is_new = start < end && end <= UNITS && (start..end).all(|unit| !self.has(unit));
        for unit in (start..end).filter(|_| is_new) {
            self.0[unit / 64] |= 1 << (unit % 64);
        }
        is_new
    }

    const fn has(&self, unit: usize) -> bool {
        self.0[unit / 64] >> (unit % 64) & 1 == 1
    }

    /// Whether all pieces have come, so that the datagram may be forgotten.
    pub fn are_complete(&self) -> bool {
        self.0.iter().all(|units| *units == u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::udp;

    fn fragments(payload_bytes: usize, packet_bytes: usize, to: &str) -> Vec<Vec<u8>> {
        udp().to(to).payload(vec![7; payload_bytes]).build_fragments(packet_bytes)
    }

    #[test]
    fn every_piece_comes_once_in_any_order() {
        for to in ["192.0.2.1:53", "[2001:db8::1]:53"] {
            let frames = fragments(20_000, 1280, to);
            let views: Vec<_> =
                frames.iter().map(|it| FragmentView::of_frame(it).unwrap()).collect();
            for step in [1, 3, 7] {
                let mut pieces = Pieces::default();
                for index in 0..views.len() {
                    assert!(!pieces.are_complete());
                    let view = &views[index * step % views.len()];
                    assert!(pieces.add(view) && !pieces.add(view), "{step} {index}");
                }
                assert!(pieces.are_complete());
            }
        }
    }

    #[test]
    fn nothing_overlaps_and_nothing_follows_the_last() {
        let (frames, shifted) =
            (fragments(3000, 1300, "192.0.2.1:53"), fragments(3000, 1000, "192.0.2.1:53"));
        let view = |frame: &'static [u8]| FragmentView::of_frame(frame).unwrap();
        let [frames, shifted] = [frames, shifted].map(|it| it.leak());
        let mut pieces = Pieces::default();
        assert!(pieces.add(&view(&frames[0])) && pieces.add(&view(&frames[2])));
        let before = pieces;
        assert!(shifted.iter().all(|frame| !pieces.add(&view(frame))));
        assert_eq!(pieces, before);
        let longer = fragments(6000, 1300, "192.0.2.1:53").leak();
        assert!(!pieces.add(&view(&longer[3])));
        assert!(pieces.add(&view(&frames[1])) && pieces.are_complete());
    }

    #[test]
    fn impossible_pieces_are_refused() {
        let mut frame = fragments(3000, 1300, "192.0.2.1:53").swap_remove(0);
        let mut add = |flags_offset: u16, total_bytes: u16| {
            frame[16..18].copy_from_slice(&total_bytes.to_be_bytes());
            frame[20..22].copy_from_slice(&flags_offset.to_be_bytes());
            Pieces::default().add(&FragmentView::of_frame(&frame).unwrap())
        };
        assert!(add(0x3fff, 28) && !add(0x3fff, 29) && !add(0x3fff, u16::MAX));
        assert!(!add(0x2001, 20));
    }
}
