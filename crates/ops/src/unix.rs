//! Unix stream sockets that don't block, even to connect.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::os::fd::OwnedFd;
use std::path::Path;

/// A new stream socket that doesn't block, and that child processes don't inherit.
pub fn stream() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// The result of connecting to a path.
#[derive(Debug)]
pub enum Peer {
    /// A program listens, and is connected.
    Connected(OwnedFd),
    /// A program listens, and its queue of connections is full.
    Busy,
    /// A socket is there, but no program listens.
    Stale,
    /// Nothing is there.
    Nothing,
}

/// Connects to the socket at `path`, without waiting.
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
