//! A burst: up to 64 items that move through the engine together.

mod carries;
mod cold;
mod tagged;

pub use carries::Carries;
use cold::IterMut;
pub use tagged::Tagged;

use cold::{Fetch, fetch_first, fetch_next};
use hotloop_ring::{MoveIn, MoveOut};
use std::convert::Infallible;
use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::ControlFlow;

/// Number of items that a burst holds.
///
/// At 64, looking flows up in bursts stops gaining: the prefetches of the items ahead hide the
/// memory latency.
pub const BURST_CAPACITY: usize = 64;

/// Up to 64 items in order of arrival, stored inline.
///
/// A burst is a queue: [`push`](Self::push) at the end, [`pop`](Self::pop) from the front. Dropping
/// a burst drops the items left in it.
pub struct Burst<T> {
    /// Index of the first item. Invariant: `front <= end`.
    front: usize,
    /// One past the index of the last item. Invariant: `end <= BURST_CAPACITY`.
    end: usize,
    /// Maximum number of items after a source has filled the burst. Invariant: `limit <=
    /// BURST_CAPACITY`.
    limit: usize,
    /// The function that fetches the items, if they are [cold](Self::set_cold) and no pass over them has begun.
    fetch: Option<Fetch<T>>,
    /// Invariant: exactly the slots `front..end` are initialised.
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
            fetch: None,
            slots: [const { MaybeUninit::uninit() }; BURST_CAPACITY],
        }
    }

    /// Number of items in the burst.
    #[inline(always)]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.end - self.front
    }

    /// Whether the burst is empty.
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

    /// Whether the last slot is in use: items may still fit in front.
    #[inline(always)]
    pub(crate) const fn is_at_end(&self) -> bool {
        self.end == BURST_CAPACITY
    }

    /// Number of items that a source may still add: 64, or the limit that was set, less the number
    /// of items.
    #[inline(always)]
    #[must_use]
    pub const fn room(&self) -> usize {
        self.limit.saturating_sub(self.len())
    }

    /// Sets the number of items up to which a source may fill the burst, at most 64. The engine
    /// lowers it for a source that can wait, to the free room of every later ring.
    #[inline(always)]
    pub const fn set_limit(&mut self, limit: usize) {
        self.limit = if limit < BURST_CAPACITY { limit } else { BURST_CAPACITY };
    }

    /// Puts an item at the end.
    ///
    /// # Panics
    /// If the burst is full.
    #[inline(always)]
    pub fn push(&mut self, item: T) {
        if self.end == BURST_CAPACITY {
            self.make_room();
        }
        // SAFETY: `end <= BURST_CAPACITY` always, and the case that they are equal was handled
        // above.
        let slot = unsafe { self.slots.get_unchecked_mut(self.end) };
        slot.write(item);
        self.end += 1;
    }

    /// Removes and returns the item at the front. A stage that does so for each packet calls
    /// [`fetch`](Self::fetch) before.
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

    /// The items, front first, mutable.
    #[inline(always)]
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: `front <= end <= BURST_CAPACITY`.
        let slots = unsafe { self.slots.get_unchecked_mut(self.front..self.end) };
        // SAFETY: 1. The slots `front..end` are initialised. 2. `MaybeUninit<T>` has the layout of
        // `T`. 3. The borrow of `self` is exclusive.
        unsafe { &mut *(std::ptr::from_mut(slots) as *mut [T]) }
    }

    /// The items, front first, mutable. Like [`as_mut_slice`](Self::as_mut_slice), but
    /// [cold](Self::set_cold) items are fetched ahead.
    #[inline(always)]
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = &mut T> {
        let fetch = self.fetch.take();
        IterMut::new(self.as_mut_slice(), fetch)
    }

    /// Starts to fetch all items if they are [cold](Self::set_cold): for code that passes them on
    /// unchanged, or takes them one by one.
    #[inline(always)]
    pub fn fetch(&mut self) {
        if let Some(fetch) = self.fetch.take() {
            fetch(self.as_slice(), false);
        }
    }

    /// Takes all items out.
    #[inline(always)]
    fn drain(&mut self) -> Drain<'_, T> {
        let (next, end) = (self.front, self.end);
        (self.front, self.end) = (0, 0);
        Drain { slots: &mut self.slots, next, end }
    }

    /// The free slots after the last item, up to [`room`](Self::room), for a driver that writes
    /// items itself. [`assume_pushed`](Self::assume_pushed) makes them items.
    #[inline(always)]
    pub fn spare_mut(&mut self) -> &mut [MaybeUninit<T>] {
        if self.front > 0 {
            self.compact();
        }
        let end = self.end + self.room();
        // SAFETY: `front` is 0 here, so `end` becomes `limit` if there is room for more, and is
        // `self.end` otherwise. Neither is above `BURST_CAPACITY`.
        unsafe { self.slots.get_unchecked_mut(self.end..end) }
    }

    /// Makes the first `count` slots of [`spare_mut`](Self::spare_mut) items of the burst.
    ///
    /// # Safety
    /// 1. Nothing was done to the burst since `spare_mut` returned them. 2. The first `count` of
    ///    them have been initialised, and have no other owner.
    #[inline(always)]
    pub unsafe fn assume_pushed(&mut self, count: usize) {
        debug_assert!(self.end + count <= BURST_CAPACITY);
        self.end += count;
    }

    /// Releases the first `count` items without dropping them: a driver has taken them over.
    ///
    /// Without another owner, they leak.
    ///
    /// # Panics
    /// If there are fewer.
    #[inline(always)]
    pub fn forget_front(&mut self, count: usize) {
        if count == self.len() {
            (self.front, self.end) = (0, 0);
            return;
        }
        assert!(count < self.len(), "{count} items given up of {}", self.len());
        self.front += count;
    }

    /// Takes the items one by one, front first, and puts the results of `change`, if any, at the
    /// end of `out`. Equivalent to popping and pushing, but both ends stay in registers.
    ///
    /// If `change` panics, the items it has not seen are left, and its results are in `out`.
    ///
    /// # Panics
    /// If `out` has fewer free slots than there are items.
    #[inline(always)]
    pub fn map_into<U>(&mut self, out: &mut Burst<U>, mut change: impl FnMut(T) -> Option<U>) {
        let _ = self.move_into(out, |item| ControlFlow::<Infallible, _>::Continue(change(item)));
    }

    /// Like [`map_into`](Self::map_into), up to the first item for which `change` returns an error.
    /// Returns that error. The later items are left.
    ///
    /// # Panics
    /// Like [`map_into`](Self::map_into).
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

    /// Takes items until `change` breaks off, and puts its results at the end of `out`.
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
        let (front, last, end) = (self.front, self.end, out.end);
        let fetch = self.fetch.take();
        if let Some(fetch) = fetch {
            fetch_first(fetch, self.as_slice());
        }
        let mut moving = Moving { from: self, to: out, front, end };
        while moving.front < last {
            let stop = fetch.map_or(last, |fetch| moving.front + moving.fetch_next(fetch));
            while moving.front < stop {
                // SAFETY: `front < end <= BURST_CAPACITY`.
                let slot = unsafe { moving.from.slots.get_unchecked(moving.front) };
                // SAFETY: 1. The slot is in `front..end`, so it is initialised. 2. `front` moves past it
                // before anything can panic, so it is read this once.
                let item = unsafe { slot.assume_init_read() };
                moving.front += 1;
                if let Some(made) = change(item)? {
                    // SAFETY: `out` began with a free slot at its end for each item.
                    let slot = unsafe { moving.to.slots.get_unchecked_mut(moving.end) };
                    slot.write(made);
                    moving.end += 1;
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Moves the items to the first slots, so that a free slot follows them.
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

/// Two bursts while items move from one to the other. The drop sets their ends, also if a panic
/// ends the move.
struct Moving<'a, T, U> {
    from: &'a mut Burst<T>,
    to: &'a mut Burst<U>,
    /// Index of the first item that was not taken. Invariant: `from.front <= front <= from.end`.
    front: usize,
    /// Index after the last item that was put. Invariant: the slots `to.end..end` are initialised,
    /// and `end <= BURST_CAPACITY`.
    end: usize,
}

impl<T, U> Moving<'_, T, U> {
    /// Fetches the part after the next one. Returns the length of the next one.
    fn fetch_next(&mut self, fetch: Fetch<T>) -> usize {
        self.from.front = self.front;
        fetch_next(fetch, self.from.as_slice())
    }
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

// SAFETY: 1. The items are the burst's own. 2. `front` has moved past those that were moved out.
unsafe impl<T> MoveOut for Burst<T> {
    type Item = T;

    #[inline(always)]
    fn items(&self) -> &[T] {
        self.as_slice()
    }

    #[inline(always)]
    unsafe fn forget_front(&mut self, count: usize) {
        Self::forget_front(self, count);
    }
}

impl<T> MoveIn for Burst<T> {
    type Item = T;

    /// All free slots, whatever the limit.
    #[inline(always)]
    fn spare(&mut self) -> &mut [MaybeUninit<T>] {
        if self.front != 0 {
            self.compact();
        }
        // SAFETY: `end <= BURST_CAPACITY`.
        unsafe { self.slots.get_unchecked_mut(self.end..) }
    }

    #[inline(always)]
    unsafe fn moved_in(&mut self, count: usize) {
        // By contract, this many slots after `end` are initialised: `end <= BURST_CAPACITY` still
        // holds.
        self.end += count;
    }
}

impl<T> Default for Burst<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Carries> Burst<T> {
    /// Drops all packets. Packets in mbufs of one mempool go back to it together, which costs less
    /// than dropping them one by one.
    ///
    /// If dropping one of them panics, the others are dropped all the same.
    #[inline(always)]
    pub fn clear(&mut self) {
        if !self.is_empty() {
            self.drop_packets();
        }
        (self.front, self.end) = (0, 0);
    }

    #[inline(never)]
    fn drop_packets(&mut self) {
        T::drop_all(self.drain());
    }
}

impl<T> Drop for Burst<T> {
    fn drop(&mut self) {
        drop(self.drain());
    }
}

/// The former items of a burst, front first. Its drop drops the rest, also if a panic ends the
/// draining.
pub struct Drain<'a, T> {
    /// Invariant: the slots `next..end` are initialised, and owned by this value. `Burst::drain`
    /// makes this value with all items, and the burst is then empty.
    slots: &'a mut [MaybeUninit<T>; BURST_CAPACITY],
    /// Invariant: `next <= end <= BURST_CAPACITY`.
    next: usize,
    end: usize,
}

impl<T> Iterator for Drain<'_, T> {
    type Item = T;

    #[inline(always)]
    fn next(&mut self) -> Option<T> {
        if self.next == self.end {
            return None;
        }
        // SAFETY: `next < end <= BURST_CAPACITY`.
        let slot = unsafe { self.slots.get_unchecked(self.next) };
        self.next += 1;
        // SAFETY: 1. The slot was in `next..end`, so it is initialised. 2. `next` has moved past it, so it
        // is read this once.
        Some(unsafe { slot.assume_init_read() })
    }
}

