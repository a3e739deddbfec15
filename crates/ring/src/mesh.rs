//! A ring from each of several dispatchers to each of several workers.

use std::fmt;

use crate::{Consumer, Producer, ring};

/// Rings from every dispatcher to every worker, one writer and one reader each.
///
/// ```
/// use hotloop_ring::Mesh;
///
/// let Mesh { mut rows, mut columns } = Mesh::new(1, 2, 64);
/// rows[0].push(1, "to the second worker").unwrap();
/// assert_eq!(columns[0].len(), 0);
/// assert_eq!(columns[1].pop_burst(64, |item| assert_eq!(item, "to the second worker")), 1);
/// ```
#[derive(Debug)]
pub struct Mesh<T> {
    /// The end of each dispatcher, in order.
    pub rows: Vec<Row<T>>,
    /// The end of each worker, in order.
    pub columns: Vec<Column<T>>,
}

impl<T> Mesh<T> {
    /// Rings of `capacity` items from each of `dispatcher_count` to each of `worker_count`.
    ///
    /// # Panics
    /// As [`ring`].
    pub fn new(dispatcher_count: usize, worker_count: usize, capacity: usize) -> Self {
        Self::between(dispatcher_count, worker_count, capacity, |_, _| true)
    }

    /// Rings of `capacity` items from each of `core_count` cores to each *other* one, for cores
    /// that dispatch and work. Core `i` has row `i` and column `i`, and no ring to itself.
    ///
    /// # Panics
    /// As [`ring`].
    pub fn all_to_all(core_count: usize, capacity: usize) -> Self {
        Self::between(core_count, core_count, capacity, |from, to| from != to)
    }

    fn between(
        dispatcher_count: usize,
        worker_count: usize,
        capacity: usize,
        is_joined: impl Fn(usize, usize) -> bool,
    ) -> Self {
        let mut columns: Vec<_> =
            (0..worker_count).map(|_| Column { rings: Vec::new(), first_index: 0 }).collect();
        let rows = (0..dispatcher_count)
            .map(|from| {
                let to_each = columns.iter_mut().enumerate().map(|(to, column)| {
                    is_joined(from, to).then(|| {
                        let (producer, consumer) = ring(capacity);
                        column.rings.push(consumer);
                        producer
                    })
                });
                Row { rings: to_each.collect() }
            })
            .collect();
        Self { rows, columns }
    }
}

/// A dispatcher's end of a [`Mesh`]: a producer for each worker.
pub struct Row<T> {
    /// By worker; none where the worker is the dispatcher itself.
    rings: Vec<Option<Producer<T>>>,
}

impl<T> Row<T> {
    /// Pushes one item to `worker`.
    ///
    /// # Errors
    /// Gives the item back when that ring is full.
    ///
    /// # Panics
    /// When there is no such worker, or it is this core itself in an
    /// [all-to-all](Mesh::all_to_all) mesh.
    #[inline]
    pub fn push(&mut self, worker: usize, item: T) -> Result<(), T> {
        self.ring(worker).push(item)
    }

    /// Pushes up to `count` items to `worker`, as [`Producer::push_burst`] does, and returns how
    /// many.
    ///
    /// # Panics
    /// As [`push`](Self::push).
    #[inline]
    pub fn push_burst(&mut self, worker: usize, count: usize, next: impl FnMut() -> T) -> usize {
        self.ring(worker).push_burst(count, next)
    }

    /// How many items there is room for in the fullest ring: so many can be pushed whatever their
    /// workers are. `usize::MAX` where there are no rings.
    pub fn free_count_min(&mut self) -> usize {
        self.producers_mut().map(Producer::free_count).min().unwrap_or(usize::MAX)
    }

    /// Items in all rings of this row now.
    pub fn len(&self) -> usize {
        self.producers().map(Producer::len).sum()
    }

    /// True when all rings of this row are empty.
    pub fn is_empty(&self) -> bool {
        self.producers().all(Producer::is_empty)
    }

    /// The highest [`Producer::high_water`] among the rings.
    pub fn high_water(&self) -> usize {
        self.producers().map(Producer::high_water).max().unwrap_or(0)
    }

    /// Workers of the mesh, this core itself included.
    pub fn worker_count(&self) -> usize {
        self.rings.len()
    }

    /// The rings that exist, each with its worker's number.
    pub fn rings(&self) -> impl Iterator<Item = (usize, &Producer<T>)> {
        self.rings.iter().enumerate().filter_map(|(worker, ring)| Some((worker, ring.as_ref()?)))
    }

    #[inline(always)]
    fn ring(&mut self, worker: usize) -> &mut Producer<T> {
        self.rings[worker].as_mut().expect("a core has no ring to itself")
    }

    fn producers(&self) -> impl Iterator<Item = &Producer<T>> {
        self.rings.iter().flatten()
    }

    fn producers_mut(&mut self) -> impl Iterator<Item = &mut Producer<T>> {
        self.rings.iter_mut().flatten()
    }
}

impl<T> fmt::Debug for Row<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.rings).finish()
    }
}

/// A worker's end of a [`Mesh`]: a consumer for each dispatcher.
pub struct Column<T> {
    /// By dispatcher, without those that have no ring.
    rings: Vec<Consumer<T>>,
    /// The ring that the next burst starts with; below `rings.len()`, or 0.
    first_index: usize,
}

impl<T> Column<T> {
    /// Pops up to `count_max` items from all rings together, hands each to `each`, and returns how
    /// many.
    ///
    /// Every call starts with the next ring, so one busy dispatcher can't keep the others waiting
    /// for longer than there are rings. Items of one dispatcher come in their order. When `each`
    /// panics, it has the item it was called with, and all others stay in their rings.
    #[inline]
    pub fn pop_burst(&mut self, count_max: usize, mut each: impl FnMut(T)) -> usize {
        let first_index = self.first_index;
        if first_index < self.rings.len() {
            self.first_index = (first_index + 1) % self.rings.len();
        }
        let (behind, ahead) = self.rings.split_at_mut(first_index);
        let mut popped_count = 0;
        for ring in ahead.iter_mut().chain(behind) {
            if popped_count == count_max {
                break;
            }
            popped_count += ring.pop_burst(count_max - popped_count, &mut each);
        }
        popped_count
    }

    /// Items in all rings of this column now.
    pub fn len(&self) -> usize {
        self.rings.iter().map(Consumer::len).sum()
    }

    /// True when all rings of this column are empty now.
    pub fn is_empty(&self) -> bool {
        self.rings.iter().all(Consumer::is_empty)
    }

    /// The items that always fit into all rings together.
    pub fn capacity(&self) -> usize {
        self.rings.iter().map(Consumer::capacity).sum()
    }

    /// The items that all rings together hold at most.
    pub fn slot_count(&self) -> usize {
        self.rings.iter().map(Consumer::slot_count).sum()
    }

    /// True when every dispatcher is gone and nothing is left: no item will ever come. A column
    /// without rings is always finished.
    pub fn is_finished(&self) -> bool {
        self.rings.iter().all(Consumer::is_finished)
    }
}

impl<T> fmt::Debug for Column<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.rings).finish()
    }
}
