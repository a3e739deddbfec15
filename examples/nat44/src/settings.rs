//! The operator's settings.

use crate::fragments::Side;
use hotloop::packet::{arp::Neighbour, ethernet::MacAddress, ip::is_host, ipv4::Ipv4Header};
use hotloop::prelude::*;
use std::net::{IpAddr, Ipv4Addr};

/// The addresses on both sides, the packets from the WAN that are let in, and numbers that hosts
/// cannot exceed.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The port towards the LAN.
    pub lan_port: PortId,
    /// The NAT's addresses in the LAN.
    pub lan: Neighbour,
    /// The NAT's addresses in the WAN. All connections share the IP address.
    pub wan: Neighbour,
    /// The station that packets to the WAN are sent to.
    pub gateway: MacAddress,
    /// Whether packets from the WAN must come from an address and port that the host has sent to:
    /// address- and port-dependent filtering, or else endpoint-independent (RFC 4787, section 5).
    pub filters: bool,
    /// Maximum number of connections of one core.
    pub connections: usize,
    /// Maximum number of ports of a host, for all protocols: rounded up to a multiple of 64.
    pub ports_per_host: u16,
}

impl Settings {
    /// Whether an address is one of the NAT's own.
    pub fn owns(&self, address: IpAddr) -> bool {
        address == self.lan.address || address == self.wan.address
    }

    /// Whether a packet may pass: from the LAN, between two hosts, or to the WAN address, which is
    /// another host's; from the WAN, to the NAT.
    pub fn is_routed(&self, side: Side, ip: &Ipv4Header) -> bool {
        let is_host = |address: Ipv4Addr| is_host(address.into()) && !self.owns(address.into());
        let is_own = ip.destination() == self.wan.address;
        let is_outward = || is_host(ip.source()) && (is_own || is_host(ip.destination()));
        if side == Side::Lan { is_outward() } else { is_own }
    }
}
