//! Binds a socket at its path, which an argument may set, and removes it in the end.

use super::Socket;
use crate::path::socket_path;
use crate::unix::{Peer, connected, stream};
use clap::Args;
use nix::unistd::Group;
use rustix::fs::{Gid, Mode, chmod, chown, fchmod};
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, bind, listen};
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 64;

/// The longest wait for another program that binds in the same folder.
const LOCK_WAIT: Duration = Duration::from_secs(1);

/// How often to try the lock meanwhile.
const LOCK_INTERVAL: Duration = Duration::from_millis(5);

/// Arguments of a program with a control socket. Flattened into its own arguments:
///
/// ```
/// use clap::Parser;
/// use hotloop_ops::ControlArgs;
///
/// #[derive(Parser)]
/// struct Cli {
///     #[arg(long)]
///     port: String,
///     #[command(flatten)]
///     control: ControlArgs,
/// }
///
/// let cli = Cli::parse_from(["nf", "--port", "net_null0", "--control", "/run/nf/one.sock"]);
/// assert_eq!(cli.control.control.unwrap(), std::path::Path::new("/run/nf/one.sock"));
/// ```
#[derive(Args, Clone, Debug, Default)]
pub struct ControlArgs {
    /// The path of the control socket, which `ctl` connects to; by default,
    /// $XDG_RUNTIME_DIR/hotloop/NAME.sock, or /run/hotloop/NAME.sock.
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// A group, by name or number, that may use the control socket, too.
    #[arg(long, value_name = "GROUP")]
    pub control_group: Option<String>,
    /// A group, by name or number, that may only query the program, at a socket beside the control
    /// socket, which `ctl` finds by itself.
    #[arg(long, value_name = "GROUP")]
    pub query_group: Option<String>,
}

impl ControlArgs {
    /// Binds the control socket at the given path, or else at the [default path](socket_path) of
    /// the program `name`. If the default path is taken, for example by a second instance, the
    /// problem is logged and the program runs without a control socket.
    ///
    /// # Errors
    /// The given path can't be bound, or a socket can't be given to its group.
    pub fn bind(&self, name: &str) -> Result<Option<Socket>, SocketError> {
        let bound = match &self.control {
            Some(path) => Socket::bind(path),
            None => Socket::bind(&socket_path(name)),
        };
        let mut socket = match bound {
            Err(error) if self.control.is_none() => {
                tracing::warn!("runs without a control socket: {error}");
                return Ok(None);
            }
            bound => bound?,
        };
        if let Some(group) = &self.control_group {
            socket.bound.share(group)?;
        }
        if let Some(group) = &self.query_group {
            socket.admit_queries(group)?;
        }
        Ok(Some(socket))
    }
}

