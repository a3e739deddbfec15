//! Tells kinds of punted packets apart, and sets their limits.

use hotloop_packet::arp::ArpMessage;
use hotloop_packet::ethernet::{self, ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use hotloop_packet::icmpv6::is_neighbour_discovery;
use hotloop_packet::prefix::Prefix;
use hotloop_packet::tcp::flags::SYN;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A kind of packets for the kernel, with a limit of its own: no kind uses up what another needs.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum PuntReason {
    /// ARP, and IPv6's neighbour discovery and router advertisements with a hop limit of 255, which
    /// no router forwards (RFC 4861).
    Neighbour,
    /// Routing daemons' packets outside connections: BFD, OSPF, VRRP.
    Routing,
    /// BGP segments without SYN, of existing sessions (RFC 4271).
    Bgp,
    /// BGP segments with SYN, which begin a session.
    BgpSyn,
    /// Other ICMP and ICMPv6: pings, errors.
    Icmp,
    /// Other unicast packets, such as ssh.
    Host,
    /// Other TCP segments with SYN.
    HostSyn,
    /// Other multicast and broadcast packets.
    Group,
}

/// TCP's port of BGP.
const BGP: [u16; 1] = [179];

/// UDP's ports of BFD: one hop, echo (RFC 5881), several hops (RFC 5883).
const BFD: [u16; 3] = [3_784, 3_785, 4_784];

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const OSPF: u8 = 89;
const VRRP: u8 = 112;

/// The TTL, or hop limit, of a packet that no router has forwarded.
pub(super) const HOP_LIMIT_MAX: u8 = 255;

impl PuntReason {
    /// Every kind, in the order of the enum.
    pub const ALL: [Self; 8] = [
        Self::Neighbour,
        Self::Routing,
        Self::Bgp,
        Self::BgpSyn,
        Self::Icmp,
        Self::Host,
        Self::HostSyn,
        Self::Group,
    ];

    /// The kind of a frame, by its headers. Headers after IPv6 extension headers are ignored, and
    /// so is the payload of fragments after the first.
    #[must_use]
    pub fn of(frame: &[u8]) -> Self {
        Headers::of(frame).reason
    }

    /// The kind of an IP packet with this payload, or `other`.
    fn of_payload(protocol: u8, payload: &[u8], hop_limit: u8, other: Self) -> Self {
        let port = |at: usize| {
            let bytes = payload.get(at..)?.first_chunk::<2>()?;
            Some(u16::from_be_bytes(*bytes))
        };
        let has_port =
            |of: &[u16]| [port(0), port(2)].iter().flatten().any(|port| of.contains(port));
        let is_syn = payload.get(13).is_some_and(|flags| flags & SYN != 0);
        match protocol {
            // Forwarded ones are not valid (RFC 4861, section 6.1).
            ICMPV6
                if hop_limit == HOP_LIMIT_MAX
                    && payload.first().is_some_and(|kind| is_neighbour_discovery(*kind)) =>
            {
                Self::Neighbour
            }
            ICMP | ICMPV6 => Self::Icmp,
            OSPF | VRRP => Self::Routing,
            UDP if has_port(&BFD) => Self::Routing,
            TCP if has_port(&BGP) => {
                if is_syn {
                    Self::BgpSyn
                } else {
                    Self::Bgp
                }
            }
            TCP if is_syn => Self::HostSyn,
            _ => other,
        }
    }

    /// Its name, as in counters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Neighbour => "neighbour",
            Self::Routing => "routing",
            Self::Bgp => "bgp",
            Self::BgpSyn => "bgp_syn",
            Self::Icmp => "icmp",
            Self::Host => "host",
            Self::HostSyn => "host_syn",
            Self::Group => "group",
        }
    }
}

