//! An ICMP echo request and its reply (RFC 792, RFC 4443, section 4).
//!
//! On Linux, `net.ipv4.ping_group_range` has the groups that may ping; a process outside of them
//! needs `CAP_NET_RAW`, and gets to see every ICMP message from the backend.

use hotloop::packet::checksum::checksum;
use mio::net::UdpSocket;
use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, ipproto, socket_with};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind};
use std::net::IpAddr;

/// The remedy for a kernel that allows neither kind of socket.
const NOT_PERMITTED: &str = "this process may not send ICMP echo requests; give it CAP_NET_RAW, or \
                             its group a place in net.ipv4.ping_group_range";

/// Length of a message, in bytes: eight of header, eight of token.
const MESSAGE_BYTES: usize = 16;

/// Number of bytes of a datagram to read: the longest IPv4 header and a message.
const DATAGRAM_BYTES: usize = 60 + MESSAGE_BYTES;

/// Maximum number of messages to read in one turn: a raw socket receives more than replies.
const TURN_MESSAGES: usize = 64;

/// An echo request under way.
#[derive(Debug)]
pub struct Echo {
    socket: UdpSocket,
    is_raw: bool,
    address: IpAddr,
    token: [u8; 8],
    has_more: bool,
}

impl Echo {
    /// Sends the request.
    ///
    /// # Errors
    /// If the kernel sends no request: [`ErrorKind::Other`], with a text, if this process lacks the
    /// right.
    pub fn start(address: IpAddr) -> io::Result<Self> {
        let (socket, is_raw) = open(address).map_err(|error| match error {
            Errno::PERM | Errno::ACCESS => io::Error::other(NOT_PERMITTED),
            error => {
                let error = io::Error::from(error);
                io::Error::other(format!("{error} when opening an ICMP socket"))
            }
        })?;
        let token = RandomState::new().build_hasher().finish().to_be_bytes();
        socket.connect((address, 0).into())?;
        socket.send(&request(address, token))?;
        Ok(Self { socket, is_raw, address, token, has_more: false })
    }

    /// Looks for the reply.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if it hasn't come yet, or the socket's error.
    pub fn advance(&mut self) -> io::Result<()> {
        let has_header = self.is_raw && self.address.is_ipv4();
        self.has_more = false;
        for _ in 0..TURN_MESSAGES {
            let mut buffer = [0; DATAGRAM_BYTES];
            let count = self.socket.recv(&mut buffer)?;
            if is_reply(&buffer[..count], self.address, has_header, self.token) {
                return Ok(());
            }
        }
        self.has_more = true;
        Err(ErrorKind::WouldBlock.into())
    }

    /// Whether the probe stopped because its turn was over: the socket may have more at once.
    pub const fn has_more(&self) -> bool {
        self.has_more
    }

    /// The socket to wait for.
    pub const fn socket(&mut self) -> &mut UdpSocket {
        &mut self.socket
    }
}

/// A socket for echo requests, and whether it is a raw one.
fn open(address: IpAddr) -> Result<(UdpSocket, bool), Errno> {
    let (family, protocol) = match address {
        IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
        IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
    };
    let open = |kind, protocol: Protocol| {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, kind, flags, Some(protocol))?;
        Ok(UdpSocket::from_std(socket.into()))
    };
    match open(SocketType::DGRAM, protocol) {
        Ok(socket) => Ok((socket, false)),
        Err(_) => open(SocketType::RAW, protocol).map(|socket| (socket, true)),
    }
}

/// The message. The identifier is the token's first half, or the kernel's own; the kernel computes
/// the checksum of ICMPv6.
fn request(address: IpAddr, token: [u8; 8]) -> [u8; MESSAGE_BYTES] {
    let mut message = [0; MESSAGE_BYTES];
    message[0] = if address.is_ipv4() { 8 } else { 128 };
    message[4..6].copy_from_slice(&token[..2]);
    message[8..].copy_from_slice(&token);
    if address.is_ipv4() {
        let sum = checksum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    message
}

/// Whether `datagram` is the reply with `token`, which no other process uses.
fn is_reply(datagram: &[u8], address: IpAddr, has_header: bool, token: [u8; 8]) -> bool {
    let header_bytes = match datagram.first() {
        Some(first) if has_header => usize::from(first & 15) * 4,
        _ => 0,
    };
    let kind = if address.is_ipv4() { 0 } else { 129 };
    match datagram.get(header_bytes..) {
        Some([first, 0, _, _, _, _, _, _, payload @ ..]) => *first == kind && payload == token,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
    const V4: &str = "192.0.2.1";
    const V6: &str = "2001:db8::1";

    fn reply(address: &str, has_header: bool, change: impl Fn(&mut Vec<u8>)) -> bool {
        let address = address.parse().unwrap();
        let mut message = request(address, TOKEN).to_vec();
        message[0] = if address.is_ipv4() { 0 } else { 129 };
        change(&mut message);
        if has_header {
            message.splice(..0, [0x46; 24]);
        }
        is_reply(&message, address, has_header, TOKEN)
    }

    #[test]
    fn a_reply_is_known_by_its_token() {
        for (address, has_header) in [(V4, false), (V4, true), (V6, false)] {
            assert!(reply(address, has_header, |_| ()));
            assert!(!reply(address, has_header, |message| message[15] ^= 1), "another's");
            assert!(!reply(address, has_header, |message| message[0] = 8), "a request");
            assert!(!reply(address, has_header, |message| message[1] = 1), "another code");
            for count in 0..MESSAGE_BYTES {
                assert!(!reply(address, has_header, |message| message.truncate(count)));
            }
        }
    }

    #[test]
    fn nothing_that_comes_in_is_too_short_to_look_at() {
        let address = V4.parse().unwrap();
        for datagram in [&[][..], &[0x4f], &[0x45; 20], &[0x4f; 59]] {
            assert!(!is_reply(datagram, address, true, TOKEN));
        }
    }

    #[test]
    fn a_request_has_the_checksum_that_the_kernel_leaves_to_it() {
        assert_eq!(checksum(&request(V4.parse().unwrap(), TOKEN)), 0);
        assert_eq!(request(V6.parse().unwrap(), TOKEN)[..4], [128, 0, 0, 0]);
    }
}
