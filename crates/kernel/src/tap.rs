//! Makes a TAP interface that the program owns.

use super::netlink::{Requests, interface_index};
use super::tun;
use hotloop_packet::ethernet::MacAddress;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Settings of a TAP interface.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TapConfig {
    /// The interface's name, of at most 15 bytes. No interface may have it yet, except one to
    /// adopt.
    pub name: String,
    /// The Ethernet address. If `None`, the kernel chooses one.
    pub mac: Option<MacAddress>,
    /// The most bytes of a packet, from the IP header on: 68 to 65,521, and at least 1,280 for
    /// IPv6.
    pub mtu_bytes: u32,
    /// Whether the kernel resolves neighbours on it, by ARP and neighbour discovery. If not, every
    /// packet goes to the interface's own Ethernet address: right for VIPs, which no station
    /// answers for.
    pub resolves_neighbours: bool,
}

impl TapConfig {
    /// An interface with this name and a MTU of 1,500 that resolves neighbours.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), mac: None, mtu_bytes: 1_500, resolves_neighbours: true }
    }
}

/// A TAP interface could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The name is not valid for an interface.
    #[error("{0:?} can't be the name of an interface: give 1 to 15 bytes without spaces, / and %")]
    Name(String),
    /// An interface has this name already.
    #[error(
        "there is an interface {0} already, perhaps of another instance of this program: choose another \
         name, or end that one"
    )]
    Exists(String),
    /// The file that was handed over belongs to another interface.
    #[error("what was handed over is not interface {0}, or it is gone")]
    Other(String),
    /// The program lacks the right.
    #[error("interface {0} can't be made without CAP_NET_ADMIN: run as root, or grant it")]
    Denied(String),
    /// The kernel has no TAP interfaces, or /dev/net/tun is missing.
    #[error(
        "interface {name} can't be made, because /dev/net/tun can't be opened ({source}): modprobe tun"
    )]
    NoTun {
        /// The interface.
        name: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel refuses a setting.
    #[error("interface {name}, {what}: {source}")]
    Setup {
        /// The interface.
        name: String,
        /// The setting.
        what: String,
        /// The kernel's error.
        source: io::Error,
    },
}

/// A TAP interface, which is up. It goes away when this is dropped, and when the process ends,
/// however that happens, unless another process has [a file](Self::share) of it.
#[derive(Debug)]
pub struct Tap {
    file: OwnedFd,
    name: String,
    index: u32,
    mac: MacAddress,
    mtu_bytes: u32,
}

impl Tap {
    /// Makes the interface in the calling thread's network namespace, and sets it up.
    ///
    /// # Errors
    /// See [`TapError`].
    pub fn open(config: &TapConfig) -> Result<Self, TapError> {
        Self::with(config, tun::create)
    }

    /// Adopts an interface from the `file` that another process [shared](Self::share): its index,
    /// its routes and its queued packets stay. The other process must no longer read it.
    ///
    /// # Errors
    /// See [`TapError`]. [`TapError::Other`] if the configuration names another interface than that
    /// of the file.
    pub fn adopt(config: &TapConfig, file: OwnedFd) -> Result<Self, TapError> {
        Self::with(config, |name| if is_of(&file, name) { Ok(file) } else { Err(Errno::NODEV) })
    }

