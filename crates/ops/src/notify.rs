//! Notifies systemd of the program's state (sd_notify(3)), if it asks for that: `NOTIFY_SOCKET`
//! names a socket, and `WATCHDOG_USEC` sets how often it wants to hear that the program is alive.
//!
//! [`run`](crate::run) announces that the program is ready, that it stops, and that it is alive as
//! long as its workers and its control thread are. A program that reads its configuration again
//! announces that by [`reloading`] and [`ready`]. Without a manager nothing is sent, and one that
//! takes no message does not delay the program.

use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// The manager that has started this process, if one listens.
static MANAGER: OnceLock<Option<Notifier>> = OnceLock::new();

/// The socket of systemd.
#[derive(Debug)]
pub struct Notifier {
    socket: OwnedFd,
    manager: SocketAddrUnix,
}

impl Notifier {
    /// Opens a socket to an address in the form of `NOTIFY_SOCKET`: a path, or `@` and the name of
    /// an abstract socket (unix(7)).
    ///
    /// # Errors
    /// The address has another form or is too long, or the system refuses a socket.
    pub fn to(address: &std::ffi::OsStr) -> io::Result<Self> {
        let bytes = address.as_bytes();
        let manager = match bytes.first() {
            Some(b'@') => SocketAddrUnix::new_abstract_name(&bytes[1..])?,
            Some(b'/') => SocketAddrUnix::new(bytes)?,
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "NOTIFY_SOCKET names neither a path from / nor an abstract socket by @",
                ));
            }
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        Ok(Self { socket, manager })
    }

    /// Sends a message, lines of `NAME=value`, without waiting.
    ///
    /// # Errors
    /// The manager is gone, or does not take the message now.
    pub fn send(&self, message: &str) -> io::Result<()> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        Ok(rustix::net::sendto(&self.socket, message.as_bytes(), flags, &self.manager).map(drop)?)
    }
}

/// Whether another process is the service now.
static IS_LEFT: AtomicBool = AtomicBool::new(false);

/// Sends to the manager that has started this process, if one listens.
fn notify(message: &str) {
    if IS_LEFT.load(Relaxed) {
        return;
    }
    let manager = MANAGER.get_or_init(|| {
        let address = std::env::var_os("NOTIFY_SOCKET").filter(|address| !address.is_empty())?;
        let notifier = Notifier::to(&address);
        notifier.inspect_err(|error| tracing::warn!("systemd is not notified: {error}")).ok()
    });
    if let Some(Err(error)) = manager.as_ref().map(|manager| manager.send(message)) {
        tracing::warn!("systemd is not notified of {message:?}: {error}");
    }
}

/// Announces that the program is ready: its cores run, with this configuration or another.
pub fn ready() {
    notify("READY=1\nSTATUS=running");
}

/// Whether this process has become the service in place of the one that the manager had started.
static HAS_TAKEN_OVER: AtomicBool = AtomicBool::new(false);

/// Announces that this process replaces the service's current one, which is about to end. systemd
/// takes this only from processes that `NotifyAccess=` allows. Call it before [`run`](crate::run): the
/// manager's watchdog expects this process from then on.
pub fn take_over() {
    HAS_TAKEN_OVER.store(true, Relaxed);
    notify(&format!("MAINPID={}\nSTATUS=taking over", std::process::id()));
}

/// Leaves further notifications to another process: this one is about to end, and the service goes
/// on.
pub fn leave() {
    IS_LEFT.store(true, Relaxed);
}

/// Announces that the program is about to end.
pub(crate) fn stopping() {
    notify("STOPPING=1\nSTATUS=stopping");
}

/// Announces that the program is alive.
pub(crate) fn watchdog() {
    notify("WATCHDOG=1");
}

/// Sets the status line for people, as in `systemctl status`.
pub fn status(text: &str) {
    notify(&format!("STATUS={}", text.replace('\n', " ")));
}

/// Announces that the program reads its configuration again. [`ready`] follows, even after a
/// failure.
pub fn reloading() {
    // systemd orders messages by the time of CLOCK_MONOTONIC.
    let now = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default();
    notify(&format!(
        "RELOADING=1\nMONOTONIC_USEC={}\nSTATUS=reading the configuration again",
        now.as_micros()
    ));
}

/// The time between two [`watchdog`] messages of a process that does not know the manager's timeout.
const INTERVAL_UNKNOWN: Duration = Duration::from_secs(1);

/// The time between two [`watchdog`] messages: half of the manager's timeout. `None` if it has no
/// watchdog. systemd gives the timeout only to processes that it starts as the service, so one that has
/// taken over may not know it.
pub(crate) fn watchdog_interval() -> Option<Duration> {
    let variable = |name: &str| std::env::var(name).ok();
    let unknown = HAS_TAKEN_OVER.load(Relaxed).then_some(INTERVAL_UNKNOWN);
    let Some(usec) = variable("WATCHDOG_USEC") else { return unknown };
    interval(usec, variable("WATCHDOG_PID"), std::process::id())
}

/// Half of `WATCHDOG_USEC`, unless `WATCHDOG_PID` names another process.
fn interval(usec: String, meant: Option<String>, own: u32) -> Option<Duration> {
    let is_meant = meant.is_none_or(|meant| meant == own.to_string());
    let usec: u64 = usec.parse().ok().filter(|&usec| usec > 0 && is_meant)?;
    Some(Duration::from_micros(usec / 2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    fn received(socket: &UnixDatagram) -> String {
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut message = [0; 256];
        let count = socket.recv(&mut message).unwrap();
        String::from_utf8(message[..count].to_vec()).unwrap()
    }

    #[test]
    fn paths_and_abstract_names_are_sent_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let notifier = Notifier::to(path.as_os_str()).unwrap();
        notifier.send("READY=1").unwrap();
        assert_eq!(received(&socket), "READY=1");

        let name = format!("hotloop-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        let notifier = Notifier::to(format!("@{name}").as_ref()).unwrap();
        notifier.send("STATUS=all is well").unwrap();
        assert_eq!(received(&socket), "STATUS=all is well");
    }

    #[test]
    fn a_manager_that_is_gone_or_takes_nothing_delays_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let notifier = Notifier::to(path.as_os_str()).unwrap();
        assert_eq!(notifier.send("READY=1").unwrap_err().kind(), io::ErrorKind::NotFound);
        let _unread = UnixDatagram::bind(&path).unwrap();
        let sent = (0..100_000).map(|_| notifier.send("WATCHDOG=1"));
        let error = sent.filter_map(Result::err).next().expect("a queue has an end");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        for wrong in ["", "notify", "vsock:2:1234"] {
            let error = Notifier::to(wrong.as_ref()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{wrong}");
        }
    }

    #[test]
    fn the_watchdog_is_fed_twice_in_its_time() {
        let of = |usec: &str, meant: Option<&str>| {
            interval(usec.to_owned(), meant.map(ToOwned::to_owned), 7)
        };
        assert_eq!(of("3000000", None), Some(Duration::from_millis(1500)));
        assert_eq!(of("3000000", Some("7")), Some(Duration::from_millis(1500)));
        for (usec, meant) in [("3000000", Some("8")), ("0", None), ("soon", None), ("", None)] {
            assert_eq!(of(usec, meant), None, "{usec} {meant:?}");
        }
    }
}
