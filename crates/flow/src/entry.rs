//! Room for one flow: an optional key and value, packed with the table's notes about the flow.

use std::cell::Cell;
use std::mem::{MaybeUninit, needs_drop};
use std::num::NonZero;

use crate::clock::{IdleTimeouts, STEP_NS};
use crate::config::{CLASS_COUNT, Class, Classes};

const CLASS_MASK: u32 = CLASS_COUNT as u32 - 1;

/// A bit of each generation, above the class.
const OCCUPIED: u32 = CLASS_COUNT as u32;

/// The next bit, set if the flow is in the second group of its key.
const IN_SECOND: u32 = 2 * OCCUPIED;

/// The lowest bit of the number in a generation.
const GENERATION_STEP: u32 = 2 * IN_SECOND;

/// Whole cache lines: one if key and value take at most 56 bytes.
#[repr(C, align(64))]
pub(crate) struct Entry<K, V> {
    /// The step of the flow's last packet.
    seen: Cell<u32>,
    /// 0 while there is no flow. Otherwise the class in the lowest bits, `OCCUPIED`, `IN_SECOND` if
    /// the flow is in its second group, and the generation above that. `key` and `value` are
    /// initialised only while this isn't 0.
    tenancy: u32,
    key: MaybeUninit<K>,
    value: MaybeUninit<V>,
}

/// Number of a flow of a table, in the order in which flows were put into entries. Numbers wrap
/// after 2^27.
///
/// Has the `OCCUPIED` bit set, and the bits of class and group clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Generation(NonZero<u32>);

impl Generation {
    pub(crate) const FIRST: Self = Self(NonZero::new(OCCUPIED).expect("a bit"));

    #[inline(always)]
    pub(crate) fn next(self) -> Self {
        let next = self.0.get().wrapping_add(GENERATION_STEP);
        Self(NonZero::new(next).unwrap_or(Self::FIRST.0))
    }

    /// Whether `other` is the same generation. A single comparison, because `None` is represented
    /// as 0.
    #[inline(always)]
    pub(crate) fn is(self, other: Option<Self>) -> bool {
        other.map_or(0, |generation| generation.0.get()) == self.0.get()
    }
}

/// A flow outside the table, on its way in, out or elsewhere.
pub(crate) struct Flow<K, V> {
    pub(crate) key: K,
    pub(crate) value: V,
    pub(crate) seen: u32,
    pub(crate) class: Class,
}

impl<K: Copy, V> Entry<K, V> {
    pub(crate) const fn vacant() -> Self {
        Self {
            seen: Cell::new(0),
            tenancy: 0,
            key: MaybeUninit::uninit(),
            value: MaybeUninit::uninit(),
        }
    }

    #[inline(always)]
    fn is_occupied(&self) -> bool {
        self.tenancy & OCCUPIED != 0
    }

    /// The generation of the entry's flow, or `None` if there is no flow.
    #[inline(always)]
    pub(crate) fn generation(&self) -> Option<Generation> {
        let generation = NonZero::new(self.tenancy & !(CLASS_MASK | IN_SECOND));
        generation.filter(|_| self.is_occupied()).map(Generation)
    }

    /// Whether the entry holds the flow of this generation. If so, the entry is occupied, because
    /// every generation has that bit.
    #[inline(always)]
    pub(crate) fn is_of(&self, generation: Generation) -> bool {
        (self.tenancy ^ generation.0.get()) & !IN_SECOND < CLASS_COUNT as u32
    }

    /// Whether the entry's flow is in the second group of its key; false if there is no flow.
    #[inline(always)]
    pub(crate) fn is_in_second(&self) -> bool {
        self.tenancy & IN_SECOND != 0
    }

    #[inline(always)]
    pub(crate) fn class(&self) -> Class {
        Class::of_word(self.tenancy)
    }

    pub(crate) fn set_class(&mut self, class: Class) {
        self.tenancy = self.tenancy & !CLASS_MASK | class.index() as u32;
    }

    /// Number of steps since the flow's last packet.
    #[inline(always)]
    pub(crate) fn silent_steps(&self, now: u32) -> u32 {
        now.wrapping_sub(self.seen.get())
    }

    /// Time since the flow's last packet in nanoseconds: rounded down, by less than two steps. The
    /// packet may have come at the end of its step, and now may be the beginning of this one.
    #[inline(always)]
    pub(crate) fn silent_ns(&self, now: u32) -> u64 {
        u64::from(self.silent_steps(now).saturating_sub(1)) * STEP_NS
    }

    #[inline(always)]
    pub(crate) fn is_expired(&self, now: u32, idle_timeouts: &IdleTimeouts) -> bool {
        idle_timeouts.is_over(self.class(), self.seen.get(), now)
    }

    /// Records that the flow was seen now. Writes only if the step has changed: a clean line need
    /// not be written back.
    #[inline(always)]
    pub(crate) fn touch(&self, now: u32) {
        self.seen.set(now);
    }

    /// Whether the flow's last packet came in this step.
    #[inline(always)]
    pub(crate) fn was_seen(&self, now: u32) -> bool {
        self.seen.get() == now
    }

    /// Marks the flow as seen, unless it has expired.
    #[inline(always)]
    pub(crate) fn see(&self, now: u32, idle_timeouts: &IdleTimeouts) -> Option<()> {
        if !self.was_seen(now) {
            if self.is_expired(now, idle_timeouts) {
                return None;
            }
            self.touch(now);
        }
        Some(())
    }

