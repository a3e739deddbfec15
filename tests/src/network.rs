//! A network for a test: a namespace, interfaces in pairs, and a peer that sends.

use crate::{device, eal};
use hotloop::dpdk::{Mempool, MempoolConfig, TxQueue};
use hotloop::prelude::*;
use hotloop_test_tools::tool;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::process::{Child, Stdio};

/// A network namespace without IPv6, so that the kernel sends nothing of its own. It disappears
/// when this is dropped, and also when the process dies.
#[derive(Debug)]
pub struct Network {
    /// Keeps the namespace for as long as its standard input is open.
    keeper: Child,
}

impl Network {
    /// Moves the calling thread, and the threads and programs that it starts from now on, into a new
    /// network namespace.
    ///
    /// # Errors
    /// Why that is impossible here.
    pub fn enter() -> Result<Self, String> {
        tool("ip")?;
        let mut keeper = tool("unshare")?
            .args(["--net", "sh", "-c", "echo; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("unshare: {error}"))?;
        let mut line = String::new();
        let said = keeper.stdout.take().map(|stdout| BufReader::new(stdout).read_line(&mut line));
        let network = Self { keeper };
        if !matches!(said, Some(Ok(1))) {
            return Err("no right to make a network namespace".into());
        }
        let namespace = File::open(format!("/proc/{}/ns/net", network.keeper.id()))
            .map_err(|error| format!("the network namespace: {error}"))?;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|error| format!("no right to enter a network namespace: {error}"))?;
        // `/proc/sys` shows the thread's own namespace. If the file is missing, so is IPv6.
        let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
        Ok(network)
    }

    /// [`enter`](Self::enter) with IPv6: addresses are used at once, without duplicate address
    /// detection (RFC 4862, section 5.4). Everybody may ping, and the loopback interface is up.
    ///
    /// # Errors
    /// Why that is impossible here.
    pub fn with_ipv6() -> Result<Self, String> {
        let network = Self::enter()?;
        for of in ["default", "all", "lo"] {
            let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{of}/disable_ipv6"), "0");
            let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{of}/accept_dad"), "0");
        }
        let _ = fs::write("/proc/sys/net/ipv4/ping_group_range", "0 2147483647");
        ip(&["link", "set", "dev", "lo", "up"])?;
        Ok(network)
    }

    /// The process of this namespace, as an argument for `ip link set … netns`.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.keeper.id()
    }

    /// Makes two interfaces that are each other's wire, and takes them up.
    ///
    /// # Errors
    /// The error message of `ip`.
    pub fn pair(&self, one: &str, other: &str) -> Result<(), String> {
        ip(&["link", "add", "name", one, "type", "veth", "peer", "name", other])?;
        for name in [one, other] {
            ip(&["link", "set", "dev", name, "up"])?;
        }
        Ok(())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// Runs `ip`.
///
/// # Errors
/// The error message of `ip`.
pub fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = tool("ip")?.args(arguments).output();
    let output = output.map_err(|error| format!("ip: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr)))
}

/// The MAC address of an interface of the thread's network.
///
/// # Panics
/// If there is no such interface.
#[must_use]
pub fn mac(interface: &str) -> String {
    let mut ip = tool("ip").expect("it made the interface");
    let output = ip.args(["-o", "link", "show", "dev", interface]).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let mac = text.split_whitespace().skip_while(|word| *word != "link/ether").nth(1);
    mac.expect("the interface has an address").to_owned()
}

/// Number of packets that an interface of the thread's network has sent, according to the kernel.
///
/// # Panics
/// If there is no such interface.
#[must_use]
pub fn kernel_sent(interface: &str) -> u64 {
    kernel_count(interface, 9)
}

/// [`kernel_sent`] for received packets.
///
/// # Panics
/// If there is no such interface.
#[must_use]
pub fn kernel_received(interface: &str) -> u64 {
    kernel_count(interface, 1)
}

/// [`kernel_sent`] for packets that were dropped instead of sent.
///
/// # Panics
/// If there is no such interface.
#[must_use]
pub fn kernel_send_dropped(interface: &str) -> u64 {
    kernel_count(interface, 11)
}

fn kernel_count(interface: &str, column: usize) -> u64 {
    let table = fs::read_to_string("/proc/thread-self/net/dev").expect("proc is mounted");
    let mut rows = table.lines().filter_map(|line| line.trim().split_once(':'));
    let row = rows.find(|(name, _)| *name == interface).expect("the interface is there").1;
    row.split_whitespace()
        .nth(column)
        .and_then(|count| count.parse().ok())
        .expect("a table of numbers")
}

/// Packets that the kernel took in for reassembly, minus those that came out of it, in the thread's
/// network. Packet sockets that share an interface's packets never see the former.
///
/// # Panics
/// If the kernel does not report it.
#[must_use]
pub fn reassembled() -> u64 {
    let table = fs::read_to_string("/proc/thread-self/net/snmp").expect("proc is mounted");
    let mut lines = table.lines().filter_map(|line| line.strip_prefix("Ip: "));
    let (names, counts) = (lines.next().unwrap_or(""), lines.next().unwrap_or(""));
    let count = |wanted: &str| {
        let mut columns = names.split(' ').zip(counts.split(' '));
        let (_, count) = columns.find(|(name, _)| *name == wanted).expect("a column of this name");
        count.parse::<u64>().expect("a number")
    };
    count("ReasmReqds") - count("ReasmOKs")
}

/// The other end of a wire: sends frames into an interface, one by one.
#[derive(Debug)]
pub struct Peer {
    port: Port,
    queue: TxQueue,
    pool: Mempool,
}

impl Peer {
    /// A peer that sends into this interface.
    ///
    /// # Panics
    /// If there is no such interface.
    #[must_use]
    pub fn new(interface: &str) -> Self {
        let port = Port::open(eal(), &device("net_pcap", &format!(",iface={interface}")));
        let port = port.unwrap_or_else(|error| panic!("{error}"));
        let pool = Mempool::new(eal(), &MempoolConfig::default()).expect("there is memory");
        let core = Core::new(0, 1);
        let mut queue = port.tx_queue(&core).expect("it has a TX queue");
        queue
            .start(&Limits { in_flight_max: 64, thread_count: 1, is_pipeline: false })
            .expect("it starts");
        Self { port, queue, pool }
    }

    /// Sends each frame, and returns the number that the kernel took.
    ///
    /// # Panics
    /// If a frame is longer than an mbuf.
    pub fn send<'a>(&mut self, frames: impl IntoIterator<Item = &'a [u8]>) -> u64 {
        let before = self.port.stats().expect("it runs").sent;
        for frame in frames {
            let mut packet = self.pool.alloc().expect("each packet is back by now");
            packet.append(frame.len()).expect("it fits").copy_from_slice(frame);
            let mut burst = Burst::new();
            burst.push(packet);
            self.queue.send(&mut burst);
        }
        self.port.stats().expect("it runs").sent - before
    }
}
