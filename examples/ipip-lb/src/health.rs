//! Health checks: which backends are up, by probes over the kernel's sockets, or through the tunnels.
//!
//! [`Probes`] are one thread away from the packet path, which waits for all sockets at once and never
//! for one. Its owner says which backends to probe and gets each [`Change`]; [`Probes::states`] tells
//! the rest. All of a probe, from connecting to the status of the answer, ends within its timeout,
//! however slowly a server dribbles, and reads a bounded amount.
//!
//! | kind | passes when |
//! |------|-------------|
//! | tcp | the connection is accepted; it is closed again at once |
//! | http | a GET has the status that is expected; no more than the status line is waited for |
//! | https | likewise, over TLS 1.2 or 1.3. With a `ca_file` the certificate must come from one of the authorities in it, be valid now and be for the backend's IP address; `insecure` takes any |
//! | icmp | an echo request is answered |
//! | udp | a datagram of one byte is answered by anything, or by silence: what fails is ICMP's port unreachable, so a host that is gone passes |
//!
//! Those of kinds tcp and http can go through a backend's tunnel to the service's address, as clients'
//! packets do: see [`Via`]. The workers send their packets, and hand back the replies, by a [`Wire`].
//!
//! A backend starts up. [`standing`] says what takes it down and brings it up again. What keeps this
//! side from probing (no right to send ICMP, a `ca_file` that can't be read, no file descriptors) counts
//! as a failure as well, and says so: the backends go down, and what `all_down` says is done.
//!
//! Probes of one backend never overlap, and start spread over time. Each has a socket of its own, so
//! that no host that hangs delays another's: [`Room`] says how many the process's limit of open files
//! allows. What one core can compute is the limit that is left, and TLS handshakes come to it first.
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

/// How long a probe took, or why it failed, in the words of an operator: `connection refused`.
type Outcome = Result<Duration, String>;

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
    const fn what(&self) -> (IpAddr, u16, &Probe, Via) {
        (self.address, self.health.port, &self.health.probe, self.health.via)
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
    pub last: Option<Outcome>,
    /// How many probes passed.
    pub passed_count: u64,
    /// How many probes failed.
    pub failed_count: u64,
    /// How many of the latest probes in a row said the contrary of what it is.
    pub contrary_count: u32,
    /// How many in a row it takes for a change: of failures while up, of passes while down.
    pub needed_count: u32,
}

/// The thread that probes. Dropping this ends it at once, and nobody hears of probes under way.
#[derive(Debug)]
pub struct Probes {
    messages: Sender<Message>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Probes {
    /// Starts the thread, which probes nobody yet. Changes go to `results`.
    ///
    /// It runs where the calling thread may: call this from one that isn't bound to a core that polls.
    ///
    /// # Errors
    /// The kernel allows no more threads or files.
    pub fn start(results: Sender<Change>) -> io::Result<Self> {
        Self::start_with(results, None)
    }

    /// As [`start`](Self::start), with a way to probe through tunnels.
    ///
    /// # Errors
    /// As of [`start`](Self::start).
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
    /// before stays up or down, even when intervals, timeouts or counts differ: then one that is down
    /// is reported once more, as a change under its new [`Health`]. Certificates of
    /// authorities are read again.
    ///
    /// Raises this process's limit of open files where the list needs that.
    pub fn set(&mut self, probed: Vec<Probed>) -> Room {
        let room = Room::make(probed.len());
        self.tell(Message::Set(probed, room.probes_max()));
        room
    }

    /// Takes these to be down until their probes say otherwise: those that another process, in place of which this one
    /// goes on, has found so.
    pub fn take_down(&self, down: HashSet<(IpAddr, Health)>) {
        self.tell(Message::Down(down));
    }

    /// How all stand that are probed, in the order in which they came.
    #[must_use]
    pub fn states(&self) -> Vec<State> {
        self.ask_states().recv().unwrap_or_default()
    }

    /// As [`states`](Self::states), without waiting for the thread that probes: what it says comes there.
    #[must_use]
    pub fn ask_states(&self) -> Receiver<Vec<State>> {
        let (sender, answer) = mpsc::channel();
        self.tell(Message::States(sender));
        answer
    }

    fn tell(&self, message: Message) {
        // The thread listens until it has to end.
        let _ = self.messages.send(message).map(|()| self.waker.wake());
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.tell(Message::End);
        if let Some(thread) = self.thread.take() {
            // It has nothing to say; had it panicked, the message would be on stderr.
            let _ = thread.join();
        }
    }
}
