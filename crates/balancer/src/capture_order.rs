//! The order of a capture, for workers that replay it side by side and share buckets of limits.
//!
//! A limit is exact only if connections take from its bucket in the order in which they began. Each worker runs at the
//! time of its own packets, and gets ahead of others. So before a packet that may take from a bucket, it waits until the
//! others have done all packets that the capture has ahead of that one.
//!
//! This comes to an end: the earliest packet that is not done waits for none, and every packet ahead of it in a ring or
//! in a file of its worker is earlier still, so that it is reached.

use std::hint;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// How often a worker looks again at once, and then with its CPU yielded, before it sleeps in between.
const SPIN_COUNT: u32 = 100;
const YIELD_COUNT: u32 = 1000;

/// How long it sleeps then: the others may have a million packets to do.
const SLEEP: Duration = Duration::from_micros(100);

/// Which worker has each frame of a capture, and how far workers are.
#[derive(Debug)]
pub struct CaptureOrder {
    /// The worker of each frame, in the order of the capture.
    workers: Vec<u8>,
    /// By worker.
    done: Box<[Done]>,
    is_given_up: AtomicBool,
}

/// How many of its frames a worker has done. In a line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Done(AtomicU64);

impl CaptureOrder {
    /// The order of a capture with a frame for each of these `workers`, of which there are `worker_count`.
    ///
    /// # Panics
    /// With a worker that there is not.
    #[must_use]
    pub fn new(workers: Vec<u8>, worker_count: usize) -> Self {
        assert!(workers.iter().all(|it| usize::from(*it) < worker_count), "{worker_count} workers");
        let done = (0..worker_count).map(|_| Done::default()).collect();
        Self { workers, done, is_given_up: AtomicBool::new(false) }
    }

    /// Has no worker wait any longer, where not all of the capture will be received.
    pub fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }
}

/// A worker's place in the order.
#[derive(Debug)]
pub struct InOrder {
    order: Arc<CaptureOrder>,
    worker: usize,
    /// How many frames the worker had before the burst at hand.
    done: u64,
    /// How many of the capture's frames are ahead of the one that it waited for last, and how many of these each worker
    /// has.
    ahead: usize,
    ahead_by_worker: Box<[u64]>,
}

impl InOrder {
    /// The place of a worker that has done nothing yet.
    #[must_use]
    pub fn new(order: Arc<CaptureOrder>, worker: usize) -> Self {
        let ahead_by_worker = order.done.iter().map(|_| 0).collect();
        Self { order, worker, done: 0, ahead: 0, ahead_by_worker }
    }

    /// Waits until all frames are done that the capture has ahead of the worker's own at `index` of the burst at hand.
    #[cold]
    pub fn wait_for(&mut self, index: usize) {
        let number = self.done + index as u64;
        self.publish(number);
        while let Some(worker) = self.order.workers.get(self.ahead).map(|it| usize::from(*it)) {
            if worker == self.worker && self.ahead_by_worker[worker] == number {
                break;
            }
            self.ahead_by_worker[worker] += 1;
            self.ahead += 1;
        }
        let mut tries = 0;
        // Acquire: what others took from buckets is seen.
        while self
            .order
            .done
            .iter()
            .zip(&self.ahead_by_worker)
            .enumerate()
            .any(|(worker, it)| worker != self.worker && it.0.0.load(Ordering::Acquire) < *it.1)
            && !self.order.is_given_up.load(Ordering::Relaxed)
        {
            wait_a_little(tries);
            tries += 1;
        }
    }

    /// The worker has done a burst of `count` frames.
    pub fn burst_done(&mut self, count: usize) {
        self.done += count as u64;
        self.publish(self.done);
    }

    fn publish(&self, done: u64) {
        self.order.done[self.worker].0.store(done, Ordering::Release);
    }
}

/// A worker that ends, or panics, keeps no other waiting.
impl Drop for InOrder {
    fn drop(&mut self) {
        self.publish(u64::MAX);
    }
}

fn wait_a_little(tries: u32) {
    if tries < SPIN_COUNT {
        hint::spin_loop();
    } else if tries < YIELD_COUNT {
        thread::yield_now();
    } else {
        thread::sleep(SLEEP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Has each worker take its frames in bursts, and note those for which it waits.
    fn noted(
        workers: &[u8],
        worker_count: usize,
        waits: impl Fn(usize) -> bool + Sync,
    ) -> Vec<usize> {
        let order = Arc::new(CaptureOrder::new(workers.to_vec(), worker_count));
        let noted = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for worker in 0..worker_count {
                let (mut place, noted, waits) =
                    (InOrder::new(Arc::clone(&order), worker), &noted, &waits);
                let own: Vec<_> =
                    (0..workers.len()).filter(|it| usize::from(workers[*it]) == worker).collect();
                scope.spawn(move || {
                    for burst in own.chunks(1 + worker * 7) {
                        for (index, frame) in burst.iter().enumerate().filter(|it| waits(*it.1)) {
                            place.wait_for(index);
                            noted.lock().unwrap().push(*frame);
                        }
                        place.burst_done(burst.len());
                    }
                });
            }
        });
        noted.into_inner().unwrap()
    }

    #[test]
    fn whatever_waits_is_done_in_the_order_of_the_capture() {
        // Runs of one worker's, and a worker without any.
        let workers: Vec<u8> = (0..3000_u32).map(|it| (it * it / 7 % 3) as u8).collect();
        for waits in [|_| true, |frame| frame % 5 == 0, |frame| frame > 2000] {
            let expected: Vec<_> = (0..workers.len()).filter(|it| waits(*it)).collect();
            assert_eq!(noted(&workers, 4, waits), expected);
        }
    }

    #[test]
    fn nobody_waits_for_a_worker_that_has_gone_nor_once_it_is_given_up() {
        let order = Arc::new(CaptureOrder::new(vec![0, 1, 1, 0, 1], 2));
        let [gone, mut left] = [0, 1].map(|worker| InOrder::new(Arc::clone(&order), worker));
        drop(gone);
        left.wait_for(2);
        let order = Arc::new(CaptureOrder::new(vec![0, 1], 2));
        let [_idle, mut left] = [0, 1].map(|worker| InOrder::new(Arc::clone(&order), worker));
        order.give_up();
        left.wait_for(0);
    }
}
