//! A probe over TCP: a connection, and the exchange over it.

use crate::http::Exchange;
use crate::settings::Probe;
use mio::net::TcpStream;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

/// Maximum number of bytes that a probe reads in one turn, so that the thread gets to the other
/// probes.
const TURN_BYTES: usize = 32 * 1024;

/// A TCP, HTTP or HTTPS probe under way.
#[derive(Debug)]
pub struct Conversation {
    stream: TcpStream,
    is_connected: bool,
    /// Number of bytes that it may still read in this turn.
    turn_bytes: usize,
    tls: Option<Box<ClientConnection>>,
    /// `None` if a connection is enough.
    exchange: Option<Exchange>,
}

impl Conversation {
    /// Begins to connect. `client` is the TLS configuration, for probes that use TLS.
    ///
    /// # Errors
    /// If the kernel has no socket or no route, or rustls refuses the server's name.
    pub fn start(
        server: SocketAddr,
        probe: &Probe,
        client: Option<Arc<ClientConfig>>,
    ) -> io::Result<Self> {
        let exchange = match probe {
            Probe::Http(probe) => Some(Exchange::new(probe, server, 80)),
            Probe::Https(probe, _) => Some(Exchange::new(probe, server, 443)),
            _ => None,
        };
        let connect = |client| ClientConnection::new(client, ServerName::from(server.ip()));
        let tls = client.map(connect).transpose().map_err(io::Error::other)?.map(Box::new);
        let stream = TcpStream::connect(server)?;
        Ok(Self { stream, is_connected: false, turn_bytes: 0, tls, exchange })
    }

    /// Continues as far as the socket allows: to the end of the probe, if there is no error.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if there is more to come, or the reason that the probe failed.
    pub fn advance(&mut self) -> io::Result<()> {
        if !self.is_connected {
            self.connect()?;
            self.is_connected = true;
        }
        let Some(exchange) = &mut self.exchange else { return Ok(()) };
        self.turn_bytes = TURN_BYTES;
        let mut socket = Socket { stream: &self.stream, left_bytes: &mut self.turn_bytes };
        let Some(tls) = &mut self.tls else { return exchange.advance(&mut socket) };
        while tls.is_handshaking() {
            tls.complete_io(&mut socket)?;
        }
        let answered = exchange.advance(&mut rustls::Stream::new(&mut **tls, &mut socket));
        if !matches!(&answered, Err(error) if error.kind() == ErrorKind::WouldBlock) {
            tls.send_close_notify();
            // The result is known: a server that is gone already needs no close message.
            let _ = tls.write_tls(&mut socket);
        }
        answered
    }

    /// Whether the connection is established, by connect(2)'s rule for sockets that don't block.
    fn connect(&self) -> io::Result<()> {
        if let Some(error) = self.stream.take_error()? {
            return Err(error);
        }
        match self.stream.peer_addr() {
            Err(error) if error.kind() == ErrorKind::NotConnected => {
                Err(ErrorKind::WouldBlock.into())
            }
            connected => connected.map(drop),
        }
    }

    /// Whether the probe stopped because its turn was over: the socket may have more at once.
    pub const fn has_more(&self) -> bool {
        self.is_connected && self.turn_bytes == 0
    }

    /// The current step, for messages.
    pub fn doing(&self) -> &'static str {
        match &self.tls {
            _ if !self.is_connected => "while connecting",
            Some(tls) if tls.is_handshaking() => "in the TLS handshake",
            _ => "while waiting for an answer",
        }
    }

    /// The socket to wait for.
    pub const fn socket(&mut self) -> &mut TcpStream {
        &mut self.stream
    }
}

/// A connection with a limit of bytes to read in one turn.
struct Socket<'a> {
    stream: &'a TcpStream,
    left_bytes: &'a mut usize,
}

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if *self.left_bytes == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let most = buffer.len().min(*self.left_bytes);
        let count = (&mut self.stream).read(&mut buffer[..most])?;
        *self.left_bytes -= count;
        Ok(count)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&mut self.stream).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&mut self.stream).flush()
    }
}
