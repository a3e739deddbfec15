//! The threads that probe: as many as there are probes under way, within a limit.

use super::Message;
use super::probe;
use super::schedule::Job;
use super::tls::Clients;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// How many probes are under way at once, at most; more wait for their turn.
pub const THREADS_MAX: usize = 256;

/// The stack of each, in bytes: a TLS handshake takes a tenth of it.
const STACK_BYTES: usize = 512 * 1024;

/// Threads, of which one is started for a probe when all are busy. They end when the pool is dropped,
/// each behind the probe that it is at.
#[derive(Debug)]
pub struct Pool {
    jobs: Sender<Job>,
    shared: Arc<Shared>,
    thread_count: usize,
    /// Probes handed out, and not finished yet.
    busy_count: usize,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Receiver<Job>>,
    is_ended: AtomicBool,
    clients: Arc<Clients>,
    finished: Sender<Message>,
}

impl Pool {
    /// One thread, for a start. Each probe's end is told to `finished`.
    ///
    /// # Errors
    /// The kernel allows no more threads.
    pub fn start(clients: Arc<Clients>, finished: Sender<Message>) -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel();
        let queue = Mutex::new(queue);
        let is_ended = AtomicBool::new(false);
        let shared = Arc::new(Shared { queue, is_ended, clients, finished });
        let mut pool = Self { jobs, shared, thread_count: 0, busy_count: 0 };
        pool.add_thread()?;
        Ok(pool)
    }

    fn add_thread(&mut self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        thread::Builder::new()
            .name("health-probe".into())
            .stack_size(STACK_BYTES)
            .spawn(move || shared.work())?;
        self.thread_count += 1;
        Ok(())
    }

    /// Hands a probe to a thread.
    pub fn run(&mut self, job: Job) {
        self.busy_count += 1;
        if self.busy_count > self.thread_count && self.thread_count < THREADS_MAX {
            // Where the kernel allows no more, those that there are do it, one probe after another.
            let _ = self.add_thread();
        }
        // The queue is there as long as `self` is.
        let _ = self.jobs.send(job);
    }

    /// Takes note that a probe has come back.
    pub fn finished(&mut self) {
        self.busy_count -= 1;
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.is_ended.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    fn work(&self) {
        loop {
            let job = self.queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(Job { number, probed }) = job else { return };
            if self.is_ended.load(Ordering::Relaxed) {
                return;
            }
            let outcome = probe::run(&probed, &self.clients);
            if self.finished.send(Message::Finished { number, outcome }).is_err() {
                return;
            }
        }
    }
}
