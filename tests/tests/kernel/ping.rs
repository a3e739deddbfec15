//! ICMP echoes through the kernel's own sockets for them (icmp(7)).

#![allow(clippy::print_stdout, reason = "a test says what it has seen")]

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, recv, sendto, socket};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Time limit for an answer.
const ANSWER_WAIT: Duration = Duration::from_secs(3);

/// Sends `count` echo requests, one after the other, from the calling thread's network. Returns the
/// number of answers.
pub fn ping(to: IpAddr, count: u16) -> usize {
    let (family, protocol, kind) = match to {
        IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP, 8),
        IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6, 128),
    };
    let pings = socket(family, SocketType::DGRAM, Some(protocol)).unwrap();
    set_socket_timeout(&pings, Timeout::Recv, Some(ANSWER_WAIT)).unwrap();
    let answered = |sequence: &u16| {
        let [high, low] = sequence.to_be_bytes();
        let mut request = vec![kind, 0, 0, 0, 0, 0, high, low];
        request.extend_from_slice(&[0x5a; 40]);
        sendto(&pings, &request, SendFlags::empty(), &SocketAddr::new(to, 0)).unwrap();
        let mut answer = [0; 100];
        // A late answer to an earlier request is another one.
        let error = loop {
            match recv(&pings, &mut answer, RecvFlags::empty()) {
                Ok((_, len)) if len == request.len() && answer[6..8] == [high, low] => return true,
                // Signals interrupt the call, whichever thread they are for.
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => break error,
            }
        };
        println!("{to}: request {sequence} was not answered: {error}");
        false
    };
    (0..count).filter(answered).count()
}
