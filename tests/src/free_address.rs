//! Addresses for programs under test to listen on.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Below the ephemeral ports (32,768 and up by default): the kernel could hand one of those to another
/// socket before the program under test listens on it.
const PORTS: std::ops::Range<u32> = 10_000..32_000;

/// Spreads processes that run at the same time over the range.
const PORTS_OF_A_PROCESS: u32 = 64;

/// Returns a free address of 127.0.0.1, a different one on each call.
///
/// # Panics
/// If every port of the range is in use.
#[must_use]
pub fn free_address() -> SocketAddr {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(PORTS_OF_A_PROCESS) % PORTS.len() as u32;
    for _ in PORTS {
        let offset = (first + TAKEN.fetch_add(1, Relaxed)) % PORTS.len() as u32;
        let port = u16::try_from(PORTS.start + offset).expect("ports are numbers of 16 bits");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("every port of 127.0.0.1 from {} to {} is in use", PORTS.start, PORTS.end - 1)
}
