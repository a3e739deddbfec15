//! Which backend a configuration chooses, and what connections are.

use hotloop::packet::flow_key::FlowKey;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// How long anything is remembered without a packet, in milliseconds.
pub const IDLE_MS: u64 = 60_000;

pub const BACKENDS: u8 = 5;

/// Which backends take new connections: never none.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Configuration {
    pub revision: u64,
    pub active: [bool; BACKENDS as usize],
}

fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

pub fn backend(number: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, number).into()
}

impl Configuration {
    /// The backend of a connection that nothing else is known of: by the highest hash, as consistently as Maglev.
    pub fn choice(&self, client: u32) -> IpAddr {
        let active = (0..BACKENDS).filter(|&number| self.active[usize::from(number)]);
        let weight = |number: &u8| mixed(u64::from(client) << 8 | u64::from(*number));
        backend(active.max_by_key(weight).expect("one is active"))
    }
}

/// By which node a client's packets come, of those that are `up`.
pub fn routed(client: u32, salt: u64, up: &[usize]) -> usize {
    *up.iter()
        .max_by_key(|&&node| mixed(salt ^ u64::from(client) << 8 ^ node as u64))
        .expect("one is up")
}

pub fn key(client: u32) -> FlowKey {
    let from = SocketAddr::new(Ipv4Addr::from_bits(0x0A00_0000 + client).into(), 4000);
    FlowKey::new(from, "203.0.113.10:80".parse().unwrap(), 6).unwrap()
}

pub fn client(key: &FlowKey) -> u32 {
    let FlowKey::V4(key) = key else { panic!("{key:?}") };
    key.source().to_bits() - 0x0A00_0000
}