/// Why there is no control socket at a path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// A running program listens there.
    #[error(
        "{path}: a running program has its control socket here; end it, or give this one a path of \
         its own with --control PATH"
    )]
    Taken {
        /// The path.
        path: PathBuf,
    },
    /// Something that is not a socket is there, and is left alone.
    #[error(
        "{path}: there is something here that is no socket; remove it, or give another path \
             with --control PATH"
    )]
    Occupied {
        /// The path.
        path: PathBuf,
    },
    /// The path cannot be a socket's.
    #[error("{path}: {problem}; give another path with --control PATH")]
    BadPath {
        /// The path.
        path: PathBuf,
        /// The problem.
        problem: &'static str,
    },
    /// The system has no such group.
    #[error("there is no group {group}; create it (groupadd), or give another")]
    NoGroup {
        /// The group's name.
        group: String,
    },
    /// A socket can't be given to a group.
    #[error(
        "{path}: it can't be given to the group {group}: {source}; make the program's user a member \
         of the group, or run the program as root"
    )]
    Group {
        /// The path.
        path: PathBuf,
        /// The group.
        group: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The system refused.
    #[error("{path}: {source}; give a path in a folder of your own with --control PATH")]
    System {
        /// The path of the socket, or its folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl SocketError {
    fn system(path: &Path, source: impl Into<io::Error>) -> Self {
        Self::System { path: path.to_owned(), source: source.into() }
    }
}

/// A listening socket at its path.
#[derive(Debug)]
pub struct Bound {
    pub listener: UnixListener,
    pub path: PathBuf,
    /// The device and the number of the socket's file, which identify it.
    file: (u64, u64),
}

impl Bound {
    pub fn at(path: &Path) -> Result<Self, SocketError> {
        let bad = |problem| SocketError::BadPath { path: path.to_owned(), problem };
        if path.file_name().is_none() {
            return Err(bad("this names no file"));
        }
        let address = SocketAddrUnix::new(path).map_err(|error| match error {
            Errno::NAMETOOLONG => bad("the path of a socket has at most 107 bytes"),
            _ => bad("the path of a socket has no zero byte"),
        })?;
        // Two programs that start at once would both find a stale socket, and the second would
        // remove the first one's new one.
        let _lock = locked(&folder(path)?)?;
        make_way(path)?;

        let refused = |error: Errno| SocketError::system(path, error);
        let socket = stream().map_err(refused)?;
        // The file gets the socket's mode (less the umask), so others can't connect at any moment.
        fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(refused)?;
        bind(&socket, &address).map_err(refused)?;
        let file = file_of(path).map_err(|error| SocketError::system(path, error))?;
        let bound = Self { listener: socket.into(), path: path.to_owned(), file };
        listen(&bound.listener, BACKLOG).map_err(refused)?;
        Ok(bound)
    }

    /// Lets the members of a group connect as well.
    pub fn share(&self, group: &str) -> Result<(), SocketError> {
        let path = &self.path;
        let failed = |error: Errno| SocketError::Group {
            path: path.clone(),
            group: group.to_owned(),
            source: error.into(),
        };
        let number = group_number(group).map_err(failed)?;
        let Some(number) = number else {
            return Err(SocketError::NoGroup { group: group.to_owned() });
        };
        chown(path, None, Some(number)).map_err(failed)?;
        chmod(path, Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP).map_err(failed)?;
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        let folder = folder.unwrap_or(Path::new("."));
        let is_open = fs::metadata(folder).is_ok_and(|folder| {
            let by_group = if folder.gid() == number.as_raw() { 0o010 } else { 0 };
            folder.mode() & (0o001 | by_group) != 0
        });
        if !is_open {
            tracing::warn!(
                "{}: the group {group} can't reach it, because {} is closed to the group; open that \
                 (chmod o+x), or give another path with --control PATH",
                path.display(),
                folder.display()
            );
        }
        Ok(())
    }
}

/// The number of a group, by its name or number; `None` if there is no such group.
fn group_number(group: &str) -> Result<Option<Gid>, Errno> {
    if let Ok(number) = group.parse() {
        return Ok(Some(Gid::from_raw(number)));
    }
    let found = Group::from_name(group).map_err(|error| Errno::from_raw_os_error(error as i32))?;
    Ok(found.map(|group| Gid::from_raw(group.gid.as_raw())))
}

impl Drop for Bound {
    fn drop(&mut self) {
        // Another file may be at the path by now.
        if file_of(&self.path).is_ok_and(|file| file == self.file) {
            // If it cannot be removed, the next program replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn file_of(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

/// The folder of the path, created if missing. The folder above it must exist: a typing error in a
/// path makes no tree.
fn folder(path: &Path) -> Result<PathBuf, SocketError> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists && !folder.is_dir() => {
            Err(SocketError::system(folder, error))
        }
        _ => Ok(folder.to_owned()),
    }
}

/// The folder, locked against other programs that bind in it. The lock ends with the file.
fn locked(folder: &Path) -> Result<File, SocketError> {
    let refused = |error| SocketError::system(folder, error);
    let file = File::open(folder).map_err(refused)?;
    let deadline = Instant::now() + LOCK_WAIT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(refused(error)),
            Err(TryLockError::WouldBlock) if Instant::now() > deadline => {
                return Err(refused(io::Error::other("another program keeps this folder locked")));
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_INTERVAL),
        }
    }
}

/// Removes a socket that a program has left there.
fn make_way(path: &Path) -> Result<(), SocketError> {
    let refused = |error| SocketError::system(path, error);
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(refused(error)),
        Ok(file) if !file.file_type().is_socket() => {
            return Err(SocketError::Occupied { path: path.to_owned() });
        }
        Ok(_) => {}
    }
    match connected(path).map_err(|error| refused(error.into()))? {
        Peer::Connected(_) | Peer::Busy => Err(SocketError::Taken { path: path.to_owned() }),
        Peer::Stale => fs::remove_file(path).map_err(refused),
        Peer::Nothing => Ok(()),
    }
}
