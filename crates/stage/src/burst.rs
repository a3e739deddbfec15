//! A burst: up to 64 items that move through the engine together.

use std::convert::Infallible;
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;

/// How many items a burst holds.
///
/// 64 is where looking flows up in bursts stops gaining: memory latency is hidden by the prefetches
/// of the items ahead.
pub const BURST_CAPACITY: usize = 64;

/// Up to 64 items in the order in which they came, stored inline.
///
/// A burst is a queue: [`push`](Self::push) at the end, [`pop`](Self::pop) from the front. What is
/// left in it when it is dropped is dropped with it.
pub struct Burst<T> {
    /// Index of the first item. Invariant: `front <= end`.
    front: usize,
    /// One past the index of the last item. Invariant: `end <= BURST_CAPACITY`.
    end: usize,
    /// How many items a source may fill it up to. Invariant: `limit <= BURST_CAPACITY`.
    limit: usize,
    /// Invariant: the slots `front..end` are initialised, and no others.
    slots: [MaybeUninit<T>; BURST_CAPACITY],
}

impl<T> Burst<T> {
    /// An empty burst.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            front: 0,
            end: 0,
            limit: BURST_CAPACITY,
            slots: [const { MaybeUninit::uninit() }; BURST_CAPACITY],
        }
    }

    /// How many items are in it.
    #[inline(always)]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.end - self.front
    }

    /// Whether nothing is in it.
    #[inline(always)]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.end == self.front
    }

    /// Whether no further item fits.
    #[inline(always)]
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.len() == BURST_CAPACITY
    }

    /// Whether the last slot is taken: items may still fit in front.
    #[inline(always)]
    pub(crate) const fn is_at_end(&self) -> bool {
        self.end == BURST_CAPACITY
    }

    /// How many items a source may still put into it: 64, or the limit that was set, less what is
    /// in it.
    #[inline(always)]
    #[must_use]
    pub const fn room(&self) -> usize {
        self.limit.saturating_sub(self.len())
    }

    /// Sets how many items a source may fill the burst up to, at most 64. The engine lowers it for
    /// a source that can wait, to what every ring after it has room for.
    #[inline(always)]
    pub const fn set_limit(&mut self, limit: usize) {
        self.limit = if limit < BURST_CAPACITY { limit } else { BURST_CAPACITY };
    }

    /// Puts an item at the end.
    ///
    /// # Panics
    /// When the burst is full.
    #[inline(always)]
    pub fn push(&mut self, item: T) {
        if self.end == BURST_CAPACITY {
            self.make_room();
        }
        // SAFETY: `end <= BURST_CAPACITY` always, and the case that they are equal was dealt with.
        let slot = unsafe { self.slots.get_unchecked_mut(self.end) };
        slot.write(item);
        self.end += 1;
    }

    /// Takes the item at the front.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<T> {
        if self.front == self.end {
            (self.front, self.end) = (0, 0);
            return None;
        }
        // SAFETY: `front < end <= BURST_CAPACITY`.
        let slot = unsafe { self.slots.get_unchecked(self.front) };
        self.front += 1;
        // SAFETY: 1. The slot was in `front..end`, so it is initialised. 2. `front` has moved past
        // it, so it is read this once.
        Some(unsafe { slot.assume_init_read() })
    }

    /// The items, front first.
    #[inline(always)]
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: `front <= end <= BURST_CAPACITY`.
        let slots = unsafe { self.slots.get_unchecked(self.front..self.end) };
        // SAFETY: 1. The slots `front..end` are initialised. 2. `MaybeUninit<T>` has the layout of
        // `T`.
        unsafe { &*(std::ptr::from_ref(slots) as *const [T]) }
    }

    /// The items, front first, to be changed.
    #[inline(always)]
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: `front <= end <= BURST_CAPACITY`.
        let slots = unsafe { self.slots.get_unchecked_mut(self.front..self.end) };
        // SAFETY: 1. The slots `front..end` are initialised. 2. `MaybeUninit<T>` has the layout of
        // `T`. 3. The borrow of `self` is exclusive.
        unsafe { &mut *(std::ptr::from_mut(slots) as *mut [T]) }
    }

    /// Drops all items. Where the drop of one panics, the others are dropped all the same.
    #[inline(always)]
    pub fn clear(&mut self) {
        if !self.is_empty() {
            self.drop_items();
        }
        (self.front, self.end) = (0, 0);
    }

    #[inline(never)]
    fn drop_items(&mut self) {
        let items = std::ptr::from_mut(self.as_mut_slice());
        (self.front, self.end) = (0, 0);
        // SAFETY: 1. The slots of `items` were in `front..end`, so they are initialised. 2. The
        // burst no longer counts them among its items, so they are dropped this once. 3. The
        // borrow of `self` keeps the slots in their place.
        unsafe { std::ptr::drop_in_place(items) };
    }

    /// The free slots after the last item, as many as [`room`](Self::room) says, for a driver that
    /// writes items itself. [`assume_pushed`](Self::assume_pushed) makes them items.
    #[inline(always)]
    pub fn spare_mut(&mut self) -> &mut [MaybeUninit<T>] {
        if self.front > 0 {
            self.compact();
        }
        let end = self.end + self.room();
        &mut self.slots[self.end..end]
    }

    /// Makes the first `count` slots of [`spare_mut`](Self::spare_mut) items of the burst.
    ///
    /// # Safety
    /// 1. Nothing was done to the burst since `spare_mut` returned them. 2. The first `count` of
    ///    them have been initialised, and are owned by nobody else.
    #[inline(always)]
    pub unsafe fn assume_pushed(&mut self, count: usize) {
        debug_assert!(self.end + count <= BURST_CAPACITY);
        self.end += count;
    }

    /// Gives up the first `count` items without dropping them: a driver has taken them over.
    ///
    /// Leaks them when nobody has.
    ///
    /// # Panics
    /// When there are fewer.
    #[inline(always)]
    pub fn forget_front(&mut self, count: usize) {
        assert!(count <= self.len(), "{count} items given up of {}", self.len());
        self.front += count;
        if self.front == self.end {
            (self.front, self.end) = (0, 0);
        }
    }

    /// Takes the items one by one, front first, and puts what `change` makes of them, where it makes
    /// something, at the end of `out`. The same as popping and pushing, but both ends stay in
    /// registers.
    ///
    /// Where `change` panics, the items it has not seen are left, and what it made is in `out`.
    ///
    /// # Panics
    /// When `out` has not as many free slots as there are items.
    #[inline(always)]
    pub fn map_into<U>(&mut self, out: &mut Burst<U>, mut change: impl FnMut(T) -> Option<U>) {
        let _ = self.move_into(out, |item| ControlFlow::<Infallible, _>::Continue(change(item)));
    }

    /// As [`map_into`](Self::map_into), up to the first item that `change` makes an error of, which is
    /// returned. The items after it are left.
    ///
    /// # Panics
    /// As [`map_into`](Self::map_into).
    ///
    /// ```
    /// use hotloop_stage::Burst;
    ///
    /// let (mut from, mut to) = (Burst::new(), Burst::new());
    /// from.extend([2, 4, 5, 6]);
    /// let odd = from.map_until(&mut to, |item| if item % 2 == 0 { Ok(item) } else { Err(item) });
    /// assert_eq!((odd, to.as_slice(), from.as_slice()), (Some(5), &[2, 4][..], &[6][..]));
    /// ```
    #[inline(always)]
    pub fn map_until<U, E>(
        &mut self,
        out: &mut Burst<U>,
        mut change: impl FnMut(T) -> Result<U, E>,
    ) -> Option<E> {
        let end = self.move_into(out, |item| match change(item) {
            Ok(made) => ControlFlow::Continue(Some(made)),
            Err(stop) => ControlFlow::Break(stop),
        });
        end.break_value()
    }

    /// Takes items until `change` breaks off, and puts what it makes of them at the end of `out`.
    #[inline(always)]
    fn move_into<U, E>(
        &mut self,
        out: &mut Burst<U>,
        mut change: impl FnMut(T) -> ControlFlow<E, Option<U>>,
    ) -> ControlFlow<E> {
        assert!(self.len() <= BURST_CAPACITY - out.len(), "no room for {} items", self.len());
        if BURST_CAPACITY - out.end < self.len() {
            out.compact();
        }
        let last = self.end;
        let (front, end) = (self.front, out.end);
        let mut moving = Moving { from: self, to: out, front, end };
        while moving.front < last {
            // SAFETY: `front < end <= BURST_CAPACITY`.
            let slot = unsafe { moving.from.slots.get_unchecked(moving.front) };
            // SAFETY: 1. The slot is in `front..end`, so it is initialised. 2. `front` moves past it
            // before anything can panic, so it is read this once.
            let item = unsafe { slot.assume_init_read() };
            moving.front += 1;
            if let Some(made) = change(item)? {
                // SAFETY: There were as many free slots at the end of `out` as there were items.
                let slot = unsafe { moving.to.slots.get_unchecked_mut(moving.end) };
                slot.write(made);
                moving.end += 1;
            }
        }
        ControlFlow::Continue(())
    }

    /// Moves the items to the first slots, so that there is one after them.
    #[cold]
    fn make_room(&mut self) {
        assert!(self.front > 0, "a burst holds no more than {BURST_CAPACITY} items");
        self.compact();
    }

    /// Moves the items to the first slots.
    #[cold]
    fn compact(&mut self) {
        let count = self.len();
        let slots = self.slots.as_mut_ptr();
        // SAFETY: `front <= BURST_CAPACITY`, so the pointer stays within the array or one past its end.
        let from = unsafe { slots.add(self.front) };
        // SAFETY: 1. `front..end` and `0..count` lie within the array. 2. `copy` allows them to
        // overlap. 3. The indices are set so that what was moved is owned once.
        unsafe { std::ptr::copy(from, slots, count) };
        (self.front, self.end) = (0, count);
    }
}

