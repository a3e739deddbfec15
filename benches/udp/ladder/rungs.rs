//! The rungs of the ladder: each a way to send and receive datagrams.

use crate::programs::words;
use crate::wire::{ADDRESSES, RECEIVER, RECEIVER_CPU, SENDER_CPU, poll_sender};

/// The source's port.
const SOURCE_PORT: &str = "65400";

/// The side of the comparison that a rung belongs to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Part {
    /// The kernel sends and receives, as in the essay.
    Essay,
    /// A poll-mode sender; the kernel receives.
    KernelFedByPoll,
    /// A poll-mode sender; poll mode receives on the same wire.
    Poll,
    /// No kernel in between.
    Memory,
}

/// A rung.
pub struct Rung {
    /// A description of the rung.
    pub name: &'static str,
    pub part: Part,
    /// The CPU on which the kernel processes received packets.
    pub softirq_cpu: Option<usize>,
    pub sink: Vec<String>,
    /// `None` if the sink sends to itself.
    pub source: Option<Vec<String>>,
}

/// All rungs, in order. Both sides of net_memif meet in `folder`.
pub fn all(folder: &str) -> Vec<Rung> {
    let rungs = [essay(), fed_by_poll(), poll(), memory(folder)];
    rungs.into_iter().flatten().collect()
}

/// The essay's rungs, on one wire.
fn essay() -> Vec<Rung> {
    let [first, second] = ADDRESSES;
    let one = format!("{first} --flows 1 --source-port {SOURCE_PORT}");
    let rung = |name, sink: &str, source: &str| Rung {
        name,
        part: Part::Essay,
        softirq_cpu: None,
        sink: words(sink),
        source: Some(words(source)),
    };
    let pinned = format!("{one} --cpus {SENDER_CPU}");
    let two = format!("--threads 2 --cpus {SENDER_CPU},{SENDER_CPU} --source-port {SOURCE_PORT}");
    let both = format!("{RECEIVER_CPU},{SENDER_CPU}");
    vec![
        rung("unpinned", first, &one),
        rung("pinned", &format!("{first} --cpus {RECEIVER_CPU}"), &pinned),
        rung(
            "two senders to one address",
            &format!("{first} --cpus {RECEIVER_CPU}"),
            &format!("{first} --flows 2 {two}"),
        ),
        rung(
            "two addresses, a thread each",
            &format!("{first} {second} --threads 2 --cpus {both}"),
            &format!("{first} {second} --flows 2 {two}"),
        ),
        rung(
            "two threads share a socket",
            &format!("{first} --threads 2 --cpus {both}"),
            &format!("{first} --flows 2 {two}"),
        ),
        rung(
            "SO_REUSEPORT, 4 flows",
            &format!("{first} --threads 2 --reuseport --cpus {both}"),
            &format!("{first} --flows 4 --source-port 10000 --cpus {SENDER_CPU}"),
        ),
        rung(
            "SO_REUSEPORT, 1,000 flows",
            &format!("{first} --threads 2 --reuseport --cpus {both}"),
            &format!("{first} --flows 1000 --source-port 10000 --cpus {SENDER_CPU}"),
        ),
    ]
}

/// The kernel receives from a sender in poll mode. On veth, the sender's CPU does the receiver's
/// softirqs, unless they are steered to another.
fn fed_by_poll() -> Vec<Rung> {
    let [first, _] = ADDRESSES;
    let rung = |name, softirq_cpu| Rung {
        name,
        part: Part::KernelFedByPoll,
        softirq_cpu,
        sink: words(&format!("{first} --cpus {RECEIVER_CPU}")),
        source: Some(poll_sender()),
    };
    vec![
        rung("a kernel socket, softirqs on the next CPU", None),
        rung("a kernel socket, softirqs on its own CPU", Some(RECEIVER_CPU)),
    ]
}

/// Poll mode on the same wire, from the same sender.
fn poll() -> Vec<Rung> {
    let rung = |name, device: &str, more: &str| Rung {
        name,
        part: Part::Poll,
        softirq_cpu: None,
        sink: words(&format!("--port {device} --cpus {RECEIVER_CPU} {more}")),
        source: Some(poll_sender()),
    };
    let (packet, xdp) = (
        format!("net_af_packet0,iface={RECEIVER}"),
        format!("net_af_xdp0,iface={RECEIVER},force_copy=1"),
    );
    vec![
        rung("af_packet", &packet, ""),
        rung("af_packet, payloads verified", &packet, "--verify"),
        rung("af_xdp", &xdp, ""),
        rung("af_xdp, payloads verified", &xdp, "--verify"),
    ]
}

/// No kernel in between.
fn memory(folder: &str) -> Vec<Rung> {
    let memif = |role: &str, cpu: usize| {
        words(&format!(
            "--trust-memif-peer --port net_memif0,role={role},id=0,socket={folder}/memif \
             --cpus {cpu}"
        ))
    };
    let rung =
        |name, sink, source| Rung { name, part: Part::Memory, softirq_cpu: None, sink, source };
    let ring = format!("--with-source --cpus {RECEIVER_CPU},{SENDER_CPU}");
    vec![
        rung(
            "net_memif, two processes",
            memif("server", RECEIVER_CPU),
            Some(memif("client", SENDER_CPU)),
        ),
        rung("net_ring, one process", words(&ring), None),
        rung("net_ring, payloads verified", words(&format!("{ring} --verify")), None),
    ]
}

/// Rungs of the essay that are impossible on a single-queue wire on a machine with a single node,
/// and why.
pub const UNSHOWN: [&str; 2] = [
    "the receiver on another NUMA node, or on the sibling of the softirq's core: this bench uses two CPUs of one node",
    "hardware queues, RSS by `ethtool -N DEVICE rx-flow-hash udp4 sdfn`, and NOTRACK: a veth has neither a NIC's hash \
     nor, without rules, a conntrack table in its way",
];
