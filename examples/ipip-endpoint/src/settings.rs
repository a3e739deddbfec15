//! The endpoint's settings for the network around it.

use hotloop::packet::ethernet::MacAddress;
use hotloop::packet::prefix::Prefix;
use std::net::IpAddr;

/// The endpoint's settings for the network around it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Own tunnel addresses, which balancers send to.
    pub addresses: Vec<IpAddr>,
    /// The balancers that tunnels are accepted from.
    pub balancers: Vec<Prefix>,
    /// The way of the kernel's answers.
    pub answers: Answers,
    /// The destination of frames sent out of the port; `None` for the station that tunnel packets
    /// come from.
    pub next_hop: Option<MacAddress>,
    /// Longest IP packet on the way to clients or to the balancer, outer header included, in bytes.
    pub mtu_bytes: u16,
}

/// The way of the kernel's answers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Answers {
    /// Unchanged, to the clients.
    Direct,
    /// In a tunnel, through the balancer.
    Tunnelled {
        /// Own address.
        source: IpAddr,
        /// The balancer's.
        destination: IpAddr,
    },
}

/// Link addresses of the endpoint's own two ports.
#[derive(Clone, Copy, Debug)]
pub struct Stations {
    /// The port towards the network.
    pub wire: MacAddress,
    /// The kernel's side of the TAP interface.
    pub kernel: MacAddress,
}
