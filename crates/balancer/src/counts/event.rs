//! An event that a worker counts, with its last instance.

use hotloop::stage::Counter;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::fence;

/// The number of times that an event has occurred, and its last instance, as a number. Only the worker
/// writes, any thread may read.
#[derive(Debug, Default)]
pub(super) struct Event {
    /// Instances that the worker has begun to write.
    begun: Counter,
    /// The last instance, the upper half first.
    halves: [Counter; 2],
    /// Instances that are written.
    written: Counter,
}

impl Event {
    /// Counts an instance, which takes the place of the one before. Only the worker may call it.
    pub(super) fn note(&self, instance: u128) {
        self.begun.add(1);
        // The stores below come after the one above, and before the one at the end.
        fence(Release);
        self.halves[0].set((instance >> 64) as u64);
        self.halves[1].set(instance as u64);
        fence(Release);
        self.written.add(1);
    }

    /// Returns how many instances there were, and the last. `None` before the first, and while the worker
    /// writes one.
    pub(super) fn last(&self) -> Option<(u64, u128)> {
        let count = self.written.count();
        fence(Acquire);
        let [upper, lower] = [0, 1].map(|half: usize| u128::from(self.halves[half].count()));
        fence(Acquire);
        let is_whole = count > 0 && self.begun.count() == count;
        is_whole.then_some((count, upper << 64 | lower))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_instance_is_read_with_the_count() {
        let event = Event::default();
        assert_eq!(event.last(), None);
        event.note(7);
        event.note(u128::MAX - 1);
        assert_eq!(event.last(), Some((2, u128::MAX - 1)));
    }

    #[test]
    fn an_instance_that_another_thread_reads_is_whole() {
        const COUNT: u64 = if cfg!(miri) { 100 } else { 200_000 };
        let event = Event::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (1..=COUNT)
                    .for_each(|number| event.note(u128::from(number) << 64 | u128::from(!number)))
            });
            let mut last = 0;
            while last < COUNT {
                let Some((count, instance)) = event.last() else { continue };
                assert!(count >= last);
                assert_eq!(((instance >> 64) as u64, instance as u64), (count, !count));
                last = count;
            }
        });
    }
}
