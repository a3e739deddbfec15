//! Routes to VIPs are deleted where the process that installed them hangs.
//!
//! A process that is stopped (SIGSTOP, a debugger, a frozen control group) runs none of its threads, so
//! another process has to see that, and to act. Parent and guard share a pair of sockets:
//!
//! | from the parent | |
//! |---|---|
//! | four bytes | the index of the interface, once |
//! | [`ALIVE`] | from time to time; from the first one on the guard waits for the next |
//! | [`WITHDRAW`] | delete the routes now, and answer how many times that was said, modulo 256 |
//! | the end | the parent is gone, and its interface with it; so is the guard |

use super::vip_routes::{VIP_METRIC, VipRoutes};
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

/// The longest that [`VipGuard::withdraw`] waits.
const WITHDRAW_WAIT: Duration = Duration::from_secs(1);

/// How often it is said that the process is alive, in the time in which it has to be said.
const ALIVE_PARTS: u32 = 10;

/// Another process, the guard, which deletes the routes of this one ([`VipRoutes`]) where this one says so
/// or hangs: where it has not called [`alive`](Self::alive) for a set time. It ends with this process.
#[derive(Debug)]
pub struct VipGuard {
    socket: UnixStream,
    silent_max: Option<Duration>,
    said: Option<Instant>,
    /// How often routes were to be deleted.
    withdrawal_count: Arc<AtomicU8>,
}

impl VipGuard {
    /// Starts the guard: a program that calls [`guard_vips`] with the same `silent_max`, mostly this one
    /// by a command of its own. It needs CAP_NET_ADMIN, and this program's network namespace. What this
    /// process has open without `O_CLOEXEC` the guard has open as well, so it is to be started first.
    ///
    /// The guard deletes the routes where [`alive`](Self::alive) is not called for `silent_max`; without,
    /// only by [`withdraw`](Self::withdraw).
    ///
    /// # Errors
    /// The system's: there is no such program, or no process can be made.
    pub fn start(mut program: Command, silent_max: Option<Duration>) -> io::Result<Self> {
        let (socket, guards) = UnixStream::pair()?;
        socket.set_read_timeout(Some(WITHDRAW_WAIT))?;
        // A terminal's Ctrl-Z stops its group.
        program.stdin(OwnedFd::from(guards)).stdout(Stdio::null()).process_group(0).spawn()?;
        Ok(Self { socket, silent_max, said: None, withdrawal_count: Arc::default() })
    }

    /// The interface that the routes are on, once, before there are any.
    ///
    /// # Errors
    /// The guard has ended.
    pub fn guard(&self, interface_index: u32) -> io::Result<()> {
        self.say(&interface_index.to_ne_bytes())
    }

    /// What may say `withdraw` on another thread.
    ///
    /// # Errors
    /// The process has no file left.
    pub fn try_clone(&self) -> io::Result<Self> {
        let socket = self.socket.try_clone()?;
        let withdrawal_count = Arc::clone(&self.withdrawal_count);
        Ok(Self { socket, silent_max: self.silent_max, said: None, withdrawal_count })
    }

    /// This process goes on. It costs nothing to call it more often than needed, and it never waits.
    ///
    /// Returns whether the guard may have deleted routes since the last call, because that was too long
    /// ago.
    ///
    /// # Errors
    /// The guard has ended: from now on, there is none.
    pub fn alive(&mut self) -> io::Result<bool> {
        let Some(silent_max) = self.silent_max else { return Ok(false) };
        if self.said.is_some_and(|said| said.elapsed() < silent_max / ALIVE_PARTS) {
            return Ok(false);
        }
        // The guard has waited no longer than from here to there, and reads what came before it looks
        // at the time.
        let before = self.said.replace(Instant::now());
        self.say(&[ALIVE])?;
        Ok(before.is_some_and(|before| before.elapsed() >= silent_max))
    }

    /// Has the routes deleted, and waits until they are, for a second at most.
    ///
    /// # Errors
    /// The guard has ended, or takes longer.
    pub fn withdraw(&self) -> io::Result<()> {
        let count = self.withdrawal_count.fetch_add(1, Relaxed).wrapping_add(1);
        self.say(&[WITHDRAW])?;
        let mut answer = [count.wrapping_sub(1)];
        while answer != [count] {
            // What it answers late to an earlier one is not waited for.
            (&self.socket).read_exact(&mut answer)?;
        }
        Ok(())
    }

    /// Sends without waiting. What a guard that is itself stopped can't take is left out.
    fn say(&self, bytes: &[u8]) -> io::Result<()> {
        match send(self.socket.as_fd(), bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The whole of a guard: what the program does that [`VipGuard::start`] starts. It returns when the
/// process is gone that started it; what ends programs otherwise (SIGTERM, SIGINT, SIGHUP) it ignores,
/// since they mostly reach both, and the routes of a process that ends slowly are guarded as well.
///
/// # Errors
/// Standard input is no socket, or the kernel grants no netlink socket.
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
                // The parent says why.
                if let Err(error) = routes.delete_found() {
                    tracing::error!("routes to VIPs can't be deleted: {error}");
                }
                withdrawal_count = withdrawal_count.wrapping_add(1);
                // Where it is gone, the next turn sees that.
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
                // Until it goes on.
                socket.set_read_timeout(None)?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// What comes next; nothing at the end.
fn next(mut socket: &UnixStream) -> io::Result<Option<u8>> {
    let mut byte = [0];
    loop {
        match socket.read(&mut byte) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // It ended without having read everything.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            Ok(0) => return Ok(None),
            read => return read.map(|_| Some(byte[0])),
        }
    }
}
