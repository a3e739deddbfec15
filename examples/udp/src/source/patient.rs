//! A sink that waits while its queue is full.

use crossbeam_utils::Backoff;
use hotloop::prelude::*;
use hotloop::stage::Device;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Time after the end for sending the remaining packets.
const DRAIN: Duration = Duration::from_millis(200);

/// A sink that offers its packets again until all are sent. So its source makes no more packets
/// than are sent, and no packet is dropped while some are sent within a set time. If nothing is sent, as while an
/// interface is away, the sink leaves them: the engine passes a burst boundary, drops them as
/// `tx_full`, and comes with the next. After the end, the sink waits a fifth of a second more in
/// total: its peer may be gone.
///
/// For a core that has nothing else to do meanwhile. While its queue is full, it makes a system
/// call now and then, to let others run.
#[derive(Debug)]
pub struct Patient<S> {
    sink: S,
    ending: Arc<AtomicBool>,
    /// Time for which a call waits while nothing is sent; `None` for ever.
    wait_max: Option<Duration>,
    /// The end of the wait, once known.
    until: Option<Instant>,
}

impl<S> Patient<S> {
    /// Waits for `sink` until `ending` is true and a little longer; each time for at most
    /// `wait_max`, if given, without anything sent.
    pub const fn new(sink: S, ending: Arc<AtomicBool>, wait_max: Option<Duration>) -> Self {
        Self { sink, ending, wait_max, until: None }
    }

    /// Whether to try again if nothing has been sent since then.
    fn is_patient(&mut self, since: Instant) -> bool {
        let now = Instant::now();
        if self.wait_max.is_some_and(|wait_max| now - since >= wait_max) {
            return false;
        }
        !self.ending.load(Relaxed) || now < *self.until.get_or_insert(now + DRAIN)
    }
}

impl<S: Sink> Sink for Patient<S> {
    type Item = S::Item;

    #[inline]
    fn send(&mut self, burst: &mut Burst<S::Item>) -> usize {
        let mut sent = self.sink.send(burst);
        if burst.is_empty() {
            return sent;
        }
        let (backoff, mut since) = (Backoff::new(), Instant::now());
        while !burst.is_empty() && self.is_patient(since) {
            // The other end of the queue may need this CPU.
            backoff.snooze();
            let more = self.sink.send(burst);
            if more > 0 {
                since = Instant::now();
            }
            sent += more;
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

    /// Takes one packet in every `period`th call; never if that is 0.
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
        Patient::new(slow, Arc::new(AtomicBool::new(ending)), None)
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
    fn while_nothing_is_sent_it_returns_now_and_then() {
        let wait_max = Duration::from_millis(20);
        let (mut sink, mut burst) = (patient(0, false), burst());
        sink.wait_max = Some(wait_max);
        let mut send = |ending| {
            sink.ending.store(ending, Relaxed);
            sink.until = None;
            let start = Instant::now();
            assert_eq!(sink.send(&mut burst), 0);
            assert!(start.elapsed() >= wait_max && burst.len() == 64);
            start.elapsed()
        };
        send(false);
        // Also at the end, where the total is longer: unless the machine stalls each time.
        assert!((0..50).any(|_| send(true) < DRAIN));
    }

    #[test]
    fn after_the_end_it_gives_up_and_leaves_the_unsent() {
        let (mut sink, mut burst) = (patient(0, true), burst());
        assert_eq!(sink.send(&mut burst), 0);
        assert_eq!(burst.len(), 64);
        // The wait is over: the engine's retries don't repeat it.
        let asked = sink.sink.asked;
        assert_eq!(sink.send(&mut burst), 0);
        assert_eq!(sink.sink.asked, asked + 1);
    }
}
