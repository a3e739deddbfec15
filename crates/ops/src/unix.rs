//! Unix stream sockets that don't wait, where the standard library's would.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::os::fd::OwnedFd;
use std::path::Path;

/// A stream socket that is nobody's yet, that doesn't wait, and that programs started from here don't
/// get.
pub fn stream() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// What is at a path.
#[derive(Debug)]
pub enum Peer {
    /// A program listens, and is connected.
    Connected(OwnedFd),
    /// A program listens, and has more connections waiting than it takes.
    Busy,
    /// A socket is there, but nobody listens.
    Stale,
    /// Nothing is there.
    Nothing,
}

/// Connects to what is at `path`, without waiting.
pub fn connected(path: &Path) -> Result<Peer, Errno> {
    let stream = stream()?;
    match connect(&stream, &SocketAddrUnix::new(path)?) {
        Ok(()) => Ok(Peer::Connected(stream)),
        Err(Errno::AGAIN) => Ok(Peer::Busy),
        Err(Errno::CONNREFUSED) => Ok(Peer::Stale),
        Err(Errno::NOENT) => Ok(Peer::Nothing),
        Err(error) => Err(error),
    }
}
