//! A TCP connection to another node, with TLS or without, that never blocks.

use mio::net::TcpStream;
use rustls::Connection;
use std::io::{self, ErrorKind, Read, Write};

/// A connection.
#[derive(Debug)]
pub struct Channel {
    pub stream: TcpStream,
    pub tls: Option<Box<Connection>>,
}

impl Channel {
    /// Whether the connection is established, by connect(2)'s rule for sockets that don't block.
    ///
    /// # Errors
    /// If it can't be established.
    pub fn is_connected(&self) -> io::Result<bool> {
        if let Some(error) = self.stream.take_error()? {
            return Err(error);
        }
        match self.stream.peer_addr() {
            Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
            connected => connected.map(|_| true),
        }
    }

    /// Reads the available bytes, up to the length of `buffer`. Returns their number.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if there is nothing, and [`ErrorKind::UnexpectedEof`] at the end.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = match &mut self.tls {
            None => self.stream.read(buffer)?,
            Some(tls) => read_tls(tls, &mut self.stream, buffer)?,
        };
        if count == 0 { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(count) }
    }

    /// Writes as much of `bytes` as there is room for. Returns the number of bytes.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if there is no room.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            return if bytes.is_empty() { Ok(0) } else { self.stream.write(bytes) };
        };
        let mut written = 0;
        loop {
            while tls.wants_write() {
                match tls.write_tls(&mut self.stream) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock && written > 0 => {
                        return Ok(written);
                    }
                    done => done?,
                };
            }
            if tls.is_handshaking() || written == bytes.len() {
                return Ok(written);
            }
            written += tls.writer().write(&bytes[written..])?;
        }
    }

    /// Whether the kernel has all written bytes.
    pub fn is_flushed(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| !tls.wants_write())
    }
}

fn read_tls(tls: &mut Connection, stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match tls.reader().read(buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            read => return read,
        }
        if !tls.wants_read() {
            // The channel must write first.
            return Err(ErrorKind::WouldBlock.into());
        }
        if tls.read_tls(stream)? == 0 {
            return Ok(0);
        }
        if let Err(error) = tls.process_new_packets() {
            // The alert with the reason. Nothing comes after it, so a failure doesn't matter.
            let _ = tls.write_tls(stream);
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
    }
}
