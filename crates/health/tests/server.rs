//! Servers of a test, in threads that end with the test.

use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

pub const V4: &str = "127.0.0.1";
pub const V6: &str = "::1";

/// The available loopback addresses.
pub fn loopbacks() -> Vec<&'static str> {
    let mut loopbacks = vec![V4];
    match TcpListener::bind((V6, 0)) {
        Ok(_) => loopbacks.push(V6),
        Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {
            eprintln!("skipped: {V6}: {error}");
        }
        Err(error) => panic!("{V6}: {error}"),
    }
    loopbacks
}

/// Serves each connection to a new port in a thread of its own; returns the port.
pub fn serve(address: &str, answer: impl Fn(TcpStream) + Clone + Send + 'static) -> u16 {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, answer) = (stream.unwrap(), answer.clone());
            thread::spawn(move || answer(stream));
        }
    });
    port
}

/// A port where nothing listens, nor can while its socket exists.
pub fn closed_port(address: &str) -> (OwnedFd, u16) {
    let address = SocketAddr::new(address.parse().unwrap(), 0);
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let taken = socket(family, SocketType::STREAM, None).unwrap();
    bind(&taken, &address).unwrap();
    let taken_address = SocketAddr::try_from(getsockname(&taken).unwrap()).unwrap();
    (taken, taken_address.port())
}

/// Reads a request up to its empty line, or as much as arrives.
pub fn read_request(stream: &mut impl Read) -> String {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
        request.push(byte[0]);
    }
    String::from_utf8_lossy(&request).into_owned()
}

/// Writes `bytes` repeatedly, each byte separately, until the reader is gone.
pub fn drip(stream: &mut impl Write, bytes: &[u8]) {
    for byte in bytes.iter().cycle() {
        if stream.write_all(&[*byte]).and_then(|()| stream.flush()).is_err() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
}
