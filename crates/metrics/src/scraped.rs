//! The program's end of the server.

use crate::family::Scrape;
use crate::server::{self, Server, Wake};
use hotloop_privileges::{Capabilities, keep};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The least time between two collections: scrapes that come sooner wait, and share the next.
const COLLECT_INTERVAL: Duration = Duration::from_millis(100);

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The address can't be bound.
    #[error("{address}: {source}; give another address or port")]
    Address {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// The system refuses a thread, or what it needs.
    #[error("{address}: {source}")]
    System {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
}

/// A server of metrics, from [`bind`](Self::bind) until it is dropped.
#[derive(Debug)]
pub struct MetricsServer {
    address: SocketAddr,
    asks: Receiver<()>,
    /// `None` once it is being dropped.
    scrapes: Option<Sender<Arc<Scrape>>>,
    wake: Wake,
    thread: Option<JoinHandle<()>>,
    due: Instant,
}

impl MetricsServer {
    /// Listens, and starts the serving thread.
    ///
    /// # Errors
    /// The address can't be bound, or the system refuses a thread.
    pub fn bind(address: SocketAddr) -> Result<Self, BindError> {
        let cannot_be_had = |source: io::Error| BindError::Address { address, source };
        let listener = TcpListener::bind(address).map_err(cannot_be_had)?;
        listener.set_nonblocking(true).map_err(cannot_be_had)?;
        rustix::net::listen(&listener, server::BACKLOG)
            .map_err(|error| cannot_be_had(error.into()))?;
        let address = listener.local_addr().map_err(cannot_be_had)?;
        let failed = |source: io::Error| BindError::System { address, source };
        let wake = Wake::new().map_err(failed)?;
        let ((ask, asks), (scrapes, scraped)) = (mpsc::channel(), mpsc::channel());
        let server = Server {
            listener,
            wake: wake.clone(),
            asks: ask,
            scrapes: scraped,
            clients: Vec::with_capacity(server::CLIENT_COUNT_MAX),
            next: None,
            is_asked: false,
        };
        let (ready, is_ready) = mpsc::channel();
        let serve = move || {
            keep(Capabilities::empty());
            drop(ready);
            server.serve();
        };
        let thread = std::thread::Builder::new().name("metrics".to_owned()).spawn(serve);
        let thread = Some(thread.map_err(failed)?);
        // The channel closes once the thread has given up its capabilities.
        let _: Result<(), _> = is_ready.recv();
        Ok(Self { address, asks, scrapes: Some(scrapes), wake, thread, due: Instant::now() })
    }

    /// The address that it listens at.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers waiting scrapes with the metrics that `collect` adds. The control thread calls this every
    /// few milliseconds; it returns at once if no scrape waits.
    pub fn answer(&mut self, collect: &mut dyn FnMut(&mut Scrape)) {
        let now = Instant::now();
        if now < self.due || self.asks.try_recv().is_err() {
            return;
        }
        let mut scrape = Scrape::default();
        collect(&mut scrape);
        if let Some(scrapes) = &self.scrapes {
            // A panic of the thread has been reported.
            let _ = scrapes.send(Arc::new(scrape));
        }
        self.wake.wake();
        self.due = Instant::now() + COLLECT_INTERVAL;
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.scrapes = None;
        self.wake.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
