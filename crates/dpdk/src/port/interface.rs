//! The kernel's interface of a device.

use hotloop_stage::LinkState;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, netdevice, socket};
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};

/// Column of an interface's TX drops in a line of `/proc/net/dev`, from 0, without the name.
const TX_DROPPED_COLUMN: usize = 11;

/// An interface of the network namespace in which its device was plugged in.
pub(super) struct Interface {
    name: String,
    index: u32,
    /// Whether the interface was found to be gone. A later one may have the same index, and is a
    /// different one.
    gone: bool,
}

impl Interface {
    /// The interface with this index, or `None`.
    pub(super) fn of(index: u32) -> Option<Self> {
        let asked = socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
        let name = netdevice::index_to_name(asked, index).ok().filter(|_| index != 0)?;
        Some(Self { name, index, gone: false })
    }

    /// The state of its link; `None` if the kernel does not report it.
    pub(super) fn link_state(&mut self) -> Option<LinkState> {
        if self.gone {
            return Some(LinkState::Gone);
        }
        let asked = socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
        match netdevice::index_to_name(&asked, self.index) {
            Ok(name) => {
                Some(if is_running(&asked, &name)? { LinkState::Up } else { LinkState::Down })
            }
            Err(Errno::NODEV) => {
                self.gone = true;
                Some(LinkState::Gone)
            }
            Err(_) => None,
        }
    }

    /// Whether an interface of this name exists, this one or another.
    pub(super) fn exists(&self) -> bool {
        let asked = socket(AddressFamily::INET, SocketType::DGRAM, None);
        asked.is_ok_and(|asked| netdevice::name_to_index(asked, &self.name).is_ok())
    }

    /// Packets that the kernel could not send; `None` if the kernel does not report them.
    pub(super) fn tx_dropped(&self) -> Option<u64> {
        let table = fs::read_to_string("/proc/thread-self/net/dev").ok()?;
        let mut lines = table.lines().filter_map(|line| line.trim_start().split_once(':'));
        let (_, counts) = lines.find(|(name, _)| *name == self.name)?;
        counts.split_whitespace().nth(TX_DROPPED_COLUMN)?.parse().ok()
    }
}

/// Whether the interface is up and has a carrier.
fn is_running(asked: &OwnedFd, name: &str) -> Option<bool> {
    // SAFETY: 1. All its fields are numbers, arrays of them and pointers, for which zeroes are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays 0 and terminates the name.
    let room = request.ifr_name.len() - 1;
    for (place, byte) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    // SAFETY: 1. The descriptor is an open socket. 2. netdevice(7): the call reads the name of an
    // `ifreq`, and writes its flags.
    let result = unsafe { libc::ioctl(asked.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request) };
    // SAFETY: 1. The union was zeroed, and any bits are valid flags.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    (result == 0).then_some(i32::from(flags) & libc::IFF_RUNNING != 0)
}
