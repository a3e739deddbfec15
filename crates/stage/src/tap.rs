//! Taps, through which captures see packets on their way.
//!
//! The [`Counters`] of a place hold the captures that see its packets: the packet path reads
//! nothing else while the place has no captures. A packet of a tapped place is shown to the [`Tap`] of the
//! core, which an engine has set for the thread with [`enter`].

use crate::{Burst, Carries, Counters, Instant};
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

/// Maximum number of captures of one place at a time.
pub const CAPTURE_COUNT_MAX: usize = 8;

/// A point of the packet path at which a capture sees packets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TapPoint {
    /// The packet came from a source.
    Receive,
    /// The packet goes to a sink, which may still refuse it.
    Send,
    /// The packet is dropped for this reason.
    Drop(&'static str),
}

/// The event of packets at a point: its place and time.
#[derive(Clone, Copy, Debug)]
pub struct TapEvent<'a> {
    /// The counters of the place, which hold the captures that see it.
    pub counters: &'a Counters,
    /// The point.
    pub point: TapPoint,
    /// The time of their burst.
    pub now: Instant,
}

/// A packet as a capture sees it.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    /// The bytes of the first segment.
    pub bytes: &'a [u8],
    /// The packet itself, for its other segments and its time of arrival.
    pub packet: &'a dyn Carries,
}

impl<'a> Seen<'a> {
    /// This packet.
    #[inline(always)]
    pub fn of(packet: &'a impl Carries) -> Self {
        Self { bytes: packet.bytes(), packet }
    }

    /// The length of the whole packet in bytes.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        self.packet.total_bytes()
    }

    /// Calls `take` with the bytes of each segment, in order, up to `limit_bytes` in all.
    pub fn each_segment(&self, limit_bytes: usize, take: &mut dyn FnMut(&[u8])) {
        let mut left = limit_bytes;
        let mut cut = |segment: &[u8]| {
            let bytes = &segment[..segment.len().min(left)];
            left -= bytes.len();
            take(bytes);
        };
        if self.bytes.len() == self.total_bytes() {
            cut(self.bytes);
        } else {
            self.packet.each_segment(&mut cut);
        }
    }
}

impl fmt::Debug for Seen<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total_bytes = self.total_bytes();
        f.debug_struct("Seen")
            .field("bytes", &self.bytes)
            .field("total_bytes", &total_bytes)
            .finish_non_exhaustive()
    }
}

/// Four bytes of a packet that must match for a filter to want it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Need {
    /// Their offset in the packet.
    pub offset: u32,
    /// The bits to compare: little-endian.
    pub mask: u32,
    /// The required value of these bits.
    pub value: u32,
}

impl Need {
    #[inline(always)]
    const fn is_met(self, bytes: [u8; 4]) -> bool {
        u32::from_le_bytes(bytes) & self.mask == self.value
    }
}

/// Two needs. Each packet that a filter wants meets at least one of them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Needs {
    /// Invariant: in order of offset.
    either: [Need; 2],
    /// From the first byte of the first need to the last byte of the second.
    start: usize,
    end: usize,
}

impl Needs {
    /// Requires one of these, or both.
    #[must_use]
    pub fn either(mut needs: [Need; 2]) -> Self {
        needs.sort_by_key(|need| need.offset);
        let [start, last] = needs.map(|need| need.offset as usize);
        Self { either: needs, start, end: last + size_of::<u32>() }
    }

    /// Whether a packet that begins with these bytes meets one of the needs: also true if the bytes
    /// are too few to decide.
    #[inline(always)]
    #[must_use]
    pub fn are_met(&self, bytes: &[u8]) -> bool {
        let [one, other] = self.either;
        let window = bytes.get(self.start..self.end);
        let words =
            window.and_then(|bytes| bytes.first_chunk().copied().zip(bytes.last_chunk().copied()));
        words.is_none_or(|(first, last)| one.is_met(first) || other.is_met(last))
    }
}

/// The captures that look at the packets of a burst, and their common needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interest {
    /// The numbers of the captures, a bit each: see [`Counters::captures`].
    pub captures: u8,
    /// No capture wants a packet that doesn't meet these. `None` if unknown.
    pub needs: Option<Needs>,
}

/// The receiver of packets at tapped places: an engine has one for each core. It may not block,
/// allocate, lock or make a system call.
pub trait Tap {
    /// The captures that look at packets of this place now, and their needs.
    fn interest(&self, event: &TapEvent<'_>) -> Interest;

    /// Shows packets, at most 64, in order: of `count` packets, the ones that the `interest` at
    /// this event may want.
    fn see(&self, event: &TapEvent<'_>, interest: Interest, packets: &[Seen<'_>], count: usize);
}

/// Selects the packets that a capture wants. It is called on the cores, so it may not block,
/// allocate, lock or make a system call.
pub trait Filter: Send + Sync {
    /// Needs that each wanted packet meets: checking them keeps most packets from
    /// [`select`](Self::select). `None` if unknown.
    fn needs(&self) -> Option<Needs> {
        None
    }

