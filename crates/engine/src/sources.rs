//! Several sources polled as one.

use hotloop_stage::{Burst, Device, Error, Limits, Source};
use std::sync::Arc;

/// Several sources polled as one. [`sources`] makes it.
#[derive(Debug)]
pub struct Sources<S> {
    sources: Vec<S>,
    /// Sources that are no longer polled, because they had nothing left when the run was stopped.
    ended: Vec<S>,
    /// The source to poll first next time, so that a busy source does not starve the others.
    first: usize,
}

/// Polls several sources, such as a queue of each port, in turn. Captures of one conversation are
/// merged by [`sources_by_time`](crate::sources_by_time) instead.
pub fn sources<S: Source>(sources: impl IntoIterator<Item = S>) -> Sources<S> {
    Sources { sources: sources.into_iter().collect(), ended: Vec::new(), first: 0 }
}

impl<S: Source> Source for Sources<S> {
    type Item = S::Item;

    #[inline]
    fn poll(&mut self, burst: &mut Burst<S::Item>) -> usize {
        let count = self.sources.len();
        let mut polled = 0;
        for step in 0..count {
            if burst.room() == 0 {
                break;
            }
            polled += self.sources[(self.first + step) % count].poll(burst);
        }
        self.first = if self.first + 1 >= count { 0 } else { self.first + 1 };
        polled
    }

    fn start(&mut self, limits: &Limits) -> Result<(), Error> {
        self.sources.iter_mut().try_for_each(|source| source.start(limits))
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.sources.iter().flat_map(Source::devices).collect()
    }

    /// True only if every source can wait.
    fn lossless(&self) -> bool {
        self.sources.iter().all(Source::lossless)
    }

    /// True only if every source creates its packets.
    fn creates(&self) -> bool {
        self.sources.iter().all(Source::creates)
    }

    /// Unknown if any source's count is unknown.
    fn waiting_count(&mut self) -> Option<usize> {
        self.sources.iter_mut().map(Source::waiting_count).sum()
    }

    fn stop(&mut self) -> bool {
        self.ended.extend(self.sources.extract_if(.., |source| !source.stop()));
        !self.sources.is_empty()
    }

    fn finished(&self) -> bool {
        self.sources.iter().all(Source::finished)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has items that were taken before, and then yields the others of its device without end.
    struct Ahead {
        taken: Vec<u8>,
        is_stopped: bool,
    }

    impl Source for Ahead {
        type Item = u8;

        fn poll(&mut self, burst: &mut Burst<u8>) -> usize {
            assert!(!self.is_stopped || !self.taken.is_empty(), "polled after its last item");
            burst.extend(Some(self.taken.pop().unwrap_or(0)));
            1
        }

        fn stop(&mut self) -> bool {
            self.is_stopped = true;
            !self.taken.is_empty()
        }

        fn finished(&self) -> bool {
            self.is_stopped && self.taken.is_empty()
        }
    }

    #[test]
    fn after_a_stop_only_sources_with_items_left_are_polled() {
        let ahead = |taken: &[u8]| Ahead { taken: taken.to_vec(), is_stopped: false };
        let mut all = sources([ahead(&[]), ahead(&[7]), ahead(&[])]);
        assert!(all.stop() && !all.finished());
        let mut burst = Burst::new();
        assert_eq!((all.poll(&mut burst), burst.pop()), (1, Some(7)));
        assert!(all.finished());
        assert!(!sources([ahead(&[])]).stop());
    }
}
