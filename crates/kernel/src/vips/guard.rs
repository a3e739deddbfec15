//! A separate process that deletes the routes to VIPs if the process that installed them hangs.
//!
//! A process that is stopped (SIGSTOP, a debugger, a frozen control group) runs none of its
//! threads, so another process must notice and act. Parent and guard share a pair of sockets:
//!
//! | from the parent | |
//! |---|---|
//! | four bytes | the index of the interface, once |
//! | [`ALIVE`] | from time to time; after the first one, the guard waits for the next |
//! | [`WITHDRAW`] | delete the routes now, and answer with the number of these requests so far, modulo 256 |
//! | the end | the parent is gone, and its interface with it; the guard ends, too |

use super::routes::{VIP_METRIC, VipRoutes};
use hotloop_privileges::{Capabilities, keep};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::time::{Duration, Instant};

const ALIVE: u8 = b'a';
const WITHDRAW: u8 = b'w';

/// The longest wait for the routes' deletion.
const WITHDRAW_WAIT: Duration = Duration::from_secs(1);

/// Number of `ALIVE` messages sent within the longest allowed silence.
const ALIVE_PARTS: u32 = 10;

/// VIPs stay withdrawn for one of `PAUSE_PARTS` parts of the longest allowed silence after a process
/// that hung continues.
const PAUSE_PARTS: u32 = 4;

/// A separate process, the guard, which deletes the routes of this one ([`VipRoutes`]) on request,
/// or if this one hangs: if it has not sent a sign of life for a set time. The guard ends with this
/// process.
#[derive(Debug)]
pub struct VipGuard {
    socket: UnixStream,
    silent_max: Option<Duration>,
    /// The time of the last sign of life.
    sent: Option<Instant>,
    /// VIPs stay withdrawn until then: this process hung until a moment ago, and errors of its
    /// threads are known by then.
    paused_until: Option<Instant>,
    /// Whether the guard no longer guards, which has been logged.
    has_ended: bool,
    /// Number of requests to delete the routes.
    withdrawal_count: Arc<AtomicU8>,
}

impl VipGuard {
    /// Starts the guard: a program that calls [`guard_vips`] with the same `silent_max`, usually
    /// this one with a command of its own. It needs CAP_NET_ADMIN, and this program's network
    /// namespace. The guard inherits every file that this process has open without `O_CLOEXEC`, so
    /// start it first.
    ///
    /// The guard deletes the routes if the [announcer](super::VipAnnouncer) has no turn for
    /// `silent_max`. If that is `None`, the guard deletes them on request only.
    ///
    /// Returns `None`, and logs why, if the program does not exist or the system can't start a
    /// process.
    #[must_use]
    pub fn start(program: Command, silent_max: Option<Duration>) -> Option<Self> {
        Self::try_start(program, silent_max).inspect_err(log_no_guard).ok()
    }

    fn try_start(mut program: Command, silent_max: Option<Duration>) -> io::Result<Self> {
        let (socket, guards) = UnixStream::pair()?;
        socket.set_read_timeout(Some(WITHDRAW_WAIT))?;
        // A terminal's Ctrl-Z stops its group.
        program.stdin(OwnedFd::from(guards)).stdout(Stdio::null()).process_group(0).spawn()?;
        Ok(Self::new(socket, silent_max, Arc::default()))
    }

    const fn new(
        socket: UnixStream,
        silent_max: Option<Duration>,
        withdrawal_count: Arc<AtomicU8>,
    ) -> Self {
        let (sent, paused_until, has_ended) = (None, None, false);
        Self { socket, silent_max, sent, paused_until, has_ended, withdrawal_count }
    }

    /// Sends the index of the routes' interface, once, before there are any routes. Returns `None`,
    /// and logs why, if the guard has ended.
    pub(super) fn guarding(self, interface_index: u32) -> Option<Self> {
        let sent = self.send(&interface_index.to_ne_bytes());
        sent.inspect_err(log_no_guard).is_ok().then_some(self)
    }

    /// Returns a second handle for [`withdraw`](Self::withdraw) on another thread. `None`, which is
    /// logged, if the guard has ended or the process has no file left.
    pub(super) fn try_clone(&self) -> Option<Self> {
        let socket = (!self.has_ended).then(|| self.socket.try_clone())?;
        let socket = socket.inspect_err(log_no_guard).ok()?;
        Some(Self::new(socket, self.silent_max, Arc::clone(&self.withdrawal_count)))
    }

