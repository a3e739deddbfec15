//! Tracks whether each flow's datagrams came once, twice, out of order, or never.

use crate::stamp::Stamp;
use serde::Serialize;
use std::fmt;
use std::iter::Sum;

/// Maximum delay of a datagram, in datagrams, to be distinguished from a duplicate.
const WINDOW: u64 = 8_192;

const WORD_BITS: u64 = u64::BITS as u64;

/// The datagrams of all flows seen by one core or thread.
#[derive(Debug)]
pub struct Verifier {
    flows: Box<[FlowState]>,
    unstamped: u64,
    unknown_flow: u64,
}

/// The state of one flow.
#[derive(Clone, Debug)]
struct FlowState {
    /// One more than the highest number seen.
    next: u64,
    /// Bit `number % WINDOW` is whether that one of the last `WINDOW` numbers was seen.
    seen: Box<[u64; (WINDOW / WORD_BITS) as usize]>,
    received: u64,
    duplicated: u64,
    reordered: u64,
    too_late: u64,
}

/// Counts of the datagrams of flows.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Verified {
    /// Datagrams with a stamp that came, duplicates included.
    pub received: u64,
    /// Received datagrams that had come before.
    pub duplicated: u64,
    /// Received datagrams that came after a later one of their flow.
    pub reordered: u64,
    /// Received datagrams that came so late that they may be duplicates.
    pub too_late: u64,
    /// Datagrams that did not come, out of all numbers up to the latest of each flow.
    pub lost: u64,
    /// Datagrams without a stamp, about which nothing is known.
    pub unstamped: u64,
    /// Datagrams of flows with a number above the verified ones.
    pub unknown_flow: u64,
}

impl Verifier {
    /// A verifier for flows with numbers below `flow_count`, 1 KiB each.
    #[must_use]
    pub fn new(flow_count: usize) -> Self {
        let flow = FlowState {
            next: 0,
            seen: Box::new([0; (WINDOW / WORD_BITS) as usize]),
            received: 0,
            duplicated: 0,
            reordered: 0,
            too_late: 0,
        };
        Self { flows: vec![flow; flow_count].into(), unstamped: 0, unknown_flow: 0 }
    }

    /// Records a datagram. Returns its stamp.
    #[inline]
    pub fn see(&mut self, payload: &[u8]) -> Option<Stamp> {
        let Some(stamp) = Stamp::read(payload) else {
            self.unstamped += 1;
            return None;
        };
        match self.flows.get_mut(stamp.flow as usize) {
            Some(flow) => flow.see(stamp.number),
            None => self.unknown_flow += 1,
        }
        Some(stamp)
    }

    /// The counts for all datagrams. Each datagram was seen by exactly one of `verifiers`: if
    /// several have seen a flow, order is only known within each.
    #[must_use]
    pub fn sum<'a>(verifiers: impl IntoIterator<Item = &'a Self>) -> Verified {
        let verifiers: Vec<_> = verifiers.into_iter().collect();
        let flow_count = verifiers.iter().map(|verifier| verifier.flows.len()).max().unwrap_or(0);
        let of_flow = |index: usize| {
            let flows: Vec<_> =
                verifiers.iter().filter_map(|verifier| verifier.flows.get(index)).collect();
            let mut sum: Verified = flows.iter().map(|flow| flow.verified()).sum();
            let expected = flows.iter().map(|flow| flow.next).max().unwrap_or(0);
            sum.lost = expected.saturating_sub(sum.received - sum.duplicated);
            sum
        };
        let mut all: Verified = (0..flow_count).map(of_flow).sum();
        all.unstamped = verifiers.iter().map(|verifier| verifier.unstamped).sum();
        all.unknown_flow = verifiers.iter().map(|verifier| verifier.unknown_flow).sum();
        all
    }
}

impl FlowState {
    #[inline]
    fn see(&mut self, number: u64) {
        self.received += 1;
        if number >= self.next {
            self.advance(number);
        } else if self.next - number > WINDOW {
            self.reordered += 1;
            self.too_late += 1;
        } else if self.is_seen(number) {
            self.duplicated += 1;
        } else {
            self.reordered += 1;
            self.set_seen(number);
        }
    }

    /// Forgets the oldest numbers to make room up to this one.
    #[inline]
    fn advance(&mut self, number: u64) {
        let skipped = number - self.next;
        if skipped >= WINDOW {
            self.seen.fill(0);
        } else {
            for skipped in self.next..number {
                self.seen[word(skipped)] &= !bit(skipped);
            }
        }
        self.set_seen(number);
        // Greater than any number a source reaches.
        self.next = number.saturating_add(1);
    }

