//! The rules of the table in `docs/balancer/packets.md`, in all deployments: which packets leave
//! which port, and which are dropped for which reason. Each test's name states its rule.

mod anything_else;
mod backends;
mod cluster;
mod connections;
mod decapsulation;
mod echo;
mod encapsulation;
mod errors;
mod expected;
mod first_aid;
mod fragments;
mod full_tables;
mod hash_key;
mod loops;
mod martians;
mod ports;
mod probes;
mod readme;
mod return_path;
mod schedulers;
mod services;
mod too_big;
mod ttl;

use crate::deployed::{preamble, service};
use expected::Outer;
use hotloop::packet::build::{PacketBuilder, tcp};

/// A service with clients and backends of one of the four combinations of IP versions.
#[derive(Clone, Copy, Debug)]
struct Pair {
    client: &'static str,
    vip: &'static str,
    backend: &'static str,
    /// The balancer's end of the tunnel.
    source: &'static str,
}

const V4_IN_V4: Pair =
    Pair { client: "198.51.100.7", vip: "203.0.113.10", backend: "10.0.0.1", source: "192.0.2.1" };
const V4_IN_V6: Pair =
    Pair { vip: "203.0.113.11", backend: "2001:db8:b::1", source: "2001:db8::1", ..V4_IN_V4 };
const V6_IN_V6: Pair = Pair { client: "2001:db8:c::7", vip: "2001:db8:f::10", ..V4_IN_V6 };
const V6_IN_V4: Pair =
    Pair { vip: "2001:db8:f::11", backend: "10.0.0.1", source: "192.0.2.1", ..V6_IN_V6 };

/// All four combinations.
const PAIRS: [Pair; 4] = [V4_IN_V4, V4_IN_V6, V6_IN_V6, V6_IN_V4];

impl Pair {
    fn is_v4(self) -> bool {
        self.client.parse::<std::net::Ipv4Addr>().is_ok()
    }

    fn is_in_v4(self) -> bool {
        self.backend.parse::<std::net::Ipv4Addr>().is_ok()
    }

    /// The client with a port.
    fn client(self, port: u16) -> String {
        with_port(self.client, port)
    }

    /// The service's address with a port.
    fn vip(self, port: u16) -> String {
        with_port(self.vip, port)
    }

    /// Any packet, from the client's port 4000 to the service's port 80.
    fn request(self, packet: PacketBuilder) -> PacketBuilder {
        packet.from(self.client(4000)).to(self.vip(80))
    }

    /// Any packet the other way.
    fn reply(self, packet: PacketBuilder) -> PacketBuilder {
        packet.from(self.vip(80)).to(self.client(4000))
    }

    /// A SYN.
    fn syn(self) -> PacketBuilder {
        self.request(tcp())
    }

    /// The tunnel to the backend.
    fn outer(self) -> Outer {
        Outer::new(self.source, self.backend)
    }
}

fn with_port(address: &str, port: u16) -> String {
    std::net::SocketAddr::new(address.parse().unwrap(), port).to_string()
}

/// Services of all four combinations that accept every packet.
fn four(balancer: &str) -> String {
    let services = PAIRS.map(|pair| {
        let name = pair.vip.replace(['.', ':'], "-");
        service(&name, &format!("{} any any", pair.vip), "", &[pair.backend])
    });
    preamble(balancer) + &services.concat()
}

/// A TCP service, with further keys and these backends.
fn web(keys: &str, backends: &[&str]) -> String {
    service("web", "203.0.113.10 tcp 80", keys, backends)
}

const WEB: &str = "203.0.113.10:80";

/// A segment to the service of [`web`], from one of many clients.
fn segment(client: u16, flags: u8) -> Vec<u8> {
    tcp().from(client_of(client)).to(WEB).tcp_flags(flags).build()
}

/// SYNs of that many clients.
fn syns(clients: std::ops::Range<u16>) -> Vec<Vec<u8>> {
    clients.map(|client| segment(client, hotloop::packet::tcp::flags::SYN)).collect()
}

fn client_of(client: u16) -> String {
    let [high, low] = client.to_be_bytes();
    format!("100.64.{high}.{low}:4000")
}
