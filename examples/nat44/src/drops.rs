//! The reasons of the NAT to drop packets.

use hotloop::prelude::*;

drop_reasons! {
    /// Why the NAT drops packets.
    pub enum NatDrop {
        /// The frame is for another station.
        OtherStation = "other_station",
        /// Neither IPv4, nor an ARP request for the address of the port.
        NotIpv4 = "not_ipv4",
        /// A header is cut, or is inconsistent in itself or with the headers around it; or the
        /// checksum of an ICMP error is wrong.
        Malformed = "malformed",
        /// The frame ends before its packet does.
        Truncated = "truncated",
        /// A fragment that comes before the first one of its datagram, which alone has ports; or one
        /// that no host should send.
        Fragment = "fragment",
        /// Neither TCP, UDP, an echo, nor an ICMP error; or a redirect or source quench.
        Unsupported = "unsupported",
        /// To or from an address that is not routed: the NAT's own, or not a single host's.
        NotRouted = "not_routed",
        /// Belongs to no connection, and cannot open one.
        NoConnection = "no_connection",
        /// All ports of the core are in use, or were until recently; or its table is full.
        NoPort = "no_port",
        /// The host has the maximum number of ports, or its port that of connections.
        HostLimit = "host_limit",
        /// The TTL has expired, and the packet may not be answered.
        TtlExpired = "ttl_expired",
    }
}
