//! Makes a TAP interface (the kernel's Documentation/networking/tuntap.rst).

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{self, Errno};
use rustix::ioctl::{Updater, ioctl, opcode};
use std::ffi::c_int;
use std::os::fd::OwnedFd;

/// The most bytes of an interface's name, one less than `IFNAMSIZ`.
pub(super) const NAME_BYTES_MAX: usize = 15;

/// Frames, not IP packets (`IFF_TAP`).
const TAP: u16 = 0x0002;
/// No header before each frame (`IFF_NO_PI`).
const NO_PACKET_INFORMATION: u16 = 0x1000;
/// A new interface, never an existing one (`IFF_TUN_EXCL`).
const EXCLUSIVE: u16 = 0x8000;

/// Attaches a file to an interface: `TUNSETIFF`, which reads and writes an `ifreq`, although its
/// number claims that it reads an `int`.
const SET_INTERFACE: rustix::ioctl::Opcode = opcode::write::<c_int>(b'T', 202);

/// The part of an `ifreq` that `TUNSETIFF` uses (netdevice(7)), padded to the size of an `ifreq`.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; NAME_BYTES_MAX + 1],
    flags: u16,
    rest: [u8; 22],
}

/// Makes a TAP interface of this name in the calling thread's network namespace. It stays until the
/// file is closed. Reads and writes of the file never block.
pub(super) fn create(name: &str) -> io::Result<OwnedFd> {
    let mut request = InterfaceRequest {
        name: [0; 16],
        flags: TAP | NO_PACKET_INFORMATION | EXCLUSIVE,
        rest: [0; 22],
    };
    if name.len() > NAME_BYTES_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = open("/dev/net/tun", flags, Mode::empty())?;
    // SAFETY: 1. The number is that of `TUNSETIFF`. 2. The kernel takes an `ifreq` for it, which has no
    // more bytes than an `InterfaceRequest`, with its name and flags in the same places.
    let attach = unsafe { Updater::<SET_INTERFACE, _>::new(&mut request) };
    // SAFETY: 1. The file is /dev/net/tun, which has this request. 2. It changes nothing that Rust knows of
    // but the request, of whose fields any bytes are valid values.
    unsafe { ioctl(&file, attach) }?;
    Ok(file)
}