impl<'a, P, M> Drain<'a, Tagged<P, M>> {
    /// The packets without their tags.
    pub(crate) fn untagged(self) -> Drain<'a, P> {
        let mut this = ManuallyDrop::new(self);
        let slots = std::ptr::from_mut(this.slots).cast::<[MaybeUninit<P>; BURST_CAPACITY]>();
        // SAFETY: 1. A `Tagged<P, M>` is laid out as its `P` is: it is transparent. 2. The slots are borrowed for `'a`
        // exclusively, and the borrow passes on: `this` is not dropped.
        let slots = unsafe { &mut *slots };
        Drain { slots, next: this.next, end: this.end }
    }
}

impl<T> AsRef<[T]> for Drain<'_, T> {
    /// The remaining items, front first.
    #[inline(always)]
    fn as_ref(&self) -> &[T] {
        // SAFETY: `next <= end <= BURST_CAPACITY`.
        let left = unsafe { self.slots.get_unchecked(self.next..self.end) };
        // SAFETY: 1. The slots `next..end` are initialised. 2. `MaybeUninit<T>` has the layout of `T`.
        unsafe { &*(std::ptr::from_ref(left) as *const [T]) }
    }
}

impl<T: fmt::Debug> fmt::Debug for Drain<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_ref()).finish()
    }
}

impl<T> Drop for Drain<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: `next <= end <= BURST_CAPACITY`.
        let left = unsafe { self.slots.get_unchecked_mut(self.next..self.end) };
        // SAFETY: 1. The slots `next..end` are initialised. 2. They are this value's, which ends, so they are
        // dropped this once. 3. `MaybeUninit<T>` has the layout of `T`.
        unsafe { std::ptr::drop_in_place(std::ptr::from_mut(left) as *mut [T]) };
    }
}

impl<T> Extend<T> for Burst<T> {
    /// # Panics
    /// If the items don't fit.
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
mod tests;
