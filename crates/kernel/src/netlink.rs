//! Netlink sockets of the routing family: requests with their answers, and announcements
//! (netlink(7), rtnetlink(7)).

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader,
    NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, netdevice, socket};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Room for a datagram. The kernel's dumps have at most 32 KiB in one.
const DATAGRAM_BYTES_MAX: usize = 1 << 16;

/// A message, with some fields of its header.
pub(super) struct Message {
    /// Its number (`RTM_…`), the only known field of a message that can't be parsed.
    pub(super) kind: u16,
    /// Its flags (`NLM_F_…`).
    pub(super) flags: u16,
    /// The payload. `None` if it can't be parsed.
    pub(super) payload: Option<RouteNetlinkMessage>,
}

/// The result of a dump.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Dump {
    /// The dump is complete.
    Whole,
    /// A table changed during the dump, so entries may be missing.
    Interrupted,
}

/// A socket for requests that waits for the answers.
pub(super) struct Requests {
    socket: Socket,
    sequence: u32,
    datagram: Vec<u8>,
}

impl Requests {
    /// Opens a socket in the calling thread's network namespace.
    pub(super) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Makes the kernel filter dumps, from Linux 4.20 on. Older kernels send everything, and the
        // caller checks each message anyway.
        let _ = socket.set_netlink_get_strict_chk(true);
        Ok(Self { socket, sequence: 0, datagram: Vec::with_capacity(DATAGRAM_BYTES_MAX) })
    }

    /// Has the kernel apply a change, and waits until it is done. `flags` are added to
    /// `NLM_F_REQUEST` and `NLM_F_ACK`. Returns the kernel's error.
    pub(super) fn change(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.ask(message, flags | NLM_F_ACK, &mut |_| {}).map(|_| ())
    }

    /// Hands every object of a kind to `each`.
    pub(super) fn dump(
        &mut self,
        message: RouteNetlinkMessage,
        each: &mut dyn FnMut(RouteNetlinkMessage),
    ) -> io::Result<Dump> {
        self.ask(message, NLM_F_DUMP, each)
    }

    fn ask(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        each: &mut dyn FnMut(RouteNetlinkMessage),
    ) -> io::Result<Dump> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        (header.flags, header.sequence_number) = (NLM_F_REQUEST | flags, self.sequence);
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let mut dump = Dump::Whole;
        loop {
            receive(&self.socket, &mut self.datagram)?;
            for (header, bytes) in messages(&self.datagram) {
                if header.sequence_number != self.sequence {
                    continue;
                }
                if header.flags & NLM_F_DUMP_INTR != 0 {
                    dump = Dump::Interrupted;
                }
                match NetlinkMessage::deserialize(bytes).map(NetlinkMessage::into_parts) {
                    Ok((_, NetlinkPayload::InnerMessage(message))) => each(message),
                    Ok((_, NetlinkPayload::Done(done))) if done.code < 0 => {
                        return Err(io::Error::from_raw_os_error(-done.code));
                    }
                    Ok((_, NetlinkPayload::Done(_))) => return Ok(dump),
                    Ok((_, NetlinkPayload::Error(error))) if error.code.is_none() => {
                        return Ok(dump);
                    }
                    Ok((_, NetlinkPayload::Error(error))) => return Err(error.to_io()),
                    // A message that can't be parsed has a new form, and is left out.
                    Ok(_) | Err(_) => {}
                }
            }
        }
    }
}

/// A socket that receives announcements of changes.
pub(super) struct Events {
    socket: Socket,
    datagram: Vec<u8>,
}

impl Events {
    /// Opens a socket in the calling thread's network namespace, with these groups (`RTNLGRP_…`)
    /// and room for about `buffer_bytes` of announcements, as the kernel counts them.
    pub(super) fn open(groups: &[u32], buffer_bytes: usize) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        // Without the right to have more, the limit of every socket holds.
        if rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, buffer_bytes).is_err() {
            rustix::net::sockopt::set_socket_recv_buffer_size(&socket, buffer_bytes)?;
        }
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        for group in groups {
            // If this kernel does not know the group, it can't make such changes either.
            let joined = socket.add_membership(*group);
            joined.or_else(|error| {
                if error.kind() == io::ErrorKind::InvalidInput { Ok(()) } else { Err(error) }
            })?;
        }
        Ok(Self { socket, datagram: Vec::with_capacity(DATAGRAM_BYTES_MAX) })
    }

    /// Hands the messages of the next datagram to `each`. Fails with `WouldBlock` if there is no
    /// datagram, and with `ENOBUFS` if the buffer overflowed and announcements were lost.
    pub(super) fn receive(&mut self, each: &mut dyn FnMut(Message)) -> io::Result<()> {
        receive(&self.socket, &mut self.datagram)?;
        for (header, bytes) in messages(&self.datagram) {
            let payload = match NetlinkMessage::deserialize(bytes).map(NetlinkMessage::into_parts) {
                Ok((_, NetlinkPayload::InnerMessage(message))) => Some(message),
                Ok(_) | Err(_) => None,
            };
            each(Message { kind: header.message_type, flags: header.flags, payload });
        }
        Ok(())
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Whether this is one of the kernel's errors.
pub(super) fn is_one_of(error: &io::Error, errors: &[Errno]) -> bool {
    errors.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Returns the number of an interface of the calling thread's network namespace.
pub(super) fn interface_index(name: &str) -> Result<u32, Errno> {
    let asked = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    netdevice::name_to_index(asked, name)
}

/// Receives a datagram into the buffer, replacing the one before.
fn receive(socket: &Socket, datagram: &mut Vec<u8>) -> io::Result<()> {
    loop {
        datagram.clear();
        match socket.recv(datagram, 0) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result.map(drop),
        }
    }
}

/// Each message of a datagram: its header and all its bytes, which are aligned to 4 bytes:
/// netlink(7).
fn messages(mut rest: &[u8]) -> impl Iterator<Item = (NetlinkHeader, &[u8])> {
    std::iter::from_fn(move || {
        let buffer = NetlinkBuffer::new_checked(rest).ok()?;
        let len = buffer.length() as usize;
        let mut header = NetlinkHeader::default();
        header.message_type = buffer.message_type();
        header.flags = buffer.flags();
        header.sequence_number = buffer.sequence_number();
        let message = &rest[..len];
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((header, message))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_is_cut_into_its_messages() {
        let message = |len: u32, kind: u16| {
            let mut bytes = vec![0; (len as usize).next_multiple_of(4)];
            bytes[..4].copy_from_slice(&len.to_ne_bytes());
            bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
            bytes
        };
        let datagram = [message(18, 24), message(16, 25), message(40, 26)].concat();
        let seen = |bytes: &[u8]| -> Vec<_> {
            messages(bytes).map(|(header, bytes)| (header.message_type, bytes.len())).collect()
        };
        assert_eq!(seen(&datagram[..]), [(24, 18), (25, 16), (26, 40)]);
        // The last message is cut off, the length is too small for a header, or nothing is left.
        assert_eq!(seen(&datagram[..70]), [(24, 18), (25, 16)]);
        assert_eq!(seen(&message(15, 24)), []);
        assert_eq!(seen(&[]), []);
    }
}