    /// Sends the guard a sign of life. Never waits, and extra calls cost nothing. Returns whether
    /// this process was late, or was until a moment ago, so that the guard may have deleted routes.
    pub(super) fn was_late(&mut self) -> bool {
        let now = Instant::now();
        if let Some(silent_max) = self.silent_max.filter(|_| !self.has_ended) {
            match self.send_alive(silent_max) {
                Ok(true) => self.paused_until = Some(now + silent_max / PAUSE_PARTS),
                Ok(false) => {}
                Err(error) => {
                    log_no_guard(&error);
                    self.has_ended = true;
                }
            }
        }
        self.paused_until.is_some_and(|until| now < until)
    }

    /// Sends a sign of life if one is due. Returns whether the one before was sent too long ago.
    fn send_alive(&mut self, silent_max: Duration) -> io::Result<bool> {
        if self.sent.is_some_and(|sent| sent.elapsed() < silent_max / ALIVE_PARTS) {
            return Ok(false);
        }
        // The guard measures a shorter time than from here to there, and reads waiting messages
        // before it checks the time.
        let before = self.sent.replace(Instant::now());
        self.send(&[ALIVE])?;
        Ok(before.is_some_and(|before| before.elapsed() >= silent_max))
    }

    /// Has the routes deleted, and waits for that, at most a second.
    ///
    /// # Errors
    /// The guard has ended, or takes longer.
    pub(super) fn withdraw(&self) -> io::Result<()> {
        let count = self.withdrawal_count.fetch_add(1, Relaxed).wrapping_add(1);
        self.send(&[WITHDRAW])?;
        let mut answer = [count.wrapping_sub(1)];
        while answer != [count] {
            // Skips late answers to earlier requests.
            (&self.socket).read_exact(&mut answer)?;
        }
        Ok(())
    }

    /// Sends without waiting. A stopped guard may miss the message.
    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        match send(self.socket.as_fd(), bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn log_no_guard(error: &io::Error) {
    tracing::warn!("announce: no guard ({error}): VIPs stay announced if this process is stopped");
}

/// The whole guard: runs in the program that [`VipGuard::start`] starts, and returns when the
/// parent is gone. It ignores SIGTERM, SIGINT and SIGHUP: these mostly reach both processes, and
/// the routes of a process that ends slowly still need a guard.
///
/// # Errors
/// Standard input is no socket, or the kernel refuses a netlink socket.
pub fn guard_vips(silent_max: Option<Duration>) -> io::Result<()> {
    keep(Capabilities::NET_ADMIN);
    for signal in
        [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT, signal_hook::consts::SIGHUP]
    {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut index = [0; 4];
    match (&socket).read_exact(&mut index) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
        read => read?,
    }
    let mut routes = VipRoutes::open(u32::from_ne_bytes(index), VIP_METRIC)?;
    let mut withdrawal_count = 0_u8;
    loop {
        match next(&socket) {
            Ok(None) => return Ok(()),
            Ok(Some(WITHDRAW)) => {
                // The parent logs why.
                if let Err(error) = routes.delete_found() {
                    tracing::error!("routes to VIPs can't be deleted: {error}");
                }
                withdrawal_count = withdrawal_count.wrapping_add(1);
                // If the parent is gone, the next turn notices.
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                let _ = send(socket.as_fd(), &[withdrawal_count], flags);
            }
            Ok(Some(_)) => socket.set_read_timeout(silent_max)?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let lasted = silent_max.unwrap_or_default().as_secs_f64();
                match routes.delete_found() {
                    Ok(vips) => vips.iter().for_each(|vip| {
                        tracing::warn!(
                            "withdrawn: {vip}: its process has not run for {lasted:.1} s"
                        );
                    }),
                    Err(error) => tracing::error!("routes to VIPs can't be deleted: {error}"),
                }
                // Waits until the parent goes on.
                socket.set_read_timeout(None)?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// The next byte. `None` at the end.
fn next(mut socket: &UnixStream) -> io::Result<Option<u8>> {
    let mut byte = [0];
    loop {
        match socket.read(&mut byte) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The parent ended without having read everything.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            Ok(0) => return Ok(None),
            read => return read.map(|_| Some(byte[0])),
        }
    }
}
