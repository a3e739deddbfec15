//! The network function as threads over RAW sockets: three, for receiving, looking up and sending;
//! or several that do everything and share a socket.

use super::reflector::{Flows, wait_for_end};
use core_affinity::CoreId;
use crossbeam_queue::ArrayQueue;
use hotloop::prelude::Instant;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, recv, sendto,
    socket_with,
};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use udp::stamp::now_ns;

/// Capacity of the queue between two threads, in packets.
const QUEUE_LEN: usize = 4_096;

/// Maximum length of a packet that is passed on, in bytes.
const PACKET_BYTES: usize = 256;

/// A queue between threads.
type Queue = Arc<ArrayQueue<Packet>>;

/// A thread's work.
type Work = Box<dyn FnOnce() + Send>;

struct Packet {
    bytes: [u8; PACKET_BYTES],
    len: usize,
}

/// The kernel answers datagrams to a port without a socket. This socket prevents that, and receives
/// next to nothing.
fn hold_port() -> Result<UdpSocket, String> {
    let holder = UdpSocket::bind("0.0.0.0:4321").map_err(|error| error.to_string())?;
    set_socket_recv_buffer_size(&holder, 0).map_err(|error| error.to_string())?;
    Ok(holder)
}

/// Runs a thread on each of these CPUs, until standard input ends: each receives, looks up and
/// sends.
///
/// # Errors
/// If RAW sockets can't be opened.
pub fn run_whole(cpus: &[usize]) -> Result<(), String> {
    let _holder = hold_port()?;
    let sockets = Arc::new((open(ipproto::UDP)?, open(ipproto::RAW)?));
    for cpu in cpus {
        let (sockets, flows) =
            (Arc::clone(&sockets), Flows::new().map_err(|error| error.to_string())?);
        start(Some(*cpu), Box::new(move || do_all(&sockets.0, &sockets.1, flows)));
    }
    wait_for_end();
    Ok(())
}

fn do_all(receiving: &OwnedFd, sending: &OwnedFd, mut flows: Flows) {
    let mut bytes = [0; PACKET_BYTES];
    loop {
        let len = recv(receiving, &mut bytes, RecvFlags::empty()).map_or(0, |(len, _)| len);
        if flows.turn_back(&mut bytes[..len], Instant::from_ns(now_ns())) {
            send_one(sending, &bytes[..len]);
        }
    }
}

/// Runs the three threads, on these CPUs if any, until standard input ends.
///
/// # Errors
/// If RAW sockets can't be opened.
pub fn run(cpus: &[usize]) -> Result<(), String> {
    let _holder = hold_port()?;
    let [received, looked_up]: [Queue; 2] =
        std::array::from_fn(|_| Arc::new(ArrayQueue::new(QUEUE_LEN)));
    let (receiving, sending) = (open(ipproto::UDP)?, open(ipproto::RAW)?);
    let flows = Flows::new().map_err(|error| error.to_string())?;
    let cpu = |index: usize| cpus.get(index).copied();
    let [to_look_up, to_send] = [Arc::clone(&received), Arc::clone(&looked_up)];
    let threads: [(Option<usize>, Work); 3] = [
        (cpu(0), Box::new(move || receive(&receiving, &received))),
        (cpu(1), Box::new(move || look_up(flows, &to_look_up, &looked_up))),
        (cpu(2), Box::new(move || send(&sending, &to_send))),
    ];
    threads.into_iter().for_each(|(cpu, work)| start(cpu, work));
    wait_for_end();
    Ok(())
}

/// Starts a thread, on this CPU if given.
fn start(cpu: Option<usize>, work: Work) {
    thread::spawn(move || {
        cpu.map(|id| core_affinity::set_for_current(CoreId { id }));
        work();
    });
}

fn open(protocol: rustix::net::Protocol) -> Result<OwnedFd, String> {
    let socket =
        socket_with(AddressFamily::INET, SocketType::RAW, SocketFlags::CLOEXEC, Some(protocol));
    socket.map_err(|error| format!("RAW sockets need root: {error}"))
}

fn receive(socket: &OwnedFd, received: &Queue) {
    loop {
        let mut packet = Packet { bytes: [0; PACKET_BYTES], len: 0 };
        if let Ok((len, _)) = recv(socket, &mut packet.bytes, RecvFlags::empty()) {
            packet.len = len;
            // Lost if the next thread is slower.
            let _ = received.push(packet);
        }
    }
}

fn look_up(mut flows: Flows, received: &Queue, looked_up: &Queue) {
    loop {
        match received.pop() {
            Some(mut packet) => {
                if flows.turn_back(&mut packet.bytes[..packet.len], Instant::from_ns(now_ns())) {
                    let _ = looked_up.push(packet);
                }
            }
            None => thread::yield_now(),
        }
    }
}

fn send(socket: &OwnedFd, looked_up: &Queue) {
    loop {
        match looked_up.pop() {
            Some(Packet { bytes, len }) => send_one(socket, &bytes[..len]),
            None => thread::yield_now(),
        }
    }
}

fn send_one(socket: &OwnedFd, packet: &[u8]) {
    let to = Ipv4Addr::new(packet[16], packet[17], packet[18], packet[19]);
    // Lost if the device has no room.
    let _ = sendto(socket, packet, SendFlags::empty(), &SocketAddrV4::new(to, 0));
}