    /// The wanted packets, of at most 64: bit `i` for `packets[i]`.
    fn select(&self, packets: &[Seen<'_>]) -> u64;
}

thread_local! {
    /// The tap of the core that runs on this thread.
    static TAP: RefCell<Option<Rc<dyn Tap>>> = const { RefCell::new(None) };
}

/// For an engine: from now on this thread's packets are shown to `tap`. Returns the previous tap.
pub fn enter(tap: Option<Rc<dyn Tap>>) -> Option<Rc<dyn Tap>> {
    TAP.with(|slot| slot.replace(tap))
}

/// For an engine: shows the items of `burst` from `first` on.
#[cold]
#[inline(never)]
pub fn show<T: Carries>(event: TapEvent<'_>, burst: &Burst<T>, first: usize) {
    let items = &burst.as_slice()[first..];
    with_tap(|tap| {
        let interest = tap.interest(&event);
        let mut packets = Burst::new();
        match interest.needs {
            Some(needs) => {
                let mut meeting = meeting(needs, items);
                while meeting != 0 {
                    packets.push(Seen::of(&items[meeting.trailing_zeros() as usize]));
                    meeting &= meeting - 1;
                }
            }
            None => packets.extend(items.iter().map(Seen::of)),
        }
        tap.see(&event, interest, packets.as_slice(), items.len());
    });
}

/// The packets that may be wanted, a bit each. A separate function, so that all of its values stay
/// in registers.
#[inline(never)]
fn meeting<T: Carries>(needs: Needs, items: &[T]) -> u64 {
    #[cold]
    const fn with(mask: u64, index: usize) -> u64 {
        mask | 1 << index
    }
    let mut meeting = 0;
    for (index, item) in items.iter().enumerate() {
        if needs.are_met(item.bytes()) {
            meeting = with(meeting, index);
        }
    }
    meeting
}

/// For an engine: shows one packet, by value, so that the packet path need not keep it in memory.
#[cold]
#[inline(never)]
pub fn show_one<T: Carries>(event: TapEvent<'_>, packet: T) -> T {
    with_tap(|tap| tap.see(&event, tap.interest(&event), &[Seen::of(&packet)], 1));
    packet
}

fn with_tap(act: impl FnOnce(&dyn Tap)) {
    // A thread that ends has no tap any more.
    let _ = TAP.try_with(|tap| {
        if let Some(tap) = &*tap.borrow() {
            act(&**tap);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cx, drop_reasons};
    use hotloop_packet::memory::MemPacket;
    use std::cell::Cell;

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
    struct Notes(RefCell<Vec<(TapPoint, Vec<u8>)>>, Cell<usize>);

    impl Tap for Notes {
        fn interest(&self, _: &TapEvent<'_>) -> Interest {
            let need = Need { offset: 1, mask: 0xFFFF, value: 0x0706 };
            Interest {
                captures: 1,
                needs: Some(Needs::either([need, Need { value: 0x0707, ..need }])),
            }
        }

        fn see(&self, event: &TapEvent<'_>, _: Interest, packets: &[Seen<'_>], count: usize) {
            self.1.set(self.1.get() + count);
            for seen in packets {
                self.0.borrow_mut().push((event.point, seen.bytes.to_vec()));
            }
        }
    }

    #[test]
    fn what_a_tapped_stage_drops_is_shown_with_its_reason() {
        let notes = Rc::new(Notes::default());
        assert!(enter(Some(notes.clone())).is_none());
        let counters = Counters::new(&["odd", "late"]);
        let mut cx = Cx::<WhyDrop>::new(&counters, Instant::default());
        let packet = |byte| MemPacket::new(&[byte]);
        cx.discard(packet(1), WhyDrop::Odd);
        counters.set_captures(1);
        cx.discard(packet(2), WhyDrop::Late);
        assert_eq!(cx.reuse(packet(3), WhyDrop::Odd).bytes(), [3]);
        counters.set_captures(0);
        cx.discard(packet(4), WhyDrop::Late);
        assert!(enter(None).is_some());
        counters.set_captures(1);
        cx.discard(packet(5), WhyDrop::Late);
        let seen = notes.0.borrow();
        assert_eq!(*seen, [(TapPoint::Drop("late"), vec![2]), (TapPoint::Drop("odd"), vec![3])]);
        assert_eq!((cx.dropped_count(), counters.dropped_sum()), (5, 5));
    }

    #[test]
    fn packets_that_meet_no_need_are_counted_and_not_shown() {
        let notes = Rc::new(Notes::default());
        enter(Some(notes.clone()));
        let frames: [&[u8]; 5] =
            [&[1, 6, 7, 0, 0], &[2, 7, 6, 0, 0], &[3, 7, 7, 9, 9], &[4, 6], &[5, 6, 7, 0]];
        let mut burst = Burst::new();
        burst.extend(frames.map(MemPacket::new));
        let (counters, now) = (Counters::new(&[]), Instant::default());
        show(TapEvent { counters: &counters, point: TapPoint::Send, now }, &burst, 1);
        enter(None);
        // Two packets are too short to decide.
        let seen: Vec<_> = notes.0.borrow().iter().map(|(_, bytes)| bytes[0]).collect();
        assert_eq!((seen, notes.1.get()), (vec![3, 4, 5], 4));
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
