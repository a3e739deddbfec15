//! Taking over an interface of the kernel: a port's TAP interface gets its addresses and routes.

mod settings;
mod silence;
mod state;

use super::netlink::Requests;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, netdevice, socket};
use settings::{Interface, Settings};
use silence::Silence;
use state::StateFile;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// An interface could not be taken over, or not given back.
#[derive(Debug, thiserror::Error)]
pub enum TakeoverError {
    /// There is no such interface.
    #[error("there is no interface {name}: {source}")]
    NoInterface {
        /// Its name.
        name: String,
        /// What the kernel says.
        source: io::Error,
    },
    /// Another program has taken it over.
    #[error("another program has taken over interface {0}: end that one first")]
    Taken(String),
    /// What is to be put back could not be written down, or not be read again.
    #[error("{path}: {source}; takeover keeps there what is to be put back")]
    State {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The kernel refuses what was asked of it.
    #[error("interface {name}, {what}: {source}; takeover needs CAP_NET_ADMIN")]
    Kernel {
        /// The interface.
        name: String,
        /// What was to be done.
        what: &'static str,
        /// What the kernel says.
        source: io::Error,
    },
}

/// The addresses and routes of an interface, moved to another one until this is dropped: to the TAP
/// interface of a port, from the one that the port's device receives by.
///
/// Moved are all addresses but IPv6's link-local ones, and the routes of all tables that lead out of the
/// interface, but those to link-local addresses, those of next-hop objects (`ip nexthop`), and those that
/// the kernel learnt from router advertisements, which it learns anew by the other interface. What is changed on either interface meanwhile is not carried over.
///
/// What is to be put back is written to a file before anything is moved. A program that is killed leaves
/// it behind, and [`restore`] puts it back.
pub struct Takeover {
    requests: Requests,
    file: StateFile,
    settings: Settings,
    from: Interface,
    to: Interface,
    silence: Option<Silence>,
    /// Whether another process goes on with what was moved.
    is_left: bool,
}

impl Takeover {
    /// Moves what the interface `from` of the calling thread's network namespace has to `to`, which is up.
    /// `folder` is where [`restore`] looks; it is made where there is none.
    ///
    /// # Errors
    /// As [`TakeoverError`] says. Then everything is where it was, as far as the kernel lets it be put back.
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
        // Dropping it undoes whatever was done.
        takeover.take()?;
        Ok(takeover)
    }

    /// Goes on with what another process has moved and [left](Self::leave). Where there is nothing of that,
    /// it [begins](Self::begin).
    ///
    /// # Errors
    /// As [`TakeoverError`] says.
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

    /// Leaves what was moved where it is, to another process that [adopts](Self::adopt) it.
    pub fn leave(mut self) {
        self.is_left = true;
    }

    /// Has the kernel drop all that it receives by the interface underneath: a device that hands each
    /// packet to the kernel, too, as net_af_packet does, would have it answer twice. Packet sockets
    /// get theirs before. It ends with the process, however that ends.
    ///
    /// # Errors
    /// The kernel's, mostly where it lacks nf_tables, or is older than Linux 5.12.
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
        // The kernel deletes them anyway with the interface, which may be gone already.
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

/// Puts back what programs that were killed had taken over in the calling thread's network namespace, by
/// the files in `folder`. Returns the names of the interfaces; those of programs that still run stay as
/// they are.
///
/// # Errors
/// Of the first interface that could not be given back. Its file stays.
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

/// Puts back what the file says, if anything, and empties it. Returns whether there was anything.
fn give_back(requests: &mut Requests, file: &mut StateFile) -> Result<bool, TakeoverError> {
    let Some((from, settings)) = file.read()? else { return Ok(false) };
    // An interface that was deleted has taken along what it had; another may have its name now.
    let is_there = interface(&from.name).is_ok_and(|now| now.index == from.index);
    if is_there {
        let placed = settings.place(requests);
        placed.map_err(from.failed("putting its addresses and routes back"))?;
    }
    file.clear()?;
    Ok(is_there)
}

/// The interface of this name.
fn interface(name: &str) -> Result<Interface, TakeoverError> {
    let index = || {
        let asked = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
        netdevice::name_to_index(asked, name)
    };
    let gone =
        |error: Errno| TakeoverError::NoInterface { name: name.into(), source: error.into() };
    Ok(Interface { name: name.to_owned(), index: index().map_err(gone)? })
}
