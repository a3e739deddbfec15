//! The sockets through which net_af_packet and net_af_xdp receive, and what the kernel dropped at
//! them.
//!
//! net_af_packet counts none of those drops, in an old version of its sources and in one of 2025. The
//! kernel does, for each socket, and starts at 0 again whenever somebody reads: should a later driver
//! read them as well, its figure and this one still add up to what was dropped. net_af_xdp leaves out
//! what finds the RX ring full; there the kernel's figure, which only grows, replaces the driver's.

use rustix::io::FdFlags;
use rustix::net::{AddressFamily, sockopt};
use std::collections::BTreeMap;
use std::fs::{self, DirEntry};
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;

/// Sockets of one device, each by a descriptor of this crate's own: the driver may close its own at
/// any time.
#[derive(Default)]
pub(super) struct Sockets {
    packet: Vec<OwnedFd>,
    xdp: Vec<OwnedFd>,
    /// Packets dropped at the packet sockets by the last reading.
    dropped: u64,
}

impl Sockets {
    /// The process's XDP sockets, and its packet sockets that are bound to the interface with this
    /// index, that were not among `before`. From now on, programs that this one starts don't inherit them.
    /// Drivers open them without `O_CLOEXEC`, and a packet socket that another program still has when its
    /// port is closed would go on taking its share of the interface's packets (packet(7), `PACKET_FANOUT`).
    pub(super) fn opened_since(before: &BTreeMap<PathBuf, RawFd>, if_index: u32) -> Self {
        let mut sockets = Self::default();
        for (_, number) in open().into_iter().filter(|(name, _)| !before.contains_key(name)) {
            // SAFETY: 1. The descriptor was open a moment ago. Whatever has its number by now is
            // only duplicated, and looked at before anything else is done with it; a socket of the driver
            // keeps its number, as nothing closes ports meanwhile.
            let opened = unsafe { BorrowedFd::borrow_raw(number) };
            let Ok(socket) = rustix::io::fcntl_dupfd_cloexec(opened, 0) else { continue };
            match sockopt::socket_domain(&socket) {
                Ok(AddressFamily::PACKET) if bound_to(&socket) == Some(if_index) => {
                    sockets.packet.push(socket);
                }
                Ok(AddressFamily::XDP) => sockets.xdp.push(socket),
                _ => continue,
            }
            // It fails for no descriptor that is open.
            let _ = rustix::io::fcntl_setfd(opened, FdFlags::CLOEXEC);
        }
        sockets
    }

    pub(super) fn count(&self) -> usize {
        self.packet.len() + self.xdp.len()
    }

    /// Packets that the kernel dropped at these sockets since they were opened, mostly because their
    /// rings were full; nothing where it does not say.
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

/// The sockets that the process has open: what `/proc` calls each, and its number. A number is used
/// again as soon as it is free, a name is not.
pub(super) fn open() -> BTreeMap<PathBuf, RawFd> {
    let Ok(folder) = fs::read_dir("/proc/self/fd") else { return BTreeMap::new() };
    let named = |entry: DirEntry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let name = fs::read_link(entry.path()).ok()?;
        name.to_str()?.starts_with("socket:").then_some((name, number))
    };
    folder.filter_map(|entry| named(entry.ok()?)).collect()
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

/// Packets dropped at the socket since somebody last read that.
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
