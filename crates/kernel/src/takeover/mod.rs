//! Takes over an interface of the kernel: a port's TAP interface gets its addresses and routes.

mod settings;
mod silence;
mod state;

use super::netlink::{Requests, interface_index};
use rustix::io::Errno;
use settings::{Interface, Settings};
use silence::Silence;
use state::StateFile;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// An interface could not be taken over, or not given back.
#[derive(Debug, thiserror::Error)]
pub enum TakeoverError {
    /// The interface does not exist.
    #[error("there is no interface {name}: {source}")]
    NoInterface {
        /// The interface's name.
        name: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// Another program has taken it over.
    #[error("another program has taken over interface {0}: end that one first")]
    Taken(String),
    /// The settings could not be saved, or not read again.
    #[error("{path}: {source}; takeover keeps the settings to restore there")]
    State {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The kernel refuses a change.
    #[error("interface {name}, {what}: {source}; takeover needs CAP_NET_ADMIN")]
    Kernel {
        /// The interface.
        name: String,
        /// The change.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

/// The addresses and routes of an interface, moved to another one until this is dropped: from the
/// interface of a port's device to the TAP interface of that port.
///
/// All addresses are moved except IPv6's link-local ones. So are the routes of all tables that lead
/// out of the interface, with three exceptions: routes to link-local addresses, routes of next-hop
/// objects (`ip nexthop`), and routes from router advertisements, which the kernel learns anew on
/// the other interface. Later changes on either interface are not carried over.
///
/// The settings are saved to a file before anything is moved. A program that is killed leaves the
/// file, and [`restore`] uses it to move everything back.
pub struct Takeover {
    requests: Requests,
    file: StateFile,
    settings: Settings,
    from: Interface,
    to: Interface,
    silence: Option<Silence>,
    /// Whether another process takes over the moved settings.
    is_left: bool,
}

impl Takeover {
    /// Moves the settings of the interface `from`, in the calling thread's network namespace, to
    /// `to`, which is up. [`restore`] looks in `folder`, which is created if missing.
    ///
    /// # Errors
    /// See [`TakeoverError`]. Then everything is back where it was, as far as the kernel allows.
    pub fn begin(from: &str, to: &str, folder: &Path) -> Result<Self, TakeoverError> {
        let (from, to) = (interface(from)?, interface(to)?);
        let mut file = StateFile::open(folder, &from.name)?;
        let failed = |what| from.failed(what);
        let mut requests = Requests::open().map_err(failed("netlink"))?;
        give_back(&mut requests, &mut file)?;
        let settings = Settings::read(&mut requests, from.index);
        let settings = settings.map_err(failed("reading its addresses and routes"))?;
        file.write(&from, &settings)?;
        let mut takeover =
            Self { requests, file, settings, from, to, silence: None, is_left: false };
        // If it fails, dropping it undoes the changes so far.
        takeover.take()?;
        Ok(takeover)
    }

    /// Continues with the settings that another process has moved and [left](Self::leave). If there
    /// are none, it [begins](Self::begin).
    ///
    /// # Errors
    /// See [`TakeoverError`].
    pub fn adopt(from: &str, to: &str, folder: &Path) -> Result<Self, TakeoverError> {
        let moved = (interface(from)?, interface(to)?);
        let mut file = StateFile::open(folder, from)?;
        let written = file.read()?.filter(|(of, _)| *of == moved.0);
        let Some((_, settings)) = written else {
            drop(file);
            return Self::begin(from, to, folder);
        };
        let requests = Requests::open().map_err(moved.0.failed("netlink"))?;
        let (from, to) = moved;
        Ok(Self { requests, file, settings, from, to, silence: None, is_left: false })
    }

    /// Leaves the moved settings where they are, for another process that [adopts](Self::adopt)
    /// them.
    pub fn leave(mut self) {
        self.is_left = true;
    }

    /// Has the kernel drop everything that it receives on the interface underneath. Without this, a
    /// device that also hands each packet to the kernel, as net_af_packet does, would make the
    /// kernel answer twice. Packet sockets get their packets earlier. The effect ends with the
    /// process, however that ends.
    ///
    /// # Errors
    /// The kernel's, usually because it lacks nf_tables, or is older than Linux 5.12.
    pub fn silence(&mut self) -> Result<(), TakeoverError> {
        let silence = Silence::begin(&self.from.name);
        let what = "dropping what the kernel receives, by nf_tables";
        self.silence = Some(silence.map_err(self.from.failed(what))?);
        Ok(())
    }

    fn take(&mut self) -> Result<(), TakeoverError> {
        let (from, to) = (&self.from, &self.to);
        let deleted = self.settings.delete(&mut self.requests, from);
        deleted.map_err(from.failed("deleting its addresses and routes"))?;
        let settings = self.settings.moved(from, to);
        settings.place(&mut self.requests).map_err(to.failed("adding addresses and routes"))
    }
}

impl Drop for Takeover {
    fn drop(&mut self) {
        if self.is_left {
            return;
        }
        let (from, to) = (&self.from, &self.to);
        // The kernel also deletes them with the interface, which may already be gone.
        let _ = self.settings.moved(from, to).delete(&mut self.requests, to);
        if let Err(error) = give_back(&mut self.requests, &mut self.file) {
            tracing::error!("{error}; hotloop-doctor --restore tries again");
        }
    }
}

impl fmt::Debug for Takeover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Takeover")
            .field("from", &self.from)
            .field("to", &self.to)
            .field("is_silent", &self.silence.is_some())
            .finish_non_exhaustive()
    }
}

/// Restores the interfaces in the calling thread's network namespace that killed programs had taken
/// over, by the files in `folder`. Returns the names of the interfaces. Those of running programs
/// stay as they are.
///
/// # Errors
/// That of the first interface that could not be given back. Its file stays.
pub fn restore(folder: &Path) -> Result<Vec<String>, TakeoverError> {
    let mut restored = Vec::new();
    for name in state::interfaces(folder)? {
        match StateFile::open(folder, &name) {
            Ok(mut file) => {
                let requests = Requests::open();
                let from = Interface { name: name.clone(), index: 0 };
                let mut requests = requests.map_err(from.failed("netlink"))?;
                if give_back(&mut requests, &mut file)? {
                    restored.push(name);
                }
            }
            Err(TakeoverError::Taken(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(restored)
}

/// Restores the settings in the file, if any, and empties it. Returns whether there were any.
fn give_back(requests: &mut Requests, file: &mut StateFile) -> Result<bool, TakeoverError> {
    let Some((from, settings)) = file.read()? else { return Ok(false) };
    // A deleted interface has taken its settings with it; another one may have its name now.
    let is_there = interface(&from.name).is_ok_and(|now| now.index == from.index);
    if is_there {
        let placed = settings.place(requests);
        placed.map_err(from.failed("putting its addresses and routes back"))?;
    }
    file.clear()?;
    Ok(is_there)
}

/// The interface with this name.
fn interface(name: &str) -> Result<Interface, TakeoverError> {
    let gone =
        |error: Errno| TakeoverError::NoInterface { name: name.into(), source: error.into() };
    Ok(Interface { name: name.to_owned(), index: interface_index(name).map_err(gone)? })
}
