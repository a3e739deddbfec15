//! Taps: where a capture sees packets on their way.
//!
//! The [`Counters`] of a place say which captures see its packets, and so whether any
//! does: that is all that the packet path reads while there are none. A packet of a tapped place is shown
//! to the [`Tap`] of the core, which an engine has set for the thread by [`enter`].

use crate::{Burst, Carries, Counters, Instant};
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

/// The number of captures that one place can be tapped by at a time.
pub const CAPTURE_COUNT_MAX: usize = 8;

/// What happens to a packet where a capture sees it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Way {
    /// It came from a source.
    Receive,
    /// It goes to a sink, which may still refuse it.
    Send,
    /// It is dropped for the reason of this name.
    Drop(&'static str),
}

/// Where packets are seen.
#[derive(Clone, Copy, Debug)]
pub struct Sight<'a> {
    /// The counters of the place, which say which captures see it.
    pub counters: &'a Counters,
    /// What happens to the packets.
    pub way: Way,
    /// The time of their burst.
    pub now: Instant,
}

/// A packet as it is where a capture sees it.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    /// The bytes of its first segment.
    pub bytes: &'a [u8],
    /// The length of the whole packet in bytes.
    pub total_bytes: usize,
    /// The packet itself, for its other segments and its time of arrival.
    pub packet: &'a dyn Carries,
}

impl<'a> Seen<'a> {
    /// This packet.
    #[inline(always)]
    pub fn of(packet: &'a impl Carries) -> Self {
        Self { bytes: packet.bytes(), total_bytes: packet.total_bytes(), packet }
    }

    /// Calls `take` with the bytes of each segment, in order, up to `limit_bytes` in all.
    pub fn each_segment(&self, limit_bytes: usize, take: &mut dyn FnMut(&[u8])) {
        let mut left = limit_bytes;
        let mut cut = |segment: &[u8]| {
            let bytes = &segment[..segment.len().min(left)];
            left -= bytes.len();
            take(bytes);
        };
        if self.bytes.len() == self.total_bytes {
            cut(self.bytes);
        } else {
            self.packet.each_segment(&mut cut);
        }
    }
}

impl fmt::Debug for Seen<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, total_bytes, .. } = self;
        f.debug_struct("Seen").field("bytes", bytes).field("total_bytes", total_bytes).finish()
    }
}

/// What the packets of tapped places are shown to: an engine's, one for each core.
pub trait Tap {
    /// Sees packets, at most 64, in their order. It may not block, allocate, lock or make a system call.
    fn see(&self, sight: &Sight<'_>, packets: &[Seen<'_>]);
}

/// Says which packets a capture wants. It is called on the cores, so it may not block, allocate, lock or
/// make a system call.
pub trait Filter: Send + Sync {
    /// The packets that are wanted, of at most 64: bit `i` for `packets[i]`.
    fn select(&self, packets: &[Seen<'_>]) -> u64;
}

thread_local! {
    /// The tap of the core that runs on this thread.
    static TAP: RefCell<Option<Rc<dyn Tap>>> = const { RefCell::new(None) };
}

/// For an engine: from now on this thread's packets are shown to `tap`. Returns the one before it.
pub fn enter(tap: Option<Rc<dyn Tap>>) -> Option<Rc<dyn Tap>> {
    TAP.with(|slot| slot.replace(tap))
}

/// For an engine: shows the items of `burst` from `first` on.
#[cold]
#[inline(never)]
pub fn show<T: Carries>(sight: Sight<'_>, burst: &Burst<T>, first: usize) {
    let mut packets = Burst::new();
    packets.extend(burst.as_slice()[first..].iter().map(Seen::of));
    show_to_tap(&sight, packets.as_slice());
}

/// For an engine: shows one packet, by value, so that the packet path need not keep it in memory.
#[cold]
#[inline(never)]
pub fn show_one<T: Carries>(sight: Sight<'_>, packet: T) -> T {
    show_to_tap(&sight, &[Seen::of(&packet)]);
    packet
}

fn show_to_tap(sight: &Sight<'_>, packets: &[Seen<'_>]) {
    // A thread that ends has no tap any more.
    let _ = TAP.try_with(|tap| {
        if let Some(tap) = &*tap.borrow() {
            tap.see(sight, packets);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cx, Verdict, drop_reasons};
    use hotloop_packet::memory::MemPacket;

    drop_reasons! { enum WhyDrop { Odd = "odd", Late = "late" } }

    /// Two segments of three bytes.
    struct Split;

    impl Carries for Split {
        fn bytes(&self) -> &[u8] {
            &[1, 2, 3]
        }

        fn total_bytes(&self) -> usize {
            6
        }

        fn each_segment(&self, take: &mut dyn FnMut(&[u8])) {
            take(&[1, 2, 3]);
            take(&[4, 5, 6]);
        }
    }

    #[derive(Default)]
    struct Notes(RefCell<Vec<(Way, Vec<u8>)>>);

    impl Tap for Notes {
        fn see(&self, sight: &Sight<'_>, packets: &[Seen<'_>]) {
            for seen in packets {
                self.0.borrow_mut().push((sight.way, seen.bytes.to_vec()));
            }
        }
    }

    #[test]
    fn what_a_tapped_stage_drops_is_shown_with_its_reason() {
        let notes = Rc::new(Notes::default());
        assert!(enter(Some(notes.clone())).is_none());
        let counters = Counters::new(&["odd", "late"]);
        let mut cx = Cx::<WhyDrop>::new(&counters, Instant::default(), 0);
        let packet = |byte| MemPacket::new(&[byte]);
        let _: Verdict<()> = cx.drop(packet(1), WhyDrop::Odd);
        counters.set_captures(1);
        let _: Verdict<()> = cx.drop(packet(2), WhyDrop::Late);
        assert_eq!(cx.reuse(packet(3), WhyDrop::Odd).bytes(), [3]);
        counters.set_captures(0);
        let _: Verdict<()> = cx.drop(packet(4), WhyDrop::Late);
        assert!(enter(None).is_some());
        counters.set_captures(1);
        let _: Verdict<()> = cx.drop(packet(5), WhyDrop::Late);
        let seen = notes.0.borrow();
        assert_eq!(*seen, [(Way::Drop("late"), vec![2]), (Way::Drop("odd"), vec![3])]);
        assert_eq!((cx.dropped_count(), counters.dropped_sum()), (5, 5));
    }

    #[test]
    fn segments_are_cut_to_the_limit() {
        let seen = Seen::of(&Split);
        for limit in 0..8 {
            let mut copied = Vec::new();
            seen.each_segment(limit, &mut |bytes| copied.extend_from_slice(bytes));
            assert_eq!(copied, [1, 2, 3, 4, 5, 6][..limit.min(6)]);
        }
    }
}
