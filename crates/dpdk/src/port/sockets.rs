//! The receiving sockets of net_af_packet and net_af_xdp, and the kernel's drops at them.
//!
//! net_af_packet counts none of those drops: neither an old version of its sources nor one of 2025
//! does. The kernel counts them for each socket, and restarts from 0 whenever the count is read:
//! should a later driver read it as well, its figure and this one still add up to the total.
//! net_af_xdp leaves out packets that find the RX ring full; there the kernel's figure, which only
//! grows, replaces the driver's.

use rustix::io::FdFlags;
use rustix::net::{AddressFamily, sockopt};
use std::collections::BTreeMap;
use std::fs::{self, DirEntry};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

/// Sockets of one device, as descriptors of this crate's own: the driver may close its own at any
/// time.
#[derive(Default)]
pub(super) struct Sockets {
    packet: Vec<OwnedFd>,
    xdp: Vec<OwnedFd>,
    /// Packets dropped at the packet sockets as of the last reading.
    dropped: u64,
}

impl Sockets {
    /// The `count` sockets that the driver has opened since `before`: the process's XDP sockets,
    /// and its packet sockets that are bound to the interface with this index. Empty if their
    /// number differs, as when another thread opens such sockets, too. From now on, programs that
    /// this one starts don't inherit them. Drivers open them without `O_CLOEXEC`, and a packet
    /// socket that another program still has when its port is closed would go on taking its share
    /// of the interface's packets (packet(7), `PACKET_FANOUT`).
    ///
    /// The caller must hold the control lock: no port is closed meanwhile, so the driver keeps its
    /// sockets open.
    pub(super) fn opened_since(
        before: &BTreeMap<PathBuf, RawFd>,
        if_index: u32,
        count: u16,
    ) -> Self {
        let (mut sockets, mut numbers) = (Self::default(), Vec::new());
        for (name, number) in open().into_iter().filter(|(name, _)| !before.contains_key(name)) {
            let socket = match copy(&name, number) {
                Ok(Some(socket)) => socket,
                Ok(None) => continue,
                // The socket may be one of the driver's.
                Err(_) => return Self::default(),
            };
            match sockopt::socket_domain(&socket) {
                Ok(AddressFamily::PACKET) if bound_to(&socket) == Some(if_index) => {
                    sockets.packet.push(socket);
                }
                Ok(AddressFamily::XDP) => sockets.xdp.push(socket),
                _ => continue,
            }
            numbers.push(number);
        }
        if numbers.len() != usize::from(count) {
            return Self::default();
        }
        for number in numbers {
            // SAFETY: 1. The descriptor is the driver's: its `count` sockets are among those found,
            // and `count` were found. 2. The driver keeps it open meanwhile, by contract.
            let opened = unsafe { BorrowedFd::borrow_raw(number) };
            // This never fails for an open descriptor.
            let _ = rustix::io::fcntl_setfd(opened, FdFlags::CLOEXEC);
        }
        sockets
    }

    pub(super) fn count(&self) -> usize {
        self.packet.len() + self.xdp.len()
    }

    /// Packets that the kernel dropped at these sockets since they were opened, mostly because
    /// their rings were full. `None` if the kernel does not report them.
    pub(super) fn dropped(&mut self) -> Option<u64> {
        for socket in &self.packet {
            self.dropped += u64::from(read_drops(socket)?);
        }
        let dropped = |socket| {
            let statistics = sockopt::xdp_statistics(socket).ok()?;
            Some(statistics.rx_dropped + statistics.rx_ring_full.unwrap_or(0))
        };
        let at_xdp: Option<u64> = self.xdp.iter().map(dropped).sum();
        Some(self.dropped + at_xdp?)
    }
}

/// The process's open sockets: each one's name in `/proc`, and its number. A number is reused as
/// soon as it is free, a name is not.
pub(super) fn open() -> BTreeMap<PathBuf, RawFd> {
    let Ok(folder) = fs::read_dir("/proc/self/fd") else { return BTreeMap::new() };
    let named = |entry: DirEntry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let name = fs::read_link(entry.path()).ok()?;
        name.to_str()?.starts_with("socket:").then_some((name, number))
    };
    folder.filter_map(|entry| named(entry.ok()?)).collect()
}