    #[inline(always)]
    pub(crate) fn key(&self) -> Option<&K> {
        // SAFETY: 1. An occupied entry's key is initialised.
        self.is_occupied().then(|| unsafe { self.key.assume_init_ref() })
    }

    #[inline(always)]
    pub(crate) fn value(&self) -> Option<&V> {
        // SAFETY: 1. An occupied entry's value is initialised.
        self.is_occupied().then(|| unsafe { self.value.assume_init_ref() })
    }

    /// The flow's value if the flow is in one of these classes.
    #[inline(always)]
    pub(crate) fn value_if_in(&self, classes: Classes) -> Option<&V> {
        // Checks both at once: shifts by the occupied bit and the class.
        let bit = 1 << (self.tenancy & (OCCUPIED | CLASS_MASK));
        let is_in = (classes.bits() << OCCUPIED) & bit != 0;
        // SAFETY: 1. An occupied entry's value is initialised. 2. Class and occupied bit add up to
        // 8 or more only in occupied entries, and the bits of classes begin at 8.
        is_in.then(|| unsafe { self.value.assume_init_ref() })
    }

    #[inline(always)]
    pub(crate) fn value_mut(&mut self) -> Option<&mut V> {
        self.value_of_mut(self.generation()?)
    }

    #[inline(always)]
    pub(crate) fn value_of(&self, generation: Generation) -> Option<&V> {
        // SAFETY: 1. An occupied entry's value is initialised.
        self.is_of(generation).then(|| unsafe { self.value.assume_init_ref() })
    }

    #[inline(always)]
    pub(crate) fn value_of_mut(&mut self, generation: Generation) -> Option<&mut V> {
        // SAFETY: 1. An occupied entry's value is initialised.
        self.is_of(generation).then(|| unsafe { self.value.assume_init_mut() })
    }

    /// Takes the flow out, which makes its handles stale.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Flow<K, V>> {
        let (key, seen, class) = (*self.key()?, self.seen.get(), self.class());
        self.tenancy = 0;
        // SAFETY: 1. `key` above is `Some`, so the entry was occupied, and its value initialised.
        // 2. The entry has been vacant since, so nothing reads the value here again.
        let value = unsafe { self.value.assume_init_read() };
        Some(Flow { key, value, seen, class })
    }

    /// Puts a flow into a vacant entry, in the first or the second group of its key. Only writes,
    /// so this does not wait for memory.
    #[inline(always)]
    pub(crate) fn put(&mut self, flow: Flow<K, V>, generation: Generation, is_in_second: bool) {
        self.key.write(flow.key);
        self.value.write(flow.value);
        self.seen.set(flow.seen);
        let group = if is_in_second { IN_SECOND } else { 0 };
        self.tenancy = generation.0.get() | group | flow.class.index() as u32;
    }
}

impl<K, V> Drop for Entry<K, V> {
    #[inline]
    fn drop(&mut self) {
        if needs_drop::<V>() && self.tenancy & OCCUPIED != 0 {
            // SAFETY: 1. An occupied entry's value is initialised. 2. The entry is gone after this.
            unsafe { self.value.assume_init_drop() }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn generations_are_occupied_and_begin_anew() {
        let mut generation = Generation(NonZero::new(!(CLASS_MASK | IN_SECOND)).unwrap());
        let mut seen = Vec::new();
        for _ in 0..4 {
            assert_eq!(generation.0.get() & (GENERATION_STEP - 1), OCCUPIED);
            assert!(!seen.contains(&generation));
            seen.push(generation);
            generation = generation.next();
        }
        assert_eq!(seen[1], Generation::FIRST);
        // The number of generations.
        assert_eq!(u64::from(GENERATION_STEP) << 27, 1 << 32);
    }

    #[test]
    fn an_entry_is_an_option_of_a_flow() {
        let value = Rc::new(());
        let mut entry = Entry::<u32, Rc<()>>::vacant();
        assert!(entry.key().is_none() && entry.value().is_none() && entry.take().is_none());
        assert!(entry.value_if_in(Classes::ALL).is_none());
        let generation = Generation::FIRST.next();
        let flow = Flow { key: 7, value: value.clone(), seen: 5, class: Class::new(3) };
        entry.put(flow, generation, true);
        assert!(entry.is_in_second());
        assert_eq!((entry.key(), entry.generation()), (Some(&7), Some(generation)));
        assert_eq!((entry.class(), entry.silent_steps(9)), (Class::new(3), 4));
        entry.set_class(Class::new(7));
        assert!(entry.is_of(generation) && !entry.is_of(generation.next()));
        assert!(entry.value_of(generation).is_some());
        assert!(entry.value_if_in(Classes::ALL).is_some());
        assert!(entry.value_if_in(Classes::of(&[Class::new(7)])).is_some());
        assert!(entry.value_if_in(Classes::of(&[Class::new(3), Class::new(0)])).is_none());
        assert!(entry.value_of(generation.next()).is_none());
        assert!(entry.value_of_mut(Generation::FIRST).is_none());
        assert_eq!(Rc::strong_count(&value), 2);
        let flow = entry.take().unwrap();
        assert!(!entry.is_in_second());
        assert_eq!((flow.key, flow.seen, flow.class), (7, 5, Class::new(7)));
        assert!(!entry.is_of(generation) && entry.value_mut().is_none());
        entry.put(flow, generation.next(), false);
        drop(entry);
        assert_eq!(Rc::strong_count(&value), 1);
    }
}
