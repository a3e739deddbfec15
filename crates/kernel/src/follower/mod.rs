//! Follows the kernel's tables on a thread of its own.

mod reader;

use super::netlink::{Events, Requests};
use super::tables::{ChangeCounts, KernelTables};
use hotloop_privileges::{Capabilities, keep};
use reader::Reader;
use rustix::event::{EventfdFlags, eventfd};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Room for announcements that wait for the thread: some thousands.
pub const EVENT_BUFFER_BYTES: usize = 4 << 20;

/// Follows the links, addresses, routes and neighbours of a network namespace, by netlink, on a
/// thread of its own.
///
/// If announcements overflow their buffer (`ENOBUFS`), the thread reads everything again. It also
/// reads the routes again after changes that the kernel does not announce: an interface goes down,
/// or an address or next-hop object is deleted. Until then, readers see the earlier tables.
pub struct KernelFollower {
    shared: Arc<Shared>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// State shared by the thread and readers.
#[derive(Default)]
struct Shared {
    tables: Mutex<KernelTables>,
    changed: Condvar,
    read_count: AtomicU64,
    overrun_count: AtomicU64,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, KernelTables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KernelFollower {
    /// Reads the tables of the calling thread's network namespace, and begins to follow them. This
    /// needs no rights.
    ///
    /// # Errors
    /// The kernel refuses the socket or the thread.
    pub fn start() -> io::Result<Self> {
        Self::with_event_buffer(EVENT_BUFFER_BYTES)
    }

    /// As [`start`](Self::start), with room for `buffer_bytes`, as the kernel counts them, of
    /// announcements that wait for the thread. Without `CAP_NET_ADMIN`,
    /// `/proc/sys/net/core/rmem_max` is the upper limit.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn with_event_buffer(buffer_bytes: usize) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let events = Events::open(&reader::GROUPS, buffer_bytes)?;
        let mut reader = Reader::new(events, Requests::open()?, Arc::clone(&shared));
        reader.read_everything()?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("netlink".into()).spawn(move || {
            keep(Capabilities::empty());
            reader.run(&stopped);
        })?;
        Ok(Self { shared, stop, thread: Some(thread) })
    }

    /// Calls `look` with the current tables. They do not change until `look` returns, so it must be
    /// quick.
    pub fn read<T>(&self, look: impl FnOnce(&KernelTables) -> T) -> T {
        look(&self.shared.lock())
    }

    /// Number of changes of each table.
    #[must_use]
    pub fn change_counts(&self) -> ChangeCounts {
        self.shared.lock().change_counts()
    }

    /// Waits until the counts differ from `seen`, or until the timeout, and returns the current
    /// counts.
    #[must_use]
    pub fn wait(&self, seen: ChangeCounts, timeout: Duration) -> ChangeCounts {
        let deadline = Instant::now() + timeout;
        let mut tables = self.shared.lock();
        loop {
            let (counts, left) =
                (tables.change_counts(), deadline.saturating_duration_since(Instant::now()));
            if counts != seen || left.is_zero() {
                return counts;
            }
            let waited = self.shared.changed.wait_timeout(tables, left);
            tables = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Number of times that all routes were read: once at the start, and whenever announcements
    /// were not enough.
    #[must_use]
    pub fn read_count(&self) -> u64 {
        self.shared.read_count.load(Ordering::Relaxed)
    }

    /// Number of times that announcements overflowed their buffer.
    #[must_use]
    pub fn overrun_count(&self) -> u64 {
        self.shared.overrun_count.load(Ordering::Relaxed)
    }
}

impl Drop for KernelFollower {
    fn drop(&mut self) {
        // The counter is never read, so a write always succeeds.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for KernelFollower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelFollower")
            .field("change_counts", &self.change_counts())
            .field("read_count", &self.read_count())
            .field("overrun_count", &self.overrun_count())
            .finish_non_exhaustive()
    }
}
