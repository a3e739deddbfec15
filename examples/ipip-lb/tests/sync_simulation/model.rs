//! The states of connections, the routers' choices of nodes, and how long nodes must know
//! connections. Nothing here depends on the code under test.

use hotloop::packet::flow_key::FlowKey;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

/// How long nodes remember connections without a packet, in milliseconds: with the defaults, and
/// here.
pub const OPENING_MS: u64 = 10_000;
pub const ESTABLISHED_MS: u64 = 900_000;
pub const CLOSING_MS: u64 = 20_000;

/// Whether the nodes' clocks are right, which decides how long nodes know connections at least.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Clocks {
    Right,
    /// They go three quarters as fast to one and a half times as fast, and may jump and stop for a second
    /// in all.
    Wrong,
}

impl Clocks {
    /// The time from a packet to its node's claim, in milliseconds, if peers know of none in a third of
    /// the idle timeout: the node's walk takes a twelfth of that, and the claim is under way for a
    /// moment.
    pub const fn said_ms(self) -> u64 {
        match self {
            Self::Right => ESTABLISHED_MS / 10,
            Self::Wrong => ESTABLISHED_MS * 2 / 15 + 1_000,
        }
    }

    /// A longer silence than this, in milliseconds, ends with a packet that peers must learn of.
    pub const fn silence_ms(self) -> u64 {
        match self {
            Self::Right => ESTABLISHED_MS / 3,
            Self::Wrong => ESTABLISHED_MS * 2 / 9 - 1_000,
        }
    }

    /// How long all nodes know a connection after a packet that did not come after such a silence,
    /// whichever node is killed: the latest packet that peers know of came a third of the idle timeout
    /// before, or a twelfth more.
    pub const fn known_ms(self, idle_ms: u64) -> u64 {
        match (self, idle_ms) {
            (Self::Right, _) => idle_ms * 7 / 12 - 1_000,
            // By the slowest clock before, and by the fastest one after.
            (Self::Wrong, ESTABLISHED_MS) => idle_ms * 2 / 3 - idle_ms * 5 / 9 - 2_000,
            // Its only claim is of its SYN.
            (Self::Wrong, OPENING_MS) => idle_ms * 2 / 3 - 1_000,
            (Self::Wrong, _) => 500,
        }
    }

    /// How soon after a SYN another one may be the same, sent again, in milliseconds.
    pub const fn syn_again_ms(self) -> u64 {
        match self {
            Self::Right => 5_000,
            Self::Wrong => 7_000,
        }
    }
}

pub const BACKENDS: u8 = 5;

/// The services: of TCP, and of UDP.
pub const SERVICES: [&str; 2] = ["web", "names"];

/// The backends that take new connections: at least one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Configuration {
    pub revision: u64,
    pub active: [bool; BACKENDS as usize],
}

impl Configuration {
    /// The text of its reference table.
    pub fn text(&self) -> String {
        self.active.iter().map(|it| if *it { '1' } else { '0' }).collect()
    }

    /// The configuration of such a table.
    pub fn of_text(text: &str) -> Self {
        let mut active = [false; BACKENDS as usize];
        text.bytes().zip(&mut active).for_each(|(it, active)| *active = it == b'1');
        Self { revision: 0, active }
    }
}

/// The kind of a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Packet {
    Syn,
    Data,
    Fin,
    Rst,
}

/// The phase of a connection, from its client's view.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Phase {
    /// The client has only sent its SYN.
    Opening,
    Open,
    /// The connection has ended; this many late packets are still to come.
    Closing(u32),
}

fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

pub fn backend(number: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, number + 1).into()
}

/// The node, of those that are `up`, that a client's packets come to.
pub fn routed(client: u32, salt: u64, up: &[usize]) -> usize {
    *up.iter()
        .max_by_key(|&&node| mixed(salt ^ u64::from(client) << 8 ^ node as u64))
        .expect("one is up")
}

const VIP: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 10);

/// The port that all clients send from.
const PORT: u16 = 4000;

const fn host(client: u32) -> Ipv4Addr {
    Ipv4Addr::new(198, 51, (client / 250) as u8, (client % 250 + 1) as u8)
}

/// The client's address and port.
pub fn address(client: u32) -> String {
    format!("{}:{PORT}", host(client))
}

/// Whether a client's flow is UDP's, which has neither a beginning nor an end.
pub const fn is_udp(client: u32) -> bool {
    client % 5 == 4
}

/// The destination of a client's packets.
pub const fn vip(client: u32) -> &'static str {
    if is_udp(client) { "203.0.113.10:53" } else { "203.0.113.10:80" }
}

pub fn key(client: u32) -> FlowKey {
    let (protocol, port) = if is_udp(client) { (17, 53) } else { (6, 80) };
    let source = SocketAddrV4::new(host(client), PORT);
    FlowKey::new(source.into(), SocketAddrV4::new(VIP, port).into(), protocol).unwrap()
}

pub fn client(key: &FlowKey) -> u32 {
    let FlowKey::V4(key) = key else { panic!("{key:?}") };
    let [_, _, high, low] = key.source().octets();
    u32::from(high) * 250 + u32::from(low) - 1
}
