//! The order of a capture, for workers that replay it in parallel and share the buckets of limits.
//! For replays only: this is the one place in the data path that waits for other threads.
//!
//! A limit is exact only if connections take from its bucket in the order in which they began. Each
//! worker runs at the time of its own packets, and gets ahead of others. So before a packet that
//! may take from a bucket, a worker waits until the others have finished all earlier packets of the
//! capture.
//!
//! The waiting always ends: the earliest unfinished packet waits for no other packet, and every packet ahead
//! of it in its worker's ring or file is earlier still, so the worker reaches it.

use std::hint;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Numbers of checks that a worker makes at once, and then with its CPU yielded, before it sleeps
/// between checks.
const SPIN_COUNT: u32 = 100;
const YIELD_COUNT: u32 = 1000;

/// Length of that sleep: the others may have a million packets to do.
const SLEEP: Duration = Duration::from_micros(100);

/// The worker of each frame in a capture, and the progress of all workers.
#[derive(Debug)]
pub struct CaptureOrder {
    /// The worker of each frame, in the order of the capture.
    workers: Vec<u8>,
    /// The progress of each worker.
    done: Box<[Done]>,
    is_given_up: AtomicBool,
}

/// Number of frames that a worker has finished. In its own cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Done(AtomicU64);

impl CaptureOrder {
    /// The order of a capture with a frame for each of these `workers`, which are below
    /// `worker_count`.
    ///
    /// # Panics
    /// If a worker is not below `worker_count`.
    #[must_use]
    pub fn new(workers: Vec<u8>, worker_count: usize) -> Self {
        assert!(
            workers.iter().all(|worker| usize::from(*worker) < worker_count),
            "{worker_count} workers"
        );
        let done = (0..worker_count).map(|_| Done::default()).collect();
        Self { workers, done, is_given_up: AtomicBool::new(false) }
    }

    /// Ends all waiting, for a capture that will not be received completely.
    pub fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }
}

/// A worker's position in the order.
#[derive(Debug)]
pub struct InOrder {
    order: Arc<CaptureOrder>,
    worker: usize,
    /// Number of frames that the worker had before the current burst.
    done: u64,
    /// Number of the capture's frames ahead of the last one that the worker waited for, and how
    /// many of these each worker has.
    ahead: usize,
    ahead_by_worker: Box<[u64]>,
}

impl InOrder {
    /// The position of a worker that has finished no frame yet.
    #[must_use]
    pub fn new(order: Arc<CaptureOrder>, worker: usize) -> Self {
        let ahead_by_worker = order.done.iter().map(|_| 0).collect();
        Self { order, worker, done: 0, ahead: 0, ahead_by_worker }
    }

    /// Waits until all frames are finished that precede, in the capture, the worker's frame at
    /// `index` of the current burst.
    #[cold]
    pub fn wait_for(&mut self, index: usize) {
        let number = self.done + index as u64;
        self.publish(number);
        while let Some(worker) =
            self.order.workers.get(self.ahead).map(|worker| usize::from(*worker))
        {
            if worker == self.worker && self.ahead_by_worker[worker] == number {
                break;
            }
            self.ahead_by_worker[worker] += 1;
            self.ahead += 1;
        }
        let mut tries = 0;
        // Acquire: makes visible what others took from buckets.
        while self.order.done.iter().zip(&self.ahead_by_worker).enumerate().any(
            |(worker, (done, ahead))| {
                worker != self.worker && done.0.load(Ordering::Acquire) < *ahead
            },
        ) && !self.order.is_given_up.load(Ordering::Relaxed)
        {
            wait_a_little(tries);
            tries += 1;
        }
    }

    /// Notes that the worker has finished a burst of `count` frames.
    pub fn burst_done(&mut self, count: usize) {
        self.done += count as u64;
        self.publish(self.done);
    }

    fn publish(&self, done: u64) {
        self.order.done[self.worker].0.store(done, Ordering::Release);
    }
}

/// A worker that ends or panics makes no other worker wait.
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

    /// Lets each worker take its frames in bursts, and note those that it waits for.
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
                let own: Vec<_> = (0..workers.len())
                    .filter(|frame| usize::from(workers[*frame]) == worker)
                    .collect();
                scope.spawn(move || {
                    for burst in own.chunks(1 + worker * 7) {
                        for (index, frame) in
                            burst.iter().enumerate().filter(|(_, frame)| waits(**frame))
                        {
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
        // Runs of frames of one worker, and a worker without any.
        let workers: Vec<u8> = (0..3000_u32).map(|frame| (frame * frame / 7 % 3) as u8).collect();
        for waits in [|_| true, |frame| frame % 5 == 0, |frame| frame > 2000] {
            let expected: Vec<_> = (0..workers.len()).filter(|frame| waits(*frame)).collect();
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