/// Two bursts while items move from one to the other. Its drop sets their ends, also where a panic
/// ends the move.
struct Moving<'a, T, U> {
    from: &'a mut Burst<T>,
    to: &'a mut Burst<U>,
    /// Index of the first item that was not taken. Invariant: `from.front <= front <= from.end`.
    front: usize,
    /// Index after the last item that was put. Invariant: the slots from `to.end` to it are
    /// initialised, and it is at most `BURST_CAPACITY`.
    end: usize,
}

impl<T, U> Drop for Moving<'_, T, U> {
    #[inline(always)]
    fn drop(&mut self) {
        self.to.end = self.end;
        self.from.front = self.front;
        if self.front == self.from.end {
            (self.from.front, self.from.end) = (0, 0);
        }
    }
}

impl<T> Default for Burst<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for Burst<T> {
    fn drop(&mut self) {
        self.clear();
    }
}

impl<T> Extend<T> for Burst<T> {
    /// # Panics
    /// When they don't fit.
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        for item in items {
            self.push(item);
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Burst<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::rc::Rc;

    #[test]
    fn items_leave_in_the_order_in_which_they_came() {
        let mut burst = Burst::new();
        burst.extend(0..64);
        assert!(burst.is_full());
        assert_eq!(burst.as_slice(), (0..64).collect::<Vec<_>>());
        for expected in 0..40 {
            assert_eq!(burst.pop(), Some(expected));
        }
        burst.extend(64..104);
        assert_eq!(burst.len(), 64);
        for expected in 40..104 {
            assert_eq!(burst.pop(), Some(expected));
        }
        assert_eq!(burst.pop(), None);
    }

    #[test]
    #[should_panic = "a burst holds no more than 64 items"]
    fn a_65th_item_panics() {
        Burst::new().extend(0..65);
    }

    #[test]
    fn each_item_is_dropped_once() {
        let item = Rc::new(());
        let mut burst = Burst::new();
        for _ in 0..64 {
            burst.push(Rc::clone(&item));
        }
        for _ in 0..10 {
            burst.pop();
        }
        assert_eq!(Rc::strong_count(&item), 55);
        assert_eq!(burst.spare_mut().len(), 10);
        burst.push(Rc::clone(&item));
        drop(burst);
        assert_eq!(Rc::strong_count(&item), 1);
    }

    /// Counts its drops, and panics in one of them.
    struct Fragile<'a>(&'a Cell<usize>);

