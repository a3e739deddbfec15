//! Settling the counters of a place: after a burst has passed it, and after a panic.

use hotloop_stage::{Burst, Counters};

/// The packets that passed a place since it last settled.
#[derive(Clone, Copy, Debug, Default)]
pub struct BurstCounts {
    /// Packets that the place took.
    pub received: u64,
    /// Packets that the place emitted.
    pub emitted: u64,
    /// The part of `emitted` that it created.
    pub created: u64,
    /// Packets that the place dropped, by reason.
    pub dropped: u64,
    /// Packets that the place held before.
    pub held_before: u64,
    /// Packets that the place holds now.
    pub held_after: u64,
}

/// Adds these counts to the counters of a place, including any discrepancy: received + created + held
/// before must equal emitted + dropped + held after. If the place is `unwinding`, its panic is the
/// reason for missing packets.
#[inline(always)]
pub fn settle(counters: &Counters, counts: BurstCounts, unwinding: bool) {
    counters.received.add(counts.received);
    counters.emitted.add(counts.emitted);
    let entered = counts.received + counts.created + counts.held_before;
    let left = counts.emitted + counts.dropped + counts.held_after;
    if entered != left || unwinding {
        settle_imbalance(counters, entered, left, unwinding);
    }
}

#[cold]
fn settle_imbalance(counters: &Counters, entered: u64, left: u64, unwinding: bool) {
    let missing = if unwinding { &counters.panicked } else { &counters.unattributed };
    missing.add(entered.saturating_sub(left));
    counters.uncreated.add(left.saturating_sub(entered));
}

/// Drops the packets that a panic has left in a burst emitted by the place at `counters`, and
/// counts them as lost there.
pub fn abandon_emitted<T>(counters: &Counters, burst: &mut Burst<T>) {
    let left = burst.len() as u64;
    counters.emitted.set(counters.emitted.count().saturating_sub(left));
    counters.panicked.add(left);
    drop(std::mem::take(burst));
}

/// Drops the packets that a panic has left in a burst that waits for the place at `counters`, and
/// counts them as received and lost there.
pub fn abandon_received<T>(counters: &Counters, burst: &mut Burst<T>) {
    let left = burst.len() as u64;
    counters.received.add(left);
    counters.panicked.add(left);
    drop(std::mem::take(burst));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_add_up_is_counted() {
        let counters = Counters::new(&[]);
        let whole = BurstCounts {
            received: 10,
            emitted: 8,
            created: 1,
            dropped: 2,
            held_before: 0,
            held_after: 1,
        };
        settle(&counters, whole, false);
        assert_eq!((counters.unattributed.count(), counters.uncreated.count()), (0, 0));
        settle(&counters, BurstCounts { received: 3, emitted: 1, ..BurstCounts::default() }, false);
        assert_eq!((counters.unattributed.count(), counters.uncreated.count()), (2, 0));
        settle(&counters, BurstCounts { received: 1, emitted: 4, ..BurstCounts::default() }, false);
        assert_eq!((counters.unattributed.count(), counters.uncreated.count()), (2, 3));
        settle(&counters, BurstCounts { received: 5, dropped: 4, ..BurstCounts::default() }, true);
        assert_eq!((counters.unattributed.count(), counters.panicked.count()), (2, 1));
        assert_eq!((counters.received.count(), counters.emitted.count()), (19, 13));
    }
}
