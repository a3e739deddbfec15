//! A sink that waits where its queue is full.

use crossbeam_utils::Backoff;
use hotloop::prelude::*;
use hotloop::stage::Device;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long after the end what is left may take to be sent.
const DRAIN: Duration = Duration::from_millis(200);

/// A sink that offers its packets again until all are sent. So their source makes no more than
/// are sent, and none is dropped. From the end on it waits a fifth of a second more, all in all: its
/// peer may be gone.
///
/// It is for a core that has nothing else to do meanwhile. While its queue is full it makes a system
/// call now and then, to let others run.
#[derive(Debug)]
pub struct Patient<S> {
    sink: S,
    ending: Arc<AtomicBool>,
    /// When the wait ends, once it is known.
    until: Option<Instant>,
}

impl<S> Patient<S> {
    /// Waits for `sink` until `ending` is true and a little longer.
    pub const fn new(sink: S, ending: Arc<AtomicBool>) -> Self {
        Self { sink, ending, until: None }
    }

    fn is_patient(&mut self) -> bool {
        if !self.ending.load(Relaxed) {
            return true;
        }
        let now = Instant::now();
        now < *self.until.get_or_insert(now + DRAIN)
    }
}

impl<S: Sink> Sink for Patient<S> {
    type Item = S::Item;

    #[inline]
    fn send(&mut self, burst: &mut Burst<S::Item>) -> usize {
        let mut sent = self.sink.send(burst);
        let backoff = Backoff::new();
        while !burst.is_empty() && self.is_patient() {
            // The other end of the queue may need this CPU.
            backoff.snooze();
            sent += self.sink.send(burst);
        }
        sent
    }

    fn refused_count(&self) -> u64 {
        self.sink.refused_count()
    }

    fn maintain(&mut self) {
        self.sink.maintain();
    }

    fn start(&mut self, limits: &Limits) -> hotloop::Result<()> {
        self.sink.start(limits)
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.sink.devices()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes one packet each `period`th time it is asked; none where that is 0.
    struct Slow {
        period: usize,
        asked: usize,
        taken: Vec<u32>,
    }

    impl Sink for Slow {
        type Item = u32;

        fn send(&mut self, burst: &mut Burst<u32>) -> usize {
            self.asked += 1;
            if !self.asked.is_multiple_of(self.period) {
                return 0;
            }
            let item = burst.pop();
            self.taken.extend(item);
            usize::from(item.is_some())
        }
    }

    fn patient(period: usize, ending: bool) -> Patient<Slow> {
        let slow = Slow { period, asked: 0, taken: Vec::new() };
        Patient::new(slow, Arc::new(AtomicBool::new(ending)))
    }

    fn burst() -> Burst<u32> {
        let mut burst = Burst::new();
        burst.extend(0..64);
        burst
    }

    #[test]
    fn all_are_sent_in_order_however_slowly() {
        let (mut sink, mut burst) = (patient(100, false), burst());
        assert_eq!(sink.send(&mut burst), 64);
        assert!(burst.is_empty());
        assert_eq!(sink.sink.taken, (0..64).collect::<Vec<_>>());
        assert_eq!(sink.sink.asked, 6400);
    }

    #[test]
    fn after_the_end_it_gives_up_and_leaves_the_unsent() {
        let (mut sink, mut burst) = (patient(0, true), burst());
        assert_eq!(sink.send(&mut burst), 0);
        assert_eq!(burst.len(), 64);
        // The wait is over: it is not asked again and again by the engine's retries.
        let asked = sink.sink.asked;
        assert_eq!(sink.send(&mut burst), 0);
        assert_eq!(sink.sink.asked, asked + 1);
    }
}
