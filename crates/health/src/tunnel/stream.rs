//! One TCP connection of a probe, made with smoltcp: packets go in and come out, and nothing else
//! happens.

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{RecvError, Socket, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{HardwareAddress, IpCidr};
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;

/// Maximum length of a packet, in bytes, without the outer header: it fits any path, once it is
/// wrapped.
const PACKET_BYTES_MAX: usize = 1_240;

const RX_BYTES: usize = 4096;

/// Length of the longest request.
const TX_BYTES: usize = 2048;

/// A TCP connection from one address to another.
pub struct Stream {
    packets: Packets,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    is_connected: bool,
}

impl Stream {
    /// Begins to connect `local` to `remote`: the first packet is [sent](Self::sent) after the
    /// first [`advance`](Self::advance).
    ///
    /// # Errors
    /// If they can't be connected: they are of two IP versions, or a port is 0.
    pub fn connect(
        local: SocketAddr,
        remote: SocketAddr,
        seed: u64,
        now: Instant,
    ) -> io::Result<Self> {
        let mut packets = Packets::default();
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut packets, now);
        interface.update_ip_addrs(|addresses| {
            // Every address is in its network: there is one wire and nothing to route.
            let pushed = addresses.push(IpCidr::new(local.ip().into(), 0));
            pushed.expect("an interface has room for an address");
        });
        let buffer = |bytes| SocketBuffer::new(vec![0; bytes]);
        let mut socket = Socket::new(buffer(RX_BYTES), buffer(TX_BYTES));
        socket.set_ack_delay(None);
        socket.set_nagle_enabled(false);
        socket
            .connect(interface.context(), remote, local)
            .map_err(|error| io::Error::other(error.to_string()))?;
        let mut sockets = SocketSet::new(Vec::with_capacity(1));
        let socket = sockets.add(socket);
        Ok(Self { packets, interface, sockets, socket, is_connected: false })
    }

    /// Receives a packet, from its IP header on.
    pub fn receive(&mut self, packet: &[u8]) {
        self.packets.received.push_back(packet.to_vec());
    }

    /// The next packet to send, from its IP header on.
    pub fn sent(&mut self) -> Option<Vec<u8>> {
        self.packets.sent.pop_front()
    }

    /// Processes the received packets and the timers.
    pub fn advance(&mut self, now: Instant) {
        self.interface.poll(now, &mut self.packets, &mut self.sockets);
        self.is_connected |= self.socket().may_send();
    }

    /// When to [`advance`](Self::advance) without a packet.
    pub fn next_time(&mut self, now: Instant) -> Option<Duration> {
        self.interface.poll_delay(now, &self.sockets)
    }

    /// Whether the other side has answered.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] until it does, [`ErrorKind::ConnectionRefused`] if it answers with
    /// an RST.
    pub fn connected(&mut self) -> io::Result<()> {
        match self.socket().state() {
            _ if self.is_connected => Ok(()),
            State::Closed => Err(ErrorKind::ConnectionRefused.into()),
            _ => Err(ErrorKind::WouldBlock.into()),
        }
    }

    /// Ends the connection with an RST, which leaves nothing behind on either side.
    pub fn abort(&mut self, now: Instant) {
        self.socket().abort();
        self.advance(now);
    }

    fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.socket)
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.socket().recv_slice(buffer) {
            Ok(0) => Err(ErrorKind::WouldBlock.into()),
            Ok(count) => Ok(count),
            Err(RecvError::Finished) => Ok(0),
            Err(RecvError::InvalidState) => Err(ErrorKind::ConnectionReset.into()),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.socket().send_slice(bytes) {
            Ok(0) => Err(ErrorKind::WouldBlock.into()),
            Ok(count) => Ok(count),
            Err(_) => Err(ErrorKind::ConnectionReset.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("is_connected", &self.is_connected).finish_non_exhaustive()
    }
}

/// The received packets that are not processed yet, and the packets to send.
#[derive(Default)]
struct Packets {
    received: VecDeque<Vec<u8>>,
    sent: VecDeque<Vec<u8>>,
}

impl Device for Packets {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sending<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received, Sending<'_>)> {
        Some((Received(self.received.pop_front()?), Sending(&mut self.sent)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sending<'_>> {
        Some(Sending(&mut self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = PACKET_BYTES_MAX;
        capabilities
    }
}

struct Received(Vec<u8>);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

struct Sending<'a>(&'a mut VecDeque<Vec<u8>>);

impl TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut packet = vec![0; len];
        let result = f(&mut packet);
        self.0.push_back(packet);
        result
    }
}
