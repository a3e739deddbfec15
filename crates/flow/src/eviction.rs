//! The choice of flows that leave for new ones, by the owner of a table.

use crate::config::Class;

/// Decides which flow leaves a table for a new one, and gets that flow: see
/// [`Table::insert`](crate::Table::insert).
///
/// A closure `|key, value|` that gets the flow implements this: its flows have no ranks, and begin
/// in the default class. So does a pair of closures, one that ranks and one that gets the flow. If
/// flows often leave for new ones, a type with methods that are always inlined is faster.
pub trait Eviction<K, V> {
    /// Whether flows have ranks. If not, [`rank`](Self::rank) must always return `Some(0)`.
    const HAS_RANKS: bool = true;

    /// Returns the class in which a new flow begins: the default class unless overridden. This
    /// costs less than a later [`set_class`](crate::Table::set_class), which reads what was just
    /// written.
    fn class(&self, _value: &V) -> Class {
        Class::default()
    }

    /// Returns the cost of losing a flow: 0 if it is worth nothing, `None` if it must stay.
    /// `silent_ns` is the time since the flow's last packet in nanoseconds, rounded down by less
    /// than two steps of [`STEP_NS`](crate::STEP_NS).
    fn rank(&mut self, value: &V, class: Class, silent_ns: u64) -> Option<u8>;

    /// Gets the flow that has left, evicted or expired: at most one for each insertion.
    fn leaves(&mut self, key: K, value: V);
}

impl<K, V, L: FnMut(K, V)> Eviction<K, V> for L {
    const HAS_RANKS: bool = false;

    #[inline(always)]
    fn rank(&mut self, _: &V, _: Class, _: u64) -> Option<u8> {
        Some(0)
    }

    #[inline(always)]
    fn leaves(&mut self, key: K, value: V) {
        self(key, value);
    }
}

impl<K, V, R, L> Eviction<K, V> for (R, L)
where
    R: FnMut(&V, Class, u64) -> Option<u8>,
    L: FnMut(K, V),
{
    fn rank(&mut self, value: &V, class: Class, silent_ns: u64) -> Option<u8> {
        (self.0)(value, class, silent_ns)
    }

    fn leaves(&mut self, key: K, value: V) {
        (self.1)(key, value);
    }
}