/// The header fields that decide whether a frame goes to the kernel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Headers {
    pub(super) reason: PuntReason,
    /// The Ethernet source address.
    station: [u8; 6],
    /// The IP source address, or ARP's sender.
    pub(super) sender: Option<IpAddr>,
    /// The TTL or hop limit. `None` for a frame without one, which no router has forwarded.
    pub(super) hop_limit: Option<u8>,
}

/// The senders that share a part of a budget.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Source {
    /// One station on the link.
    Station([u8; 6]),
    /// A /24 of IPv4.
    V4(u32),
    /// A /48 of IPv6, or a link-local address.
    V6(u128),
}

impl Headers {
    pub(super) fn of(frame: &[u8]) -> Self {
        let is_group = frame.first().is_some_and(|byte| byte & 1 == 1);
        let other = if is_group { PuntReason::Group } else { PuntReason::Host };
        let station =
            frame.get(6..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default();
        let unknown = Self { reason: other, station, sender: None, hop_limit: None };
        let Some((ethertype, offset)) = ethernet::network_layer(frame) else { return unknown };
        let packet = frame.get(offset..).unwrap_or(&[]);
        let (protocol, sender, hop_limit, payload_at) = match (ethertype, packet) {
            (ETHERTYPE_ARP, _) => {
                let sender =
                    ArpMessage::parse(packet).ok().map(|message| message.sender().address.into());
                return Self { reason: PuntReason::Neighbour, sender, ..unknown };
            }
            // Identification and fragment offset, TTL, protocol, source.
            (
                ETHERTYPE_IPV4,
                [first, _, _, _, _, _, high, low, ttl, protocol, _, _, a, b, c, d, ..],
            ) if packet.len() >= 20 => {
                let sender = Ipv4Addr::new(*a, *b, *c, *d).into();
                let is_first = high & 0x1f == 0 && *low == 0;
                let payload = if is_first { usize::from(first & 0xf) * 4 } else { packet.len() };
                (*protocol, sender, *ttl, payload)
            }
            (ETHERTYPE_IPV6, _) if packet.len() >= 40 => {
                let sender = packet[8..].first_chunk::<16>().copied().unwrap_or_default();
                (packet[6], Ipv6Addr::from(sender).into(), packet[7], 40)
            }
            _ => return unknown,
        };
        let payload = packet.get(payload_at..).unwrap_or(&[]);
        let reason = PuntReason::of_payload(protocol, payload, hop_limit, other);
        Self { reason, sender: Some(sender), hop_limit: Some(hop_limit), ..unknown }
    }

    /// The senders that share the frame's part of its kind's budget.
    pub(super) fn source(&self) -> Source {
        match self.sender.filter(|_| self.reason != PuntReason::Neighbour) {
            None => Source::Station(self.station),
            Some(IpAddr::V4(sender)) => Source::V4(sender.to_bits() >> 8),
            Some(IpAddr::V6(sender)) if sender.is_unicast_link_local() => {
                Source::V6(sender.to_bits())
            }
            Some(IpAddr::V6(sender)) => Source::V6(sender.to_bits() >> 80),
        }
    }
}

/// A limit on the packets of a kind that a core punts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PuntLimit {
    /// Packets per second, on average. 0 blocks all.
    pub per_second: u32,
    /// Packets at once, after a pause. A single source has half of them.
    pub burst: u32,
}

/// Senders with limits of their own that other packets can't use up, such as BGP neighbours.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PuntPeer {
    /// The peers' addresses. Together they have the limit of each kind once.
    pub prefix: Prefix,
    /// Whether only packets with a TTL (hop limit) of 255 count as theirs, which no router can have
    /// forwarded: the generalized TTL security mechanism (RFC 5082). BGP from these addresses with
    /// another TTL is dropped, as section 3 requires. Other packets from there are treated like
    /// those of any sender.
    pub gtsm: bool,
}

impl PuntPeer {
    /// Whether `sender` is one of the peers' addresses.
    pub(super) fn has(&self, sender: IpAddr) -> bool {
        self.prefix.contains(sender)
    }
}

