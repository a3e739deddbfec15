//! The kernel's interface that a device is on.

use rustix::net::{AddressFamily, SocketType, netdevice, socket};
use std::fs;

/// Where the number of packets that an interface could not send stands in a line of
/// `/proc/net/dev`, from 0, the name not counted.
const TX_DROPPED_COLUMN: usize = 11;

/// An interface of the network namespace in which its device was plugged in.
pub(super) struct Interface {
    name: String,
}

impl Interface {
    /// The interface with this index; nothing where there is none.
    pub(super) fn of(index: u32) -> Option<Self> {
        let asked = socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
        let name = netdevice::index_to_name(asked, index).ok().filter(|_| index != 0)?;
        Some(Self { name })
    }

    /// Packets that the kernel had to send and could not; nothing where it does not say.
    pub(super) fn tx_dropped(&self) -> Option<u64> {
        let table = fs::read_to_string("/proc/thread-self/net/dev").ok()?;
        let mut lines = table.lines().filter_map(|line| line.trim_start().split_once(':'));
        let (_, counts) = lines.find(|(name, _)| *name == self.name)?;
        counts.split_whitespace().nth(TX_DROPPED_COLUMN)?.parse().ok()
    }
}
