//! Health checks of a balancer's backends: which of them are up, by probes over the kernel's sockets or through the
//! balancer's tunnels.
//!
//! [`Probes`] are one thread away from the packet path, which waits for all sockets at once and never for a single one.
//! Its owner sets the backends to probe and gets each [`HealthChange`]; [`Probes::states`] returns the rest.
//!
//! | kind | passes when |
//! |------|-------------|
//! | tcp | the connection is accepted; it is closed again at once |
//! | http | a GET has the expected status; the probe reads no more than the status line |
//! | https | likewise, over TLS 1.2 or 1.3. With a `ca_file` the certificate must come from one of the authorities in it, be valid now and be for the backend's IP address; `insecure` takes any |
//! | icmp | an echo request is answered |
//! | udp | a datagram of one byte is answered by anything, or by silence; only ICMP's port unreachable is a failure, so a host that is gone passes |
//!
//! Probes of kinds tcp and http can go through a backend's tunnel to the service's address, like clients' packets: see
//! [`settings::Via`]. The workers of `hotloop-balancer` send their packets and return the replies, through a
//! [`ProbeChannel`].
//!
//! - [`settings`]: the settings of probes, as plain values.
//! - [`probe_state`]: when a backend goes down and comes up again. A backend starts up.
//! - [`quorum`]: which backends are down if several nodes probe them.
//! - [`tls`]: the certificates that probes trust.
//! - [`Room`]: the number of probes at once, from the process's limit of open files.
//!
//! This crate knows no configuration file and no command line.
//!
//! # Guarantees
//!
//! - A probe ends within its timeout, from connecting to the status of the answer, however slowly a server sends, and
//!   reads a bounded number of bytes.
//! - Probes of one backend never overlap, and start spread over time. Each has a socket of its own, so that no host that
//!   hangs delays another's.
//! - No caller waits for the network: only [`Probes::states`] and dropping [`Probes`] wait, for the thread's current turn.
//!
//! # Example
//!
//! ```
//! use hotloop_health::settings::{Health, Probe, Via};
//! use hotloop_health::{Probed, Probes};
//! use std::net::{IpAddr, Ipv4Addr};
//! use std::sync::mpsc;
//!
//! let health = Health {
//!     probe: Probe::Tcp,
//!     port: 1, // no program listens on it
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
//!
//! # Limits
//!
//! A local obstacle to probing (no right to send ICMP, a `ca_file` that can't be read, no file descriptors) counts as a
//! failure as well, with its own message. One thread probes all backends, on one core; TLS handshakes exhaust it first.
//! Through tunnels, up to [`TUNNEL_PROBES_MAX`] probes run at once.

#![forbid(unsafe_code)]

mod conversation;
mod deadline;
mod echo;
mod http;
mod poller;
mod probe;
pub mod probe_state;
pub mod quorum;
mod room;
mod schedule;
pub mod settings;
pub mod tls;
mod tunnel;
mod watch;

use crate::settings::{Health, Probe, Via};
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
pub use tunnel::{ICMP, ProbeChannel, TUNNEL_PROBES_MAX};
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
pub struct HealthChange {
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
    pub fn start(results: Sender<HealthChange>) -> io::Result<Self> {
        Self::start_with(results, None)
    }

    /// Like [`start`](Self::start), with a way to probe through tunnels.
    ///
    /// # Errors
    /// Like [`start`](Self::start).
    pub fn start_with(
        results: Sender<HealthChange>,
        channel: Option<ProbeChannel>,
    ) -> io::Result<Self> {
        let (messages, inbox) = mpsc::channel();
        let mut watch = Watch::new(results, channel)?;
        let waker = watch.waker()?;
        let thread = thread::Builder::new().name("health".into()).spawn(move || {
            // For echo requests, which the kernel may reserve for some groups, and for CA files.
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
        self.send(Message::Set(probed, room.probes_max()));
        room
    }

    /// Treats these backends as down until their probes show otherwise: the predecessor of this
    /// process has found them down.
    pub fn take_down(&self, down: HashSet<(IpAddr, Health)>) {
        self.send(Message::Down(down));
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
        self.send(Message::States(sender));
        answer
    }

    fn send(&self, message: Message) {
        // The thread reads messages until it ends.
        let _ = self.messages.send(message).map(|()| self.waker.wake());
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.send(Message::End);
        if let Some(thread) = self.thread.take() {
            // The thread has no result; if it panicked, the message is on stderr.
            let _ = thread.join();
        }
    }
}