/// The limit of each kind, per core.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PuntLimits {
    each: [PuntLimit; PuntReason::ALL.len()],
    peers: Vec<PuntPeer>,
}

impl PuntLimits {
    /// The same limit for every kind.
    #[must_use]
    pub const fn all(limit: PuntLimit) -> Self {
        Self { each: [limit; PuntReason::ALL.len()], peers: Vec::new() }
    }

    /// Sets the limit of one kind.
    #[must_use]
    pub const fn with(mut self, reason: PuntReason, limit: PuntLimit) -> Self {
        self.each[reason as usize] = limit;
        self
    }

    /// Sets the peers. If an address belongs to several, the first counts.
    #[must_use]
    pub fn with_peers(mut self, peers: Vec<PuntPeer>) -> Self {
        self.peers = peers;
        self
    }

    /// The limit of a kind.
    #[must_use]
    pub const fn of(&self, reason: PuntReason) -> PuntLimit {
        self.each[reason as usize]
    }

    /// Senders with limits of their own.
    #[must_use]
    pub fn peers(&self) -> &[PuntPeer] {
        &self.peers
    }
}

impl Default for PuntLimits {
    /// 10,000 packets per second of BGP sessions, of other packets of routing daemons, and of SYNs
    /// for the host; 100,000 of other packets for the host; 1,000 of each other kind. After a
    /// pause, a second's worth may come at once.
    fn default() -> Self {
        let limit = |per_second| PuntLimit { per_second, burst: per_second };
        Self::all(limit(1_000))
            .with(PuntReason::Routing, limit(10_000))
            .with(PuntReason::Bgp, limit(10_000))
            .with(PuntReason::HostSyn, limit(10_000))
            .with(PuntReason::Host, limit(100_000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotloop_packet::build::{echo_request, protocol, tcp, udp};
    use hotloop_packet::ethernet::MacAddress;
    use hotloop_packet::memory::MemPacket;
    use hotloop_packet::tcp::flags::ACK;
    use hotloop_packet::{PacketBuf, arp, nd};

    #[test]
    fn kinds_are_known_by_headers() {
        let made = |write: &dyn Fn(&mut MemPacket)| {
            let mut packet = MemPacket::with_room(&[], 0, 200);
            write(&mut packet);
            packet.data().to_vec()
        };
        let mac = MacAddress::new([2, 0, 0, 0, 0, 1]);
        let own = arp::Neighbour { mac, address: [192, 0, 2, 1].into() };
        let asked = made(&|packet| arp::request(packet, own, [192, 0, 2, 2].into()).unwrap());
        let (one, other) = ("fe80::1".parse().unwrap(), "fe80::2".parse().unwrap());
        let solicited = made(&|packet| nd::solicit(packet, (one, mac), other).unwrap());
        let mut forwarded = solicited.clone();
        forwarded[14 + 7] = 254;
        let mut to_all = udp().build();
        to_all[..6].copy_from_slice(&MacAddress::BROADCAST.bytes());
        // A later fragment of a packet has no ports, whatever its payload looks like.
        let mut fragment = tcp().to("192.0.2.1:179").build();
        fragment[14 + 7] = 1;
        let v6 =
            |port: u16| tcp().from("[2001:db8::1]:9").to(format!("[2001:db8::2]:{port}")).build();
        let ack = |to: &str| tcp().to(to).tcp_flags(ACK).build();
        for (frame, expected) in [
            (asked, PuntReason::Neighbour),
            (solicited, PuntReason::Neighbour),
            (forwarded, PuntReason::Icmp),
            (tcp().to("192.0.2.1:179").build(), PuntReason::BgpSyn),
            (tcp().from("192.0.2.1:179").tcp_flags(SYN | ACK).build(), PuntReason::BgpSyn),
            (ack("192.0.2.1:179"), PuntReason::Bgp),
            (tcp().from("192.0.2.1:179").tcp_flags(ACK).build(), PuntReason::Bgp),
            (fragment, PuntReason::Host),
            (udp().to("192.0.2.1:179").build(), PuntReason::Host),
            (udp().to("192.0.2.1:3784").build(), PuntReason::Routing),
            (v6(179), PuntReason::BgpSyn),
            (protocol(89).build(), PuntReason::Routing),
            (protocol(112).build(), PuntReason::Routing),
            (echo_request(1, 1).build(), PuntReason::Icmp),
            (v6(22), PuntReason::HostSyn),
            (ack("192.0.2.1:22"), PuntReason::Host),
            (to_all, PuntReason::Group),
            (vec![1], PuntReason::Group),
            (vec![], PuntReason::Host),
        ] {
            assert_eq!(PuntReason::of(&frame), expected, "{frame:02x?}");
            // Cut off anywhere, the frame is still of some kind.
            assert!((0..frame.len()).all(|len| !PuntReason::of(&frame[..len]).name().is_empty()));
        }
    }

    #[test]
    fn senders_share_by_prefix_and_those_on_the_link_are_stations() {
        let source = |from: &str, to: &str| Headers::of(&udp().from(from).to(to).build()).source();
        let v4 = |from: &str| source(from, "192.0.2.1:9");
        let v6 = |from: &str| source(from, "[2001:db8::1]:9");
        assert_eq!(v4("198.51.100.1:9"), v4("198.51.100.255:9"));
        assert_ne!(v4("198.51.100.1:9"), v4("198.51.101.1:9"));
        assert_eq!(v6("[2001:db8:7:1::1]:9"), v6("[2001:db8:7:2::2]:9"));
        assert_ne!(v6("[2001:db8:7::1]:9"), v6("[2001:db8:8::1]:9"));
        assert_ne!(v6("[fe80::1]:9"), v6("[fe80::2]:9"));
        let arp = |mac: u8, sender: u8| {
            let own = arp::Neighbour {
                mac: MacAddress::new([2, 0, 0, 0, 0, mac]),
                address: [192, 0, 2, sender].into(),
            };
            let mut packet = MemPacket::with_room(&[], 0, 200);
            arp::request(&mut packet, own, [192, 0, 2, 200].into()).unwrap();
            Headers::of(packet.data())
        };
        assert_eq!(arp(1, 1).source(), arp(1, 2).source());
        assert_ne!(arp(1, 1).source(), arp(2, 1).source());
        assert_eq!(arp(1, 7).sender, Some([192, 0, 2, 7].into()));
    }

    #[test]
    fn peers_are_known_by_prefix() {
        let has = |prefix: &str, len: u8, sender: &str| {
            let prefix = Prefix::of(prefix.parse().unwrap(), len);
            PuntPeer { prefix, gtsm: false }.has(sender.parse().unwrap())
        };
        assert!(has("192.0.2.1", 32, "192.0.2.1") && !has("192.0.2.1", 32, "192.0.2.2"));
        assert!(has("192.0.2.0", 24, "192.0.2.255") && !has("192.0.2.0", 24, "192.0.3.0"));
        assert!(has("0.0.0.0", 0, "255.0.0.1") && !has("0.0.0.0", 0, "::1"));
        assert!(has("2001:db8::", 32, "2001:db8:1::") && !has("2001:db8::", 32, "2001:db9::"));
        assert!(has("::", 0, "ffff::") && has("fe80::1", 128, "fe80::1"));
    }

    #[test]
    fn a_kind_may_have_another_limit() {
        let limits =
            PuntLimits::default().with(PuntReason::Icmp, PuntLimit { per_second: 7, burst: 1 });
        assert_eq!(limits.of(PuntReason::Icmp).per_second, 7);
        assert_eq!(limits.of(PuntReason::Group).per_second, 1_000);
    }
}
