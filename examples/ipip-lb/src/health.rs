//! Health checks: which backends are up, by probes over the kernel's sockets.
//!
//! [`Probes`] are threads that block, away from the packet path. Whoever starts them says whom to probe
//! and hears of each [`Change`]; [`Probes::states`] tells the rest. All of a probe, from connecting to
//! the status of the answer, ends within its timeout, however slowly a server dribbles, and reads a
//! bounded amount.
//!
//! | kind | passes when |
//! |------|-------------|
//! | tcp | the connection is accepted; it is closed again at once |
//! | http | a GET has the status that is expected; no more than the status line is waited for |
//! | https | likewise, over TLS 1.2 or 1.3. With a `ca_file` the certificate must come from one of the authorities in it, be valid now and be for the backend's IP address; `insecure` takes any |
//! | icmp | an echo request is answered |
//! | udp | a datagram of one byte is answered by anything, or by silence: what fails is ICMP's port unreachable, so a host that is gone passes |
//!
//! A backend starts up. [`standing`] says what takes it down and brings it up again. What keeps this
//! side from probing (no right to send ICMP, a `ca_file` that can't be read, no file descriptors) counts
//! as a failure as well, and says so: the backends go down, and what `all_down` says is done.
//!
//! Probes of one backend never overlap, and start spread over time. At most 256 are under way at once:
//! when that many wait for hosts that are gone, the others come later than their interval.
//!
//! ```
//! use ipip_lb::config::{Health, Probe};
//! use ipip_lb::health::{Probed, Probes};
//! use std::net::{IpAddr, Ipv4Addr};
//! use std::sync::mpsc;
//!
//! let health = Health {
//!     probe: Probe::Tcp,
//!     port: 1, // where nobody listens
//!     interval_ms: 1000,
//!     timeout_ms: 1000,
//!     rise: 2,
//!     fall: 1,
//! };
//! let (sender, changes) = mpsc::channel();
//! let mut probes = Probes::start(sender)?;
//! probes.set(vec![Probed { address: IpAddr::V4(Ipv4Addr::LOCALHOST), health }]);
//!
//! let change = changes.recv()?;
//! assert!(!change.is_up);
//! assert_eq!(change.why, "connection refused");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod deadline;
mod echo;
mod http;
mod pool;
pub mod probe;
mod schedule;
pub mod standing;
pub mod tls;

use crate::config::{Health, Probe};
use pool::Pool;
use schedule::Schedule;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tls::Clients;

/// A backend, and how it is probed.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Probed {
    /// The backend's address.
    pub address: IpAddr,
    /// How it is probed.
    pub health: Health,
}

impl Probed {
    /// What is probed, whenever that is.
    const fn what(&self) -> (IpAddr, u16, &Probe) {
        (self.address, self.health.port, &self.health.probe)
    }
}

/// A backend has come up or gone down.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Change {
    /// The backend's address.
    pub address: IpAddr,
    /// How it is probed.
    pub health: Health,
    /// What it is now.
    pub is_up: bool,
    /// What the probe said that made the difference: `connection refused`.
    pub why: String,
}

/// How a backend stands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct State {
    /// The backend's address.
    pub address: IpAddr,
    /// How it is probed.
    pub health: Health,
    /// Whether it is up.
    pub is_up: bool,
    /// Since when it is what it is.
    pub since: Instant,
    /// How long the last probe took, or why it failed; none before the first has ended.
    pub last: Option<Result<Duration, String>>,
    /// How many probes passed.
    pub passed_count: u64,
    /// How many probes failed.
    pub failed_count: u64,
    /// How many of the latest probes in a row said the contrary of what it is.
    pub contrary_count: u32,
    /// How many in a row it takes for a change: of failures while up, of passes while down.
    pub needed_count: u32,
}

/// The threads that probe. Dropping this ends them, without waiting for probes under way: those end
/// by their timeouts, and nobody hears of them.
#[derive(Debug)]
pub struct Probes {
    messages: Sender<Message>,
    scheduler: Option<JoinHandle<()>>,
}

/// What the scheduling thread is told.
enum Message {
    Set(Vec<Probed>),
    States(Sender<Vec<State>>),
    Finished { number: u64, outcome: Result<Duration, String> },
    End,
}

impl Probes {
    /// Starts the threads, which probe nobody yet. Changes go to `results`.
    ///
    /// All of them run where the calling thread may: call this from one that isn't bound to a core
    /// that polls.
    ///
    /// # Errors
    /// The kernel allows no more threads.
    pub fn start(results: Sender<Change>) -> io::Result<Self> {
        let (messages, inbox) = mpsc::channel();
        let clients = Arc::new(Clients::new());
        let pool = Pool::start(Arc::clone(&clients), messages.clone())?;
        let mut scheduler = Scheduler { schedule: Schedule::default(), pool, clients, results };
        let scheduler =
            thread::Builder::new().name("health".into()).spawn(move || scheduler.work(&inbox))?;
        Ok(Self { messages, scheduler: Some(scheduler) })
    }

    /// Replaces the list of whom to probe; those that are there twice count once. Who was probed
    /// before stays up or down, also when only intervals, timeouts or counts are other ones: then a
    /// backend that is down is told once more, as a change under its new [`Health`]. Certificates of
    /// authorities are read again.
    pub fn set(&mut self, probed: Vec<Probed>) {
        self.tell(Message::Set(probed));
    }

    /// How all stand that are probed, in the order in which they came.
    #[must_use]
    pub fn states(&self) -> Vec<State> {
        let (sender, answer) = mpsc::channel();
        self.tell(Message::States(sender));
        answer.recv().unwrap_or_default()
    }

    fn tell(&self, message: Message) {
        // The scheduler listens until it is told to end.
        let _ = self.messages.send(message);
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.tell(Message::End);
        if let Some(scheduler) = self.scheduler.take() {
            // It has nothing to say; had it panicked, the message would be on stderr.
            let _ = scheduler.join();
        }
    }
}

/// The thread that knows when whom to probe.
struct Scheduler {
    schedule: Schedule,
    pool: Pool,
    clients: Arc<Clients>,
    results: Sender<Change>,
}

impl Scheduler {
    fn work(&mut self, inbox: &Receiver<Message>) {
        loop {
            while let Some(job) = self.schedule.take_due(Instant::now()) {
                self.pool.run(job);
            }
            let message = match self.schedule.next_due() {
                Some(due) => inbox.recv_timeout(due.saturating_duration_since(Instant::now())),
                None => inbox.recv().map_err(RecvTimeoutError::from),
            };
            match message {
                Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(message) => self.hear(message),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn hear(&mut self, message: Message) {
        let now = Instant::now();
        match message {
            Message::Set(probed) => {
                let changes = self.schedule.set(probed, now);
                self.renew_clients();
                changes.into_iter().for_each(|change| self.report(change));
            }
            // Who asked may have gone.
            Message::States(answer) => drop(answer.send(self.schedule.states())),
            Message::Finished { number, outcome } => {
                self.pool.finished();
                let change = self.schedule.finished(number, outcome, now);
                change.into_iter().for_each(|change| self.report(change));
            }
            Message::End => {}
        }
    }

    fn renew_clients(&self) {
        self.clients.renew(|trust| {
            self.schedule.probed().any(|probed| match &probed.health.probe {
                Probe::Https(_, used) => used == trust,
                _ => false,
            })
        });
    }

    fn report(&self, change: Change) {
        // Who doesn't listen any more needn't know.
        let _ = self.results.send(change);
    }
}