    impl Drop for Fragile<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
            assert!(self.0.get() != 3, "a planted panic");
        }
    }

    #[test]
    fn a_panic_in_an_items_drop_loses_no_other() {
        let drops = Cell::new(0);
        let filled = || {
            let mut burst = Burst::new();
            burst.extend((0..12).map(|_| Fragile(&drops)));
            std::mem::forget(burst.pop());
            std::mem::forget(burst.pop());
            burst
        };
        let burst = filled();
        assert!(catch_unwind(AssertUnwindSafe(|| drop(burst))).is_err());
        assert_eq!(drops.replace(0), 10);

        let mut burst = filled();
        assert!(catch_unwind(AssertUnwindSafe(|| burst.clear())).is_err());
        assert_eq!((drops.get(), burst.len()), (10, 0));
        burst.push(Fragile(&drops));
        drop(burst);
        assert_eq!(drops.get(), 11);
    }

    #[test]
    fn items_are_changed_on_their_way() {
        let (mut from, mut to) = (Burst::new(), Burst::new());
        to.extend(0..60);
        assert_eq!((0..50).map_while(|_| to.pop()).count(), 50);
        from.extend(0..30);
        from.pop();
        from.map_into(&mut to, |item| (item % 2 == 1).then_some(item * 10));
        assert_eq!((from.len(), from.pop()), (0, None));
        let expected: Vec<_> = (50..60).chain((1..30).step_by(2).map(|item| item * 10)).collect();
        assert_eq!(to.as_slice(), expected);
    }

    #[test]
    fn a_move_ends_at_the_first_error_and_goes_on_after_it() {
        let (mut from, mut to) = (Burst::new(), Burst::new());
        from.extend(0..10);
        let mut strays = Vec::new();
        while let Some(stray) = from.map_until(&mut to, |item| match item % 4 {
            3 => Err(item),
            _ => Ok(item * 10),
        }) {
            assert_eq!(from.len(), 9 - stray);
            strays.push(stray);
        }
        assert_eq!((strays, from.len()), (vec![3, 7], 0));
        assert_eq!(to.as_slice(), [0, 10, 20, 40, 50, 60, 80, 90]);
    }

    #[test]
    fn a_panic_on_the_way_drops_each_item_once() {
        let item = Rc::new(());
        let (mut from, mut to) = (Burst::new(), Burst::new());
        from.extend((0..10).map(|number| (number, Rc::clone(&item))));
        let mapped = catch_unwind(AssertUnwindSafe(|| {
            from.map_into(&mut to, |(number, item)| {
                assert!(number != 6, "a planted panic");
                Some(item)
            });
        }));
        assert!(mapped.is_err());
        assert_eq!((from.len(), to.len(), Rc::strong_count(&item)), (3, 6, 10));
        drop((from, to));
        assert_eq!(Rc::strong_count(&item), 1);
    }

    #[test]
    #[should_panic = "no room for 2 items"]
    fn what_has_no_room_is_not_taken() {
        let (mut from, mut to) = (Burst::new(), Burst::new());
        from.extend(0..2);
        to.extend(0..63);
        from.map_into(&mut to, Some);
    }

    #[test]
    fn a_limit_bounds_what_a_source_may_add() {
        let mut burst = Burst::new();
        burst.set_limit(10);
        burst.extend(0..4);
        assert_eq!((burst.room(), burst.spare_mut().len()), (6, 6));
        burst.set_limit(2);
        assert_eq!((burst.room(), burst.spare_mut().len()), (0, 0));
        burst.set_limit(1000);
        assert_eq!(burst.room(), 60);
    }

    #[test]
    fn a_driver_writes_and_takes_items_itself() {
        let mut burst = Burst::new();
        for slot in &mut burst.spare_mut()[..3] {
            slot.write(7_u8);
        }
        // SAFETY: three slots were written, nothing happened since.
        unsafe { burst.assume_pushed(3) };
        assert_eq!(burst.as_mut_slice(), [7, 7, 7]);
        burst.forget_front(2);
        assert_eq!(burst.len(), 1);
        burst.forget_front(1);
        assert!(burst.is_empty());
    }
}
