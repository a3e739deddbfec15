//! The thread that follows the kernel's tables.

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

/// Room for what the kernel says of changes until it is taken over: some thousands of them.
pub const EVENT_BUFFER_BYTES: usize = 4 << 20;

/// Follows the links, addresses, routes and neighbours of a network namespace, by netlink, on a thread of
/// its own.
///
/// Where the kernel had more to say than there was room for (`ENOBUFS`), everything is read again, and
/// so are routes after changes that the kernel does not announce: an interface goes down, an address or
/// a next-hop object is deleted. What was read before is used until then.
pub struct KernelFollower {
    shared: Arc<Shared>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread shares with those who read.
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
    /// Reads the tables of the calling thread's network namespace, and begins to follow them. It needs no
    /// rights.
    ///
    /// # Errors
    /// The kernel's, where it gives no such socket or no thread.
    pub fn start() -> io::Result<Self> {
        Self::with_event_buffer(EVENT_BUFFER_BYTES)
    }

    /// As [`start`](Self::start), with so many bytes of room, as the kernel counts them, for changes that
    /// are not taken over yet. Without `CAP_NET_ADMIN` there is at most what
    /// `/proc/sys/net/core/rmem_max` says.
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

    /// Looks into the tables as they are now. They do not change until `look` returns, so it does nothing
    /// that takes long.
    pub fn read<T>(&self, look: impl FnOnce(&KernelTables) -> T) -> T {
        look(&self.shared.lock())
    }

    /// How often each table has changed.
    #[must_use]
    pub fn change_counts(&self) -> ChangeCounts {
        self.shared.lock().change_counts()
    }

    /// Waits until a table has changed since it had changed so often, or for so long, and returns how
    /// often each has by then.
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

    /// How often routes were read whole: once at the start, and whenever what the kernel announced was
    /// not enough.
    #[must_use]
    pub fn read_count(&self) -> u64 {
        self.shared.read_count.load(Ordering::Relaxed)
    }

    /// How often the kernel had more to say than there was room for.
    #[must_use]
    pub fn overrun_count(&self) -> u64 {
        self.shared.overrun_count.load(Ordering::Relaxed)
    }
}

impl Drop for KernelFollower {
    fn drop(&mut self) {
        // A counter that is never read takes every write.
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
