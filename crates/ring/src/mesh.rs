//! Rings from each core of one group to each core of the next.

use std::fmt;

use crate::{Consumer, MoveIn, MoveOut, Producer, ring};

/// Rings between two groups of cores, one writer and one reader each.
///
/// ```
/// use hotloop_ring::Mesh;
///
/// let Mesh { mut producers, mut consumers } = Mesh::new(1, 2, 64);
/// assert_eq!(producers[0].push_burst(1, 1, || "to the second"), 1);
/// assert_eq!(consumers[0].len(), 0);
/// assert_eq!(consumers[1].pop_burst(64, |item| assert_eq!(item, "to the second")), 1);
/// ```
#[derive(Debug)]
pub struct Mesh<T> {
    /// Each sending core's ends, in order.
    pub producers: Vec<Producers<T>>,
    /// Each receiving core's ends, in order.
    pub consumers: Vec<Consumers<T>>,
}

impl<T> Mesh<T> {
    /// Rings of `capacity` items from each of `producer_count` cores to each of `consumer_count`.
    ///
    /// # Panics
    /// As for [`ring`].
    pub fn new(producer_count: usize, consumer_count: usize, capacity: usize) -> Self {
        Self::joined(producer_count, consumer_count, capacity, |_, _| true)
    }

    /// Rings of `capacity` items between those pairs of cores for which `is_joined(from, to)` is
    /// true.
    ///
    /// # Panics
    /// As for [`ring`].
    pub fn joined(
        producer_count: usize,
        consumer_count: usize,
        capacity: usize,
        is_joined: impl Fn(usize, usize) -> bool,
    ) -> Self {
        let mut consumers: Vec<_> =
            (0..consumer_count).map(|_| Consumers { rings: Vec::new(), first_index: 0 }).collect();
        let producers = (0..producer_count)
            .map(|from| {
                let to_each = consumers.iter_mut().enumerate().map(|(to, consumers)| {
                    is_joined(from, to).then(|| {
                        let (producer, consumer) = ring(capacity);
                        consumers.rings.push(consumer);
                        producer
                    })
                });
                Producers { rings: to_each.collect() }
            })
            .collect();
        Self { producers, consumers }
    }
}

/// The ends of a [`Mesh`] on a sending core.
pub struct Producers<T> {
    /// By receiving core; `None` if the two are not joined.
    rings: Vec<Option<Producer<T>>>,
}

impl<T> Producers<T> {
    /// Pushes up to `count` items to the core `to`, as [`Producer::push_burst`] does, and returns the
    /// number pushed.
    ///
    /// # Panics
    /// If no ring leads to that core.
    #[inline]
    pub fn push_burst(&mut self, to: usize, count: usize, next: impl FnMut() -> T) -> usize {
        self.ring(to).push_burst(count, next)
    }

    /// Moves items to the core `to`, as [`Producer::push_from`] does, and returns their number.
    ///
    /// # Panics
    /// If no ring leads to that core.
    #[inline]
    pub fn push_from(&mut self, to: usize, from: &mut impl MoveOut<Item = T>) -> usize {
        self.ring(to).push_from(from)
    }

    #[inline(always)]
    fn ring(&mut self, to: usize) -> &mut Producer<T> {
        self.rings[to].as_mut().expect("a ring leads to that core")
    }

    /// Number of items that can be pushed to any core: the room in the fullest ring. `usize::MAX`
    /// without rings.
    pub fn free_count_min(&mut self) -> usize {
        self.rings.iter_mut().flatten().map(Producer::free_count).min().unwrap_or(usize::MAX)
    }

    /// Number of receiving cores, with or without a ring to them.
    pub fn consumer_count(&self) -> usize {
        self.rings.len()
    }
}

impl<T> fmt::Debug for Producers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.rings).finish()
    }
}

/// The ends of a [`Mesh`] on a receiving core.
pub struct Consumers<T> {
    rings: Vec<Consumer<T>>,
    /// Index of the ring that the next burst starts with; below `rings.len()`, or 0.
    first_index: usize,
}

impl<T> Consumers<T> {
    /// Pops up to `count_max` items from all rings together, calls `each` with every one, and
    /// returns their number.
    ///
    /// Every call starts with the next ring, so that each sender gets the first turn once in a
    /// round of all rings, however busy one is. Items of one sender come in their order. If `each`
    /// panics, it owns the item it was called with, and all others stay in their rings.
    #[inline]
    pub fn pop_burst(&mut self, count_max: usize, mut each: impl FnMut(T)) -> usize {
        self.gather(count_max, |ring, count_max| ring.pop_burst(count_max, &mut each))
    }

    /// [`pop_burst`](Self::pop_burst) that moves the items into `to`, up to its free room. Bursts
    /// stay whole, as with [`Consumer::pop_into`].
    #[inline]
    pub fn pop_into(&mut self, count_max: usize, to: &mut impl MoveIn<Item = T>) -> usize {
        self.gather(count_max, |ring, room| {
            let is_first = room == count_max;
            if is_first || ring.has_fewer_than(count_max) { ring.pop_into(room, to) } else { 0 }
        })
    }

    /// Pops from one ring after the other, up to `count_max` items together.
    #[inline(always)]
    fn gather(
        &mut self,
        count_max: usize,
        mut pop: impl FnMut(&mut Consumer<T>, usize) -> usize,
    ) -> usize {
        let first_index = self.first_index;
        if first_index < self.rings.len() {
            self.first_index = (first_index + 1) % self.rings.len();
        }
        let (before, from_first) = self.rings.split_at_mut(first_index);
        let mut popped_count = 0;
        for ring in from_first.iter_mut().chain(before) {
            if popped_count == count_max {
                break;
            }
            popped_count += pop(ring, count_max - popped_count);
        }
        popped_count
    }

    /// Number of items in all rings now.
    pub fn len(&self) -> usize {
        self.rings.iter().map(Consumer::len).sum()
    }

    /// Whether all rings are empty now.
    pub fn is_empty(&self) -> bool {
        self.rings.iter().all(Consumer::is_empty)
    }

    /// Maximum number of items in all rings together.
    pub fn slot_count(&self) -> usize {
        self.rings.iter().map(Consumer::slot_count).sum()
    }

    /// Whether every sender is gone and all rings are empty: no item will ever come. Always true
    /// without rings.
    pub fn is_finished(&self) -> bool {
        self.rings.iter().all(Consumer::is_finished)
    }
}

impl<T> fmt::Debug for Consumers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.rings).finish()
    }
}