/// A descriptor of this crate's own for the socket with this name and number. `None` if another
/// thread has closed it meanwhile; its number may then refer to something else.
fn copy(name: &Path, number: RawFd) -> io::Result<Option<OwnedFd>> {
    // SAFETY: 1. fcntl(2): takes any number, and duplicates its descriptor, or fails. Nothing is
    // borrowed from the descriptor's owner.
    let copied = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) };
    if copied < 0 {
        let error = io::Error::last_os_error();
        return if error.raw_os_error() == Some(libc::EBADF) { Ok(None) } else { Err(error) };
    }
    // SAFETY: 1. The descriptor was made above, and nobody else owns it.
    let copied = unsafe { OwnedFd::from_raw_fd(copied) };
    let found = fs::read_link(format!("/proc/self/fd/{}", copied.as_raw_fd()))?;
    Ok((found == name).then_some(copied))
}

/// The index of the interface that a packet socket is bound to.
fn bound_to(descriptor: &OwnedFd) -> Option<u32> {
    // SAFETY: 1. All its fields are numbers, for which zeroes are valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut len_bytes = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    let place = (&raw mut address).cast::<libc::sockaddr>();
    // SAFETY: 1. The descriptor is open. 2. getsockname(2): at most `len_bytes` bytes are written.
    let result = unsafe { libc::getsockname(descriptor.as_raw_fd(), place, &raw mut len_bytes) };
    u32::try_from(address.sll_ifindex).ok().filter(|_| result == 0)
}

/// Packets dropped at the socket since the last reading.
fn read_drops(socket: &OwnedFd) -> Option<u32> {
    let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut len_bytes = size_of::<libc::tpacket_stats>() as libc::socklen_t;
    // SAFETY: 1. The descriptor is open. 2. packet(7): a `tpacket_stats` is written, of `len_bytes`
    // at most.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut statistics).cast(),
            &raw mut len_bytes,
        )
    };
    (result == 0).then_some(statistics.tp_drops)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{SocketType, netdevice, socket};

    /// A packet socket like those of drivers, bound to the interface.
    fn packet_socket(if_index: u32) -> Option<OwnedFd> {
        let opened = socket(AddressFamily::PACKET, SocketType::RAW, None).ok()?;
        // SAFETY: 1. All its fields are numbers, for which zeroes are valid.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = if_index as i32;
        let place = (&raw const address).cast::<libc::sockaddr>();
        let len_bytes = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: 1. The descriptor is open. 2. bind(2): reads `len_bytes` bytes.
        let result = unsafe { libc::bind(opened.as_raw_fd(), place, len_bytes) };
        (result == 0).then_some(opened)
    }

    fn is_inherited(socket: &OwnedFd) -> bool {
        rustix::io::fcntl_getfd(socket).unwrap().is_empty()
    }

    #[test]
    fn sockets_that_may_be_of_others_are_left_alone() {
        let asked = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        let if_index = netdevice::name_to_index(asked, "lo").unwrap();
        let before = open();
        let Some(drivers) = packet_socket(if_index) else {
            return println!("skipped: no right to open packet sockets");
        };
        let others = packet_socket(if_index).unwrap();
        assert_eq!(Sockets::opened_since(&before, if_index, 1).count(), 0);
        assert!(is_inherited(&drivers) && is_inherited(&others));
        drop(others);
        assert_eq!(Sockets::opened_since(&before, if_index + 1, 1).count(), 0);
        assert_eq!(Sockets::opened_since(&before, if_index, 1).count(), 1);
        assert!(!is_inherited(&drivers));
    }

    #[test]
    fn what_has_the_number_of_a_closed_socket_is_not_taken_for_it() {
        let opened = || socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        let name_of = |number| fs::read_link(format!("/proc/self/fd/{number}")).unwrap();
        let first = opened();
        let (number, name) = (first.as_raw_fd(), name_of(first.as_raw_fd()));
        assert!(copy(&name, number).unwrap().is_some());
        // The same descriptor, for another socket.
        let mut first = first;
        rustix::io::dup2(opened(), &mut first).unwrap();
        assert_eq!(first.as_raw_fd(), number);
        assert!(copy(&name, number).unwrap().is_none());
        assert!(copy(&name_of(number), number).unwrap().is_some());
        assert!(copy(&name, -1).unwrap().is_none());
    }
}
