//! Health checks: which backends are up, by probes over the kernel's sockets, or through the tunnels.
//!
//! [`Probes`] are one thread away from the packet path, which waits for all sockets at once and
//! never for a single one. Its owner sets the backends to probe and gets each [`Change`];
//! [`Probes::states`] returns the rest. All of a probe, from connecting to the status of the
//! answer, ends within its timeout, however slowly a server dribbles, and reads a bounded amount.
//!
//! | kind | passes when |
//! |------|-------------|
//! | tcp | the connection is accepted; it is closed again at once |
//! | http | a GET has the status that is expected; no more than the status line is waited for |
//! | https | likewise, over TLS 1.2 or 1.3. With a `ca_file` the certificate must come from one of the authorities in it, be valid now and be for the backend's IP address; `insecure` takes any |
//! | icmp | an echo request is answered |
//! | udp | a datagram of one byte is answered by anything, or by silence: what fails is ICMP's port unreachable, so a host that is gone passes |
//!
//! Probes of kinds tcp and http can go through a backend's tunnel to the service's address, like
//! clients' packets: see [`Via`]. The workers send their packets, and return the replies, through a
//! [`Wire`].
//!
//! A backend starts up. [`standing`] defines when it goes down and comes up again. A local obstacle
//! to probing (no right to send ICMP, a `ca_file` that can't be read, no file descriptors) counts
//! as a failure as well, with its own message: the backends go down, and `all_down` applies.
//!
//! Probes of one backend never overlap, and start spread over time. Each has a socket of its own,
//! so that no host that hangs delays another's: [`Room`] has the number that the process's limit of
//! open files allows. The remaining limit is one core's computing time, and TLS handshakes reach it
//! first.
//!
//! ```
//! use ipip_lb::config::{Health, Probe, Via};
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
//!     via: Via::Direct,
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

mod conversation;
mod deadline;
mod echo;
mod http;
mod poller;
mod probe;
pub mod quorum;
mod room;
mod schedule;
pub mod standing;
pub mod tls;
mod tunnel;
mod watch;

use crate::config::{Health, Probe, Via};
pub use deadline::TIMED_OUT;
use hotloop_privileges::Capabilities;
use mio::Waker;
pub use room::Room;
use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
pub use tunnel::{ICMP, TUNNEL_PROBES_MAX, Wire};
use watch::{Message, Watch};

/// The duration of a probe, or the reason that it failed, in an operator's words: `connection
/// refused`.
type Outcome = Result<Duration, String>;

/// A backend, and its kind of probe.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Probed {
    /// The backend's address.
    pub address: IpAddr,
    /// The kind of probe.
    pub health: Health,
}

impl Probed {
    /// The part that determines the probe, without its times.
    const fn what(&self) -> (IpAddr, u16, &Probe, Via) {
        (self.address, self.health.port, &self.health.probe, self.health.via)
    }
}

/// A backend has come up or gone down.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Change {
    /// The backend's address.
    pub address: IpAddr,
    /// The kind of probe.
    pub health: Health,
    /// The new state.
    pub is_up: bool,
    /// The result of the probe that made the difference: `connection refused`.
    pub why: String,
}

/// The state of a backend.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct State {
    /// The backend's address.
    pub address: IpAddr,
    /// The kind of probe.
    pub health: Health,
    /// Whether the backend is up.
    pub is_up: bool,
    /// The time of the last change.
    pub since: Instant,
    /// The duration of the last probe, or the reason that it failed; `None` before the first has
    /// ended.
    pub last: Option<Outcome>,
    /// Number of passed probes.
    pub passed_count: u64,
    /// Number of failed probes.
    pub failed_count: u64,
    /// Number of the latest probes in a row that contradict the state.
    pub contrary_count: u32,
    /// Number of such probes in a row for a change: failures while up, passes while down.
    pub needed_count: u32,
}

/// The thread that probes. Dropping this value ends the thread at once, and discards the probes
/// under way.
#[derive(Debug)]
pub struct Probes {
    messages: Sender<Message>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Probes {
    /// Starts the thread, without any probes yet. Changes go to `results`.
    ///
    /// The thread runs on the calling thread's CPUs: call this from a thread that isn't bound to a
    /// core that polls.
    ///
    /// # Errors
    /// If the kernel allows no more threads or files.
    pub fn start(results: Sender<Change>) -> io::Result<Self> {
        Self::start_with(results, None)
    }

    /// Like [`start`](Self::start), with a way to probe through tunnels.
    ///
    /// # Errors
    /// Like [`start`](Self::start).
    pub fn start_with(results: Sender<Change>, wire: Option<Wire>) -> io::Result<Self> {
        let (messages, inbox) = mpsc::channel();
        let mut watch = Watch::new(results, wire)?;
        let waker = watch.waker()?;
        let thread = thread::Builder::new().name("health".into()).spawn(move || {
            // For echo requests where the kernel lets not everybody send them, and for CA files.
            hotloop_privileges::keep(Capabilities::NET_RAW | Capabilities::DAC_READ_SEARCH);
            watch.work(&inbox)
        })?;
        Ok(Self { messages, waker, thread: Some(thread) })
    }

    /// Replaces the list of backends to probe; duplicates count once. A backend that was probed
    /// before stays up or down, even if intervals, timeouts or counts differ: then a down one is
    /// reported once more, as a change under its new [`Health`]. Certificates of authorities are
    /// read again.
    ///
    /// Raises this process's limit of open files if the list needs that.
    pub fn set(&mut self, probed: Vec<Probed>) -> Room {
        let room = Room::make(probed.len());
        self.tell(Message::Set(probed, room.probes_max()));
        room
    }

    /// Treats these backends as down until their probes show otherwise: the predecessor of this
    /// process has found them down.
    pub fn take_down(&self, down: HashSet<(IpAddr, Health)>) {
        self.tell(Message::Down(down));
    }

    /// The states of all probed backends, in the order of their addition.
    #[must_use]
    pub fn states(&self) -> Vec<State> {
        self.ask_states().recv().unwrap_or_default()
    }

    /// Like [`states`](Self::states), without waiting for the thread that probes: its answer
    /// arrives at the receiver.
    #[must_use]
    pub fn ask_states(&self) -> Receiver<Vec<State>> {
        let (sender, answer) = mpsc::channel();
        self.tell(Message::States(sender));
        answer
    }

    fn tell(&self, message: Message) {
        // The thread reads messages until it ends.
        let _ = self.messages.send(message).map(|()| self.waker.wake());
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.tell(Message::End);
        if let Some(thread) = self.thread.take() {
            // The thread has no result; if it panicked, the message is on stderr.
            let _ = thread.join();
        }
    }
}
