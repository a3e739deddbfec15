//! Addresses for programs that are about to listen.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Below the ports that the kernel gives to sockets without one (32,768 and up by default): a port from
/// there may be the kernel's choice for another socket before the program listens at it.
const PORTS: std::ops::Range<u32> = 10_000..32_000;

/// Processes beside this one begin elsewhere.
const PORTS_OF_A_PROCESS: u32 = 64;

/// Returns an address of 127.0.0.1 at which no socket listens, another one at each call.
///
/// # Panics
/// If every port is taken.
#[must_use]
pub fn free_address() -> SocketAddr {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id() % PORTS.len() as u32 * PORTS_OF_A_PROCESS;
    for _ in PORTS {
        let offset = (first + TAKEN.fetch_add(1, Relaxed)) % PORTS.len() as u32;
        let port = u16::try_from(PORTS.start + offset).expect("ports are numbers of 16 bits");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("every port of 127.0.0.1 from {} to {} is taken", PORTS.start, PORTS.end - 1)
}
