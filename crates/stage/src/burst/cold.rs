//! Items that another core has just written, which are fetched a few ahead of their use.

use super::Burst;
use crate::Carries;
use std::slice;

/// Number of items to fetch at a time, while the items before them are processed. Fetching a whole
/// burst at once hides nothing: a core waits as soon as its miss buffers are in use (a few tens at
/// most), and a burst has more lines.
const PART: usize = 8;

/// Starts to fetch the data that items refer to, like [`Carries::prefetch`] with the flag.
pub(super) type Fetch<T> = fn(&[T], bool);

/// Fetches the first part of `items`. [`fetch_next`] follows.
#[inline]
pub(super) fn fetch_first<T>(fetch: Fetch<T>, items: &[T]) {
    fetch(&items[..items.len().min(PART)], true);
}

/// Fetches the second part of `items`; the first has been fetched already. Returns the length of the first part.
#[inline]
pub(super) fn fetch_next<T>(fetch: Fetch<T>, items: &[T]) -> usize {
    let count = items.len().min(PART);
    fetch_first(fetch, &items[count..]);
    count
}

impl<T: Carries> Burst<T> {
    /// Notes that another core has just written the items. The first pass over them, if it is
    /// [`iter_mut`](Self::iter_mut), [`map_into`](Self::map_into) or
    /// [`Output::map`](crate::Output::map), then starts to fetch each item a few items before it is
    /// due. [`fetch`](Self::fetch) starts with all of them at once. [`as_slice`](Self::as_slice)
    /// and [`pop`](Self::pop) do not fetch items.
    ///
    /// The engine calls this for packets from a ring.
    #[inline(always)]
    pub fn set_cold(&mut self) {
        self.fetch = Some(|items, is_ahead| items.iter().for_each(|item| item.prefetch(is_ahead)));
    }
}

/// The items of a burst, mutable: see [`Burst::iter_mut`].
pub(super) struct IterMut<'a, T> {
    part: slice::IterMut<'a, T>,
    /// The function that fetches the items after the part, and those items. The next part of them has been fetched.
    rest: Option<(Fetch<T>, &'a mut [T])>,
}

impl<'a, T> IterMut<'a, T> {
    #[inline(always)]
    pub(super) fn new(items: &'a mut [T], fetch: Option<Fetch<T>>) -> Self {
        let Some(fetch) = fetch else { return Self { part: items.iter_mut(), rest: None } };
        fetch_first(fetch, items);
        Self { part: [].iter_mut(), rest: Some((fetch, items)) }
    }

    #[inline(never)]
    fn next_part(&mut self) -> Option<&'a mut T> {
        let (fetch, items) = self.rest.take()?;
        let (part, rest) = items.split_at_mut(fetch_next(fetch, items));
        (self.part, self.rest) = (part.iter_mut(), Some((fetch, rest)));
        self.part.next()
    }
}

impl<'a, T> Iterator for IterMut<'a, T> {
    type Item = &'a mut T;

    #[inline(always)]
    fn next(&mut self) -> Option<&'a mut T> {
        let item = self.part.next();
        if item.is_some() || self.rest.is_none() { item } else { self.next_part() }
    }

    #[inline(always)]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let count = self.part.len() + self.rest.as_ref().map_or(0, |(_, rest)| rest.len());
        (count, Some(count))
    }
}

impl<T> ExactSizeIterator for IterMut<'_, T> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BURST_CAPACITY;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Mutex;

    /// A packet that notes its prefetches: its number, and whether it was ahead.
    struct Noting<'a>(usize, &'a Mutex<Vec<(usize, bool)>>);

    impl Carries for Noting<'_> {
        fn bytes(&self) -> &[u8] {
            &[]
        }

        fn prefetch(&self, is_ahead: bool) {
            self.1.lock().unwrap().push((self.0, is_ahead));
        }
    }

    fn cold(count: usize, notes: &Mutex<Vec<(usize, bool)>>) -> Burst<Noting<'_>> {
        let mut burst = Burst::new();
        burst.extend((0..count).map(|number| Noting(number, notes)));
        burst.set_cold();
        burst
    }

    /// All packets, in order, as if each was prefetched once.
    fn once(count: usize, is_ahead: bool) -> Vec<(usize, bool)> {
        (0..count).map(|number| (number, is_ahead)).collect()
    }

    /// Checks that at least one part, and at most two, are fetched from `number` on.
    fn assert_is_ahead(number: usize, count: usize, fetched: usize) {
        let (least, most) = (number + PART, number + 2 * PART);
        assert!((least.min(count)..=most).contains(&fetched), "{fetched} at {number} of {count}");
    }

    #[test]
    fn the_first_pass_over_a_cold_burst_fetches_each_packet_once_and_in_time() {
        for count in 0..=BURST_CAPACITY {
            let notes = Mutex::default();
            let mut burst = cold(count, &notes);
            for (number, item) in burst.iter_mut().enumerate() {
                assert_eq!(item.0, number);
                assert_is_ahead(number, count, notes.lock().unwrap().len());
            }
            assert_eq!(burst.iter_mut().len(), count);
            let mut out = Burst::new();
            burst.map_into(&mut out, Some);
            assert_eq!(*notes.lock().unwrap(), once(count, true));
            assert_eq!(out.len(), count);

            let notes = Mutex::default();
            let mut next = 0..;
            cold(count, &notes).map_into(&mut Burst::new(), |item| {
                assert_eq!(Some(item.0), next.next());
                assert_is_ahead(item.0, count, notes.lock().unwrap().len());
                Some(())
            });
            assert_eq!(
                (next.start, std::mem::take(&mut *notes.lock().unwrap())),
                (count, once(count, true))
            );
        }
    }

    #[test]
    fn all_are_fetched_at_once_where_asked_for() {
        let notes = Mutex::default();
        let mut burst = cold(20, &notes);
        assert!(burst.as_slice().len() == 20 && burst.as_mut_slice().len() == 20);
        assert!(notes.lock().unwrap().is_empty());
        burst.fetch();
        burst.fetch();
        assert_eq!(burst.iter_mut().count(), 20);
        assert_eq!(*notes.lock().unwrap(), once(20, false));
    }

    #[test]
    fn a_pass_that_ends_early_leaves_the_other_packets() {
        let notes = Mutex::default();
        let mut burst = cold(30, &notes);
        let mut out = Burst::new();
        let stopped =
            burst.map_until(&mut out, |item| if item.0 < 10 { Ok(item) } else { Err(item) });
        assert_eq!((stopped.map(|item| item.0), out.len(), burst.len()), (Some(10), 10, 19));
        burst.set_cold();
        let ended = catch_unwind(AssertUnwindSafe(|| {
            burst.map_into(&mut out, |item| {
                Some(item).filter(|item| item.0 != 20 || panic!("planted"))
            });
        }));
        assert!(ended.is_err());
        assert_eq!((out.len(), burst.len(), burst.pop().map(|item| item.0)), (19, 9, Some(21)));
    }
}
