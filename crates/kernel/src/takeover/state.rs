//! Saves the settings to restore, in a file.
//!
//! A program has its file locked (flock(2)) while it runs. The kernel unlocks the file when the
//! process ends, however that happens. An empty file means that nothing needs restoring.

use super::TakeoverError;
use super::settings::{Interface, Settings};
use netlink_packet_core::{NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The version of the format. Files of other versions are refused.
const VERSION: u32 = 1;

/// Content of a file.
#[derive(Deserialize, Serialize)]
struct SavedState {
    version: u32,
    interface: String,
    index: u32,
    /// Time of writing, in seconds since 1970.
    written_s: u64,
    /// Netlink messages that add the settings back.
    messages: Vec<Vec<u8>>,
}

/// The locked file of an interface.
pub(super) struct StateFile {
    path: PathBuf,
    file: File,
}

impl StateFile {
    /// Opens the file of this interface of the thread's network namespace, and creates it if
    /// missing.
    pub(super) fn open(folder: &Path, interface: &str) -> Result<Self, TakeoverError> {
        let mut path = folder.to_owned();
        let wrong = |path: &Path, source| TakeoverError::State { path: path.to_owned(), source };
        match DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(wrong(folder, error));
            }
            _ => {}
        }
        path.push(format!("{}{interface}", prefix().map_err(|error| wrong(folder, error))?));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = open(&path, flags, Mode::from_raw_mode(0o600));
        let file = file.map_err(|error| wrong(&path, error.into()))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { path, file: file.into() }),
            Err(Errno::WOULDBLOCK) => Err(TakeoverError::Taken(interface.to_owned())),
            Err(error) => Err(wrong(&path, error.into())),
        }
    }

    /// Reads the settings to restore, if any. If the file is incomplete, nothing had been moved
    /// yet.
    pub(super) fn read(&mut self) -> Result<Option<(Interface, Settings)>, TakeoverError> {
        let mut text = String::new();
        let read = self.file.rewind().and_then(|()| self.file.read_to_string(&mut text));
        read.map_err(|error| self.wrong(error))?;
        let Ok(state) = serde_json::from_str::<SavedState>(&text) else { return Ok(None) };
        if state.version != VERSION {
            let problem = format!("is of version {}, not {VERSION}", state.version);
            return Err(self.wrong(io::Error::other(problem)));
        }
        let mut settings = Settings::default();
        for bytes in &state.messages {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes);
            let message = message.map_err(|error| self.wrong(io::Error::other(error)))?;
            match message.payload {
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewAddress(message)) => {
                    settings.addresses.push(message);
                }
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(message)) => {
                    settings.routes.push(message);
                }
                _ => return Err(self.wrong(io::Error::other("holds other messages"))),
            }
        }
        let passed_s = now_s().saturating_sub(state.written_s).try_into().unwrap_or(u32::MAX - 1);
        let interface = Interface { name: state.interface, index: state.index };
        Ok(Some((interface, settings.aged(passed_s))))
    }

    /// Saves the settings to restore.
    pub(super) fn write(
        &mut self,
        of: &Interface,
        settings: &Settings,
    ) -> Result<(), TakeoverError> {
        let addresses = settings.addresses.iter().cloned().map(RouteNetlinkMessage::NewAddress);
        let routes = settings.routes.iter().cloned().map(RouteNetlinkMessage::NewRoute);
        let bytes = |message: RouteNetlinkMessage| {
            let payload = NetlinkPayload::from(message);
            let mut message = NetlinkMessage::new(NetlinkHeader::default(), payload);
            message.finalize();
            let mut bytes = vec![0; message.buffer_len()];
            message.serialize(&mut bytes);
            bytes
        };
        let state = SavedState {
            version: VERSION,
            interface: of.name.clone(),
            index: of.index,
            written_s: now_s(),
            messages: addresses.chain(routes).map(bytes).collect(),
        };
        self.clear()?;
        let text = serde_json::to_vec(&state).map_err(|error| self.wrong(error.into()))?;
        let written = self.file.write_all(&text).and_then(|()| self.file.sync_all());
        written.map_err(|error| self.wrong(error))
    }

    /// Records that nothing needs restoring.
    pub(super) fn clear(&mut self) -> Result<(), TakeoverError> {
        let cleared = self.file.set_len(0).and_then(|()| self.file.rewind());
        cleared.map_err(|error| self.wrong(error))
    }

    fn wrong(&self, source: io::Error) -> TakeoverError {
        TakeoverError::State { path: self.path.clone(), source }
    }
}

/// The interfaces of the thread's network namespace with a file in the folder.
pub(super) fn interfaces(folder: &Path) -> Result<Vec<String>, TakeoverError> {
    let wrong = |source| TakeoverError::State { path: folder.to_owned(), source };
    let prefix = prefix().map_err(wrong)?;
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(wrong)?,
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter_map(|name| name.strip_prefix(&prefix).map(str::to_owned)).collect())
}

/// The prefix of file names: several namespaces may have interfaces of the same name.
fn prefix() -> io::Result<String> {
    let namespace = fs::metadata("/proc/thread-self/ns/net")?.ino();
    Ok(format!("takeover-{namespace}-"))
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
