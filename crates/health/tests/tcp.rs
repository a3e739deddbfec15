//! TCP: a connection that is accepted, refused, or left without an answer.

use super::server::{V4, closed_port, loopbacks, serve};
use super::{PATIENT_MS, run};
use hotloop_health::settings::Probe;
use rustix::net::{AddressFamily, SocketAddrV4, SocketType, bind, listen, socket};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

#[test]
fn an_open_port_passes() {
    for address in loopbacks() {
        assert_eq!(run(address, serve(address, drop), Probe::Tcp, PATIENT_MS).map(drop), Ok(()));
    }
}

#[test]
fn a_closed_port_fails() {
    for address in loopbacks() {
        let (_taken, port) = closed_port(address);
        let failed = run(address, port, Probe::Tcp, PATIENT_MS).unwrap_err();
        assert_eq!(failed, "connection refused");
    }
}

#[test]
fn a_connection_that_nobody_takes_times_out() {
    // A queue of length zero has room for one connection. The next client gets no answer.
    let listener = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&listener, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    listen(&listener, 0).unwrap();
    let listener = TcpListener::from(listener);
    let server: SocketAddr = listener.local_addr().unwrap();
    let waiting: Vec<_> = (0..8)
        .map_while(|_| TcpStream::connect_timeout(&server, Duration::from_millis(200)).ok())
        .collect();
    assert!((1..8).contains(&waiting.len()), "the queue of {server} never fills");

    let failed = run(V4, server.port(), Probe::Tcp, 50).unwrap_err();
    assert_eq!(failed, "timed out after 50 ms while connecting");
}
