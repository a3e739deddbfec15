//! What connections are, where routers send them, and how long nodes have to know them. Nothing here goes by the code that
//! is tested.

use hotloop::packet::flow_key::FlowKey;
use std::net::{IpAddr, Ipv4Addr};

/// How long nodes remember connections without a packet, in milliseconds: by default, and here.
pub const OPENING_MS: u64 = 10_000;
pub const ESTABLISHED_MS: u64 = 900_000;
pub const CLOSING_MS: u64 = 20_000;

/// In how many milliseconds after a packet its node says so, where peers know of none in a third of the idle timeout: its
/// walk takes a twelfth of that, and what it says is under way for a moment.
pub const SAID_MS: u64 = ESTABLISHED_MS / 10;

/// A longer silence, in milliseconds, ends with a packet that peers have to hear of.
pub const SILENCE_MS: u64 = ESTABLISHED_MS / 3;

/// For how long after a packet that did not come after such a silence all nodes know a connection, whichever of them is
/// killed: the latest packet that peers know of came a third of the idle timeout before, or a twelfth more.
pub const fn known_ms(idle_ms: u64) -> u64 {
    idle_ms * 7 / 12 - 1_000
}

pub const BACKENDS: u8 = 5;

/// Where all connections go.
pub const VIP: &str = "203.0.113.10:80";

/// Which backends take new connections: never none.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Configuration {
    pub revision: u64,
    pub active: [bool; BACKENDS as usize],
}

/// What a packet says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Packet {
    Syn,
    Data,
    Fin,
    Rst,
}

/// How far a connection is, as its client has it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Phase {
    /// The client has sent its SYN, and nothing else.
    Opening,
    Open,
    /// It has ended; so many late packets are still to come.
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

/// By which node a client's packets come, of those that are `up`.
pub fn routed(client: u32, salt: u64, up: &[usize]) -> usize {
    *up.iter()
        .max_by_key(|&&node| mixed(salt ^ u64::from(client) << 8 ^ node as u64))
        .expect("one is up")
}

/// Its address and port.
pub fn address(client: u32) -> String {
    format!("198.51.{}.{}:4000", client / 250, client % 250 + 1)
}

pub fn key(client: u32) -> FlowKey {
    FlowKey::new(address(client).parse().unwrap(), VIP.parse().unwrap(), 6).unwrap()
}

pub fn client(key: &FlowKey) -> u32 {
    let FlowKey::V4(key) = key else { panic!("{key:?}") };
    let [_, _, high, low] = key.source().octets();
    u32::from(high) * 250 + u32::from(low) - 1
}