    /// Checks the name, gets the interface, and sets it up.
    fn with(
        config: &TapConfig,
        file: impl FnOnce(&str) -> Result<OwnedFd, Errno>,
    ) -> Result<Self, TapError> {
        let name = config.name.clone();
        let is_valid = !name.is_empty()
            && name.len() <= tun::NAME_BYTES_MAX
            && ![".", ".."].contains(&name.as_str())
            && name.bytes().all(|byte| byte.is_ascii_graphic() && !b"/:%".contains(&byte));
        if !is_valid {
            return Err(TapError::Name(name));
        }
        let file = file(&name).map_err(|error| match error {
            Errno::NODEV => TapError::Other(name.clone()),
            _ if interface_index(&name).is_ok() => TapError::Exists(name.clone()),
            Errno::PERM => TapError::Denied(name.clone()),
            error => TapError::NoTun { name: name.clone(), source: error.into() },
        })?;
        let index = interface_index(&name).map_err(|error| TapError::Setup {
            name: name.clone(),
            what: "its number".into(),
            source: error.into(),
        })?;
        let mut tap =
            Self { file, name, index, mac: MacAddress::default(), mtu_bytes: config.mtu_bytes };
        tap.set_up(config)?;
        Ok(tap)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The interface's number in its namespace.
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// Its Ethernet address.
    #[must_use]
    pub const fn mac(&self) -> MacAddress {
        self.mac
    }

    /// The most bytes of a packet, from the IP header on.
    #[must_use]
    pub const fn mtu_bytes(&self) -> u32 {
        self.mtu_bytes
    }

    /// Returns another file of the interface, to hand over to another process: the interface stays
    /// until both are closed.
    ///
    /// # Errors
    /// The process has no file left.
    pub fn share(&self) -> io::Result<OwnedFd> {
        self.file.try_clone()
    }

    /// The file to read and write frames, which never blocks.
    pub(super) const fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Applies the configuration, and sets the interface up.
    fn set_up(&mut self, config: &TapConfig) -> Result<(), TapError> {
        let open = Requests::open();
        let mut requests = open.map_err(|source| self.error("netlink".into(), source))?;
        if let Some(mac) = config.mac {
            let address = LinkAttribute::Address(mac.bytes().to_vec());
            let what = format!("setting the address {mac}");
            self.change(&mut requests, what, vec![address], LinkFlags::empty())?;
        }
        let what = format!("setting an MTU of {}", config.mtu_bytes);
        let mtu = LinkAttribute::Mtu(config.mtu_bytes);
        self.change(&mut requests, what, vec![mtu], LinkFlags::empty())?;
        if !config.resolves_neighbours {
            self.change(&mut requests, "taking ARP off".into(), vec![], LinkFlags::Noarp)?;
        }
        self.change(&mut requests, "taking it up".into(), vec![], LinkFlags::Up)?;
        self.mac = self.read_mac(&mut requests)?;
        Ok(())
    }

    /// Changes attributes, and sets flags.
    fn change(
        &self,
        requests: &mut Requests,
        what: String,
        attributes: Vec<LinkAttribute>,
        flags: LinkFlags,
    ) -> Result<(), TapError> {
        let mut message = LinkMessage::default();
        message.header.index = self.index;
        (message.header.flags, message.header.change_mask) = (flags, flags);
        message.attributes = attributes;
        let changed = requests.change(RouteNetlinkMessage::SetLink(message), 0);
        changed.map_err(|source| self.error(what, source))
    }

    fn read_mac(&self, requests: &mut Requests) -> Result<MacAddress, TapError> {
        let mut mac = None;
        let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let read = requests.dump(request, &mut |message| {
            let RouteNetlinkMessage::NewLink(message) = message else { return };
            if message.header.index == self.index {
                mac = message.attributes.iter().find_map(|attribute| match attribute {
                    LinkAttribute::Address(bytes) => bytes.as_slice().try_into().ok(),
                    _ => None,
                });
            }
        });
        read.map_err(|source| self.error("its address".into(), source))?;
        let gone = || self.error("its address".into(), io::ErrorKind::NotFound.into());
        mac.map(MacAddress::new).ok_or_else(gone)
    }

    fn error(&self, what: String, source: io::Error) -> TapError {
        TapError::Setup { name: self.name.clone(), what, source }
    }
}

/// Whether a file is attached to the interface of this name, by its entry in `/proc`.
fn is_of(file: &OwnedFd, name: &str) -> bool {
    let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd()));
    about.is_ok_and(|text| {
        text.lines().any(|line| line.strip_prefix("iff:").map(str::trim) == Some(name))
    })
}