    fn is_seen(&self, number: u64) -> bool {
        self.seen[word(number)] & bit(number) != 0
    }

    #[inline]
    fn set_seen(&mut self, number: u64) {
        self.seen[word(number)] |= bit(number);
    }

    fn verified(&self) -> Verified {
        let Self { received, duplicated, reordered, too_late, .. } = *self;
        Verified { received, duplicated, reordered, too_late, ..Verified::default() }
    }
}

const fn word(number: u64) -> usize {
    (number % WINDOW / WORD_BITS) as usize
}

const fn bit(number: u64) -> u64 {
    1 << (number % WORD_BITS)
}

impl fmt::Display for Verified {
    /// The counts that are always there, then the rare ones if not 0.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { received, duplicated, reordered, too_late, lost, unstamped, unknown_flow } =
            self;
        write!(
            f,
            "verified {received}: {lost} lost, {duplicated} duplicated, {reordered} reordered"
        )?;
        let rare = [
            (too_late, "of these so late that they may be duplicates"),
            (unstamped, "without a number"),
            (unknown_flow, "of flows beyond those that are verified"),
        ];
        let mut rare = rare.iter().filter(|(count, _)| **count > 0);
        rare.try_for_each(|(count, what)| write!(f, ", {count} {what}"))
    }
}

impl Sum for Verified {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            received: sum.received + one.received,
            duplicated: sum.duplicated + one.duplicated,
            reordered: sum.reordered + one.reordered,
            too_late: sum.too_late + one.too_late,
            lost: sum.lost + one.lost,
            unstamped: sum.unstamped + one.unstamped,
            unknown_flow: sum.unknown_flow + one.unknown_flow,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(flow: u32, number: u64) -> [u8; 24] {
        Stamp { flow, number, sent_ns: 0 }.bytes()
    }

    fn verified(numbers: impl IntoIterator<Item = u64>) -> Verified {
        let mut verifier = Verifier::new(1);
        for number in numbers {
            assert!(verifier.see(&payload(0, number)).is_some());
        }
        Verifier::sum([&verifier])
    }

    #[test]
    fn all_in_order_are_all_there() {
        let all = verified(0..100_000);
        assert_eq!(all, Verified { received: 100_000, ..Verified::default() });
    }

    #[test]
    fn what_is_missing_is_lost_at_the_beginning_too() {
        assert_eq!(verified([3, 4, 7]).lost, 5);
        let all = verified((0..100_000).filter(|number| number % 1_000 >= 10));
        // The last number is seen; of each thousand, ten are missing.
        assert_eq!((all.received, all.lost), (99_000, 1_000));
        let far = verified([0, 50_000, 1_000_000]);
        assert_eq!((far.received, far.lost, far.reordered), (3, 999_998, 0));
    }

    #[test]
    fn duplicates_and_late_ones_are_told_apart() {
        let all = verified([0, 1, 2, 5, 4, 4, 5, 3, 6]);
        assert_eq!((all.received, all.duplicated, all.reordered, all.lost), (9, 2, 2, 0));
        let late = verified((1..=WINDOW).chain([0, 0]));
        assert_eq!((late.duplicated, late.reordered, late.too_late, late.lost), (0, 2, 2, 0));
        let last = verified((1..WINDOW).chain([0, 0]));
        assert_eq!((last.duplicated, last.reordered, last.too_late, last.lost), (1, 1, 0, 0));
    }

    #[test]
    fn a_place_is_forgotten_before_it_is_used_again() {
        // Every other number, far beyond the window; then those between, as late as possible.
        let late = (0..3 * WINDOW).flat_map(|number| {
            let behind = number.checked_sub(WINDOW / 2 + 1).filter(|number| number % 2 == 1);
            (number % 2 == 0).then_some(number).into_iter().chain(behind)
        });
        let all = verified(late);
        assert_eq!((all.duplicated, all.too_late), (0, 0));
        assert!(all.lost < WINDOW, "{all:?}");
    }

    #[test]
    fn flows_and_those_who_see_them_are_summed() {
        let mut both = [Verifier::new(2), Verifier::new(2)];
        for number in 0..10 {
            // One sees the even numbers, the other the odd ones except 9; in flow 1, 5 is missing.
            let at = (number % 2) as usize;
            if number != 9 {
                both[at].see(&payload(0, number));
            }
            if number != 5 {
                both[at].see(&payload(1, number));
            }
        }
        both[0].see(&payload(2, 0));
        both[1].see(b"something else");
        let all = Verifier::sum(&both);
        assert_eq!((all.received, all.lost, all.reordered), (18, 1, 0));
        assert_eq!((all.unknown_flow, all.unstamped), (1, 1));
    }
}
