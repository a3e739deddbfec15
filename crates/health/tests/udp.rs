//! UDP: only ICMP's port unreachable is a failure.

use super::server::loopbacks;
use super::{PATIENT_MS, run};
use hotloop_health::settings::Probe;
use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

#[test]
fn an_answer_passes() {
    for address in loopbacks() {
        let server = UdpSocket::bind((address, 0)).unwrap();
        let port = server.local_addr().unwrap().port();
        let answering = thread::spawn(move || {
            let mut datagram = [0; 64];
            let (count, client) = server.recv_from(&mut datagram).unwrap();
            server.send_to(b"whatever it is", client).unwrap();
            count
        });
        assert_eq!(run(address, port, Probe::Udp, PATIENT_MS).map(drop), Ok(()));
        assert_eq!(answering.join().unwrap(), 1, "bytes of the probe");
    }
}

#[test]
fn silence_passes_when_the_time_is_over() {
    for address in loopbacks() {
        let server = UdpSocket::bind((address, 0)).unwrap();
        let took = run(address, server.local_addr().unwrap().port(), Probe::Udp, 50).unwrap();
        assert!(took >= Duration::from_millis(50), "{took:?}");
    }
}

#[test]
fn a_closed_port_fails() {
    for address in loopbacks() {
        // A connected socket receives only from its peer, which here is itself.
        let taken = UdpSocket::bind((address, 0)).unwrap();
        taken.connect(taken.local_addr().unwrap()).unwrap();
        let port = taken.local_addr().unwrap().port();
        let failed = run(address, port, Probe::Udp, PATIENT_MS).unwrap_err();
        assert_eq!(failed, "ICMP port unreachable");
    }
}
